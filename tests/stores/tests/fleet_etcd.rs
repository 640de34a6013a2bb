//! Go's flanneld and ours in one cluster on etcd: all pods reach all pods, and each takes over from the other.

use cluster_tests::{PingFlood, Toll, is_ready, options};
use flannel_lab::{Backend, Families, LabOptions, Node, Signal, Store, Topology};
use store_tests::{Fleet, Need, Program, Watch, scenarios, start, tell, vtep};

scenarios! {
    &[] => ours_alone_reach_each_other_on_etcd;
    &[Need::GoFlanneld] => vxlan_mixes, vxlan_of_both_families_mixes, host_gw_mixes, host_gw_of_both_families_mixes;
}

/// The two racks, or for host-gw one.
fn fleet(name: &str, backend: Backend, families: Families) -> Fleet {
    let topology = match backend {
        Backend::HostGw => Topology::flat(4).unwrap(),
        _ => Topology::default(),
    };
    let net_conf = backend.net_conf(families);
    Fleet::up(name, LabOptions { topology, store: Store::etcd(1), ..options(&net_conf) })
}

fn ours_alone_reach_each_other_on_etcd() {
    for backend in [Backend::Vxlan, Backend::HostGw] {
        fleet("etcd-ours", backend, Families::Dual).running();
    }
}

fn vxlan_mixes() {
    mixes(Backend::Vxlan, Families::V4);
}

fn vxlan_of_both_families_mixes() {
    mixes(Backend::Vxlan, Families::Dual);
}

fn host_gw_mixes() {
    mixes(Backend::HostGw, Families::V4);
}

fn host_gw_of_both_families_mixes() {
    mixes(Backend::HostGw, Families::Dual);
}

fn mixes(backend: Backend, families: Families) {
    let fleet = fleet("etcd-mixed", backend, families);
    let nodes: Vec<_> = fleet.nodes().iter().collect();
    let programs = [Program::Go, Program::Ours, Program::Go, Program::Ours];
    nodes.iter().zip(programs).for_each(|(node, program)| start(node, program));
    nodes.iter().for_each(|node| is_ready(node));
    fleet.add_pods(1).unwrap();
    fleet.wait_all_reach();
    replace(&fleet, nodes[2], Program::Ours);
    replace(&fleet, nodes[1], Program::Go);
    replace(&fleet, nodes[2], Program::Go);
    fleet.wait_all_reach();
}

/// Stops what runs on a node and starts the other program there: nobody else notices.
fn replace(fleet: &Fleet, node: &Node, program: Program) {
    let before = fleet.etcd_lease(node);
    let others: Vec<_> = fleet.nodes().iter().filter(|other| other.name() != node.name()).collect();
    let watches: Vec<_> = others.iter().map(|other| Watch::begin(other)).collect();
    let pod = |node: &Node| node.pods().unwrap().remove(0).address();
    let bystanders = PingFlood::begin(&others[0].pods().unwrap()[0], pod(others[2]));
    let through = PingFlood::begin(&others[0].pods().unwrap()[0], pod(node));
    node.stop_flanneld(Signal::TERM).unwrap();
    start(node, program);
    is_ready(node);
    fleet.wait_all_reach();
    let after = fleet.etcd_lease(node);
    assert_eq!((&after.key, vtep(&after)), (&before.key, vtep(&before)), "subnet and MAC stay");
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
