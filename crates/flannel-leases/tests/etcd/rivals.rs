//! Nodes that have the same address, and what becomes of the one lease that both take for theirs.

use flannel_leases::rival::Stand;
use flannel_leases::{LeaseStore, Snapshot, StoreError};

use crate::stage::{DUAL, Daemon, Stage, V4, announcement, dual_announcement, key, next, publish, soon, v4};

fn yields(snapshot: &Snapshot) -> bool {
    snapshot.rival.as_ref().is_some_and(|rival| rival.stand == Stand::Yields)
}

/// Gives a node that has yielded some news, so that it tries again, and sees that it is refused.
fn try_again(stage: &Stage, node: &mut Daemon, n: u8) {
    stage.put(&format!("10.244.10{n}.0-24"), &announcement(100 + n).to_etcd().unwrap());
    node.until_error(|why| why.contains("another flanneld"));
}

#[test]
fn of_two_that_live_at_one_address_the_first_stays_and_the_second_says_why_not() {
    let stage = Stage::new(V4);
    let mut first = Daemon::start(stage.node_with(v4("10.244.3.0/24")), announcement(1));
    let held = first.lease();
    let life = stage.life("10.244.3.0-24");
    let mut second = Daemon::start(stage.node_with(v4("10.244.8.0/24")), announcement(1));
    let why = second.until_error(|why| why.contains("another flanneld"));
    for word in [&*key("10.244.3.0-24"), "10.0.0.1", "MAC 02:00:00:00:04:01", "--public-ip"] {
        assert!(why.contains(word), "{word}: {why}");
    }
    let named = first.until("the first names the second", |snapshot| snapshot.rival.is_some());
    assert_eq!(named.rival.unwrap().stand, Stand::Holds);
    let beaten = second.until("the second yields", yields);
    assert_eq!((beaten.own, beaten.peers.len()), (None, 1));
    // It stays so, however often the second tries.
    let revision = stage.revision();
    (0..3).for_each(|n| try_again(&stage, &mut second, n));
    assert_eq!(stage.revision(), revision + 3, "the news alone");
    assert_eq!((first.lease(), stage.life("10.244.3.0-24")), (held, life));
    assert!(first.told.iter().skip(1).all(|told| told.own.is_some()), "the first never lost it");
}

#[test]
fn a_holder_that_starts_again_keeps_its_lease_before_one_that_waits_for_it() {
    let stage = Stage::new(V4);
    let mut first = Daemon::start(stage.node_with(v4("10.244.3.0/24")), announcement(1));
    let held = first.lease();
    let mut second = Daemon::start(stage.node_with(v4("10.244.8.0/24")), announcement(1));
    second.until("the second yields", yields);
    drop(first);
    let mut again = Daemon::start(stage.node_with(v4("10.244.3.0/24")), announcement(1));
    again.until("it holds its lease", |snapshot| {
        snapshot.own.as_deref() == Some(&held) && !snapshot.own_is_damaged
    });
    try_again(&stage, &mut second, 0);
}

#[test]
fn whoever_waits_gets_a_lease_when_the_holder_has_released_its_own() {
    let stage = Stage::new(V4);
    let mut first = Daemon::start(stage.node_with(v4("10.244.3.0/24")), announcement(1));
    first.lease();
    let mut second = Daemon::start(stage.node_with(v4("10.244.8.0/24")), announcement(1));
    second.until("the second yields", yields);
    drop(first);
    stage.delete("10.244.3.0-24");
    let lease = second.until("it has a lease", |snapshot| snapshot.own.is_some()).own.unwrap();
    assert_eq!(lease.subnets, v4("10.244.8.0/24"));
}

#[tokio::test]
async fn the_same_ipv4_address_with_another_ipv6_address_is_another_node() {
    let stage = Stage::new(DUAL);
    let (mut one, mut other) = (stage.node(), stage.node());
    let mut twin = dual_announcement(1);
    twin.public.v6 = dual_announcement(2).public.v6;
    let first = publish(&mut one, &dual_announcement(1)).await;
    let second = publish(&mut other, &twin).await;
    assert_ne!(first.subnets, second.subnets);
    let revision = stage.revision();
    assert_eq!(next(&mut one).await.own.as_deref(), Some(&first));
    assert_eq!(next(&mut other).await.own.as_deref(), Some(&second));
    assert_eq!(stage.revision(), revision);
}

#[tokio::test]
async fn a_node_with_a_dead_nodes_address_keeps_its_lease_while_it_runs_and_after_a_restart() {
    let stage = Stage::new(V4);
    publish(&mut stage.node_with(v4("10.244.2.0/24")), &announcement(2)).await;
    let mut node = stage.node_with(v4("10.244.3.0/24"));
    let first = publish(&mut node, &announcement(1)).await;
    let moved = publish(&mut node, &announcement(2)).await;
    assert_eq!((moved.subnets, moved.since), (first.subnets, first.since));
    assert_eq!(stage.names(), ["10.244.2.0-24", "10.244.3.0-24"], "what is not its own is left");
    let snapshot = next(&mut node).await;
    assert_eq!(snapshot.peers.iter().map(|peer| peer.subnets).collect::<Vec<_>>(), [v4("10.244.2.0/24")]);
    // Its subnet.env, or its memory, tells which of the two is its own.
    for store in [stage.node_with(v4("10.244.3.0/24")), stage.node().remembering(&snapshot)] {
        let mut restarted = store;
        assert_eq!(publish(&mut restarted, &announcement(2)).await, moved);
    }
    // If it has moved once more, its memory alone does.
    let mut elsewhere = stage.node().remembering(&snapshot);
    assert_eq!(publish(&mut elsewhere, &announcement(7)).await.subnets, first.subnets);
    assert_eq!(stage.names().len(), 2);
}

#[tokio::test]
async fn a_key_that_is_written_under_another_etcd_lease_is_put_right_and_named() {
    let stage = Stage::new(V4);
    let mut node = stage.node_with(v4("10.244.3.0/24"));
    let held = publish(&mut node, &announcement(1)).await;
    next(&mut node).await;
    let granted = stage.cluster.ctl(&["lease", "grant", "600"]);
    let granted = granted.split_whitespace().nth(1).unwrap();
    stage.cluster.ctl(&["put", "--lease", granted, &key("10.244.3.0-24"), &stage.value("10.244.3.0-24")]);
    let damaged = crate::stage::until(&mut node, "it is found", |snapshot| snapshot.own_is_damaged).await;
    assert_eq!(damaged.own.as_deref(), Some(&held));
    assert_eq!(publish(&mut node, &announcement(1)).await, held);
    let rival = next(&mut node).await.rival.unwrap();
    assert!(rival.says.contains(granted) && rival.object == key("10.244.3.0-24"), "{rival}");
    // Once more, and it is somebody who lives.
    stage.cluster.ctl(&["put", "--lease", granted, &key("10.244.3.0-24"), &stage.value("10.244.3.0-24")]);
    crate::stage::until(&mut node, "it yields", yields).await;
    let refused = soon(flannel_leases::LeaseStore::publish(&mut node, &announcement(1))).await;
    assert!(matches!(refused, Err(StoreError::Rival(_))), "{refused:?}");
}
