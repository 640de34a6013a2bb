//! Pods reach each other, for each backend and family, and the kernel shows what Go flannel would have made.
//!
//! The leases are Go's own, captured in a lab with the addresses of ours, so the nodes must become the same.

use std::fs;

use cluster_tests::{
    Cluster, PeerLease, Picture, apart, metrics, options, pair_up, ping_pairs, readyz, state, wait_until,
};
use flannel_lab::{LabOptions, Node, Topology};
use serde_json::json;

use crate::golden::{Families, Golden, OUTPUTS, lines_of};

/// The nodes of Go's lab.
const NODES: [&str; 3] = ["worker1", "worker2", "worker3"];

/// The captured nodes show what Go's showed.
fn check_objects(case: &str, families: Families) -> Cluster {
    let golden = Golden::new(case, families);
    let lab = LabOptions { flanneld_args: golden.arguments(), ..options(&golden.net_conf()) };
    let cluster = Cluster::up(case, lab);
    golden.leases().iter().for_each(|lease| cluster.leases().write(lease));
    cluster.start(&NODES);
    for (name, output) in NODES.iter().flat_map(|name| OUTPUTS.map(|output| (name, output))) {
        let expected = golden.lines(name, output);
        wait_until(&format!("{output} of {name} to be as Go's"), || {
            let found = lines_of(cluster.node(name), output);
            if found == expected { Ok(()) } else { Err(format!("{found:#?}\nis not\n{expected:#?}")) }
        });
    }
    cluster
}

/// The same; then a fourth node joins, and all pods that can reach each other do.
fn check(case: &str, families: Families, reachable: fn(&Node, &Node) -> bool) -> Cluster {
    let cluster = check_objects(case, families);
    cluster.start(&["master1"]);
    let nodes: Vec<_> = cluster.nodes().iter().collect();
    nodes.iter().for_each(|node| _ = node.add_pod("pod1").unwrap());
    let pairs = pair_up(&nodes).into_iter().filter(|(from, to)| reachable(from, to)).collect::<Vec<_>>();
    wait_until("every node to know the others", || knows_peers(&nodes, reachable));
    ping_pairs(&pairs);
    cluster
}

fn knows_peers(nodes: &[&Node], reachable: fn(&Node, &Node) -> bool) -> Result<(), String> {
    for node in nodes {
        let peers = nodes.iter().filter(|peer| peer.name() != node.name() && reachable(node, peer)).count();
        let picture = Picture::of(node);
        let routes = picture.lines("route ").into_iter().filter(|line| line.contains(" proto 70")).count();
        if routes != peers * families_of(node) {
            return Err(format!("{} has {routes} routes to {peers} peers", node.name()));
        }
    }
    Ok(())
}

fn families_of(node: &Node) -> usize {
    fs::read_to_string(node.path("/run/flannel/subnet.env")).unwrap().matches("_SUBNET=").count()
}

fn everybody(_: &Node, _: &Node) -> bool {
    true
}

fn neighbours(one: &Node, other: &Node) -> bool {
    !apart(one, other)
}

#[test]
fn pods_of_all_nodes_reach_each_other_by_vxlan_as_go_makes_it() {
    check("vxlan", Families::AsCaptured, everybody);
}

#[test]
fn pods_of_all_nodes_reach_each_other_by_vxlan_in_both_families_as_go_makes_it() {
    check("vxlan-dual", Families::AsCaptured, everybody);
}

#[test]
fn pods_of_all_nodes_reach_each_other_by_vxlan_on_ipv6_alone() {
    check("vxlan-dual", Families::Ipv6Alone, everybody);
}

#[test]
fn pods_of_all_nodes_reach_each_other_directly_in_a_rack_and_by_vxlan_across() {
    check("vxlan-directrouting", Families::AsCaptured, everybody);
}

#[test]
fn pods_of_all_nodes_reach_each_other_directly_and_by_vxlan_in_both_families() {
    check("vxlan-dual-nft", Families::AsCaptured, everybody);
}

#[test]
fn a_node_with_group_policy_and_a_small_mtu_is_what_go_makes_it() {
    check_objects("vxlan-mtu-gbp", Families::AsCaptured);
}

#[test]
fn pods_reach_each_other_with_short_subnets_as_go_makes_it() {
    check("subnetlen", Families::AsCaptured, everybody);
}

/// Nodes behind a router cannot be had by host-gw: each is named, with the reason, and the node is ready.
fn the_other_rack_is_named(cluster: &Cluster, families: usize) {
    let node = cluster.node("worker1");
    let (_, lease) = cluster.leases().owned_by("worker3");
    for public in ["PublicIP", "PublicIPv6"].iter().filter_map(|field| lease[*field].as_str()) {
        if public == "0.0.0.0" {
            continue;
        }
        let why = format!("is ignored: {public} is not on this segment, and host-gw reaches no further");
        let named = |line: &str| line.starts_with("lease of worker3 (") && line.ends_with(&why);
        let (code, lines) = readyz(node);
        assert!(code == 200 && lines.iter().any(|line| named(line)), "{code} {lines:#?}");
        wait_until("state.json to name the other rack", || {
            let notes = state(node)["notes"].to_string();
            let all: Vec<String> = serde_json::from_str(&notes).unwrap_or_default();
            if all.iter().any(|line| named(line)) { Ok(()) } else { Err(notes) }
        });
    }
    let ignored = metrics(node).get("flannel_peers_ignored{reason=\"not_on_link\"}");
    assert_eq!(ignored, if families == 2 { 2.0 } else { 1.0 });
}

