//! How others are followed: what comes, changes and goes, and what is only garbage.

use std::path::PathBuf;
use std::sync::Arc;

use flannel_leases::{Fault, LeaseStore};

use crate::stage::{Daemon, PREFIX, Stage, V4, announcement, both, key, next, publish, run, until, v4};
use flannel_plan::finding::Code;

fn fault(key: &str, reason: &str) -> Fault {
    Fault::new(Code::LeaseUnreadable, key, reason)
}

#[tokio::test]
async fn peers_that_come_change_and_go_are_told_in_order_and_others_stay_the_same_allocation() {
    let stage = Stage::new(V4);
    stage.put("10.244.9.0-24", r#"{"PublicIP":"10.0.0.9"}"#);
    let mut node = stage.node();
    let first = next(&mut node).await;
    assert_eq!(first.peers.len(), 1);
    stage.put("10.244.10.0-24", r#"{"PublicIP":"10.0.0.10","PublicIPv6":null,"BackendType":"vxlan"}"#);
    stage.put("10.244.7.0-24&fd00:244:0:7::-64", r#"{"PublicIP":"10.0.0.7","PublicIPv6":"fd00::7"}"#);
    let second = until(&mut node, "all are there", |snapshot| snapshot.peers.len() == 3).await;
    let subnets: Vec<_> = second.peers.iter().map(|peer| peer.subnets).collect();
    let expected = [both("10.244.7.0/24", "fd00:244:0:7::/64"), v4("10.244.9.0/24"), v4("10.244.10.0/24")];
    assert_eq!(subnets, expected);
    assert!(Arc::ptr_eq(&first.peers[0], &second.peers[1]));
    assert!(second.peers[2].since > second.peers[1].since);
    stage.put("10.244.10.0-24", r#"{"PublicIP":"10.0.0.11"}"#);
    let third = until(&mut node, "it moved", |snapshot| snapshot.peers[2].owner == "10.0.0.11").await;
    assert_eq!(third.peers[2].since, second.peers[2].since);
    assert!(Arc::ptr_eq(&first.peers[0], &third.peers[1]));
    stage.delete("10.244.9.0-24");
    let fourth = until(&mut node, "one is gone", |snapshot| snapshot.peers.len() == 2).await;
    assert_eq!(fourth.peers, [third.peers[0].clone(), third.peers[2].clone()]);
}

#[tokio::test]
async fn a_store_tells_which_cluster_it_speaks_of_as_soon_as_it_has_answered() {
    let (one, other) = (Stage::new(V4), Stage::new(V4));
    let mut node = one.node();
    assert_eq!(node.origin(), None);
    let told = next(&mut node).await.origin;
    assert!(told.is_some() && told == node.origin(), "{told:?}");
    assert_eq!(next(&mut one.node()).await.origin, told);
    assert_ne!(next(&mut other.node()).await.origin, told);
    assert!(node.server().may_be(&one.node().server()) && !node.server().may_be(&other.node().server()));
}

#[tokio::test]
async fn a_value_that_is_written_again_is_no_news() {
    let stage = Stage::new(V4);
    stage.put("10.244.9.0-24", r#"{"PublicIP":"10.0.0.9"}"#);
    let mut node = stage.node();
    let first = next(&mut node).await;
    stage.put("10.244.9.0-24", r#"{"PublicIP":"10.0.0.9"}"#);
    stage.put("10.244.10.0-24", r#"{"PublicIP":"10.0.0.10"}"#);
    let second = next(&mut node).await;
    assert_eq!(second.peers.len(), 2, "the first of two changes was not worth a snapshot");
    assert!(Arc::ptr_eq(&first.peers[0], &second.peers[0]));
}

#[tokio::test]
async fn garbage_is_named_and_removes_nobody() {
    let stage = Stage::new(V4);
    stage.put("10.244.9.0-24", r#"{"PublicIP":"10.0.0.9"}"#);
    stage.put("10.244.8.0-24", r#"{"PublicIP":"10.0.0.8"}"#);
    let mut node = stage.node();
    let before = next(&mut node).await;
    stage.put("10.244.9.0-24", "{");
    stage.put("not a subnet", r#"{"PublicIP":"10.0.0.8"}"#);
    stage.put("deeper/10.244.3.0-24", "");
    stage.put("10.244.99.0-24", r#"{"PublicIP":"somewhere"}"#);
    let spoilt = until(&mut node, "all four are named", |snapshot| snapshot.faults.len() == 4).await;
    assert_eq!(spoilt.peers, before.peers);
    let expected = [
        fault(
            &key("10.244.9.0-24"),
            "cannot be read: lease of 10.244.9.0-24: EOF while parsing an object at line 1 column 1; what it said before stays in force",
        ),
        fault(
            &key("10.244.99.0-24"),
            "cannot be read: lease of 10.244.99.0-24: invalid IPv4 address syntax at line 1 column 23",
        ),
        fault(
            &key("deeper/10.244.3.0-24"),
            "is in the way: lease key \"deeper/10.244.3.0-24\" names no subnet: expected 10.244.1.0-24 or 10.244.1.0-24&fd00:244:0:1::-64",
        ),
        fault(
            &key("not a subnet"),
            "is in the way: lease key \"not a subnet\" names no subnet: expected 10.244.1.0-24 or 10.244.1.0-24&fd00:244:0:1::-64",
        ),
    ];
    assert_eq!(spoilt.faults, expected);
    // A fresh read of the same garbage remembers nothing, and removes nothing that can be read.
    assert_eq!(next(&mut stage.node()).await.peers, [before.peers[0].clone()]);
    stage.put("10.244.9.0-24", r#"{"PublicIP":"10.0.0.9"}"#);
    for name in ["not a subnet", "deeper/10.244.3.0-24", "10.244.99.0-24"] {
        stage.delete(name);
    }
    let healed = until(&mut node, "all is well", |snapshot| snapshot.faults.is_empty()).await;
    assert_eq!(healed.peers, before.peers);
    assert!(Arc::ptr_eq(&before.peers[1], &healed.peers[1]));
}

#[test]
fn an_own_lease_that_is_spoilt_is_repaired() {
    let stage = Stage::new(V4);
    let mut node = Daemon::start(stage.node(), announcement(1));
    let lease = node.lease();
    let name = stage.names()[0].clone();
    let (value, life) = (stage.value(&name), stage.life(&name).unwrap());
    stage.cluster.ctl(&["put", "--lease", &life, &key(&name), "garbage"]);
    let damaged = node.until_next("damaged", |snapshot| snapshot.own_is_damaged);
    assert_eq!(damaged.own.as_deref(), Some(&lease), "what it said stays in force");
    let healed = node.until_next("healed", |snapshot| !snapshot.own_is_damaged);
    assert_eq!((healed.own.as_deref(), healed.faults), (Some(&lease), vec![]));
    assert_eq!((stage.value(&name), stage.life(&name)), (value, Some(life)));
}

#[tokio::test]
async fn a_config_that_cannot_be_read_or_is_gone_leaves_the_old_one_in_force() {
    let stage = Stage::new(V4);
    let mut node = stage.node();
    let good = next(&mut node).await;
    let config = format!("{PREFIX}/config");
    stage.configure("{");
    let spoilt = until(&mut node, "it is named", |snapshot| !snapshot.faults.is_empty()).await;
    assert_eq!(spoilt.config, good.config);
    assert_eq!(spoilt.faults[0].file, PathBuf::from(&config));
    assert!(
        spoilt.faults[0].reason.ends_with("; what it said before stays in force"),
        "{}",
        spoilt.faults[0]
    );
    stage.cluster.ctl(&["del", &config]);
    let gone =
        until(&mut node, "it is gone", |snapshot| snapshot.faults[0].reason.contains("not found")).await;
    assert_eq!(gone.config, good.config);
    publish(&mut node, &announcement(1)).await;
    stage.configure(&V4.replace("vxlan", "host-gw"));
    let changed = until(&mut node, "it is another", |snapshot| snapshot.config != good.config).await;
    assert_eq!(changed.faults, []);
}

#[test]
fn compaction_under_a_watch_loses_nothing() {
    let stage = Stage::new(V4);
    stage.put("10.244.9.0-24", r#"{"PublicIP":"10.0.0.9"}"#);
    let mut node = Daemon::start(stage.node(), announcement(1));
    node.lease();
    for n in 20..25 {
        stage.put(&format!("10.244.{n}.0-24"), &format!(r#"{{"PublicIP":"10.0.0.{n}"}}"#));
        stage.cluster.ctl(&["compact", "--physical", &stage.revision().to_string()]);
        node.until("followed", |snapshot| {
            snapshot.peers.iter().any(|peer| peer.owner == format!("10.0.0.{n}"))
        });
    }
    assert!(node.always_had(0, "10.0.0.9"));
}

#[test]
fn a_change_that_was_compacted_while_nobody_looked_is_seen_by_a_whole_read() {
    let stage = Stage::new(V4);
    for n in [7, 8, 9] {
        stage.put(&format!("10.244.{n}.0-24"), &format!(r#"{{"PublicIP":"10.0.0.{n}"}}"#));
    }
    let mut stage = stage;
    let mut node = stage.node();
    run(async { next(&mut node).await });
    stage.delete("10.244.8.0-24");
    stage.put("10.244.9.0-24", r#"{"PublicIP":"10.0.0.99"}"#);
    stage.cluster.ctl(&["compact", &stage.revision().to_string()]);
    stage.cluster.kill(0);
    stage.cluster.start(0);
    stage.cluster.wait_until_healthy(0);
    let mut node = Daemon::start(node, announcement(1));
    let snapshot = node.until("followed", |snapshot| snapshot.peers.len() == 2);
    let owners: Vec<_> = snapshot.peers.iter().map(|peer| peer.owner.as_str()).collect();
    assert_eq!(owners, ["10.0.0.7", "10.0.0.99"]);
    assert!(node.always_had(0, "10.0.0.7"));
}
