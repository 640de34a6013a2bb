//! etcd dies, hangs, is cut off, forgets and lies: pods do not notice, and a new peer is followed afterwards.

use std::time::Duration;

use cluster_tests::{VXLAN, options};
use flannel_lab::{Etcd, LabOptions, Node, Relay, Signal, Store, Topology};
use store_tests::{Calm, Fleet, GoLease, scenarios, tell, time_to};

scenarios! {
    &[] => the_leader_of_three_is_killed, the_leader_of_three_hangs, the_first_member_is_cut_off_from_the_majority,
        the_only_member_is_killed_and_comes_back, the_watch_is_cut_a_hundred_times,
        history_is_compacted_while_nobody_listens, garbage_keys_and_values_remove_nobody, a_value_without_an_address_is_garbage_too;
}

const LONG: Duration = Duration::from_secs(60);

/// A peer that nobody has: the last part of its subnet tells it from others.
fn stranger(number: u8) -> GoLease {
    GoLease::vxlan(
        &format!("10.244.{number}.0-24"),
        &format!("10.0.0.{number}"),
        &format!("02:00:00:00:01:{number:02x}"),
    )
}

/// Three nodes on three members; all daemons have the leader as their first endpoint.
fn led(name: &str) -> Fleet {
    let fleet = Fleet::etcd(name, 3, 3, VXLAN);
    let leader = fleet.etcd().unwrap().leader().unwrap().v4();
    let mut members: Vec<_> = fleet.servers().iter().map(Node::v4).collect();
    members.sort_by_key(|member| *member != leader);
    let endpoints: Vec<_> = members.iter().map(|member| format!("http://{member}:2379")).collect();
    let arguments = ["--etcd-endpoints".to_owned(), endpoints.join(",")];
    fleet.nodes().iter().for_each(|node| node.start_flanneld(&arguments).unwrap());
    fleet.settled();
    fleet
}

fn the_leader_of_three_is_killed() {
    let fleet = led("etcd-killed");
    let (etcd, calm) = (fleet.etcd().unwrap(), Calm::begin(&fleet));
    let leader = etcd.leader().unwrap();
    leader.service("etcd").stop(Signal::KILL).unwrap();
    etcd.leader().unwrap();
    tell(format!("a new peer is followed after {:?}", fleet.time_to_follow(&stranger(250))));
    etcd.start(leader).unwrap();
    etcd.wait_healthy(leader).unwrap();
    tell(format!("and after its return after {:?}", fleet.time_to_follow(&stranger(251))));
    calm.held();
}

fn the_leader_of_three_hangs() {
    let fleet = led("etcd-hangs");
    let (etcd, calm) = (fleet.etcd().unwrap(), Calm::begin(&fleet));
    let leader = etcd.leader().unwrap();
    leader.service("etcd").signal(Signal::STOP);
    let others = || etcd.members().iter().filter(|member| member.name() != leader.name());
    let lease = stranger(250);
    time_to("a majority without the leader", LONG, || {
        others().any(|member| etcd.put_at(member, &lease.path(), &lease.value).is_ok())
    });
    tell(format!("a new peer is followed after {:?}", fleet.wait_route(&lease.subnet())));
    leader.service("etcd").signal(Signal::CONT);
    tell(format!("and after it goes on after {:?}", fleet.time_to_follow(&stranger(251))));
    calm.held();
}

/// Drops what members say to each other, in the network of one of them.
fn cut_off(member: &Node, verb: &str) {
    for (chain, port) in
        [("INPUT", "--dport"), ("INPUT", "--sport"), ("OUTPUT", "--dport"), ("OUTPUT", "--sport")]
    {
        member.run("iptables", [verb, chain, "-p", "tcp", port, "2380", "-j", "DROP"]).unwrap();
    }
}

fn the_first_member_is_cut_off_from_the_majority() {
    let fleet = Fleet::etcd("etcd-minority", 3, 3, VXLAN).running();
    let (etcd, calm) = (fleet.etcd().unwrap(), Calm::begin(&fleet));
    let first = &etcd.members()[0];
    cut_off(first, "-A");
    let lease = stranger(250);
    time_to("a majority without the first", LONG, || {
        etcd.put_at(&etcd.members()[1], &lease.path(), &lease.value).is_ok()
    });
    tell(format!("a new peer is followed after {:?}", fleet.wait_route(&lease.subnet())));
    cut_off(first, "-D");
    tell(format!("and when it is back after {:?}", fleet.time_to_follow(&stranger(251))));
    calm.held();
}

