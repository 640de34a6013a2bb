//! A whole daemon on a kernel and a store in memory, with a clock that only a test sets forward.
//!
//! What an earlier run leaves on disk is in a folder of its own, so that a daemon can be started again.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fake_kernel::Fake;
use flannel_kernel::NetlinkError;
use flannel_leases::Server;
use flannel_plan::desired;
use flannel_plan::diff::Change;
use flannel_plan::family::ByFamily;
use flannel_plan::firewall_backend::{FirewallFacts, Untrack};
use flannel_plan::link_name::LinkName;
use flannel_plan::observation::{AddressFact, LinkFact, Observation, RouteFact};
use flannel_plan::rules::SourcePorts;
use flannel_plan::rules::tools::Tools;
use flannel_plan::state::{Link, LinkKind, PROTOCOL_KERNEL, Route, RouteKind};
use tokio::runtime::{Builder, Handle, Runtime};

use super::super::*;
use super::memory::*;
use crate::assemble::{Shared, assemble};
use crate::culprits::Culprits;
use crate::http::Health;
use crate::options::{self, Parsed, Source};
use crate::store_link;
use crate::wake::Bell;

pub const VXLAN: &str = r#"{"Network":"10.244.0.0/16","EnableNFTables":true,"Backend":{"Type":"vxlan"}}"#;
pub const READY: &str = "flanneld is ready";
const NOT_READY: &str = "flanneld is not ready yet";
/// What a kernel says that refuses.
pub const DENIED: &str = "Operation not permitted";
/// The most turns that the loop may take to come to rest.
const MOST_TURNS: usize = 20;

pub fn denied() -> NetlinkError {
    NetlinkError { errno: rustix::io::Errno::PERM, message: None }
}

pub fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

/// A device of the host with an address, and the route that comes with it.
pub fn plug_in(host: &mut Observation, name: &str, address: &str, kind: &str) {
    let (name, address): (LinkName, IpNet) = (name.parse().unwrap(), address.parse().unwrap());
    let index = 2 + u32::try_from(host.links.len()).unwrap();
    let (mac, kind) = ("02:00:00:00:00:e0".parse().ok(), LinkKind::Other(kind.into()));
    let link = Link { name, mac, mtu: 1500, up: true, alias: "".into(), kind };
    host.links.push(LinkFact { index, link, running: true, loopback: false });
    host.addresses.push(AddressFact {
        link: name,
        address,
        permanent: true,
        temporary: false,
        deprecated: false,
        unusable: false,
    });
    host.routes.push(route(&address.trunc().to_string(), None, name, PROTOCOL_KERNEL));
}

pub fn route(to: &str, via: Option<&str>, link: LinkName, protocol: u8) -> RouteFact {
    let (destination, via) = (to.parse().unwrap(), via.map(|via| via.parse().unwrap()));
    let kind = RouteKind::Unicast;
    let route = Route { destination, kind, via, link: Some(link), onlink: false, protocol };
    RouteFact { route, metric: 0, source: None }
}

/// A host with one interface, and nftables.
pub fn host() -> Fake {
    let mut now = Observation::default();
    plug_in(&mut now, "eth0", "10.0.0.21/24", "veth");
    now.routes.push(route("0.0.0.0/0", Some("10.0.0.1"), "eth0".parse().unwrap(), 3));
    let tools = Tools { nftables: Some(SourcePorts::Randomised), iptables: ByFamily::default() };
    let untrack = ByFamily { v4: Some(Untrack::Possible), v6: Some(Untrack::Possible) };
    now.firewall = FirewallFacts { tools: Some(tools), untrack, ..FirewallFacts::default() };
    Fake::new(now)
}

/// A daemon and all around it.
pub struct Stage {
    pub daemon: Daemon<Fake>,
    pub store: Memory,
    pub health: Arc<Health>,
    runtime: Runtime,
    pub bell: Bell,
    pub folder: PathBuf,
}

impl Stage {
    /// A daemon on a host without anything of ours, whose cluster has two other nodes, after its first turns.
    pub fn ready() -> Self {
        Self::start(host(), Memory::of(VXLAN, Some(own_lease()), &[peer(2), peer(3)]))
    }

    /// The first start of a daemon, until it comes to rest.
    pub fn start(kernel: Fake, store: Memory) -> Self {
        let mut stage = Self::new(kernel, store, new_folder(), &["--ip-masq"]);
        stage.wake(Wake::Observation);
        stage
    }

    /// The same with other flags.
    pub fn start_with(kernel: Fake, store: Memory, flags: &[&str]) -> Self {
        let mut stage = Self::new(kernel, store, new_folder(), flags);
        stage.wake(Wake::Observation);
        stage
    }

    /// Ends the daemon; the next one finds the kernel, the store and the folder as it left them.
    pub fn restart(mut self) -> Self {
        self.daemon.parts.reporter.stop();
        self.changes();
        let kernel = std::mem::take(self.kernel());
        let (folder, store) = (std::mem::take(&mut self.folder), self.store.clone());
        // The first thing that a store says is all that is there.
        store.begin_anew();
        drop(self);
        let mut stage = Self::new(kernel, store, folder, &["--ip-masq"]);
        stage.wake(Wake::Observation);
        stage
    }

    fn new(kernel: Fake, store: Memory, folder: PathBuf, flags: &[&str]) -> Self {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let within = runtime.enter();
        let (health, bell) = (Arc::new(Health::default()), Bell::default());
        let shared = Shared {
            health: Arc::clone(&health),
            interest: Arc::default(),
            culprits: Culprits::default(),
            bell: bell.clone(),
        };
        let memory = (Server::default(), &*folder.join("lasting"));
        let (parts, link) = assemble(options(&folder, flags), kernel, memory, shared);
        let daemon = Daemon::new(parts);
        runtime.spawn(store_link::run(store.clone(), link));
        drop(within);
        Self { daemon, store, health, runtime, bell, folder }
    }

