//! How a lease is kept alive, lost, and had again.

use std::time::Duration;

use flannel_leases::Fault;
use flannel_leases::etcd::EtcdOptions;
use flannel_plan::finding::Code;
use flannel_plan::lease::Lease;

use crate::stage::{Daemon, Stage, V4, announcement, key, next, open, publish, run, until, v4, wait_for};

fn fault(code: Code, name: &str, reason: &str) -> Fault {
    Fault::new(code, key(name), reason)
}

#[test]
fn a_lease_that_nobody_keeps_alive_ends_and_others_hear_of_it() {
    let stage = Stage::new(V4);
    let mut other = Daemon::start(stage.node(), announcement(2));
    let lease =
        run(async { publish(&mut stage.node().with_ttl(Duration::from_secs(1)), &announcement(1)).await });
    other.until("the node is there", |snapshot| snapshot.peers.iter().any(|peer| **peer == lease));
    other.until("the node is gone", |snapshot| snapshot.peers.is_empty());
}

#[test]
fn a_lease_is_kept_alive_and_neither_its_value_nor_its_etcd_lease_changes() {
    let stage = Stage::new(V4);
    let options = EtcdOptions { renew_margin: Duration::from_secs(1), ..stage.options() };
    let node = open(options).with_ttl(Duration::from_secs(6));
    let mut node = Daemon::start(node, announcement(1));
    node.lease();
    let name = stage.names()[0].clone();
    let life = stage.life(&name).unwrap();
    let revision = stage.revision();
    for _ in 0..3 {
        wait_for("less than its whole life left", || stage.seconds(&life).0 < 5);
        wait_for("kept alive", || stage.seconds(&life).0 >= 5);
    }
    assert_eq!((stage.revision(), stage.leases()), (revision, 1));
}

#[test]
fn a_lease_that_is_revoked_or_deleted_is_claimed_again_with_the_same_subnet() {
    let stage = Stage::new(V4);
    let mut node = Daemon::start(stage.node(), announcement(1));
    let mut before = node.lease();
    let name = stage.names()[0].clone();
    for how in ["revoked", "deleted"] {
        if how == "revoked" {
            stage.cluster.ctl(&["lease", "revoke", &stage.life(&name).unwrap()]);
        } else {
            stage.delete(&name);
        }
        let lost = node.until_next("lost", |snapshot| snapshot.own.is_none());
        let reason = "is gone (expired, revoked or deleted): this node claims it again";
        assert_eq!(lost.faults, [fault(Code::LeaseLost, &name, reason)], "{how}");
        let after = node.lease();
        assert!(after.since > before.since);
        assert_eq!(after, Lease { since: after.since, ..before }, "{how}");
        assert_eq!(stage.names(), [&*name]);
        before = after;
    }
}

#[test]
fn a_subnet_that_another_node_took_meanwhile_is_left_to_it_and_named() {
    let stage = Stage::new(V4);
    let mut node = stage.node();
    let (mine, name) = run(async {
        let lease = publish(&mut node, &announcement(1)).await;
        (lease, stage.names()[0].clone())
    });
    stage.cluster.ctl(&["lease", "revoke", &stage.life(&name).unwrap()]);
    let taker = run(async { publish(&mut stage.node_with(mine.subnets), &announcement(9)).await });
    assert_eq!(taker.subnets, mine.subnets);
    let mut node = Daemon::start(node, announcement(1));
    let lost = node.until("lost", |snapshot| snapshot.own.is_none());
    assert_eq!(lost.peers.iter().map(|peer| &**peer).collect::<Vec<_>>(), [&taker]);
    let reason = "was lost by this node and is held by 10.0.0.9 now: this node takes another subnet; its pods keep their \
                  addresses, which are no longer reached, until they are made anew";
    assert_eq!(lost.faults, [fault(Code::LeaseTaken, &name, reason)]);
    let new = node.lease();
    assert_ne!(new.subnets, mine.subnets);
    assert_eq!(stage.names().len(), 2);
    assert!(stage.value(&name).contains("10.0.0.9"), "the other's lease is as it was");
}

#[test]
fn a_key_that_another_program_gave_to_another_node_is_not_taken_back() {
    let stage = Stage::new(V4);
    let mut node = Daemon::start(stage.node(), announcement(1));
    let mine = node.lease();
    let name = stage.names()[0].clone();
    stage.put(&name, r#"{"PublicIP":"10.0.0.9"}"#);
    node.until_next("lost", |snapshot| snapshot.own.is_none());
    let new = node.lease();
    assert_ne!(new.subnets, mine.subnets);
    assert_eq!(stage.value(&name), r#"{"PublicIP":"10.0.0.9"}"#);
}

#[tokio::test]
async fn a_lease_that_ended_while_nobody_looked_is_claimed_again() {
    let stage = Stage::new(V4);
    let mut node = stage.node().with_ttl(Duration::from_secs(1));
    let before = publish(&mut node, &announcement(1)).await;
    next(&mut node).await;
    wait_for("ended", || stage.names().is_empty());
    until(&mut node, "it is lost", |snapshot| snapshot.own.is_none()).await;
    let after = publish(&mut node, &announcement(1)).await;
    assert_eq!(after, Lease { since: after.since, ..before });
}

#[tokio::test]
async fn a_lease_with_a_shorter_life_is_given_a_whole_one() {
    let stage = Stage::new(V4);
    stage.put("10.244.5.0-24", r#"{"PublicIP":"10.0.0.1"}"#);
    let granted = stage.cluster.ctl(&["lease", "grant", "600"]);
    let short = granted.split(' ').nth(1).unwrap();
    stage.cluster.ctl(&["put", "--lease", short, &key("10.244.5.0-24"), r#"{"PublicIP":"10.0.0.1"}"#]);
    let lease = publish(&mut stage.node(), &announcement(1)).await;
    assert_eq!(lease.subnets, v4("10.244.5.0/24"));
    let life = stage.life("10.244.5.0-24").unwrap();
    assert_eq!((life != short, stage.seconds(&life).1), (true, 86_400));
}
