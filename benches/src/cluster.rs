//! One real node with peers that exist only as leases, and the questions that a measurement asks it.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use flannel_kernel::watch::{Interest, Watch};
use flannel_kernel::{Kernel, Linux};
use flannel_lab::{Flanneld, Lab, LabOptions, Node, Topology, unique_name};
use flannel_plan::desired::{Plan, plan};
use flannel_plan::diff::{Change, diff};
use flannel_plan::observation::Scope;
use flannel_plan::ownership;
use flannel_plan::report::NodeReport;
use flannel_plan::state::State;

const NET_CONF: &str =
    r#"{"Network":"11.0.0.0/8","SubnetLen":24,"SubnetMin":"11.1.0.0","Backend":{"Type":"vxlan"}}"#;

/// How long anything may take before a measurement is given up.
pub const LIMIT: Duration = Duration::from_secs(30);

/// One real node in a lab of its own.
pub struct Cluster {
    lab: Lab,
}

impl Cluster {
    /// Brings the node up with so many peers in the store, and waits until it is ready.
    pub fn up(peers: u32) -> anyhow::Result<Self> {
        Self::with(peers, LabOptions { net_conf: NET_CONF.to_owned(), ..LabOptions::default() })
    }

    /// The same with a net-conf, arguments and an environment of the caller's.
    pub fn with(peers: u32, options: LabOptions) -> anyhow::Result<Self> {
        let options = LabOptions {
            name: unique_name("bench"),
            topology: Topology::flat(1)?,
            flanneld: Flanneld::NotStarted,
            pods_per_node: 0,
            ..options
        };
        let cluster = Self { lab: Lab::up(options)? };
        let leases = cluster.lab.store().join("leases");
        fs::create_dir_all(&leases)?;
        (0..peers).try_for_each(|number| write_lease(&leases, number))?;
        // Quiet: a log line for each object would be measured too.
        cluster.node()?.start_flanneld(["-v", "0"])?;
        cluster.node()?.wait_ready(LIMIT)?;
        Ok(cluster)
    }

    /// The node.
    pub fn node(&self) -> anyhow::Result<&Node> {
        self.lab.nodes().first().context("the lab has no node")
    }

    /// Adds one more peer to the store, as another node does: whole, under its final name.
    pub fn add_peer(&self, number: u32) -> anyhow::Result<()> {
        write_lease(&self.lab.store().join("leases"), number)
    }

    /// What the daemon reports of itself.
    fn report(&self) -> anyhow::Result<NodeReport<'static>> {
        let path = self.node()?.path("/run/flannel/state.json");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(serde_json::from_str(&text)?)
    }

    /// One of the daemon's figures.
    pub fn metric(&self, name: &str) -> anyhow::Result<f64> {
        let (_, text) = self.node()?.http_get(8081, "/metrics")?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(line.with_context(|| format!("no {name} in /metrics"))?.parse()?)
    }

    /// Runs a measurement inside the node's network.
    pub fn inside<T: Send>(
        &self,
        work: impl FnOnce(&mut Eye) -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<T> {
        let report = self.report()?;
        let scope = report.scope.context("the daemon has no scope yet")?.into_owned();
        let plan = plan(&*report.inputs.context("the daemon has no inputs yet")?)?;
        self.node()?.inside(move || work(&mut Eye::open(scope, plan)?))?
    }
}

fn write_lease(folder: &Path, number: u32) -> anyhow::Result<()> {
    let subnet = Ipv4Addr::from(0x0b01_0000 + (number << 8));
    let public = Ipv4Addr::from(0xac10_0000 + number + 1);
    let [_, a, b, c] = number.to_be_bytes();
    let lease = format!(
        r#"{{"Owner":"peer{number}","Since":{},"PublicIP":"{public}","PublicIPv6":null,"BackendType":"vxlan","BackendData":{{"VNI":1,"VtepMAC":"02:01:00:{a:02x}:{b:02x}:{c:02x}"}}}}"#,
        number + 1
    );
    let draft = folder.join(".bench");
    fs::write(&draft, lease)?;
    Ok(fs::rename(draft, folder.join(format!("{subnet}-24.json")))?)
}

/// Sees and changes the node's kernel state, as somebody else than flanneld.
pub struct Eye {
    /// A socket that is not the daemon's.
    pub kernel: Linux,
    /// What the daemon wants.
    pub desired: State,
    scope: Scope,
    /// The kernel's notices.
    pub watch: Watch,
}

impl Eye {
    fn open(scope: Scope, plan: Plan) -> anyhow::Result<Self> {
        let interest =
            Interest { links: scope.links.clone(), networks: scope.networks.clone(), ..Interest::default() };
        let watch = Watch::open(Arc::new(RwLock::new(interest)))?;
        let mut desired = plan.desired;
        // Seen from outside of the node's mounts, the files and settings are other ones.
        desired.retain(|item| !matches!(item.key().kind(), "file" | "sysctl"));
        Ok(Self {
            kernel: Linux::open()?,
            desired,
            scope: Scope { files: vec![], sysctls: vec![], ..scope },
            watch,
        })
    }

    /// What differs now.
    pub fn changes(&mut self) -> anyhow::Result<Vec<Change>> {
        let mut observed = ownership::observed(&self.scope, &self.kernel.observe(&self.scope)?);
        ownership::claim(&self.desired, &mut observed);
        Ok(diff(&self.desired, &observed.ours))
    }

    /// Changes the kernel behind the daemon's back.
    pub fn meddle(&mut self, changes: &[Change]) -> anyhow::Result<()> {
        let failures = self.kernel.apply(changes);
        ensure!(failures.is_empty(), "cannot break anything: {failures:?}");
        Ok(())
    }

    /// Waits until nothing differs any more, and tells how long after `since` that was.
    pub fn until_healed(&mut self, since: Instant) -> anyhow::Result<Duration> {
        loop {
            if self.changes()?.is_empty() {
                return Ok(since.elapsed());
            }
            ensure!(since.elapsed() < LIMIT, "not healed: {:?}", self.changes()?);
            self.watch.wait_at_most(Duration::from_millis(1))?;
        }
    }
}
