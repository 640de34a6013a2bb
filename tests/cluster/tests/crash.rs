//! Killed at any moment of its start and its work, flanneld leaves nothing that the next start cannot go on from.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use cluster_tests::{Chance, Cluster, Leases, VXLAN_DUAL, ping_all, readyz, vxlan_mac};
use flannel_lab::{Node, Signal};

const KILLS: u32 = 200;
/// So many kills between two starts that may come to their end.
const ROUND: u32 = 20;
/// A start takes about 20 ms; the rest is operation, which peers that come and go keep busy.
const LONGEST_LIFE: u64 = 60_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// Every file is a whole lease, each owner has one, and no subnet is given out twice.
fn owners(leases: &Leases) -> BTreeSet<(String, String)> {
    let all = leases.all();
    let owners: BTreeSet<_> = all
        .iter()
        .map(|(key, value)| (value["Owner"].as_str().expect(key).to_owned(), key.clone()))
        .collect();
    let parts: BTreeSet<&str> = all.iter().flat_map(|(key, _)| key.split('&')).collect();
    assert_eq!((owners.len(), parts.len()), (all.len(), 2 * all.len()), "{all:?}");
    owners
}

fn macs(node: &Node) -> [String; 2] {
    ["flannel.1", "flannel-v6.1"].map(|device| vxlan_mac(node, device))
}

#[test]
fn two_hundred_kills_at_any_moment_leave_one_subnet_a_node_and_the_same_hardware_addresses() {
    let cluster = Cluster::flat("crash", 2, VXLAN_DUAL);
    let nodes: Vec<_> = cluster.nodes().iter().collect();
    let mut chance = Chance::new();
    println!("repeat with CHANCE={chance}");
    let mut known = None;
    for round in 0..KILLS / ROUND {
        for kill in 0..ROUND {
            let node = nodes[usize::from(kill % 2 == 1)];
            node.start_flanneld([] as [&str; 0]).unwrap();
            // Not a wait for anything: the moment of death is what is tried.
            thread::sleep(Duration::from_micros(chance.below(LONGEST_LIFE)));
            node.flanneld().stop(Signal::KILL).unwrap();
            owners(&cluster.leases());
        }
        nodes.iter().for_each(|node| node.start_flanneld([] as [&str; 0]).unwrap());
        nodes.iter().for_each(|node| node.wait_ready(PATIENCE).unwrap());
        let now = (owners(&cluster.leases()), nodes.iter().map(|node| macs(node)).collect::<Vec<_>>());
        assert_eq!(*known.get_or_insert_with(|| now.clone()), now, "round {round}");
        nodes.iter().for_each(|node| assert_eq!(readyz(node).1, ["flanneld is ready"]));
        if round + 1 < KILLS / ROUND {
            nodes.iter().for_each(|node| node.flanneld().stop(Signal::KILL).unwrap());
        }
    }
    nodes.iter().for_each(|node| _ = node.add_pod("pod1").unwrap());
    ping_all(&nodes);
}
