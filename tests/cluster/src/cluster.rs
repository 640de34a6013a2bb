//! A lab for one test, which waits for its turn and goes with the test.

use std::ops::Deref;
use std::process::Command;
use std::time::Duration;

use flannel_lab::{Flanneld, Lab, LabOptions, Machine, Node, Pod, Topology, unique_name, wait_for};

use crate::lease::Leases;
use crate::room::LabSlot;

/// How long a condition may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The lab of one test.
#[derive(Debug)]
pub struct Cluster {
    // Goes before the place does.
    lab: Lab,
    _place: LabSlot,
}

impl Deref for Cluster {
    type Target = Lab;

    fn deref(&self) -> &Lab {
        &self.lab
    }
}

/// What most tests want: the two racks, nothing started, no pods.
pub fn options(net_conf: &str) -> LabOptions {
    LabOptions {
        net_conf: net_conf.to_owned(),
        flanneld: Flanneld::NotStarted,
        pods_per_node: 0,
        ..LabOptions::default()
    }
}

impl Cluster {
    /// Brings a lab up beside at most one other.
    pub fn up(name: &str, options: LabOptions) -> Self {
        let place = LabSlot::shared();
        Self { lab: bring_up(name, options), _place: place }
    }

    /// Brings a lab up while no other is.
    pub fn alone(name: &str, options: LabOptions) -> Self {
        let place = LabSlot::whole();
        Self { lab: bring_up(name, options), _place: place }
    }

    /// The two racks with a ready flanneld and a pod on every node.
    pub fn running(name: &str, net_conf: &str) -> Self {
        Self::up(name, LabOptions { flanneld: Flanneld::Started, pods_per_node: 1, ..options(net_conf) })
    }

    /// Nodes of one segment without flanneld.
    pub fn flat(name: &str, nodes: usize, net_conf: &str) -> Self {
        Self::up(name, LabOptions { topology: Topology::flat(nodes).unwrap(), ..options(net_conf) })
    }

    /// A node by its name.
    pub fn node(&self, name: &str) -> &Node {
        self.lab.node(name).unwrap()
    }

    /// The first pod of a node.
    pub fn pod(&self, node: &str) -> Pod<'_> {
        self.node(node).pods().unwrap().remove(0)
    }

    /// The leases in the lab's store.
    pub fn leases(&self) -> Leases {
        Leases::of(&self.lab.store())
    }

    /// Starts flanneld on some nodes and waits until they are ready.
    pub fn start(&self, nodes: &[&str]) {
        nodes.iter().for_each(|name| self.node(name).start_flanneld([] as [&str; 0]).unwrap());
        nodes.iter().for_each(|name| self.node(name).wait_ready(PATIENCE).unwrap());
    }
}

fn bring_up(name: &str, options: LabOptions) -> Lab {
    Lab::up(LabOptions { name: unique_name(name), ..options }).unwrap()
}

/// Waits until a look finds nothing to complain of.
pub fn wait_until(what: &str, observation: impl FnMut() -> Result<(), String>) {
    wait_for(what, PATIENCE, observation).unwrap();
}

/// Every ordered pair of different nodes.
pub fn pair_up<'a>(nodes: &[&'a Node]) -> Vec<(&'a Node, &'a Node)> {
    let pairs = nodes.iter().flat_map(|from| nodes.iter().map(move |to| (*from, *to)));
    pairs.filter(|(from, to)| from.name() != to.name()).collect()
}

/// Whether two nodes are in different racks.
pub fn apart(one: &Node, other: &Node) -> bool {
    one.rack() != other.rack()
}

/// Runs `ip` in the network of a switch or router; numbers of processes are those of the host.
pub fn ip_on(machine: &Machine, words: &str) {
    let run = || Command::new("ip").args(words.split_whitespace()).output();
    let output = machine.inside(run).unwrap().unwrap();
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}
