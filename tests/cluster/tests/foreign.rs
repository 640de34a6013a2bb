//! Nothing that is not ours is ever changed or removed, and what stands beside ours is named.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster_tests::{Cluster, Picture, VXLAN_DUAL, metrics, state, wait_until};
use flannel_lab::Node;

use crate::drift::{Target, act, check, small_breaks};

/// What others put beside ours on the tunnels and in the pod network: the command, and how state.json names it.
const FOREIGN: [(&str, &str); 10] = [
    ("ip route add 192.168.77.0/24 dev flannel.1", "route 192.168.77.0/24 dev flannel.1 protocol boot"),
    (
        "ip route add 10.244.200.0/24 via 10.0.0.254",
        "route 10.244.200.0/24 via 10.0.0.254 dev eth0 protocol boot",
    ),
    (
        "bridge fdb add 02:00:00:00:00:aa dev flannel.1 dst 10.0.0.77 self permanent",
        "fdb 02:00:00:00:00:aa dev flannel.1 to 10.0.0.77 (not marked as ours)",
    ),
    ("ip address add 192.168.77.1/32 dev flannel.1", "address 192.168.77.1/32 dev flannel.1"),
    (
        "ip neigh add 192.168.77.9 lladdr 02:00:00:00:00:ab dev flannel.1 nud permanent",
        "neighbour 192.168.77.9 dev flannel.1 mac 02:00:00:00:00:ab protocol 0",
    ),
    (
        "ip -6 route add 2001:db8:77::/64 dev flannel-v6.1",
        "route 2001:db8:77::/64 dev flannel-v6.1 protocol boot",
    ),
    (
        "ip -6 route add fd00:244:0:c8::/64 via fd00:10::fe",
        "route fd00:244:0:c8::/64 via fd00:10::fe dev eth0 protocol boot",
    ),
    (
        "bridge fdb add 02:00:00:00:00:ac dev flannel-v6.1 dst fd00:10::77 self permanent",
        "fdb 02:00:00:00:00:ac dev flannel-v6.1 to fd00:10::77 (not marked as ours)",
    ),
    (
        "ip address add 2001:db8:77::1/128 dev flannel-v6.1 nodad",
        "address 2001:db8:77::1/128 dev flannel-v6.1",
    ),
    (
        "ip neigh add 2001:db8:77::9 lladdr 02:00:00:00:00:ad dev flannel-v6.1 nud permanent",
        "neighbour 2001:db8:77::9 dev flannel-v6.1 mac 02:00:00:00:00:ad protocol 0",
    ),
];

/// What others have elsewhere is not even worth a word.
const ELSEWHERE: [&str; 4] = [
    "ip link add br77 type bridge",
    "ip link add vx9 type vxlan id 9 dev eth0 dstport 4790",
    "ip address add 172.20.0.1/24 dev br77",
    "ip route add 172.21.0.0/24 via 10.0.0.254",
];

fn foreign_is_named(node: &Node) {
    let expected: BTreeSet<&str> = FOREIGN.iter().map(|(_, name)| *name).collect();
    wait_until("state.json to name what is foreign", || {
        let foreign = state(node)["foreign"].clone();
        let named: BTreeSet<&str> =
            foreign.as_array().into_iter().flatten().filter_map(|name| name.as_str()).collect();
        if named == expected { Ok(()) } else { Err(format!("{named:#?} is not {expected:#?}")) }
    });
}

#[test]
fn what_others_put_there_stays_through_repairs_and_restarts_and_is_named() {
    let cluster = Cluster::running("foreign", VXLAN_DUAL);
    let node = cluster.node("worker1");
    let ways = ELSEWHERE.iter().chain(FOREIGN.iter().map(|(how, _)| how));
    ways.for_each(|how| act(node, how));
    let metric = format!("ip route add {} via 10.0.0.254 metric 100", cluster.leases().subnet_of("worker3"));
    act(node, &metric);
    foreign_is_named(node);
    let whole = Picture::of(node);
    for target in [Target::v4(&cluster, "worker1", "worker3"), Target::v6(&cluster, "worker1", "worker3")] {
        check(node, small_breaks(&target));
    }
    node.restart_flanneld().unwrap();
    node.wait_ready(Duration::from_secs(60)).unwrap();
    foreign_is_named(node);
    assert_eq!(whole.changes_to(&Picture::of(node)), [] as [&str; 0]);
    assert_eq!(metrics(node).labelled("flannel_changes_total"), BTreeMap::new());
}
