//! Stopping, crashing or restarting flanneld changes nothing in the kernel and loses no packet.

use std::collections::BTreeMap;
use std::time::Duration;

use cluster_tests::{
    Cluster, Daemon, Notices, Picture, PingFlood, Stream, VXLAN_DUAL, is_ready, metrics, options, ping_all,
};
use flannel_lab::{Flanneld, LabOptions, Node, Signal};

const PATIENCE: Duration = Duration::from_secs(60);
/// Of each end.
const RESTARTS: usize = 8;
/// `ping` itself decides how often it sends while cores are busy; less than this would show nothing.
const FEWEST: u64 = 100;

fn restart(node: &Node, signal: Signal) {
    node.flanneld().stop(signal).unwrap();
    node.start_flanneld([] as [&str; 0]).unwrap();
    node.wait_ready(PATIENCE).unwrap();
    assert_eq!(metrics(node).labelled("flannel_changes_total"), BTreeMap::new(), "{}", node.log());
}

/// Restarts both ends of the streams again and again; nothing is lost, nothing is announced, nothing has changed.
fn check(signal: Signal) {
    let running = LabOptions { flanneld: Flanneld::Started, pods_per_node: 1, ..options(VXLAN_DUAL) };
    let cluster = Cluster::alone("restart", running);
    let ends = ["worker1", "worker3"].map(|name| cluster.node(name));
    let pods = ends.map(|node| cluster.pod(node.name()));
    let v6 = pods[1].addresses().find(|address| address.is_ipv6()).unwrap();
    pods[0].ping(v6).unwrap();
    let before = ends.map(Picture::of);
    let notices = ends.map(Notices::begin);
    let floods = [pods[1].address(), v6].map(|to| PingFlood::begin(&pods[0], to));
    let stream = Stream::begin(&pods[0], &pods[1], 1000);
    for _ in 0..RESTARTS {
        ends.iter().for_each(|node| restart(node, signal));
    }
    let tolls = floods.map(PingFlood::end).into_iter().chain([stream.end()]).collect::<Vec<_>>();
    println!("{signal:?}: {tolls:?}");
    for toll in tolls {
        assert!(toll.sent > FEWEST && toll.came == toll.sent, "{toll:?}");
    }
    for (node, (before, notices)) in ends.iter().zip(before.iter().zip(notices)) {
        assert_eq!(notices.end(node), [] as [&str; 0], "{}", node.name());
        assert_eq!(before.changes_to(&Picture::of(node)), [] as [&str; 0], "{}", node.name());
    }
}

#[test]
fn a_restart_by_sigterm_loses_no_packet_and_changes_nothing() {
    check(Signal::TERM);
}

#[test]
fn a_restart_after_kill_9_loses_no_packet_and_changes_nothing() {
    check(Signal::KILL);
}

#[test]
fn sigterm_and_sigint_end_flanneld_with_0_and_leave_the_kernel_alone() {
    let cluster = Cluster::flat("stop", 1, VXLAN_DUAL);
    let node = cluster.node("master1");
    for signal in [Signal::TERM, Signal::INT] {
        let mut daemon = Daemon::start(node, &[]);
        is_ready(node);
        let before = Picture::of(node);
        daemon.signal(signal);
        let (status, took) = daemon.ended();
        println!("{signal:?}: {status} after {took:?}");
        assert_eq!(status.code(), Some(0), "{status} after {took:?}");
        assert_eq!(before.changes_to(&Picture::of(node)), [] as [&str; 0]);
    }
}

#[test]
fn a_node_that_lost_its_power_comes_back_with_its_subnet_and_its_hardware_addresses() {
    let cluster = Cluster::running("reboot", VXLAN_DUAL);
    let (node, peer) = (cluster.node("worker1"), cluster.node("worker3"));
    let (lease, before, of_peer) =
        (cluster.leases().owned_by("worker1"), Picture::of(node), Picture::of(peer));
    node.power_off().unwrap();
    node.power_on().unwrap();
    cluster.start(&["worker1"]);
    assert_eq!(cluster.leases().owned_by("worker1"), lease);
    assert_eq!(of_peer.changes_to(&Picture::of(peer)), [] as [&str; 0], "silence is not absence");
    let of_pods = |change: &String| ["cni0", "veth", "eth0@if"].iter().any(|word| change.contains(word));
    let changes = before.without_folders().changes_to(&Picture::of(node).without_folders());
    assert_eq!(changes.into_iter().filter(|change| !of_pods(change)).collect::<Vec<_>>(), [] as [&str; 0]);
    node.add_pod("pod1").unwrap();
    ping_all(&[node, peer]);
}