#[test]
fn pods_of_one_rack_reach_each_other_by_host_gw_and_the_other_rack_is_named() {
    let cluster = check("host-gw", Families::AsCaptured, neighbours);
    the_other_rack_is_named(&cluster, 1);
}

#[test]
fn pods_of_one_rack_reach_each_other_by_host_gw_in_both_families_and_the_other_rack_is_named() {
    let cluster = check("host-gw-dual", Families::AsCaptured, neighbours);
    the_other_rack_is_named(&cluster, 2);
}

#[test]
fn pods_of_one_rack_reach_each_other_by_host_gw_on_ipv6_alone() {
    let cluster = check("host-gw-dual", Families::Ipv6Alone, neighbours);
    the_other_rack_is_named(&cluster, 1);
}

/// The commands of the worked example; MACs: aa for A, bb for B, the last digit is the family.
const WORKED_EXAMPLE: [&str; 11] = [
    "link add flannel.1 address aa:00:00:00:00:04 mtu 1450 txqueuelen 0 type vxlan id 1 dev eth0 local 10.0.0.1 dstport 8472 nolearning",
    "link add flannel-v6.1 address aa:00:00:00:00:06 mtu 1450 txqueuelen 0 type vxlan id 1 dev eth0 local fd00:1::1 dstport 8472 nolearning",
    "address add 10.244.1.0/32 dev flannel.1",
    "link set flannel.1 up",
    "-6 address add fd00:244:0:1::/128 dev flannel-v6.1",
    "link set flannel-v6.1 up",
    "neigh replace 10.244.2.0 lladdr ba:00:00:00:00:04 dev flannel.1 nud permanent",
    "route replace 10.244.2.0/24 via 10.244.2.0 dev flannel.1 onlink",
    "-6 neigh replace fd00:244:0:2:: lladdr ba:00:00:00:00:06 dev flannel-v6.1 nud permanent",
    "-6 route replace fd00:244:0:2::/64 via fd00:244:0:2:: dev flannel-v6.1 onlink",
    "route show",
];

fn example_topology() -> Topology {
    let mut topology = Topology::racks(1, 1).unwrap();
    let rack = &mut topology.racks[0];
    rack.gateways[1] = "fd00:1::fe/64".parse().unwrap();
    rack.nodes[0].name = "node-a".to_owned();
    rack.nodes[0].addresses =
        ["10.0.0.1/24", "fd00:1::1/64"].map(|address| address.parse().unwrap()).to_vec();
    topology
}

fn example_lease(node: &str, public: [&str; 2], mac: &str) -> PeerLease {
    let detail = |family: &str| json!({ "VNI": 1, "VtepMAC": format!("{mac}:00:00:00:00:{family}") });
    let value = json!({
        "PublicIP": public[0], "PublicIPv6": public[1], "BackendType": "vxlan",
        "BackendData": detail("04"), "BackendV6Data": detail("06"),
    });
    PeerLease { key: format!("10.244.{node}.0-24&fd00:244:0:{node}::-64"), value }
}

#[test]
fn the_worked_example_of_two_nodes_comes_out_as_its_commands_make_it() {
    let net_conf = r#"{"Network":"10.244.0.0/16","EnableIPv6":true,"IPv6Network":"fd00:244::/56","Backend":{"Type":"vxlan"}}"#;
    let cluster = Cluster::up("example", LabOptions { topology: example_topology(), ..options(net_conf) });
    let node = cluster.node("node-a");
    WORKED_EXAMPLE.iter().for_each(|words| _ = node.ip(words).unwrap());
    node.bridge("fdb replace ba:00:00:00:00:04 dev flannel.1 dst 10.0.0.2 self permanent").unwrap();
    node.bridge("fdb replace ba:00:00:00:00:06 dev flannel-v6.1 dst fd00:1::2 self permanent").unwrap();
    let by_hand = Picture::of(node);
    node.ip("link del flannel.1").unwrap();
    node.ip("link del flannel-v6.1").unwrap();

    let own = example_lease("1", ["10.0.0.1", "fd00:1::1"], "aa").with("Owner", json!("node-a"));
    cluster.leases().write(&own);
    cluster.leases().write(&example_lease("2", ["10.0.0.2", "fd00:1::2"], "ba"));
    cluster.start(&["node-a"]);
    assert_eq!(by_hand.without_marks().changes_to(&Picture::of(node).without_marks()), [] as [&str; 0]);
    let env = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_IPV6_NETWORK=fd00:244::/56\n\
               FLANNEL_IPV6_SUBNET=fd00:244:0:1::1/64\nFLANNEL_MTU=1430\nFLANNEL_IPMASQ=false\n";
    assert_eq!(fs::read_to_string(node.path("/run/flannel/subnet.env")).unwrap(), env);
}
