//! A lab on a store whose nodes run ours, Go's, or a stand-in for Go's.

use std::ops::Deref;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cluster_tests::{Cluster, is_ready, options};
use flannel_lab::{Entry, LabOptions, Node, Relay, Store, Topology, wait_for};

use crate::kernel::last_words;
use crate::lease::{GoLease, is_at, subnet_of};
use crate::object::NodeObject;

/// What flannel's annotations begin with.
pub(crate) const PREFIX: &str = "flannel.alpha.coreos.com";
/// How long a condition may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A Go flanneld, if there is one.
pub fn go_flanneld() -> Option<PathBuf> {
    std::env::var_os("GO_FLANNELD").filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// What runs on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Our flanneld.
    Ours,
    /// Go's.
    Go,
}

/// A lab of one test, with its store.
#[derive(Debug)]
pub struct Fleet {
    cluster: Cluster,
}

impl Deref for Fleet {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl Fleet {
    /// So many nodes of one segment on an etcd of so many members; nothing is started.
    pub fn etcd(name: &str, nodes: usize, members: usize, net_conf: &str) -> Self {
        let topology = Topology::flat(nodes).unwrap();
        Self::up(name, LabOptions { topology, store: Store::etcd(members), ..options(net_conf) })
    }

    /// So many nodes of one segment on a Kubernetes; nothing is started.
    pub fn kubernetes(name: &str, nodes: usize, net_conf: &str) -> Self {
        let (topology, store) = (Topology::flat(nodes).unwrap(), Store::Kubernetes { programs: None });
        Self::up(name, LabOptions { topology, store, ..options(net_conf) })
    }

    /// The same behind a cable that can be cut.
    pub fn kubernetes_behind(name: &str, nodes: usize, net_conf: &str) -> (Self, Relay) {
        let (topology, store) = (Topology::flat(nodes).unwrap(), Store::Kubernetes { programs: None });
        let flanneld_args = ["--kube-api-url", "https://10.0.0.11:6444"].map(str::to_owned).to_vec();
        let fleet = Self::up(name, LabOptions { topology, store, flanneld_args, ..options(net_conf) });
        let proxy = Relay::start(&fleet.servers()[0], 6444, 6443).unwrap();
        (fleet, proxy)
    }

