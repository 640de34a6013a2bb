//! Changes of the network card itself: the address, the MTU, the cable, the card.

use std::fs;
use std::time::{Duration, Instant};

use cluster_tests::{Cluster, Picture, VXLAN_DUAL, healed, ip_on, ping_all, readyz, vxlan_mac, wait_until};
use flannel_lab::Node;

/// Waits until a node is ready and a pod of it reaches the pods of all others, both ways.
fn whole_again(cluster: &Cluster, what: &str, start: Instant) {
    let nodes: Vec<_> = cluster.nodes().iter().collect();
    wait_until(what, || {
        for node in &nodes {
            for peer in nodes.iter().filter(|peer| peer.name() != node.name()) {
                let (from, to) = (cluster.pod(node.name()), cluster.pod(peer.name()));
                for address in to.addresses() {
                    from.ping(address).map_err(|why| why.to_string())?;
                }
            }
        }
        Ok(())
    });
    println!("{what}: every pod reaches every pod after {:?}", start.elapsed());
    nodes.iter().for_each(|node| assert_eq!(readyz(node).0, 200));
}

/// Waits until the node says this of its card, and is ready all the same: what is in place goes on to be repaired.
fn says(node: &Node, words: &str) {
    wait_until("the node to say what is wrong with its card", || {
        let (code, lines) = readyz(node);
        let told = lines.iter().any(|line| line.contains(words));
        if code == 200 && told { Ok(()) } else { Err(format!("{code} {lines:#?}")) }
    });
    let route = node.ip("route show proto 70").unwrap().lines().next().unwrap().to_owned();
    let destination = route.split_whitespace().next().unwrap();
    healed(node, "a route is repaired", || _ = node.ip(&format!("route del {destination}")).unwrap());
}

fn same(node: &Node, before: &Picture, what: &str) {
    wait_until(what, || {
        let changes = before.changes_to(&Picture::of(node));
        if changes.is_empty() { Ok(()) } else { Err(changes.join("\n")) }
    });
}

fn ip(node: &Node, lines: &[&str]) {
    lines.iter().for_each(|words| _ = node.ip(words).unwrap());
}

/// The kernel drops the default routes together with the addresses that their routers are reached by.
const ADDRESSES: [&str; 4] = [
    "address add 10.0.0.21/24 dev eth0",
    "address add fd00:10::21/64 dev eth0 nodad",
    "route replace default via 10.0.0.254",
    "-6 route replace default via fd00:10::fe",
];

#[test]
fn a_card_that_loses_its_addresses_and_gets_them_back_loses_no_subnet_and_no_peer() {
    let cluster = Cluster::running("nic-address", VXLAN_DUAL);
    let node = cluster.node("worker1");
    let (before, lease) = (Picture::of(node), cluster.leases().owned_by("worker1"));
    ip(node, &["address del 10.0.0.21/24 dev eth0", "address del fd00:10::21/64 dev eth0"]);
    says(node, "eth0: it has no IPv4 address");
    let start = Instant::now();
    ip(node, &ADDRESSES);
    same(node, &before, "the node to be as before");
    whole_again(&cluster, "addresses back", start);
    assert_eq!(cluster.leases().owned_by("worker1"), lease);
}

#[test]
fn an_ipv6_address_that_goes_and_comes_back_is_used_again() {
    let cluster = Cluster::running("nic-ipv6", VXLAN_DUAL);
    let node = cluster.node("worker1");
    let (before, lease) = (Picture::of(node), cluster.leases().owned_by("worker1"));
    ip(node, &["address del fd00:10::21/64 dev eth0"]);
    wait_until("the loss to be noticed", || {
        let moved = cluster.leases().owned_by("worker1").1["PublicIPv6"] != lease.1["PublicIPv6"];
        let told = readyz(node).1.iter().any(|line| line.contains("it has no IPv6 address"));
        if moved || told { Ok(()) } else { Err(node.log()) }
    });
    let start = Instant::now();
    ip(node, &["address add fd00:10::21/64 dev eth0 nodad", "-6 route replace default via fd00:10::fe"]);
    same(node, &before, "the node to be as before");
    wait_until("the lease to be as before", || {
        let found = cluster.leases().owned_by("worker1");
        if found == lease { Ok(()) } else { Err(format!("{found:?}")) }
    });
    whole_again(&cluster, "IPv6 address back", start);
}

