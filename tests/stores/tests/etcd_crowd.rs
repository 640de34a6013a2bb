//! Many daemons on one etcd, and several on one host.

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use cluster_tests::{Picture, VXLAN, flanneld_path, metrics, options, wait_until};
use flannel_lab::{LabOptions, Node, Relay, Signal, Store, Topology};
use rustix::process::{Pid, kill_process};
use store_tests::{Fleet, scenarios, tell, time_to};

scenarios! {
    &[] => two_hundred_daemons_that_start_together_get_two_hundred_subnets, two_daemons_share_each_host;
}

const NODES: usize = 200;
const LONG: Duration = Duration::from_secs(90);

fn two_hundred_daemons_that_start_together_get_two_hundred_subnets() {
    let topology = Topology::flat(NODES).unwrap();
    let flanneld_args = ["--etcd-endpoints", "http://10.0.0.11:2390"].map(str::to_owned).to_vec();
    let fleet = Fleet::alone(
        "etcd-crowd",
        LabOptions { topology, store: Store::etcd(1), flanneld_args, ..options(VXLAN) },
    );
    // They cannot be started in one moment on two cores; but they can be let in in one.
    let gate = Relay::start(&fleet.servers()[0], 2390, 2379).unwrap();
    gate.shut();
    let start = Instant::now();
    thread::scope(|scope| {
        for nodes in fleet.nodes().chunks(NODES / 2) {
            scope.spawn(|| nodes.iter().for_each(|node| node.start_flanneld(["-v", "0"]).unwrap()));
        }
    });
    tell(format!("all are started after {:?}", start.elapsed()));
    let daemons: Vec<_> = fleet.nodes().iter().filter_map(|node| node.flanneld().pid()).collect();
    let signal_all = |signal| daemons.iter().for_each(|daemon| send(*daemon, signal));
    signal_all(Signal::STOP);
    gate.open();
    signal_all(Signal::CONT);
    let start = Instant::now();
    fleet.nodes().iter().for_each(|node| node.wait_ready(LONG).unwrap());
    tell(format!("all are ready {:?} after they were let in", start.elapsed()));
    let leases = fleet.etcd().unwrap().leases().unwrap();
    let subnets: BTreeSet<_> = leases.iter().map(|lease| &lease.key).collect();
    let values: BTreeSet<_> = leases.iter().map(|lease| &lease.value).collect();
    assert_eq!((leases.len(), subnets.len(), values.len()), (NODES, NODES, NODES));
    let knows_all = |node: &Node| metrics(node).get("flannel_peers") == 199.0;
    time_to("all to know each other", LONG, || fleet.nodes().iter().all(knows_all));
    tell(format!("all know each other after {:?}", start.elapsed()));
    assert!(fleet.nodes().iter().all(|node| node.flanneld().lives()), "none gave up");
    let (from, to) =
        (fleet.node("master1").add_pod("pod1").unwrap(), fleet.node("worker199").add_pod("pod1").unwrap());
    from.wait_ping(to.address(), LONG).unwrap();
}

fn send(process: u32, signal: Signal) {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw).unwrap();
    kill_process(process, signal).unwrap();
}

const BLUE: &str = r#"{"Network":"10.11.0.0/16","Backend":{"Type":"vxlan","VNI":11}}"#;
const GREEN: &str = r#"{"Network":"10.12.0.0/16","Backend":{"Type":"host-gw"}}"#;

/// A daemon of its own on each node: its prefix, its file, its port.
fn start_beside(fleet: &Fleet, name: &str, port: u16) {
    let words = [
        ("--etcd-prefix", format!("/{name}/network")),
        ("--subnet-file", format!("/run/flannel/{name}.env")),
        ("--healthz-port", port.to_string()),
    ];
    let words: Vec<_> = words.iter().flat_map(|(flag, value)| [*flag, value]).collect();
    fleet.nodes().iter().for_each(|node| node.start_as(name, &flanneld_path(), &words).unwrap());
    for node in fleet.nodes() {
        wait_until(&format!("{name} on {}", node.name()), || match node.http_get(port, "/readyz") {
            Ok((200, _)) => Ok(()),
            answer => Err(format!("{answer:?}\n{}", node.service(name).log())),
        });
    }
}

/// The first address of the subnet that a daemon has written, given to a device as a pod would have it.
fn address(node: &Node, name: &str) -> String {
    let env = fs::read_to_string(node.path(&format!("/run/flannel/{name}.env"))).unwrap();
    let subnet = env.lines().find_map(|line| line.strip_prefix("FLANNEL_SUBNET=")).unwrap().to_owned();
    node.ip(&format!("link add {name}0 type bridge")).unwrap();
    node.ip(&format!("address add {subnet} dev {name}0")).unwrap();
    node.ip(&format!("link set {name}0 up")).unwrap();
    subnet.split('/').next().unwrap().to_owned()
}

/// As Go's own test of etcd has it: pings work between the addresses of each network, and through the wrong device
/// they fail.
fn two_daemons_share_each_host() {
    let fleet = Fleet::etcd("etcd-two", 2, 1, VXLAN);
    let etcd = fleet.etcd().unwrap();
    etcd.put("/blue/network/config", BLUE).unwrap();
    etcd.put("/green/network/config", GREEN).unwrap();
    start_beside(&fleet, "blue", 8082);
    start_beside(&fleet, "green", 8083);
    let nodes = [fleet.node("master1"), fleet.node("worker1")];
    let reaches = |from: &Node, source: &str, to: &str| {
        from.run("ping", ["-c", "1", "-W", "1", "-n", "-I", source, to])
            .map(drop)
            .map_err(|why| why.to_string())
    };
    for name in ["blue", "green"] {
        let [here, there] = nodes.map(|node| address(node, name));
        wait_until(&format!("{name} to reach"), || reaches(nodes[0], &here, &there));
        wait_until(&format!("{name} to reach back"), || reaches(nodes[1], &there, &here));
        let wrong = if name == "blue" { "eth0" } else { "flannel.11" };
        assert!(reaches(nodes[0], wrong, &there).is_err(), "{name} through {wrong}");
    }
    // Each leaves what the other made alone, also at a restart.
    let before = Picture::of(nodes[0]);
    for (name, port) in [("blue", 8082), ("green", 8083)] {
        nodes.iter().for_each(|node| node.service(name).stop(Signal::TERM).unwrap());
        start_beside(&fleet, name, port);
    }
    assert_eq!(before.changes_to(&Picture::of(nodes[0])), [""; 0]);
}
