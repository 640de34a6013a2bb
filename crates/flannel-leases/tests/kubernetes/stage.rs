//! What every test needs: a cluster that all share, nodes of its own under a prefix of its own, and patience.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use flannel_leases::kubernetes::{Kubernetes, KubernetesOptions};
use flannel_leases::{LeaseStore, Snapshot, StoreError};
use flannel_plan::annotations::AnnotationPrefix;
use flannel_plan::family::ByFamily;
use flannel_plan::lease::{Announcement, BackendData};
use ipnet::IpNet;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cluster::{Cluster, FLANNEL};

pub const V4: &str = r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}"#;
pub const DUAL: &str = r#"{"Network":"10.244.0.0/16","EnableIPv6":true,"IPv6Network":"fd00:244::/48","Backend":{"Type":"vxlan"}}"#;
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The cluster of all tests that break nothing of it.
pub fn shared() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| {
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
        let cluster = Cluster::start();
        sweep_at_the_end(&cluster);
        cluster
    })
}

/// Removes the files of a cluster that nobody drops, when this program is over and its end of the pipe is closed.
fn sweep_at_the_end(cluster: &Cluster) {
    let mut sweeper = Command::new("sh");
    sweeper.args(["-c", r#"cat; until rm -rf "$1"; do :; done"#, "sweeper"]).arg(cluster.dir.path());
    std::mem::forget(
        sweeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap(),
    );
}

/// What one test has for itself in a cluster: nodes are told from those of other tests by their names, and leases
/// by the prefix of their annotations.
pub struct Stage<'a> {
    pub cluster: &'a Cluster,
    pub dir: TempDir,
    number: u32,
}

impl<'a> Stage<'a> {
    pub fn new(cluster: &'a Cluster, net_conf: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let stage = Self { cluster, dir: TempDir::new().unwrap(), number };
        stage.configure(net_conf);
        stage
    }

    /// The same stage in a cluster that was started again.
    pub fn again(cluster: &'a Cluster, net_conf: &str, prefix: &AnnotationPrefix) -> Self {
        let number = prefix.key("").trim_start_matches("test").split('.').next().unwrap().parse().unwrap();
        let stage = Self { cluster, dir: TempDir::new().unwrap(), number };
        stage.configure(net_conf);
        stage
    }

    pub fn net_conf(&self) -> PathBuf {
        self.dir.path().join("net-conf.json")
    }

    pub fn configure(&self, net_conf: &str) {
        let unfinished = self.dir.path().join(".unfinished");
        std::fs::write(&unfinished, net_conf).unwrap();
        std::fs::rename(unfinished, self.net_conf()).unwrap();
    }

    pub fn prefix(&self) -> AnnotationPrefix {
        format!("test{}.example.com", self.number).parse().unwrap()
    }

    pub fn key(&self, suffix: &str) -> String {
        self.prefix().key(suffix)
    }

    /// The whole name of a node of this test.
    pub fn name(&self, node: &str) -> String {
        format!("{node}.t{}", self.number)
    }

    /// Makes a node, as a kubelet and a controller-manager do together.
    pub fn add(&self, node: &str, pod_cidrs: &[&str]) {
        self.add_annotated(node, pod_cidrs, &json!({}));
    }

    pub fn add_annotated(&self, node: &str, pod_cidrs: &[&str], annotations: &Value) {
        let mut object = json!({ "metadata": { "name": self.name(node), "annotations": annotations } });
        if let Some(first) = pod_cidrs.first() {
            object["spec"] = json!({ "podCIDR": first, "podCIDRs": pod_cidrs });
        }
        self.cluster.api("POST", "/api/v1/nodes", Some(&object));
    }

    pub fn remove(&self, node: &str) {
        self.cluster.api("DELETE", &self.path(node), None);
    }

    pub fn path(&self, node: &str) -> String {
        format!("/api/v1/nodes/{}", self.name(node))
    }

    pub fn read(&self, node: &str) -> Value {
        self.cluster.api("GET", &self.path(node), None)
    }

    pub fn patch(&self, node: &str, patch: &Value) {
        self.cluster.api("PATCH", &self.path(node), Some(patch));
    }

    pub fn annotate(&self, node: &str, suffix: &str, value: impl Into<Value>) {
        let mut annotations = json!({});
        annotations[self.key(suffix)] = value.into();
        self.patch(node, &json!({ "metadata": { "annotations": annotations } }));
    }

    /// The annotations of a node under this test's prefix, with their short names.
    pub fn annotations(&self, node: &str) -> Vec<(String, String)> {
        let node = self.read(node);
        let all = node["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
        let prefix = self.key("");
        let ours = all.iter().filter_map(|(key, value)| {
            Some((key.strip_prefix(&prefix)?.to_owned(), value.as_str()?.to_owned()))
        });
        let mut ours: Vec<_> = ours.collect();
        ours.sort();
        ours
    }

    pub fn condition(&self, node: &str) -> Value {
        let node = self.read(node);
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|one| one["type"] == "NetworkUnavailable").unwrap_or_default()
    }

    /// The bodies of the patches that flannel has sent for a node.
    pub fn patches(&self, node: &str) -> Vec<Value> {
        let path = format!("{}/status", self.path(node));
        let asked = self.cluster.asked_by_flannel().into_iter();
        asked.filter(|(verb, uri, _)| verb == "patch" && *uri == path).map(|(_, _, body)| body).collect()
    }

    /// A kubeconfig of this test alone.
    pub fn kubeconfig(&self, credentials: &str) -> PathBuf {
        self.cluster.kubeconfig(&format!("flannel-{}.yaml", self.number), credentials)
    }

    pub fn options(&self, node: &str) -> KubernetesOptions {
        KubernetesOptions {
            api_url: None,
            kubeconfig: Some(self.kubeconfig(&format!("token: {FLANNEL}"))),
            node_name: Some(self.name(node)),
            pod: None,
            prefix: self.prefix(),
            net_conf: self.net_conf(),
            set_condition: true,
        }
    }

    /// The store as a daemon on that node opens it, with the rights that flannel's manifest gives.
    pub fn store(&self, node: &str) -> Kubernetes {
        Kubernetes::open(self.options(node)).unwrap()
    }
}

/// What node number `n` says of itself.
pub fn announcement(n: u8) -> Announcement {
    let data = BackendData::from_json(&format!(r#"{{"VNI":1,"VtepMAC":"02:00:00:00:04:{n:02x}"}}"#));
    Announcement {
        public: ByFamily { v4: Some(IpAddr::from([10, 0, 0, n])), v6: None },
        backend: "vxlan".to_owned(),
        detail: ByFamily { v4: data.unwrap(), v6: None },
    }
}

pub fn v4(subnet: &str) -> ByFamily<IpNet> {
    ByFamily { v4: Some(subnet.parse().unwrap()), v6: None }
}

/// Runs something that must not take long.
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it should not take so long")
}

pub async fn next(store: &mut Kubernetes) -> Result<Snapshot, StoreError> {
    soon(store.next()).await
}

/// The first snapshot from now on that is as it should be.
pub async fn until(store: &mut Kubernetes, is_right: impl Fn(&Snapshot) -> bool) -> Snapshot {
    let mut last = None;
    let found = tokio::time::timeout(PATIENCE, async {
        loop {
            if let Ok(snapshot) = store.next().await {
                if is_right(&snapshot) {
                    return snapshot;
                }
                last = Some(snapshot);
            }
        }
    });
    match found.await {
        Ok(snapshot) => snapshot,
        Err(_) => panic!("no snapshot was right; the last one: {last:#?}"),
    }
}

/// Waits for something that the store's own tasks do.
pub async fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let limit = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < limit, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// What node number `n` says of itself in both families.
pub fn dual_announcement(n: u8) -> Announcement {
    let v6 = BackendData::from_json(&format!(r#"{{"VNI":1,"VtepMAC":"02:00:00:00:06:{n:02x}"}}"#)).unwrap();
    let mut dual = announcement(n);
    dual.public.v6 = Some(format!("fd00:10::{n}").parse().unwrap());
    dual.detail.v6 = v6;
    dual
}

/// The owners of a snapshot's peers, by the names that the test gave them.
pub fn peers(snapshot: &Snapshot) -> Vec<String> {
    let short = |owner: &str| owner.split('.').next().unwrap_or_default().to_owned();
    snapshot.peers.iter().map(|lease| short(&lease.owner)).collect()
}
