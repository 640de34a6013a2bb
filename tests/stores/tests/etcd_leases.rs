//! Leases that are deleted, revoked, taken, restored or reserved in etcd, and what becomes of their nodes.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use cluster_tests::{VXLAN, is_ready, readyz, wait_until};
use flannel_lab::{Entry, Etcd, Signal};
use store_tests::{Calm, Fleet, GoLease, scenarios, tell, time_to};

scenarios! {
    &[] => a_lease_that_is_deleted_or_revoked_is_claimed_again_with_the_same_subnet,
        a_lease_that_ended_while_flanneld_was_stopped_is_claimed_again,
        a_subnet_that_another_node_took_is_left_to_it_and_the_node_says_so,
        a_backup_with_our_lease_changes_nothing, a_backup_without_our_lease_changes_nothing,
        a_node_alone_has_its_lease_as_go_writes_it_and_keeps_it, a_changed_network_moves_nobody_before_its_restart;
}

const LONG: Duration = Duration::from_secs(60);

fn path(lease: &Entry) -> String {
    format!("{}/subnets/{}", Etcd::PREFIX, lease.key)
}

/// Waits until a node's lease says what it said, and gives the time that took.
fn time_to_return(fleet: &Fleet, lease: &Entry) -> Duration {
    time_to("the lease to be there again", LONG, || {
        let now = fleet.etcd().unwrap().leases().unwrap();
        now.iter().any(|now| (&now.key, &now.value) == (&lease.key, &lease.value) && now.lease != 0)
    })
}

fn a_lease_that_is_deleted_or_revoked_is_claimed_again_with_the_same_subnet() {
    let fleet = Fleet::etcd("etcd-lost", 3, 1, VXLAN).running();
    let (etcd, node) = (fleet.etcd().unwrap(), fleet.node("worker2"));
    let before = fleet.etcd_lease(node);
    let calm = Calm::begin(&fleet);
    etcd.delete(&path(&before)).unwrap();
    tell(format!("a deleted lease is back after {:?}", time_to_return(&fleet, &before)));
    etcd.revoke(fleet.etcd_lease(node).lease).unwrap();
    tell(format!("a revoked lease is back after {:?}", time_to_return(&fleet, &before)));
    fleet.wait_all_reach();
    // Who hears that it is gone may believe it until it is back; nobody else is touched.
    let subnet = before.key.split('.').take(3).collect::<Vec<_>>().join(".") + ".";
    calm.held_but(&[&subnet, &store_tests::vtep(&before)]);
    assert!(fleet.nodes().iter().all(|node| node.flanneld().lives()));
}

fn a_lease_that_ended_while_flanneld_was_stopped_is_claimed_again() {
    let fleet = Fleet::etcd("etcd-ended", 3, 1, VXLAN).running();
    let (etcd, node) = (fleet.etcd().unwrap(), fleet.node("worker2"));
    let before = fleet.etcd_lease(node);
    node.flanneld().stop(Signal::TERM).unwrap();
    etcd.revoke(before.lease).unwrap();
    let subnet = fleet.node("master1");
    let route = format!("route show {}", before.key.replace('-', "/"));
    let gone = time_to("its peers to let it go", LONG, || subnet.ip(&route).unwrap().is_empty());
    node.start_flanneld([""; 0]).unwrap();
    is_ready(node);
    let after = fleet.etcd_lease(node);
    assert_eq!((after.key, after.value), (before.key, before.value), "subnet and MAC stay");
    tell(format!(
        "gone after {gone:?}, reached again after {:?}",
        fleet.wait_route(&fleet.etcd_subnet(node))
    ));
    fleet.wait_all_reach();
}

fn a_subnet_that_another_node_took_is_left_to_it_and_the_node_says_so() {
    let fleet = Fleet::etcd("etcd-taken", 2, 1, VXLAN).running();
    let (etcd, node) = (fleet.etcd().unwrap(), fleet.node("worker1"));
    let before = fleet.etcd_lease(node);
    let pod = node.pods().unwrap().remove(0).address();
    node.flanneld().signal(Signal::STOP);
    let taker = GoLease::vxlan(&before.key, "10.0.0.99", "02:00:00:00:00:99");
    etcd.delete(&path(&before)).unwrap();
    etcd.put(&taker.path(), &taker.value).unwrap();
    node.flanneld().signal(Signal::CONT);
    wait_until("worker1 to have a lease of its own again", || {
        let own = etcd.leases().unwrap().into_iter().find(|lease| lease.value.contains("\"10.0.0.21\""));
        own.map(drop).ok_or_else(|| node.log())
    });
    let after = fleet.etcd_lease(node);
    assert_ne!(after.key, before.key);
    let kept = etcd.leases().unwrap().into_iter().find(|lease| lease.key == before.key).unwrap();
    assert_eq!(kept.value, taker.value, "never two holders");
    // The lease stands in etcd a moment before the loop hears of it.
    wait_until("worker1 to name what it lost", || match node.log() {
        log if log.contains(&before.key) => Ok(()),
        log => Err(log),
    });
    assert!(node.flanneld().lives());
    assert_eq!(node.pods().unwrap().remove(0).address(), pod, "pods stay");
    tell(format!("readyz: {:?}", readyz(node)));
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(copied.success());
}

