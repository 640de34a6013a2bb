//! Somebody who undoes an object again and again is met with patience: little work, one warning, and no surrender.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cluster_tests::{
    Cluster, Picture, VXLAN, cpu_time, healed, metrics, readyz, state, vxlan_mac, wait_until,
};
use flannel_lab::Node;

const FIGHT: Duration = Duration::from_secs(12);
/// A hundred times a second.
const PAUSE: Duration = Duration::from_millis(10);
/// Within a second; a busy machine may take its time.
const LONGEST_WRONG: Duration = Duration::from_secs(10);

/// How a fight went.
#[derive(Debug)]
struct Fight {
    /// How often the object was there to be broken.
    broken: u32,
    /// How long it was away at most between two times that it was right.
    longest_wrong: Duration,
    /// What flanneld spent on it.
    cpu: Duration,
    took: Duration,
}

/// Does damage by a command for as long as a fight goes on, while a witness looks. One thread in the node's network
/// does all of it.
fn fight(node: &Node, damage: &str, witness: impl FnOnce()) -> Fight {
    let pid = node.flanneld().pid().unwrap();
    let (before, start, over) = (cpu_time(pid), Instant::now(), AtomicBool::new(false));
    let (broken, longest_wrong) = thread::scope(|scope| {
        let fighter = scope.spawn(|| node.inside(|| break_until(&over, damage)).unwrap());
        witness();
        thread::sleep((start + FIGHT).saturating_duration_since(Instant::now()));
        over.store(true, Ordering::SeqCst);
        fighter.join().unwrap()
    });
    let fight = Fight { broken, longest_wrong, cpu: cpu_time(pid) - before, took: start.elapsed() };
    println!("{fight:?}");
    assert!(fight.cpu < fight.took / 10, "it costs much: {fight:?}");
    assert!((16..40).contains(&fight.broken), "ten repairs, then one a second: {fight:?}");
    assert!(fight.longest_wrong < LONGEST_WRONG, "it was given up: {fight:?}");
    fight
}

/// How often the damage could be done, and the longest time between two times.
fn break_until(over: &AtomicBool, damage: &str) -> (u32, Duration) {
    let (program, words) = damage.split_once(' ').unwrap();
    let (mut broken, mut longest, mut last) = (0, Duration::ZERO, Instant::now());
    while !over.load(Ordering::SeqCst) {
        let next = Instant::now() + PAUSE;
        if Command::new(program).args(words.split(' ')).output().unwrap().status.success() {
            broken += 1;
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    (broken, longest)
}

/// Waits until the kernel is again what it was; the hold lasts a second.
fn is_whole_again(node: &Node, whole: &Picture) {
    let start = Instant::now();
    wait_until("the kernel to be as it was before the fight", || {
        match whole.changes_to(&Picture::of(node)) {
            changes if changes.is_empty() => Ok(()),
            changes => Err(format!("{changes:#?}\n{}", node.log())),
        }
    });
    println!("whole {:?} after the fight", start.elapsed());
}

#[test]
fn a_fight_over_a_route_costs_little_is_told_once_and_ends_with_the_route_in_place() {
    let cluster = Cluster::running("fight", VXLAN);
    let (node, route) = (cluster.node("worker1"), cluster.leases().subnet_of("worker3"));
    let whole = Picture::of(node);
    fight(node, &format!("ip route del {route}"), || {
        let contested = serde_json::json!([format!("route {route}")]);
        wait_until("state.json to name what is fought over", || {
            let found = state(node)["contested"].clone();
            if found == contested { Ok(()) } else { Err(found.to_string()) }
        });
        assert_eq!(readyz(node).0, 200);
    });
    is_whole_again(node, &whole);
    let log = node.log();
    let told: Vec<_> = log.lines().filter(|line| line.contains("keeps undoing")).collect();
    assert!(told.len() == 1 && told[0].contains(&format!("route {route}")), "{told:#?}");
    assert!(metrics(node).get("flannel_repairs_total{kind=\"route\"}") >= 10.0);
    cluster.pod("worker1").ping(cluster.pod("worker3").address()).unwrap();
    let other = cluster.leases().subnet_of("worker2");
    healed(node, "another object is repaired at once", || {
        _ = node.ip(&format!("route del {other}")).unwrap()
    });
}

#[test]
fn a_device_and_a_forwarding_entry_are_fought_for_no_less() {
    let cluster = Cluster::running("fight-device", VXLAN);
    let (node, peer) = (cluster.node("worker1"), cluster.node("worker3"));
    let (whole, mac) = (Picture::of(node), vxlan_mac(peer, "flannel.1"));
    fight(node, &format!("bridge fdb del {mac} dev flannel.1"), || ());
    is_whole_again(node, &whole);
    fight(node, "ip link del flannel.1", || ());
    is_whole_again(node, &whole);
    cluster.pod("worker1").ping(cluster.pod("worker3").address()).unwrap();
}
