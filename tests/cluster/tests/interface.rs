//! The external interface is chosen once and kept: neither routes nor carriers nor the cables of pods move a node.

use cluster_tests::{
    Cluster, Daemon, PeerLease, Picture, VXLAN, healed, ip_on, is_ready, metrics, options, readyz, wait_until,
};
use flannel_lab::{Flanneld, LabOptions, Node, Signal, Topology};

const NODE: &str = "master1";

/// A node with a pod; flanneld was started once and has ended.
fn one_node(name: &str) -> Cluster {
    let topology = Topology::flat(1).unwrap();
    let started = LabOptions { topology, flanneld: Flanneld::Started, pods_per_node: 1, ..options(VXLAN) };
    let cluster = Cluster::up(name, started);
    cluster.node(NODE).flanneld().stop(Signal::TERM).unwrap();
    cluster
}

/// Starts flanneld with these words on the interface alone.
fn start(node: &Node, iface: &[&str]) -> Daemon {
    let daemon = Daemon::start_with_iface(node, iface);
    is_ready(node);
    daemon
}

fn restart(daemon: &mut Daemon, node: &Node, iface: &[&str]) {
    daemon.signal(Signal::TERM);
    daemon.ended();
    *daemon = start(node, iface);
}

fn ip(node: &Node, lines: &[&str]) {
    lines.iter().for_each(|words| _ = node.ip(words).unwrap());
}

/// The node announces what it did, repairs, follows a new peer, and is ready.
fn goes_on(cluster: &Cluster, public: &str) {
    let (node, leases) = (cluster.node(NODE), cluster.leases());
    let peer = PeerLease::vxlan("10.244.77.0-24", "ghost", "10.0.0.77", "0e:00:00:00:00:77");
    leases.write(&peer);
    wait_until("a new peer to be followed", || {
        let picture = Picture::of(node);
        let route = "route 10.244.77.0/24 via 10.244.77.0 dev flannel.1 ";
        if picture.has(route) { Ok(()) } else { Err(format!("{picture:#?}")) }
    });
    healed(node, "a route is repaired", || _ = node.ip("route del 10.244.77.0/24").unwrap());
    leases.remove(&peer.key);
    assert_eq!(leases.owned_by(NODE).1["PublicIP"], public);
    assert_eq!(readyz(node).0, 200, "{:?}", readyz(node));
}

#[test]
fn a_better_default_route_or_none_at_all_does_not_move_the_node() {
    let cluster = one_node("iface-route");
    let (node, public) = (cluster.node(NODE), cluster.node(NODE).v4().to_string());
    let mut daemon = start(node, &[]);
    ip(node, &["route replace default via 10.0.0.254 metric 100", "route del default metric 0"]);
    ip(node, &["link add lte0 up type veth peer name lte1", "address add 172.16.0.2/24 dev lte0"]);
    ip(node, &["route add default via 172.16.0.1 dev lte0 metric 10"]);
    goes_on(&cluster, &public);
    restart(&mut daemon, node, &[]);
    goes_on(&cluster, &public);
    ip(node, &["route del default metric 10", "route del default metric 100"]);
    goes_on(&cluster, &public);
    restart(&mut daemon, node, &[]);
    goes_on(&cluster, &public);
}

#[test]
fn a_pattern_never_takes_the_bridge_of_the_pods_when_the_card_flaps() {
    let cluster = one_node("iface-regex");
    let (node, public) = (cluster.node(NODE), cluster.node(NODE).v4().to_string());
    assert!(Picture::of(node).has("link cni0: "));
    let _daemon = start(node, &["--iface-regex", "eth0|cni0|veth.*"]);
    ip(node, &["link set eth0 down"]);
    goes_on(&cluster, &public);
    ip(node, &["address flush dev eth0"]);
    wait_until("the loss to be told", || {
        let (code, lines) = readyz(node);
        let told = lines.iter().any(|line| line.contains("is eth0: it") && line.contains("stays in force"));
        if code == 200 && told { Ok(()) } else { Err(format!("{code} {lines:#?}")) }
    });
    goes_on(&cluster, &public);
    ip(node, &["link set eth0 up", &format!("address add {public}/24 dev eth0")]);
    wait_until("the note to go", || {
        let lines = readyz(node).1;
        if lines == ["flanneld is ready"] { Ok(()) } else { Err(lines.join("\n")) }
    });
    goes_on(&cluster, &public);
}

