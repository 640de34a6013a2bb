//! Somebody who undoes an object again and again is met with patience: little work, one warning, and no surrender.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cluster_tests::{Cluster, VXLAN, cpu_time, healed, metrics, readyz, state, wait_until};
use flannel_lab::Node;

const FIGHT: Duration = Duration::from_secs(6);
/// A hundred times a second.
const PAUSE: Duration = Duration::from_millis(10);

/// Deletes a route for as long as the fight goes on; tells how often it was there to be deleted.
fn fight(node: &Node, route: &str, over: &AtomicBool) -> u32 {
    let deleted = AtomicU32::new(0);
    while !over.load(Ordering::SeqCst) {
        let next = Instant::now() + PAUSE;
        if node.ip(&format!("route del {route}")).is_ok() {
            deleted.fetch_add(1, Ordering::SeqCst);
        }
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    deleted.into_inner()
}

#[test]
fn a_fight_over_a_route_costs_little_is_told_once_and_ends_with_the_route_in_place() {
    let cluster = Cluster::running("fight", VXLAN);
    let (node, route) = (cluster.node("worker1"), cluster.leases().subnet_of("worker3"));
    let pid = node.flanneld_pid().unwrap();
    let (before, start, over) = (cpu_time(pid), Instant::now(), AtomicBool::new(false));
    let deleted = thread::scope(|scope| {
        let fight = scope.spawn(|| fight(node, &route, &over));
        let contested = serde_json::json!([format!("route {route}")]);
        wait_until("state.json to name what is fought over", || {
            let found = state(node)["contested"].clone();
            if found == contested { Ok(()) } else { Err(found.to_string()) }
        });
        assert_eq!(readyz(node).0, 200);
        thread::sleep((start + FIGHT).saturating_duration_since(Instant::now()));
        over.store(true, Ordering::SeqCst);
        fight.join().unwrap()
    });
    let (spent, took) = (cpu_time(pid) - before, start.elapsed());
    println!("{deleted} times deleted in {took:?}; flanneld spent {spent:?}");
    assert!(spent < took / 4, "{spent:?} of {took:?}");
    assert!((10..40).contains(&deleted), "ten repairs, then ever fewer: {deleted}");

    let healed_after = healed_again(node, &route);
    println!("whole {healed_after:?} after the fight");
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

/// The object is put back when its hold ends: seconds, after so short a fight.
fn healed_again(node: &Node, route: &str) -> Duration {
    let start = Instant::now();
    wait_until("the route to be back", || {
        let found = node.ip(&format!("route show {route}")).unwrap();
        if found.contains(" dev flannel.1 proto 70 onlink") { Ok(()) } else { Err(node.log()) }
    });
    start.elapsed()
}
