//! A net-conf that changes while pods run: what can be followed is, what would leave them behind waits and says so.

use std::time::{Duration, Instant};
use std::{fs, thread};

use cluster_tests::{Cluster, Picture, VXLAN, cpu_time, is_ready, options, ping_all, readyz, wait_until};
use flannel_lab::{Flanneld, LabOptions, Node, Topology};

/// Two nodes of one segment, each with a pod.
fn two_nodes(name: &str) -> Cluster {
    let topology = Topology::flat(2).unwrap();
    Cluster::up(
        name,
        LabOptions { topology, flanneld: Flanneld::Started, pods_per_node: 1, ..options(VXLAN) },
    )
}

fn change(cluster: &Cluster, net_conf: &str) {
    cluster.write_net_conf(net_conf).unwrap();
}

/// Waits until the kernel of every node has a line that begins so.
fn all_have(nodes: &[&Node], line: &str) {
    wait_until(&format!("{line:?} on every node"), || {
        let lacking = nodes.iter().find(|node| !Picture::of(node).has(line));
        lacking.map_or(Ok(()), |node| {
            Err(format!("{} has {:#?}\n{}", node.name(), Picture::of(node), node.log()))
        })
    });
}

#[test]
fn a_new_mtu_and_direct_routing_are_followed_and_their_price_is_told() {
    let cluster = two_nodes("followed");
    let nodes = ["master1", "worker1"].map(|name| cluster.node(name));
    change(&cluster, r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan","MTU":1400}}"#);
    for node in nodes {
        wait_until("the new MTU to be announced", || {
            let text = fs::read_to_string(node.path("/run/flannel/subnet.env")).unwrap();
            if text.contains("FLANNEL_MTU=1350\n") { Ok(()) } else { Err(text) }
        });
        let told = "net-conf: the MTU changed: pods that run keep theirs until they are started anew";
        assert!(node.log().contains(told), "{}", node.log());
    }
    ping_all(&nodes);
    let [near, far] = nodes.map(|node| cluster.leases().subnet_of(node.name()).replace('-', "/"));
    change(
        &cluster,
        r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan","MTU":1400,"DirectRouting":true}}"#,
    );
    all_have(&nodes[..1], &format!("route {far} via 10.0.0."));
    all_have(&nodes[1..], &format!("route {near} via 10.0.0."));
    ping_all(&nodes);
}

#[test]
fn a_pod_network_that_would_leave_pods_behind_waits_for_a_restart() {
    let cluster = two_nodes("held-back");
    let nodes = ["master1", "worker1"].map(|name| cluster.node(name));
    let (pictures, leases) = (nodes.map(Picture::of), cluster.leases().all());
    change(&cluster, r#"{"Network":"10.10.0.0/16","Backend":{"Type":"vxlan"}}"#);
    for node in nodes {
        wait_until("the node to say that it waits", || {
            let (code, lines) = readyz(node);
            let words =
                ["net-conf: the pod network changed from 10.244.0.0/16 to 10.10.0.0/16", "restart flanneld"];
            let told = lines.iter().any(|line| words.iter().all(|word| line.contains(word)));
            if code == 200 && told { Ok(()) } else { Err(format!("{code} {lines:#?}")) }
        });
    }
    for (node, before) in nodes.iter().zip(&pictures) {
        assert_eq!(before.changes_to(&Picture::of(node)), [] as [&str; 0], "{}", node.name());
    }
    ping_all(&nodes);
    assert_eq!(cluster.leases().all(), leases);

    nodes[0].restart_flanneld().unwrap();
    wait_until("a subnet of the new network alone", || {
        let leases = cluster.leases().all();
        let mut own = leases.iter().filter(|(_, lease)| lease["Owner"] == "master1");
        if own.all(|(key, _)| key.starts_with("10.10.")) { Ok(()) } else { Err(format!("{leases:?}")) }
    });
    is_ready(nodes[0]);
}

/// Longer than any file waits to be written.
const SETTLED: Duration = Duration::from_secs(11);
/// How long a daemon that has nothing to do is watched.
const IDLE: Duration = Duration::from_secs(3);

#[test]
fn a_net_conf_that_is_held_back_costs_no_time() {
    let cluster = two_nodes("held-idle");
    let node = cluster.node("worker1");
    change(&cluster, r#"{"Network":"10.10.0.0/16","Backend":{"Type":"vxlan"}}"#);
    wait_until("the node to say that it waits", || {
        let (_, lines) = readyz(node);
        let told = lines.iter().any(|line| line.contains("net-conf: the pod network changed"));
        if told { Ok(()) } else { Err(format!("{lines:#?}")) }
    });
    thread::sleep(SETTLED);
    let pid = node.flanneld().pid().unwrap();
    let (before, start) = (cpu_time(pid), Instant::now());
    thread::sleep(IDLE);
    let (spent, took) = (cpu_time(pid) - before, start.elapsed());
    println!("flanneld spent {spent:?} of {took:?}");
    assert!(spent < took / 20, "{spent:?} of {took:?}");
}
