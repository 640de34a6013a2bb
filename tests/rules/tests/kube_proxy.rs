//! The traffic of a cluster beside a real kube-proxy in both of its modes: pods, services, ports of nodes, hairpins,
//! and what connection tracking says of them.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use cluster_tests::wait_until;
use flannel_lab::{Node, Store};
use rule_tests::{Family, Mode, Proxy, ProxyMode, Service, Site};
use store_tests::{Need, Program, scenarios, tell};

scenarios! {
    &[Need::Peers] => sources_beside_kube_proxy_in_iptables_mode, sources_beside_kube_proxy_in_nftables_mode,
        sources_beside_kube_proxy_in_the_other_mode;
}

const PORT: u16 = 7000;
const ONE: Service = Service { name: "one", address: "10.96.1.1", node_port: 30181, policy: "Cluster" };
const TWO: Service = Service { name: "two", address: "10.96.1.2", node_port: 30182, policy: "Cluster" };
const LOCAL: Service = Service { name: "local", address: "10.96.1.3", node_port: 30183, policy: "Local" };

/// Who connects, to whom, who answers, whose address is seen, and what it is.
const CONNECTIONS: [(&str, &str, &str, &str, &str); 16] = [
    ("one.a", "one.b:7000", "one.b", "one.a", "pod to pod of the same node"),
    ("one.a", "two.a:7000", "two.a", "one.a", "pod to pod of another node"),
    ("one.a", "far:7000", "far", "one", "pod to outside"),
    ("two.b", "far:7000", "far", "two", "pod of the other node to outside"),
    ("one.b", "10.96.1.1:7000", "one.a", "one.b", "pod to a service with a pod of the same node"),
    ("one.a", "10.96.1.2:7000", "two.a", "one.a", "pod to a service with a pod of another node"),
    ("two.b", "10.96.1.1:7000", "one.a", "two.b", "pod of the other node to a service"),
    ("one.a", "10.96.1.1:7000", "one.a", "one.cni0", "hairpin: pod to itself by a service"),
    ("two.a", "10.96.1.2:7000", "two.a", "two.cni0", "hairpin on the other node"),
    ("one", "10.96.1.2:7000", "two.a", "one.flannel", "node to a service with a pod of another node"),
    ("far", "one:30181", "one.a", "one.cni0", "outside to a port of the pod's node"),
    ("far", "one:30182", "two.a", "one.flannel", "outside to a port of another node than the pod's"),
    ("far", "two:30181", "one.a", "two.flannel", "the same the other way round"),
    ("far", "one:30183", "one.a", "far", "outside to a port that keeps the source"),
    ("one.b", "one:30182", "two.a", "one.flannel", "pod to a port of its node"),
    ("far", "one.a:7000", "one.a", "far", "outside to a pod"),
];

fn sources_beside_kube_proxy_in_iptables_mode() {
    all_hold(ProxyMode::Iptables, Mode::Iptables);
}

fn sources_beside_kube_proxy_in_nftables_mode() {
    all_hold(ProxyMode::Nftables, Mode::Nftables);
}

fn sources_beside_kube_proxy_in_the_other_mode() {
    all_hold(ProxyMode::Iptables, Mode::Nftables);
}

fn all_hold(proxies: ProxyMode, mode: Mode) {
    let site = Site::on("proxy", Store::Kubernetes { programs: None }, Program::Ours, mode);
    let kubernetes = site.cluster().kubernetes().unwrap();
    for (service, pod) in [(&ONE, "one.a"), (&TWO, "two.a"), (&LOCAL, "one.a")] {
        service.create(&kubernetes, site.node(&pod[..3]), site.address(pod, Family::V4), PORT);
    }
    let nodes = ["one", "two"].map(|name| site.node(name));
    let running = nodes.map(|node| Proxy::start(&kubernetes, node, proxies));
    running.iter().zip(nodes).for_each(|(proxy, node)| proxy.wait_ready(node));
    let seen = CONNECTIONS.map(|(from, to, at, _, what)| (what, connect(&site, from, to, at)));
    let expected = CONNECTIONS.map(|(.., source, what)| (what, source.to_owned()));
    assert_eq!(seen, expected, "beside kube-proxy in {proxies:?}");
    assert_tracked(&site);
    tell(format!("{} connections", seen.len()));
}

/// Connects, again while kube-proxy has not heard of a service; gives the name of the source that was seen.
fn connect(site: &Site, from: &str, to: &str, at: &str) -> String {
    let (name, port) = to.split_once(':').unwrap();
    let address: IpAddr = name.parse().unwrap_or_else(|_| site.address(name, Family::V4));
    let to = SocketAddr::new(address, port.parse().unwrap());
    let listener = site.netns(at).listener(Family::V4, PORT);
    let mut client = None;
    wait_until(&format!("a connection from {from} to {to}"), || {
        let made = site.netns(from).connect(Family::V4.unspecified(), to, Duration::from_secs(1));
        made.map(|made| client = Some(made)).map_err(|why| why.to_string())
    });
    let (server, source) = listener.accept().unwrap();
    drop((client, server));
    site.name_of(source.ip())
}

/// What connection tracking has of the connections above: which way the answers go.
fn assert_tracked(site: &Site) {
    let address = |name: &str| site.address(name, Family::V4);
    let [one, far, pod, other] = ["one", "far", "one.a", "two.a"].map(address);
    let tunnel = address("one.flannel");
    let node = site.node("one");
    let expected = [
        (format!("src={pod} dst={other} "), format!("src={other} dst={pod} "), "pod to pod"),
        (format!("src={pod} dst={far} "), format!("src={far} dst={one} "), "pod to outside"),
        (format!("src={pod} dst=10.96.1.2 "), format!("src={other} dst={pod} "), "pod to service"),
        (format!("src={far} dst={one} "), format!("src={other} dst={tunnel} "), "outside to port of node"),
    ];
    let tracked = node.run("conntrack", ["-L", "-p", "tcp"]).unwrap();
    for (there, back, what) in expected {
        let found = tracked.lines().any(|line| line.contains(&there) && line.contains(&back));
        assert!(found, "{what}: no {there}… {back} in\n{tracked}");
    }
    assert_untracked_tunnel(node);
}

/// The packets of the tunnel itself are none of connection tracking's business.
fn assert_untracked_tunnel(node: &Node) {
    let tracked = node.run("conntrack", ["-L", "-p", "udp", "--dport", "8472"]).unwrap();
    assert_eq!(tracked.lines().filter(|line| line.contains("dport=8472")).count(), 0, "{tracked}");
}