/// Stops etcd, does something with its files, and starts it again.
fn while_stopped(etcd: &Etcd<'_>, work: impl FnOnce(&Path)) {
    let member = &etcd.members()[0];
    member.service("etcd").stop(Signal::TERM).unwrap();
    work(&etcd.data(member));
    etcd.start(member).unwrap();
    etcd.wait_healthy(member).unwrap();
}

/// Brings a backup back.
fn restore(etcd: &Etcd<'_>, backup: &Path) {
    while_stopped(etcd, |data| {
        fs::remove_dir_all(data).unwrap();
        copy(backup, data);
    });
}

fn stranger(number: u8) -> GoLease {
    GoLease::vxlan(&format!("10.244.{number}.0-24"), &format!("10.0.0.{number}"), "02:00:00:00:01:fa")
}

fn a_backup_with_our_lease_changes_nothing() {
    let fleet = Fleet::etcd("etcd-backup", 2, 1, VXLAN).running();
    let (etcd, backup) = (fleet.etcd().unwrap(), fleet.folder().join("backup"));
    while_stopped(&etcd, |data| copy(data, &backup));
    let calm = Calm::begin(&fleet);
    (0..50).for_each(|number| etcd.put("/elsewhere", &number.to_string()).unwrap());
    restore(&etcd, &backup);
    tell(format!("a new peer is followed after {:?}", fleet.time_to_follow(&stranger(250))));
    calm.held();
}

fn a_backup_without_our_lease_changes_nothing() {
    let fleet = Fleet::etcd("etcd-empty", 2, 1, VXLAN);
    let (etcd, backup) = (fleet.etcd().unwrap(), fleet.folder().join("backup"));
    while_stopped(&etcd, |data| copy(data, &backup));
    fleet.start_all(store_tests::Program::Ours);
    let before: Vec<_> = fleet.nodes().iter().map(|node| fleet.etcd_lease(node)).collect();
    let calm = Calm::begin(&fleet);
    restore(&etcd, &backup);
    let took = time_to("all leases to be there again", LONG, || {
        let now: Vec<_> = etcd.leases().unwrap().into_iter().map(|lease| (lease.key, lease.value)).collect();
        before.iter().all(|lease| now.contains(&(lease.key.clone(), lease.value.clone())))
    });
    tell(format!("all leases are back after {took:?}"));
    tell(format!("a new peer is followed after {:?}", fleet.time_to_follow(&stranger(250))));
    calm.held();
}

/// Section 12.4 of what Go's own tests try, with the daemon.
fn a_node_alone_has_its_lease_as_go_writes_it_and_keeps_it() {
    let fleet = Fleet::etcd("etcd-alone", 1, 1, VXLAN);
    let (etcd, node) = (fleet.etcd().unwrap(), fleet.node("master1"));
    let restart = || {
        node.flanneld().stop(Signal::KILL).unwrap();
        node.start_flanneld([""; 0]).unwrap();
        is_ready(node);
        fleet.etcd_lease(node)
    };
    node.start_flanneld([""; 0]).unwrap();
    is_ready(node);
    let first = fleet.etcd_lease(node);
    let expected = GoLease::vxlan(&first.key, "10.0.0.20", &store_tests::vtep(&first));
    assert_eq!(first.value, expected.value);
    assert!((86_000..=86_400).contains(&etcd.time_to_live(first.lease).unwrap()));
    // Neither a restart nor a lost subnet.env changes it: it is found by the address.
    fs::remove_file(node.path("/run/flannel/subnet.env")).unwrap();
    assert_eq!(restart().key, first.key);
    // A lost lease is found by subnet.env.
    etcd.delete(&path(&first)).unwrap();
    assert_eq!(restart().key, first.key);
    // A reservation has no end, and keeps none.
    etcd.put(&path(&first), &first.value).unwrap();
    assert_eq!((restart().lease, fleet.etcd_lease(node).key), (0, first.key));
}

fn a_changed_network_moves_nobody_before_its_restart() {
    let fleet = Fleet::etcd("etcd-moved", 2, 1, VXLAN).running();
    let leases = || fleet.etcd().unwrap().leases().unwrap();
    let (before, calm) = (leases(), Calm::begin(&fleet));
    fleet.write_net_conf(r#"{"Network":"10.245.0.0/16","Backend":{"Type":"vxlan"}}"#).unwrap();
    for node in fleet.nodes() {
        wait_until("the node to say what is to be done", || {
            let body = readyz(node).1.join("\n");
            if body.contains("10.245.0.0/16") && body.contains("restart flanneld") {
                Ok(())
            } else {
                Err(body)
            }
        });
    }
    tell(format!("a new peer is followed after {:?}", fleet.time_to_follow(&stranger(250))));
    assert_eq!(
        leases().iter().filter(|lease| !lease.key.contains(".250.")).collect::<Vec<_>>(),
        before.iter().collect::<Vec<_>>()
    );
    calm.held();
    fleet.nodes().iter().for_each(|node| node.restart_flanneld().unwrap());
    fleet.nodes().iter().for_each(is_ready);
    // Until it has a lease of the new network, a node goes on with the one before.
    wait_until("all to have moved", || {
        let moved = leases().iter().filter(|lease| lease.key.starts_with("10.245.")).count();
        if moved == 2 { Ok(()) } else { Err(format!("{:?}", leases())) }
    });
}
