//! The first start on a node where Go flannel ran: what it left is adopted or removed, and nothing else is touched.

use cluster_tests::{Cluster, PeerLease, Picture, VXLAN, metrics, vxlan_mac};
use flannel_lab::Node;
use serde_json::json;

const OWN_MAC: &str = "aa:00:00:00:00:04";
const PEER_MAC: &str = "ba:00:00:00:00:04";
const GONE_MAC: &str = "ca:00:00:00:00:04";

/// The device and a peer as Go makes them.
fn device_of_go(node: &Node) {
    let make = "type vxlan id 1 dev eth0 local 10.0.0.20 dstport 8472 nolearning";
    for words in [
        &*format!("link add flannel.1 address {OWN_MAC} mtu 1450 txqueuelen 0 {make}"),
        "address add 10.244.5.0/32 dev flannel.1",
        "link set flannel.1 up",
    ] {
        node.ip(words).unwrap();
    }
}

fn peer_of_go(node: &Node, n: u8, public: &str, mac: &str) {
    node.ip(&format!("neigh replace 10.244.{n}.0 lladdr {mac} dev flannel.1 nud permanent")).unwrap();
    node.bridge(&format!("fdb replace {mac} dev flannel.1 dst {public} self permanent")).unwrap();
    node.ip(&format!("route replace 10.244.{n}.0/24 via 10.244.{n}.0 dev flannel.1 onlink")).unwrap();
}

/// The lease of a node in Go's form: it has no name and no age.
fn lease_of_go(n: u8, public: &str, mac: &str) -> PeerLease {
    let key = format!("10.244.{n}.0-24");
    PeerLease::vxlan(&key, "", public, mac).without("Owner").without("Since")
}

/// Routes of protocol boot that do not look like Go's: another length, another router, no onlink, outside.
const NOT_OF_GO: [&str; 5] = [
    "route add 10.244.100.0/25 via 10.244.100.0 dev flannel.1 onlink",
    "route add 10.244.101.0/24 via 10.244.5.9 dev flannel.1 onlink",
    "route add 10.244.102.0/24 dev flannel.1",
    "route add 10.244.103.0/24 via 10.0.0.254",
    "route add 192.168.7.0/24 via 192.168.7.0 dev flannel.1 onlink",
];

#[test]
fn what_go_flannel_left_is_adopted_where_a_lease_proves_it_and_removed_where_none_does() {
    let cluster = Cluster::flat("leftovers", 1, VXLAN);
    let (node, leases) = (cluster.node("master1"), cluster.leases());
    device_of_go(node);
    peer_of_go(node, 7, "10.0.0.77", PEER_MAC);
    NOT_OF_GO.iter().for_each(|words| _ = node.ip(words).unwrap());
    node.bridge("fdb add 02:00:00:00:00:aa dev flannel.1 dst 10.0.0.99 self permanent").unwrap();
    let kept = Picture::of(node);
    peer_of_go(node, 8, "10.0.0.78", GONE_MAC);

    leases.write(&lease_of_go(5, "10.0.0.20", OWN_MAC));
    leases.write(&lease_of_go(7, "10.0.0.77", PEER_MAC));
    cluster.start(&["master1"]);
    let after = Picture::of(node);
    assert_eq!(kept.without_marks().changes_to(&after.without_marks()), [] as [&str; 0], "{}", node.log());
    assert!(after.has("route 10.244.7.0/24 via 10.244.7.0 dev flannel.1 proto 70 onlink"), "{after:#?}");
    assert_eq!(vxlan_mac(node, "flannel.1"), OWN_MAC);
    assert_eq!(metrics(node).get("flannel_changes_total{kind=\"link\",verb=\"create\"}"), 0.0);
    let (key, lease) = leases.owned_by("master1");
    assert_eq!((&*key, &lease["BackendData"]), ("10.244.5.0-24", &json!({ "VNI": 1, "VtepMAC": OWN_MAC })));
}

#[test]
fn a_node_of_go_flannel_that_was_rebooted_keeps_its_subnet_and_its_hardware_address() {
    let cluster = Cluster::flat("rebooted", 1, VXLAN);
    cluster.leases().write(&lease_of_go(5, "10.0.0.20", OWN_MAC));
    cluster.start(&["master1"]);
    let (key, lease) = cluster.leases().owned_by("master1");
    assert_eq!((&*key, &lease["BackendData"]), ("10.244.5.0-24", &json!({ "VNI": 1, "VtepMAC": OWN_MAC })));
    assert_eq!(vxlan_mac(cluster.node("master1"), "flannel.1"), OWN_MAC);
}

const HOST_GW: &str = r#"{"Network":"10.244.0.0/16","Backend":{"Type":"host-gw"}}"#;

#[test]
fn a_direct_route_of_go_flannel_is_adopted_where_a_lease_proves_it_and_stays_where_none_does() {
    let cluster = Cluster::flat("direct", 1, HOST_GW);
    let node = cluster.node("master1");
    node.ip("route add 10.244.7.0/24 via 10.0.0.77").unwrap();
    node.ip("route add 10.244.8.0/24 via 10.0.0.78").unwrap();
    let before = Picture::of(node);
    let lease = lease_of_go(7, "10.0.0.77", PEER_MAC).with("BackendType", json!("host-gw"));
    cluster.leases().write(&lease.without("BackendData"));
    cluster.start(&["master1"]);
    let expected = [
        "- route 10.244.7.0/24 via 10.0.0.77 dev eth0",
        "+ route 10.244.7.0/24 via 10.0.0.77 dev eth0 proto 70",
    ];
    assert_eq!(before.changes_to(&Picture::of(node)), expected, "{}", node.log());
}
