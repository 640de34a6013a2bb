//! An etcd that dies, hangs, loses its memory or its majority: nobody is removed for it, and all is followed after.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use flannel_leases::etcd::{Etcd, EtcdOptions};
use flannel_leases::{LeaseStore, Snapshot};

use crate::proxy::Proxy;
use crate::server::Cluster;
use crate::stage::{Daemon, Stage, V4, announcement, open, run, soon};

fn peer(stage: &Stage, n: u8) {
    stage.put(&format!("10.244.{n}.0-24"), &format!(r#"{{"PublicIP":"10.0.0.{n}"}}"#));
}

fn has(owner: &'static str) -> impl Fn(&Snapshot) -> bool {
    move |snapshot| snapshot.peers.iter().any(|peer| peer.owner == owner)
}

/// A node with a lease, and a peer that must never be missed.
fn settled(stage: &Stage) -> Daemon {
    settled_on(stage, stage.node())
}

fn settled_on(stage: &Stage, store: Etcd) -> Daemon {
    peer(stage, 9);
    let mut node = Daemon::start(store, announcement(1));
    node.lease();
    node.until("the peer is there", has("10.0.0.9"));
    node
}

/// After an outage: a new peer is followed, the old one never was away, and neither was the own lease.
fn recovers(mut node: Daemon, stage: &Stage, what: &str) {
    let began = Instant::now();
    peer(stage, 20);
    node.until("the new peer is followed", has("10.0.0.20"));
    println!("{what}: a new peer was followed {:?} after etcd was back", began.elapsed());
    assert!(node.always_had(1, "10.0.0.9"), "{:#?}", node.told);
    let settled = node.told.iter().position(|told| told.own.is_some()).unwrap();
    assert!(node.told.iter().skip(settled).all(|told| told.own.is_some()));
}

#[test]
fn a_killed_etcd_that_comes_back_is_followed_at_once() {
    let mut stage = Stage::new(V4);
    let mut node = settled(&stage);
    stage.cluster.kill(0);
    let why = node.until_error(|why| why.contains("refused"));
    assert!(why.starts_with("etcd does not answer: http://127.0.0.1:"), "{why}");
    assert!(
        why.ends_with("Connection refused (os error 111): start etcd, or correct --etcd-endpoints"),
        "{why}"
    );
    stage.cluster.start(0);
    stage.cluster.wait_until_healthy(0);
    recovers(node, &stage, "etcd killed and started again");
}

#[test]
fn an_etcd_that_hangs_is_noticed_and_nobody_is_removed() {
    let stage = Stage::new(V4);
    let mut node = settled(&stage);
    let began = Instant::now();
    stage.cluster.signal(0, "-STOP");
    let why = node.until_error(|_| true);
    println!("an etcd that hangs was noticed after {:?}: {why}", began.elapsed());
    stage.cluster.signal(0, "-CONT");
    recovers(node, &stage, "etcd stopped and continued");
}

#[test]
fn a_member_that_dies_or_hangs_is_left_for_the_next_one() {
    for (signal, what) in [("-KILL", "leader killed"), ("-STOP", "leader stopped")] {
        let stage = Stage::on(Cluster::of(3), V4);
        let leader = stage.cluster.leader();
        let mut options = stage.options();
        options.endpoints.rotate_left(leader);
        let node = settled_on(&stage, open(options));
        stage.cluster.signal(leader, signal);
        let began = Instant::now();
        let others: Vec<usize> = (0..3).filter(|n| *n != leader).collect();
        let put = || {
            let key = crate::stage::key("10.244.20.0-24");
            stage.cluster.try_ctl(&others, &["put", &key, r#"{"PublicIP":"10.0.0.20"}"#])
        };
        crate::stage::wait_for("a new leader", || put().is_some());
        println!("{what}: the others took a key after {:?}", began.elapsed());
        let mut node = node;
        node.until("the new peer is followed", has("10.0.0.20"));
        println!("{what}: a new peer was followed {:?} after the fault", began.elapsed());
        assert!(node.always_had(1, "10.0.0.9"), "{:#?}", node.told);
        assert!(node.told.iter().skip(1).all(|told| told.own.is_some()));
        drop(node);
        if signal == "-STOP" {
            stage.cluster.signal(leader, "-CONT");
        }
    }
}

#[test]
fn a_claim_goes_on_at_another_member_when_one_hangs() {
    let stage = Stage::on(Cluster::of(3), V4);
    let hangs = (stage.cluster.leader() + 1) % 3;
    let mut options = stage.options();
    options.endpoints.rotate_left(hangs);
    let mut connected = open(options.clone());
    run(async { soon(connected.publish(&announcement(1))).await.unwrap() });
    stage.cluster.signal(hangs, "-STOP");
    for (mut node, what) in [(open(options), "not yet connected"), (connected, "connected to it")] {
        let began = Instant::now();
        run(async { soon(node.publish(&announcement(2))).await.unwrap() });
        println!("a claim with a hanging member, {what}, took {:?}", began.elapsed());
    }
    stage.cluster.signal(hangs, "-CONT");
}

#[test]
fn a_member_without_a_majority_says_nothing_that_counts() {
    let stage = Stage::on(Cluster::of(3), V4);
    let mut options = stage.options();
    options.endpoints.truncate(1);
    let mut node = settled_on(&stage, open(options));
    let began = Instant::now();
    for n in [1, 2] {
        stage.cluster.signal(n, "-STOP");
    }
    let why = node.until_error(|_| true);
    println!("a member that lost its majority was noticed after {:?}: {why}", began.elapsed());
    for n in [1, 2] {
        stage.cluster.signal(n, "-CONT");
    }
    for n in 0..3 {
        stage.cluster.wait_until_healthy(n);
    }
    recovers(node, &stage, "majority lost and found");
}

/// A node that reaches etcd by a road of its own.
fn settled_behind(stage: &Stage, proxy: &Proxy) -> Daemon {
    let endpoints = vec![format!("http://127.0.0.1:{}", proxy.port)];
    let options = EtcdOptions { endpoints, ..stage.options() };
    settled_on(stage, open(options))
}

#[test]
fn a_watch_that_is_cut_a_hundred_times_loses_nothing() {
    let stage = Stage::new(V4);
    let proxy = Proxy::to(stage.cluster.members[0].port);
    let mut node = settled_behind(&stage, &proxy);
    let settled = node.told.len();
    for n in 100..200 {
        peer(&stage, n);
        if n % 3 == 0 {
            stage.delete(&format!("10.244.{n}.0-24"));
        }
        proxy.cut();
    }
    let wanted = std::iter::once(9).chain((100..200).filter(|n| n % 3 != 0));
    let wanted: Vec<_> = wanted.map(|n| format!("10.0.0.{n}")).collect();
    node.until("all are followed", |snapshot| snapshot.peers.iter().map(|peer| &peer.owner).eq(&wanted));
    println!("cut a hundred times: {} errors, {} snapshots", node.errors.len(), node.told.len() - settled);
    assert!(node.always_had(settled, "10.0.0.9"));
    assert!(node.told.iter().skip(settled).all(|told| told.own.is_some()));
}

#[test]
fn a_road_that_swallows_everything_is_noticed_and_nobody_is_removed() {
    let stage = Stage::new(V4);
    let proxy = Proxy::to(stage.cluster.members[0].port);
    let mut node = settled_behind(&stage, &proxy);
    let began = Instant::now();
    proxy.block();
    let why = node.until_error(|_| true);
    println!("a blocked road was noticed after {:?}: {why}", began.elapsed());
    proxy.unblock();
    recovers(node, &stage, "road blocked and opened");
}

#[test]
fn a_backup_with_our_lease_changes_nothing_and_its_missing_peers_are_remembered() {
    let mut stage = Stage::new(V4);
    let mut node = settled(&stage);
    let lease = node.lease();
    let backup = take_backup(&mut stage);
    peer(&stage, 30);
    node.until("the peer is there", has("10.0.0.30"));
    let since = node.told.len();
    restore(&mut stage, &backup);
    let told = node.until_next("the backup is read", |snapshot| !snapshot.faults.is_empty());
    assert_eq!(told.own.as_deref(), Some(&lease));
    let reasons: Vec<_> = told.faults.iter().map(|fault| fault.reason.as_str()).collect();
    let reason = "lacks 1 leases since etcd lost a part of its history, that of 10.0.0.30 (10.244.30.0/24) among them; they \
                  stay in force until their nodes claim them again, or as long as a lease lives";
    assert_eq!(reasons, [reason]);
    peer(&stage, 30);
    let healed = node.until_next("it is there again", |snapshot| snapshot.faults.is_empty());
    assert_eq!(healed.peers.len(), 2);
    assert!(node.always_had(since, "10.0.0.30") && node.always_had(since, "10.0.0.9"));
    recovers(node, &stage, "etcd restored with our lease");
}

#[test]
fn after_a_backup_without_our_lease_the_same_subnet_is_claimed_again() {
    let mut stage = Stage::new(V4);
    peer(&stage, 9);
    let backup = take_backup(&mut stage);
    let mut node = settled(&stage);
    let before = node.lease();
    for n in 30..34 {
        peer(&stage, n);
    }
    node.until("the peer is there", has("10.0.0.33"));
    let since = node.told.len();
    restore(&mut stage, &backup);
    node.until_next("lost", |snapshot| snapshot.own.is_none());
    let after = node.lease();
    assert_eq!((after.subnets, after.announcement), (before.subnets, before.announcement));
    // Others may have that subnet in the new history: whoever is remembered gives way.
    stage.put("10.244.30.0-24", r#"{"PublicIP":"10.0.0.77"}"#);
    stage.put("10.244.44.0-24", r#"{"PublicIP":"10.0.0.31"}"#);
    let moved = |snapshot: &Snapshot| {
        has("10.0.0.77")(snapshot) && snapshot.peers.last().is_some_and(|last| last.owner == "10.0.0.31")
    };
    let told = node.until("both are followed", moved);
    let owners: Vec<_> =
        told.peers.iter().map(|peer| (peer.owner.as_str(), peer.subnets.v4.unwrap().to_string())).collect();
    let expected = [
        ("10.0.0.9", "10.244.9.0/24"),
        ("10.0.0.77", "10.244.30.0/24"),
        ("10.0.0.32", "10.244.32.0/24"),
        ("10.0.0.33", "10.244.33.0/24"),
        ("10.0.0.31", "10.244.44.0/24"),
    ];
    assert_eq!(owners, expected.map(|(owner, subnet)| (owner, subnet.to_owned())));
    assert!(node.always_had(since, "10.0.0.32"));
}

#[test]
fn an_etcd_that_lost_everything_takes_no_peer_and_no_config_away() {
    let mut stage = Stage::new(V4);
    let empty = take_backup_of_nothing(&stage);
    let mut node = settled(&stage);
    let before = node.lease();
    let since = node.told.len();
    restore(&mut stage, &empty);
    node.until_next("lost", |snapshot| snapshot.own.is_none());
    let after = node.lease();
    assert_eq!(after.subnets, before.subnets, "claimed by the config that was");
    assert!(node.always_had(since, "10.0.0.9"));
    let last = node.told.last().unwrap();
    assert_eq!((last.config.is_ok(), last.faults.len()), (true, 2), "{:?}", last.faults);
}

/// What is remembered ends: here after a second, which is how long leases live on this stage.
#[test]
fn a_remembered_peer_that_does_not_come_back_is_forgotten_when_its_lease_would_have_ended() {
    let mut stage = Stage::new(V4);
    let empty = take_backup_of_nothing(&stage);
    peer(&stage, 9);
    let mut node = Daemon::start(stage.node().with_ttl(std::time::Duration::from_secs(2)), announcement(1));
    node.lease();
    node.until("the peer is there", has("10.0.0.9"));
    restore(&mut stage, &empty);
    node.until_next("remembered", |snapshot| {
        snapshot.faults.iter().any(|fault| fault.reason.starts_with("lacks 1"))
    });
    node.until_next("forgotten", |snapshot| snapshot.peers.is_empty());
}

/// A copy of what etcd has on disk: as good as a snapshot, and the same for every version.
fn take_backup(stage: &mut Stage) -> PathBuf {
    stage.cluster.kill(0);
    let backup = stage.cluster.dir.path().join("backup");
    copy(&stage.cluster.data_dir(0), &backup);
    stage.cluster.start(0);
    stage.cluster.wait_until_healthy(0);
    backup
}

fn take_backup_of_nothing(stage: &Stage) -> PathBuf {
    let backup = stage.cluster.dir.path().join("nothing");
    fs::create_dir(&backup).unwrap();
    Command::new("chmod").arg("700").arg(&backup).status().unwrap();
    backup
}

fn restore(stage: &mut Stage, backup: &Path) {
    stage.cluster.kill(0);
    let data = stage.cluster.data_dir(0);
    fs::remove_dir_all(&data).unwrap();
    copy(backup, &data);
    stage.cluster.start(0);
    stage.cluster.wait_until_healthy(0);
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}