#[test]
fn without_a_default_route_the_only_address_of_a_node_is_enough_to_start() {
    let cluster = Cluster::flat("iface-only", 1, VXLAN);
    let node = cluster.node(NODE);
    ip(node, &["route flush default", "-6 route flush default"]);
    let _daemon = start(node, &[]);
    goes_on(&cluster, &node.v4().to_string());
}

#[test]
fn a_restart_without_a_carrier_finds_the_node_as_it_was() {
    let cluster = one_node("iface-carrier");
    let (node, public) = (cluster.node(NODE), cluster.node(NODE).v4().to_string());
    let mut daemon = start(node, &[]);
    node.unplug().unwrap();
    ip(node, &["route flush default"]);
    wait_until("the cable to be out", || {
        let found = node.ip("link show eth0").unwrap();
        if found.contains("<NO-CARRIER") { Ok(()) } else { Err(found) }
    });
    let before = Picture::of(node);
    restart(&mut daemon, node, &[]);
    assert_eq!(before.changes_to(&Picture::of(node)), [] as [&str; 0]);
    goes_on(&cluster, &public);
}

#[test]
fn a_card_that_takes_the_place_of_another_is_followed_and_that_is_no_repair() {
    let cluster = one_node("iface-new");
    let (node, public) = (cluster.node(NODE), cluster.node(NODE).v4().to_string());
    let peer = PeerLease::vxlan("10.244.78.0-24", "ghost2", "10.0.0.78", "0e:00:00:00:00:78");
    cluster.leases().write(&peer);
    let daemon = start(node, &["--iface-regex", "eth[01]"]);
    ip_on(
        node.switch(),
        &format!("link add new master switch up type veth peer name eth1 netns {}", node.pid().unwrap()),
    );
    ip(node, &["link set eth1 up", "address flush dev eth0", &format!("address add {public}/24 dev eth1")]);
    wait_until("the tunnel to move", || {
        let found = node.ip("-d link show flannel.1").unwrap_or_default();
        if found.contains(" dev eth1 ") { Ok(()) } else { Err(format!("{found}\n{}", daemon.log())) }
    });
    goes_on_quietly(&cluster, &daemon);
}

/// The node settles without having repaired anything.
fn goes_on_quietly(cluster: &Cluster, daemon: &Daemon) {
    let node = cluster.node(NODE);
    wait_until("the node to be whole", || {
        let picture = Picture::of(node);
        let route = "route 10.244.78.0/24 via 10.244.78.0 dev flannel.1 ";
        let is_whole = picture.has(route) && readyz(node) == (200, vec!["flanneld is ready".to_owned()]);
        if is_whole { Ok(()) } else { Err(format!("{picture:#?}\n{}", daemon.log())) }
    });
    assert_eq!(metrics(node).labelled("flannel_repairs_total"), [].into(), "{}", daemon.log());
}

#[test]
fn a_new_mtu_vni_or_port_is_no_repair() {
    let cluster = one_node("iface-rebuilt");
    let node = cluster.node(NODE);
    let peer = PeerLease::vxlan("10.244.78.0-24", "ghost2", "10.0.0.78", "0e:00:00:00:00:78");
    cluster.leases().write(&peer);
    let daemon = start(node, &[]);
    let device = |name: &str, words: &str| {
        wait_until(words, || {
            let found = node.ip(&format!("-d link show {name}")).unwrap_or_default();
            if found.contains(words) { Ok(()) } else { Err(format!("{found}\n{}", daemon.log())) }
        });
    };
    ip(node, &["link set eth0 mtu 1400"]);
    device("flannel.1", " mtu 1350 ");
    goes_on_quietly(&cluster, &daemon);
    let vxlan = |rest: &str| {
        let text = format!(r#"{{"Network":"10.244.0.0/16","Backend":{{"Type":"vxlan"{rest}}}}}"#);
        cluster.write_net_conf(&text).unwrap();
    };
    vxlan(r#","Port":4790"#);
    device("flannel.1", " dstport 4790 ");
    goes_on_quietly(&cluster, &daemon);
    vxlan(r#","Port":4790,"GBP":true"#);
    device("flannel.1", " gbp ");
    goes_on_quietly(&cluster, &daemon);
    vxlan(r#","VNI":7"#);
    device("flannel.7", "vxlan id 7 ");
    let lines = ["route 10.244.78.0/24 via 10.244.78.0 dev flannel.7 "];
    wait_until("the route to move", || {
        let picture = Picture::of(node);
        if picture.has(lines[0]) && !picture.has("link flannel.1: ") { Ok(()) } else { Err(daemon.log()) }
    });
    assert_eq!(metrics(node).labelled("flannel_repairs_total"), [].into(), "{}", daemon.log());
}
