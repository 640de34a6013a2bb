//! Peers whose subnets overlap what the host has or had: followed as soon as that is gone.

use std::time::Duration;

use cluster_tests::{Cluster, PeerLease, Picture, VXLAN, readyz, wait_until};
use flannel_lab::{Node, wait_for};

/// Before the look that comes once a minute, on any machine.
const AT_ONCE: Duration = Duration::from_secs(20);
const ROUTE: &str = "route 10.244.77.0/24 via 10.244.77.0 dev flannel.1 ";

/// Gives the host a network that the peer's subnet overlaps, and waits until the peer is refused for it.
fn connect(node: &Node) {
    let cable = ["link add other0 type veth peer name other1", "link set other0 up", "link set other1 up"];
    let words = cable.iter().chain(&["address add 10.244.77.1/24 dev other0"]);
    words.for_each(|words| _ = node.ip(words).unwrap());
    wait_until("the peer to be refused", || {
        let lines = readyz(node).1;
        let told =
            lines.iter().any(|line| line.contains("it takes packets from 10.244.77.0/24, which other0"));
        if told && !Picture::of(node).has(ROUTE) { Ok(()) } else { Err(lines.join("\n")) }
    });
}

#[test]
fn a_peer_that_overlaps_a_network_of_the_host_is_followed_when_that_goes_by_address_link_or_cable() {
    let cluster = Cluster::flat("overlap", 1, VXLAN);
    let node = cluster.node("master1");
    cluster.leases().write(&PeerLease::vxlan("10.244.77.0-24", "ghost", "10.0.0.77", "0e:00:00:00:00:77"));
    cluster.start(&["master1"]);
    for end in ["address del 10.244.77.1/24 dev other0", "link set other0 down", "link del other0"] {
        connect(node);
        node.ip(end).unwrap();
        let followed = wait_for(&format!("the peer to be followed after {end:?}"), AT_ONCE, || {
            let (picture, lines) = (Picture::of(node), readyz(node).1);
            let followed = picture.has(ROUTE) && lines == ["flanneld is ready"];
            if followed { Ok(()) } else { Err(format!("{lines:?} {picture:#?}\n{}", node.log())) }
        });
        followed.unwrap();
        let _ = node.ip("link del other0");
    }
}

#[test]
fn a_peer_that_has_our_earlier_subnet_is_reached_without_a_failure() {
    let cluster = Cluster::flat("taken-over", 1, VXLAN);
    let (node, leases) = (cluster.node("master1"), cluster.leases());
    cluster.start(&["master1"]);
    let (key, own) = leases.owned_by("master1");
    let peer = PeerLease::vxlan(&key, "ghost", "10.0.0.77", "0e:00:00:00:00:77");
    leases.write(&peer.with("Since", own["Since"].clone()));
    let route = format!("route {} via ", key.replace('-', "/"));
    wait_until("another subnet, and the way to the peer", || {
        let (picture, lines) = (Picture::of(node), readyz(node).1);
        let moved = leases.all().iter().any(|(_, lease)| lease["Owner"] == "master1");
        let whole = moved && picture.has(&route) && lines == ["flanneld is ready"];
        if whole { Ok(()) } else { Err(format!("{lines:?} {picture:#?}\n{}", node.log())) }
    });
    assert!(!node.log().contains("cannot create route"), "{}", node.log());
}
