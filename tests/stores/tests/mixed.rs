//! Go's flanneld and ours in one cluster: all pods reach all pods, and each takes over from the other.

use cluster_tests::{PingFlood, Toll, is_ready, options};
use flannel_lab::{Backend, Families, LabOptions, Node, Signal, Store, Topology};
use store_tests::{Fleet, Need, Program, Watch, scenarios, stand_in, start, tell};

scenarios! {
    &[] => ours_alone_reach_each_other_on_etcd, ours_mix_with_a_stand_in_for_gos_on_etcd;
    &[Need::Peers] => ours_alone_reach_each_other_on_kubernetes, ours_mix_with_a_stand_in_for_gos_on_kubernetes;
    &[Need::GoFlanneld] => vxlan_mixes_on_etcd, vxlan_of_both_families_mixes_on_etcd, host_gw_mixes_on_etcd,
        host_gw_of_both_families_mixes_on_etcd;
    &[Need::Peers, Need::GoFlanneld] => vxlan_mixes_on_kubernetes, vxlan_of_both_families_mixes_on_kubernetes,
        host_gw_mixes_on_kubernetes, host_gw_of_both_families_mixes_on_kubernetes;
}

const KUBERNETES: Store = Store::Kubernetes { programs: None };

fn ours_alone_reach_each_other_on_etcd() {
    fleet(Store::etcd(1), Backend::Vxlan, Families::Dual).running();
    fleet(Store::etcd(1), Backend::HostGw, Families::Dual).running();
}

fn ours_alone_reach_each_other_on_kubernetes() {
    fleet(KUBERNETES, Backend::Vxlan, Families::Dual).running();
    fleet(KUBERNETES, Backend::HostGw, Families::Dual).running();
}

fn ours_mix_with_a_stand_in_for_gos_on_etcd() {
    mixes_with_a_stand_in(Store::etcd(1));
}

fn ours_mix_with_a_stand_in_for_gos_on_kubernetes() {
    mixes_with_a_stand_in(KUBERNETES);
}

/// A node on which everything is as Go leaves it, and on which ours takes over.
fn mixes_with_a_stand_in(store: Store) {
    const MAC: &str = "ce:dc:bf:10:49:a9";
    let fleet = fleet(store, Backend::Vxlan, Families::V4);
    let (old, ours) = fleet.nodes().split_last().unwrap();
    ours.iter().for_each(|node| start(node, Program::Ours));
    ours.iter().for_each(is_ready);
    let taken: Vec<_> = ours.iter().map(|node| node.pod_subnet().unwrap().to_string()).collect();
    let free = (77..).map(|number| format!("10.244.{number}.0/24")).find(|subnet| !taken.contains(subnet));
    stand_in(&fleet, old, &free.unwrap(), MAC);
    fleet.add_pods(1).unwrap();
    fleet.wait_all_reach();
    let (before, subnet) = (fleet.identity(old), old.pod_subnet().unwrap());
    let watches: Vec<_> = ours.iter().map(Watch::begin).collect();
    start(old, Program::Ours);
    is_ready(old);
    fleet.wait_all_reach();
    assert_eq!((fleet.identity(old), old.pod_subnet().unwrap()), (before, subnet), "subnet and MAC stay");
    assert!(old.ip("-o link show flannel.1").unwrap().contains(MAC));
    watches.iter().for_each(Watch::assert_lost_nothing);
}

fn vxlan_mixes_on_etcd() {
    mixes(Store::etcd(1), Backend::Vxlan, Families::V4);
}

fn vxlan_of_both_families_mixes_on_etcd() {
    mixes(Store::etcd(1), Backend::Vxlan, Families::Dual);
}

fn host_gw_mixes_on_etcd() {
    mixes(Store::etcd(1), Backend::HostGw, Families::V4);
}

fn host_gw_of_both_families_mixes_on_etcd() {
    mixes(Store::etcd(1), Backend::HostGw, Families::Dual);
}

fn vxlan_mixes_on_kubernetes() {
    mixes(KUBERNETES, Backend::Vxlan, Families::V4);
}

fn vxlan_of_both_families_mixes_on_kubernetes() {
    mixes(KUBERNETES, Backend::Vxlan, Families::Dual);
}

fn host_gw_mixes_on_kubernetes() {
    mixes(KUBERNETES, Backend::HostGw, Families::V4);
}

fn host_gw_of_both_families_mixes_on_kubernetes() {
    mixes(KUBERNETES, Backend::HostGw, Families::Dual);
}

/// The two racks, or for host-gw one.
fn fleet(store: Store, backend: Backend, families: Families) -> Fleet {
    let topology = match backend {
        Backend::HostGw => Topology::flat(4).unwrap(),
        _ => Topology::default(),
    };
    Fleet::up("mixed", LabOptions { topology, store, ..options(&backend.net_conf(families)) })
}

fn mixes(store: Store, backend: Backend, families: Families) {
    let fleet = fleet(store, backend, families);
    let nodes: Vec<_> = fleet.nodes().iter().collect();
    let programs = [Program::Go, Program::Ours, Program::Go, Program::Ours];
    nodes.iter().zip(programs).for_each(|(node, program)| start(node, program));
    fleet.settled();
    replace(&fleet, nodes[2], Program::Ours);
    replace(&fleet, nodes[1], Program::Go);
    replace(&fleet, nodes[2], Program::Go);
    fleet.wait_all_reach();
}

/// Stops what runs on a node and starts the other program there: nobody else notices.
fn replace(fleet: &Fleet, node: &Node, program: Program) {
    let before = fleet.identity(node);
    let others: Vec<_> = fleet.nodes().iter().filter(|other| other.name() != node.name()).collect();
    let watches: Vec<_> = others.iter().map(|other| Watch::begin(other)).collect();
    let pod = |node: &Node| node.pods().unwrap().remove(0).address();
    let bystanders = PingFlood::begin(&others[0].pods().unwrap()[0], pod(others[2]));
    let through = PingFlood::begin(&others[0].pods().unwrap()[0], pod(node));
    node.flanneld().stop(Signal::TERM).unwrap();
    start(node, program);
    is_ready(node);
    fleet.wait_all_reach();
    assert_eq!(fleet.identity(node), before, "subnet and MAC stay");
    watches.iter().for_each(Watch::assert_lost_nothing);
    let Toll { sent, came } = bystanders.end();
    assert_eq!(came, sent, "packets between other nodes");
    let Toll { sent, came } = through.end();
    tell(format!(
        "{} now runs {program:?}: {} of {sent} packets to its pod were lost",
        node.name(),
        sent - came
    ));
}