    pub fn kernel(&mut self) -> &mut Fake {
        &mut self.daemon.parts.kernel
    }

    /// Wakes the loop, and lets store and loop go on until nobody has anything to say.
    pub fn wake(&mut self, wake: Wake) {
        let mut next = Some(wake);
        for _ in 0..MOST_TURNS {
            let Some(wake) = next else { return };
            let within = self.runtime.enter();
            let turn = self.daemon.turn(wake);
            if !self.daemon.fast_path.is_taken() {
                self.daemon.write_files();
            }
            drop(within);
            next = if turn.is_none() { Some(Wake::Store) } else { self.rung() };
        }
        panic!("the loop does not come to rest");
    }

    /// The clock of this stage, for what is called directly.
    pub fn handle(&self) -> Handle {
        self.runtime.handle().clone()
    }

    /// Lets the store speak, and the loop go on if it has anything to say.
    pub fn listen(&mut self) {
        if let Some(wake) = self.rung() {
            self.wake(wake);
        }
    }

    /// Lets time pass, and the loop go on as it does when nothing else wakes it.
    pub fn wait(&mut self, time: Duration) {
        self.sleep(time);
        let rung = self.rung();
        self.wake(rung.unwrap_or(Wake::Time));
    }

    /// When the loop looks again by itself.
    pub fn rests_for(&self) -> Duration {
        let _within = self.runtime.enter();
        self.daemon.next_pass() - clock::now()
    }

    /// Sets the clock forward, past all that the store's thread waits for meanwhile.
    fn sleep(&self, time: Duration) {
        self.runtime.block_on(async move { tokio::time::sleep(time).await });
    }

    /// Lets the store's thread run until it waits.
    fn rung(&self) -> Option<Wake> {
        self.sleep(Duration::from_millis(1));
        self.bell.take()
    }

    /// What /readyz says.
    pub fn readyz(&self) -> Vec<String> {
        self.health.readyz().lines().map(str::to_owned).collect()
    }

    /// What /readyz says of a node that is not ready: the reasons, and what else a person should know.
    pub fn reasons(&self) -> Vec<String> {
        let mut lines = self.readyz();
        assert_eq!(lines.remove(0), NOT_READY);
        lines
    }

    /// What /readyz says of a node that is ready: what a person should know.
    pub fn notes(&self) -> Vec<String> {
        let mut lines = self.readyz();
        assert_eq!(lines.remove(0), READY);
        lines
    }

    /// What /metrics says of findings: the codes of which there are any, and how many.
    pub fn findings(&self) -> Vec<(String, u64)> {
        let text = self.health.metrics.text().unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix("flannel_findings{code=\""));
        let figures = lines.map(|line| line.split_once("\"} ").unwrap());
        let counts = figures.map(|(code, count)| (code.to_owned(), count.parse().unwrap()));
        let mut counts: Vec<_> = counts.filter(|(_, count)| *count > 0).collect();
        counts.sort();
        counts
    }

    /// What was changed since this was asked for last.
    pub fn changes(&mut self) -> Vec<String> {
        let made = std::mem::take(&mut self.kernel().made);
        made.iter().map(|change: &Change| self.without_folder(change)).collect()
    }

    /// Everything of this node that is in the kernel.
    pub fn objects(&mut self) -> Vec<String> {
        let parts = &self.daemon.parts;
        let snapshot = self.store.snapshot();
        let own = snapshot.own.as_ref().map(|own| own.subnets).unwrap_or_default();
        let config = self.daemon.planned.as_ref().map(|planned| planned.inputs.config.clone());
        let config = config.or(snapshot.config.ok()).unwrap();
        let scope = desired::scope(&parts.node, &config, &own, &[]);
        let scope = Scope { system: Some(System::Nftables), ..scope };
        let found = self.kernel().observe(&scope).unwrap();
        let ours = ownership::observed(&scope, &found).ours;
        ours.iter().map(|item| self.without_folder(item)).collect()
    }

    /// What the CNI plugins are told.
    pub fn subnet_env(&mut self) -> Option<String> {
        self.kernel().now.files.first().map(|file| file.content.to_string())
    }

    /// The report on disk.
    pub fn report(&self) -> serde_json::Value {
        serde_json::from_slice(&fs::read(self.folder.join("state.json")).unwrap()).unwrap()
    }

    /// A line without what differs from run to run: the folder, and its numbers in the mark of a device.
    fn without_folder(&self, text: &impl ToString) -> String {
        let text = text.to_string().replace(&format!("{}/", self.folder.display()), "");
        let parts: Vec<&str> = text.split(" alias \"").collect();
        let rest = parts[1..].iter().map(|part| part.split_once('"').map_or("", |(_, rest)| rest));
        std::iter::once(parts[0]).chain(rest).collect()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if !self.folder.as_os_str().is_empty() {
            _ = fs::remove_dir_all(&self.folder);
        }
    }
}

fn new_folder() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("flanneld-stage-{}-{number}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn options(folder: &std::path::Path, flags: &[&str]) -> Options {
    let own = [format!("--subnet-file={}/subnet.env", folder.display()), "--lease-dir=/leases".to_owned()];
    let words = own.iter().map(String::as_str).chain(flags.iter().copied()).map(Into::into).collect();
    let source = Source { words, environment: Default::default(), host_name: "worker1".to_owned() };
    match options::parse(&source) {
        Ok(Parsed::Run(options)) => *options,
        other => panic!("{other:?}"),
    }
}
