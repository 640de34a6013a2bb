//! A node that loses its power and boots while its store is away: it goes on with what the store said last.

use std::fs;
use std::time::{Duration, Instant};

use cluster_tests::{VXLAN_DUAL, is_ready, wait_until};
use flannel_lab::{Node, Signal};
use store_tests::{Fleet, GoLease, Need, NodeObject, Watch, scenarios, tell};

scenarios! {
    &[] => a_node_boots_while_etcd_is_away, leases_of_poison_are_refused_alone_and_a_node_still_boots_by_its_memory;
    &[Need::Peers] => a_node_boots_while_the_api_server_is_away;
}

const LONG: Duration = Duration::from_secs(60);

/// Waits until a node has all others on its disk.
pub fn wait_remembered(node: &Node, others: &[&str]) {
    wait_until("the node to write down what the store says", || {
        let files = fs::read_dir(node.disk_path("/var/lib/flannel")).unwrap().flatten();
        let text: String = files.filter_map(|file| fs::read_to_string(file.path()).ok()).collect();
        if others.iter().all(|other| text.contains(other)) { Ok(()) } else { Err(text) }
    });
}

/// Cuts a node's power, boots it without its store, and sees that its pod reaches those of all others.
fn boots(fleet: &Fleet, node: &Node, others: &[&str]) {
    wait_remembered(node, others);
    let peers: Vec<_> = fleet.nodes().iter().filter(|peer| peer.name() != node.name()).collect();
    node.power_off().unwrap();
    node.power_on().unwrap();
    let watches: Vec<_> = peers.iter().map(|peer| Watch::begin(peer)).collect();
    let start = Instant::now();
    node.start_flanneld([""; 0]).unwrap();
    is_ready(node);
    let ready = start.elapsed();
    let pod = node.add_pod("pod1").unwrap();
    for peer in peers {
        pod.wait_ping(peer.pods().unwrap().remove(0).address(), LONG).unwrap();
    }
    tell(format!("ready after {ready:?}, a new pod reaches all others after {:?}", start.elapsed()));
    assert!(ready > Duration::from_secs(5), "the store has some time to come, refusing or not: {ready:?}");
    watches.iter().for_each(Watch::assert_lost_nothing);
    let told = cluster_tests::readyz(node).1;
    assert!(told.iter().any(|line| line.contains("store")), "it says that this is old: {told:?}");
}

fn a_node_boots_while_etcd_is_away() {
    let fleet = Fleet::etcd("etcd-boot", 3, 1, VXLAN_DUAL).running();
    let (etcd, node) = (fleet.etcd().unwrap(), fleet.node("worker1"));
    let (before, member) = (fleet.identity(node), &etcd.members()[0]);
    member.service("etcd").stop(Signal::KILL).unwrap();
    boots(&fleet, node, &["10.0.0.20", "10.0.0.22"]);
    etcd.start(member).unwrap();
    etcd.wait_healthy(member).unwrap();
    let stranger = GoLease::vxlan_dual(
        "10.244.250.0-24&fd00:244:0:fa::-64",
        ["10.0.0.250", "fd00:10::250"],
        ["02:00:00:00:01:fa", "02:00:00:00:02:fa"],
    );
    tell(format!("a new node is followed after {:?}", fleet.time_to_follow(&stranger)));
    assert_eq!(fleet.identity(node), before);
}

fn a_node_boots_while_the_api_server_is_away() {
    let fleet = Fleet::kubernetes("kube-boot", 3, VXLAN_DUAL).running();
    let (kubernetes, node) = (fleet.kubernetes().unwrap(), fleet.node("worker1"));
    let before = fleet.identity(node);
    kubernetes.api_server().stop(Signal::KILL).unwrap();
    boots(&fleet, node, &["master1", "worker2"]);
    kubernetes.start_api_server().unwrap();
    kubernetes.wait_served().unwrap();
    tell(format!("a new node is followed after {:?}", fleet.time_to_follow_node(&NodeObject::dual(250))));
    assert_eq!(fleet.identity(node), before);
}

/// Leases that etcd takes and that no file should have to hold.
fn poison() -> Vec<GoLease> {
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let data = [deep.as_str(), "1e999", r#""\ud800""#, &format!("\"{}\"", "x".repeat(5000))];
    let lease = |(number, data): (usize, &&str)| {
        let value = format!(
            r#"{{"PublicIP":"10.0.0.{number}","PublicIPv6":null,"BackendType":"vxlan","BackendData":{data}}}"#
        );
        GoLease { key: format!("10.244.{number}.0-24&fd00:244:0:{number:x}::-64"), value }
    };
    data.iter().enumerate().map(|(number, data)| lease((number + 200, data))).collect()
}

fn leases_of_poison_are_refused_alone_and_a_node_still_boots_by_its_memory() {
    let fleet = Fleet::etcd("etcd-poison", 3, 1, VXLAN_DUAL).running();
    let (etcd, node) = (fleet.etcd().unwrap(), fleet.node("worker1"));
    let poison = poison();
    poison.iter().for_each(|lease| etcd.put(&lease.path(), &lease.value).unwrap());
    let good = GoLease::vxlan_dual(
        "10.244.250.0-24&fd00:244:0:fa::-64",
        ["10.0.0.250", "fd00:10::250"],
        ["02:00:00:00:01:fa", "02:00:00:00:02:fa"],
    );
    fleet.time_to_follow(&good);
    wait_until("every lease of poison to be named", || {
        let (code, lines) = cluster_tests::readyz(node);
        let is_named =
            |lease: &GoLease| lines.iter().any(|line| line.contains(lease.subnet().trim_end_matches("/24")));
        if code == 200 && poison.iter().all(is_named) { Ok(()) } else { Err(lines.join("\n")) }
    });
    wait_remembered(node, &["10.0.0.250"]);
    let member = &etcd.members()[0];
    member.service("etcd").stop(Signal::KILL).unwrap();
    node.restart_flanneld().unwrap();
    is_ready(node);
    assert!(cluster_tests::state(node)["ready"].as_bool().unwrap());
}