#[test]
fn a_card_that_is_pulled_out_and_plugged_in_again_brings_everything_back() {
    let cluster = Cluster::running("nic-card", VXLAN_DUAL);
    let node = cluster.node("worker1");
    let (lease, mac) = (cluster.leases().owned_by("worker1"), vxlan_mac(node, "flannel.1"));
    let before = Picture::of(node);
    ip_on(node.switch(), "link del worker1");
    assert!(!Picture::of(node).has("link eth0"));
    let (start, pid) = (Instant::now(), node.pid().unwrap().to_string());
    let cable = "link add worker1 master switch up type veth peer name eth0 address 02:00:0a:00:00:15 netns";
    ip_on(node.switch(), &format!("{cable} {pid}"));
    ip(node, &["link set eth0 addrgenmode none", "link set eth0 up"]);
    ip(node, &ADDRESSES);
    whole_again(&cluster, "card back", start);
    let but_cable = |change: &String| !change.contains(" link eth0@if");
    let changes = before.changes_to(&Picture::of(node));
    assert_eq!(changes.into_iter().filter(but_cable).collect::<Vec<_>>(), [] as [&str; 0]);
    assert_eq!((cluster.leases().owned_by("worker1"), vxlan_mac(node, "flannel.1")), (lease, mac));
}

#[test]
fn a_new_address_of_the_card_is_published_and_peers_follow_it() {
    let cluster = Cluster::running("nic-move", VXLAN_DUAL);
    let (node, peer) = (cluster.node("worker1"), cluster.node("worker3"));
    let (key, mac) = (cluster.leases().owned_by("worker1").0, vxlan_mac(node, "flannel.1"));
    let before = Picture::of(peer);
    let start = Instant::now();
    ip(node, &["address add 10.0.0.99/24 dev eth0", "address del 10.0.0.21/24 dev eth0"]);
    ip(node, &["address replace 10.0.0.99/24 dev eth0", "route replace default via 10.0.0.254"]);
    wait_until("the peer to follow", || {
        let changes = before.changes_to(&Picture::of(peer));
        let moved = |sign: &str, to: &str| {
            format!("{sign} fdb {mac} dev flannel.1 dst {to} self extern_learn permanent")
        };
        if changes == [moved("-", "10.0.0.21"), moved("+", "10.0.0.99")] {
            Ok(())
        } else {
            Err(changes.join("\n"))
        }
    });
    println!("the peer follows after {:?}", start.elapsed());
    let lease = cluster.leases().owned_by("worker1");
    assert_eq!((lease.0, &lease.1["PublicIP"]), (key, &"10.0.0.99".into()));
    assert!(node.ip("-d link show flannel.1").unwrap().contains(" local 10.0.0.99 "));
    whole_again(&cluster, "new address", start);
}

#[test]
fn the_tunnel_and_the_subnet_file_follow_the_mtu_of_the_card() {
    let cluster = Cluster::running("nic-mtu", VXLAN_DUAL);
    let node = cluster.node("worker1");
    for (card, v4, v6) in [("1400", "1350", "1330"), ("9000", "8950", "8930"), ("1500", "1450", "1430")] {
        ip_on(node.switch(), &format!("link set worker1 mtu {card}"));
        ip(node, &[&format!("link set eth0 mtu {card}")]);
        wait_until("devices and file to follow", || {
            let picture = Picture::of(node);
            let of = |device: &str| picture.lines(&format!("link {device}: ")).concat();
            let env = fs::read_to_string(node.path("/run/flannel/subnet.env")).unwrap();
            let good = of("flannel.1").contains(&format!(" mtu {v4} "))
                && of("flannel-v6.1").contains(&format!(" mtu {v6} "))
                && env.contains(&format!("FLANNEL_MTU={v6}\n"));
            if good { Ok(()) } else { Err(format!("{picture:#?} {env}")) }
        });
    }
    ping_all(&cluster.nodes().iter().collect::<Vec<_>>());
}

#[test]
fn a_cable_that_is_pulled_or_a_card_that_goes_down_and_up_costs_only_the_time_without_it() {
    let cluster = Cluster::running("nic-cable", VXLAN_DUAL);
    let node = cluster.node("worker1");
    let before = Picture::of(node);
    node.unplug().unwrap();
    assert!(cluster.pod("worker2").ping(cluster.pod("worker1").address()).is_err());
    let start = Instant::now();
    node.plug().unwrap();
    same(node, &before, "the node to be as before the cable was pulled");
    whole_again(&cluster, "cable back", start);

    ip(node, &["link set eth0 down"]);
    says(node, "eth0: it is down");
    let start = Instant::now();
    ip(node, &["link set eth0 up"]);
    ip(node, &["address replace fd00:10::21/64 dev eth0 nodad", "route replace default via 10.0.0.254"]);
    ip(node, &["-6 route replace default via fd00:10::fe"]);
    same(node, &before, "the node to be as before the card went down");
    whole_again(&cluster, "card up", start);
    assert!(start.elapsed() < Duration::from_secs(10));
}