    /// Any lab. In etcd, nodes take subnets by chance: those from 240 on are left to peers that a test makes up.
    pub fn up(name: &str, options: LabOptions) -> Self {
        let network = r#""Network":"10.244.0.0/16","#;
        let net_conf = match &options.store {
            Store::Etcd { .. } => {
                options.net_conf.replacen(network, &format!(r#"{network}"SubnetMax":"10.244.239.0","#), 1)
            }
            _ => options.net_conf.clone(),
        };
        Self { cluster: Cluster::up(name, LabOptions { net_conf, ..options }) }
    }

    /// Any lab, while no other is up.
    pub fn alone(name: &str, options: LabOptions) -> Self {
        Self { cluster: Cluster::alone(name, options) }
    }

    /// All nodes with a ready flanneld of ours and a pod, that know each other.
    pub fn running(self) -> Self {
        self.start_all(Program::Ours);
        self
    }

    /// Starts the same program on all nodes, gives each a pod, and waits until they know each other.
    pub fn start_all(&self, program: Program) {
        self.nodes().iter().for_each(|node| start(node, program));
        self.settled();
    }

    /// Waits until all daemons are ready, gives each node a pod, and waits until all reach each other.
    pub fn settled(&self) {
        self.nodes().iter().for_each(is_ready);
        self.add_pods(1).unwrap();
        self.wait_all_reach();
    }

    /// Waits until every pod reaches every other one.
    pub fn wait_all_reach(&self) {
        for from in self.nodes() {
            let from = from.pods().unwrap().remove(0);
            for to in self.pods().unwrap().iter().filter(|to| to.node().name() != from.node().name()) {
                to.addresses().for_each(|address| _ = from.wait_ping(address, PATIENCE).unwrap());
            }
        }
    }

    /// The one lease in etcd that announces a node's address.
    pub fn etcd_lease(&self, node: &Node) -> Entry {
        let leases = self.cluster.etcd().unwrap().leases().unwrap();
        let mut own: Vec<_> = leases.into_iter().filter(|lease| is_at(lease, node.v4())).collect();
        assert_eq!(own.len(), 1, "{} holds one lease: {own:?}", node.name());
        own.remove(0)
    }

    /// What others know a node by, as its store has it: its subnets, and what its backend says.
    pub fn identity(&self, node: &Node) -> String {
        if let Ok(kubernetes) = self.cluster.kubernetes() {
            let object = kubernetes.node(node.name()).unwrap();
            let said = ["backend-type", "backend-data", "backend-v6-data", "public-ip", "public-ipv6"];
            let said =
                said.map(|name| object["metadata"]["annotations"][format!("{PREFIX}/{name}")].to_string());
            return format!("{} {}", object["spec"]["podCIDRs"], said.join(" "));
        }
        let lease = self.etcd_lease(node);
        format!("{} {}", lease.key, lease.value)
    }

    /// The IPv4 subnet of a node's lease in etcd.
    pub fn etcd_subnet(&self, node: &Node) -> String {
        subnet_of(&self.etcd_lease(node).key)
    }
}

impl Fleet {
    /// Writes the lease of a peer that is not there into etcd; gives the time until every node has a route to it.
    #[track_caller]
    pub fn time_to_follow(&self, lease: &GoLease) -> Duration {
        let start = Instant::now();
        self.cluster.etcd().unwrap().put(&lease.path(), &lease.value).unwrap();
        self.wait_route(&lease.subnet());
        start.elapsed()
    }

    /// Makes a node that is not there in Kubernetes; gives the time until every node has a route to it.
    #[track_caller]
    pub fn time_to_follow_node(&self, node: &NodeObject) -> Duration {
        let start = Instant::now();
        self.cluster.kubernetes().unwrap().create("/api/v1/nodes", &node.object()).unwrap();
        self.wait_route(&node.subnets[0]);
        start.elapsed()
    }

    /// Waits until every node has a route to a subnet; gives the time that took.
    #[track_caller]
    pub fn wait_route(&self, subnet: &str) -> Duration {
        self.wait_routes(subnet, |routes| !routes.is_empty())
    }

    /// Waits until no node has a route to a subnet; gives the time that took.
    #[track_caller]
    pub fn wait_no_route(&self, subnet: &str) -> Duration {
        self.wait_routes(subnet, str::is_empty)
    }

    #[track_caller]
    fn wait_routes(&self, subnet: &str, is_fine: impl Fn(&str) -> bool) -> Duration {
        let (start, family) = (Instant::now(), if subnet.contains(':') { "-6" } else { "-4" });
        for node in self.nodes() {
            wait_for(&format!("{} to see that {subnet} changed", node.name()), PATIENCE, || {
                match node.ip(&format!("{family} route show {subnet}")) {
                    Ok(routes) if is_fine(&routes) => Ok(()),
                    _ => Err(last_words(node)),
                }
            })
            .unwrap_or_else(|why| panic!("{why}"));
        }
        start.elapsed()
    }
}

/// Starts a program on a node, in place of the one that ran there.
pub fn start(node: &Node, program: Program) {
    let none = [""; 0];
    match program {
        Program::Ours => node.start_flanneld(none).unwrap(),
        Program::Go => node.start_as("flanneld", &go_flanneld().unwrap(), none).unwrap(),
    }
}

/// Waits for a condition, and gives the time that took.
#[track_caller]
pub fn time_to(what: &str, limit: Duration, mut observe: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    wait_for(what, limit, || if observe() { Ok(()) } else { Err("not yet".to_owned()) }).unwrap();
    start.elapsed()
}