fn the_only_member_is_killed_and_comes_back() {
    let fleet = Fleet::etcd("etcd-only", 2, 1, VXLAN).running();
    let (etcd, calm) = (fleet.etcd().unwrap(), Calm::begin(&fleet));
    let member = &etcd.members()[0];
    member.service("etcd").stop(Signal::KILL).unwrap();
    // Long enough for the pauses between tries to grow.
    time_to("flanneld to name the trouble", LONG, || {
        fleet.nodes().iter().all(|node| node.log().contains("WARN"))
    });
    etcd.start(member).unwrap();
    etcd.wait_healthy(member).unwrap();
    tell(format!("a new peer is followed after {:?}", fleet.time_to_follow(&stranger(250))));
    calm.held();
}

/// Two nodes that reach etcd through a cable that can be cut.
fn cabled(name: &str) -> (Fleet, Relay) {
    let flanneld_args = ["--etcd-endpoints", "http://10.0.0.11:2390"].map(str::to_owned).to_vec();
    let (topology, store) = (Topology::flat(2).unwrap(), Store::etcd(1));
    let fleet = Fleet::up(name, LabOptions { topology, store, flanneld_args, ..options(VXLAN) });
    let proxy = Relay::start(&fleet.servers()[0], 2390, 2379).unwrap();
    (fleet.running(), proxy)
}

fn the_watch_is_cut_a_hundred_times() {
    let (fleet, proxy) = cabled("etcd-cut");
    let calm = Calm::begin(&fleet);
    for _ in 0..100 {
        time_to("the daemons to connect", LONG, || proxy.cut() > 0);
    }
    tell(format!(
        "{} connections; a new peer is followed after {:?}",
        proxy.connections(),
        fleet.time_to_follow(&stranger(250))
    ));
    calm.held();
}

fn history_is_compacted_while_nobody_listens() {
    let (fleet, proxy) = cabled("etcd-compacted");
    let (etcd, calm) = (fleet.etcd().unwrap(), Calm::begin(&fleet));
    let gone = stranger(249);
    fleet.time_to_follow(&gone);
    proxy.shut();
    etcd.delete(&gone.path()).unwrap();
    let lease = stranger(250);
    etcd.put(&lease.path(), &lease.value).unwrap();
    etcd.put("/elsewhere", "1").unwrap();
    etcd.compact(etcd.revision().unwrap()).unwrap();
    proxy.open();
    tell(format!("a new peer is followed after {:?}", fleet.wait_route(&lease.subnet())));
    let left = |node: &Node| !node.ip(&format!("route show {}", gone.subnet())).unwrap().is_empty();
    assert!(!fleet.nodes().iter().any(left), "a peer that left meanwhile");
    calm.held_but(&["10.244.249.", "02:00:00:00:01:f9"]);
}

fn garbage_keys_and_values_remove_nobody() {
    let keys =
        ["/garbage", "/10.244.999.0-24", "/10.244.7.0-99", "/", "-old/10.244.8.0-24", "/a/b/10.244.9.0-24"];
    let long = "x".repeat(100_000);
    survives("etcd-garbage", &keys, &["", "null", "{\"PublicIP\":7}", "\u{0}", &long]);
}

fn a_value_without_an_address_is_garbage_too() {
    survives("etcd-nobody", &[], &["{}", "[]", "{\"PublicIP\":\"0.0.0.0\"}"]);
}

/// Writes keys, and values over the lease of a node that lives: its peers keep it, and it repairs what it said.
fn survives(name: &str, keys: &[&str], values: &[&str]) {
    let fleet = Fleet::etcd(name, 3, 1, VXLAN).running();
    let (etcd, calm) = (fleet.etcd().unwrap(), Calm::begin(&fleet));
    let victim = fleet.etcd_lease(fleet.node("worker2"));
    let folder = format!("{}/subnets", Etcd::PREFIX);
    keys.iter().for_each(|key| etcd.put(&format!("{folder}{key}"), "{}").unwrap());
    for value in values {
        etcd.put(&format!("{folder}/10.244.248.0-24"), value).unwrap();
        etcd.put(&format!("{folder}/{}", victim.key), value).unwrap();
        let repaired = time_to("worker2 to say again what it said", LONG, || {
            let now = fleet.etcd().unwrap().leases().unwrap();
            now.iter().any(|lease| (&lease.key, &lease.value) == (&victim.key, &victim.value))
        });
        tell(format!("{:.20} is repaired after {repaired:?}", value.escape_default().to_string()));
    }
    tell(format!("a new peer is followed after {:?}", fleet.time_to_follow(&stranger(250))));
    fleet.wait_all_reach();
    calm.held();
}
