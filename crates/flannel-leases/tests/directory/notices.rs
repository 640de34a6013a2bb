//! Changes are noticed, merged, and never missed.

use std::fs;
use std::time::Duration;

use flannel_leases::{Directory, LeaseStore, Snapshot, StoreError};
use flannel_plan::config::NetworkConfig;
use flannel_plan::family::ByFamily;

use crate::stage::{Stage, V4, announcement, next, publish, v4};

fn expected(config: &str) -> Snapshot {
    Snapshot {
        origin: None,
        version: None,
        is_stale: false,
        own_is_damaged: false,
        rival: None,
        public: ByFamily::default(),
        announced: ByFamily::default(),
        config: Ok(NetworkConfig::parse(config).unwrap()),
        own: None,
        peers: Vec::new(),
        faults: Vec::new(),
    }
}

#[tokio::test]
async fn the_first_snapshot_comes_at_once_and_has_everything() {
    let stage = Stage::new(V4);
    let mut one = stage.node("one");
    assert_eq!(next(&mut one).await.unwrap(), expected(V4));
    let own = publish(&mut one, &announcement(1)).await;
    let two = publish(&mut stage.node("two"), &announcement(2)).await;
    let three = publish(&mut stage.node("three"), &announcement(3)).await;
    let snapshot = Snapshot { own: Some(own.into()), peers: vec![two.into(), three.into()], ..expected(V4) };
    assert_eq!(next(&mut stage.node("one")).await.unwrap(), snapshot);
    assert_eq!(next(&mut one).await.unwrap(), snapshot, "a burst of changes is one snapshot");
}

#[tokio::test]
async fn a_lease_that_another_one_changes_back_at_once_is_seen() {
    let stage = Stage::new(V4);
    let (mut one, mut twin) = (stage.node("one"), stage.node("one"));
    publish(&mut one, &announcement(1)).await;
    publish(&mut twin, &announcement(2)).await;
    let changed = next(&mut one).await.unwrap();
    // What the files say is what they said at the last look, but not what was published since.
    publish(&mut one, &announcement(1)).await;
    publish(&mut twin, &announcement(2)).await;
    assert_eq!(next(&mut one).await.unwrap(), changed);
    assert_eq!(changed.own.unwrap().announcement, announcement(2));
}

#[tokio::test]
async fn peers_come_in_the_order_of_their_subnets_not_of_their_names() {
    let stage = Stage::new(V4);
    for n in ["10", "9", "100", "1"] {
        stage.put(&format!("10.244.{n}.0-24"), r#"{"PublicIP":"10.0.0.2"}"#);
    }
    let subnets: Vec<_> =
        next(&mut stage.node("one")).await.unwrap().peers.iter().map(|peer| peer.subnets).collect();
    assert_eq!(subnets, ["1", "9", "10", "100"].map(|n| v4(&format!("10.244.{n}.0/24"))));
}

#[tokio::test]
async fn a_peer_that_joins_moves_or_leaves_is_seen() {
    let stage = Stage::new(V4);
    let (mut one, mut two) = (stage.node("one"), stage.node("two"));
    assert_eq!(next(&mut one).await.unwrap(), expected(V4));
    let joined = publish(&mut two, &announcement(2)).await;
    assert_eq!(next(&mut one).await.unwrap(), Snapshot { peers: vec![joined.into()], ..expected(V4) });
    let moved = publish(&mut two, &announcement(3)).await;
    assert_eq!(next(&mut one).await.unwrap(), Snapshot { peers: vec![moved.into()], ..expected(V4) });
    Directory::release(stage.path(), "two").unwrap();
    assert_eq!(next(&mut one).await.unwrap(), expected(V4));
}

/// Writes a lease over in place, and makes it look as if nobody had.
fn write_in_secret(stage: &Stage, key: &str, content: &str) {
    let file = stage.lease_file(key);
    let before = fs::metadata(&file).unwrap();
    fs::write(&file, content).unwrap();
    fs::File::open(&file).unwrap().set_modified(before.modified().unwrap()).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().len(), before.len());
}

#[tokio::test]
async fn a_lease_that_is_written_in_place_with_the_same_size_and_time_is_seen() {
    let stage = Stage::new(V4);
    stage.put("10.244.1.0-24", r#"{"PublicIP":"10.0.0.2"}"#);
    let mut one = stage.node("one");
    assert_eq!(next(&mut one).await.unwrap().peers[0].owner, "10.0.0.2");
    write_in_secret(&stage, "10.244.1.0-24", r#"{"PublicIP":"10.0.0.3"}"#);
    assert_eq!(next(&mut one).await.unwrap().peers[0].owner, "10.0.0.3");
}

#[tokio::test]
async fn a_config_that_appears_or_is_replaced_or_written_over_is_followed() {
    let stage = Stage::new(V4);
    let file = stage.path().join("config.json");
    fs::remove_file(&file).unwrap();
    let mut one = stage.node("one");
    let missing = format!("{} is not there: write the net-conf into it", file.display());
    assert_eq!(next(&mut one).await.unwrap().config.unwrap_err().to_string(), missing);
    let wrong = one.publish(&announcement(1)).await.unwrap_err();
    assert_eq!(wrong.to_string(), format!("no lease can be claimed: {missing}"));
    assert!(!stage.path().join("leases").exists());

    stage.configure(V4);
    assert_eq!(next(&mut one).await.unwrap(), expected(V4));
    let other = V4.replace("10.244", "10.99");
    fs::write(&file, &other).unwrap();
    assert_eq!(next(&mut one).await.unwrap(), expected(&other));
}

#[tokio::test]
async fn a_waiting_call_may_be_dropped_at_any_time_without_losing_a_change() {
    let stage = Stage::new(V4);
    let mut one = stage.node("one");
    next(&mut one).await.unwrap();
    for n in 2..40 {
        assert!(tokio::time::timeout(Duration::ZERO, one.next()).await.is_err());
        let peer = publish(&mut stage.node("peer"), &announcement(n)).await;
        let mut dropped = 0;
        let snapshot = loop {
            match tokio::time::timeout(Duration::ZERO, one.next()).await {
                Ok(snapshot) => break snapshot.unwrap(),
                Err(_) => dropped += 1,
            }
            assert!(dropped < 1_000_000);
            tokio::task::yield_now().await;
        };
        assert_eq!(snapshot, Snapshot { peers: vec![peer.into()], ..expected(V4) });
    }
}

#[tokio::test]
async fn a_change_after_more_events_than_the_kernel_remembers_is_still_seen() {
    let stage = Stage::new(V4);
    stage.put("10.244.1.0-24", r#"{"PublicIP":"10.0.0.2"}"#);
    let mut one = stage.node("one");
    next(&mut one).await.unwrap();
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let (here, there) = (stage.path().join("leases/here"), stage.path().join("leases/there"));
    fs::write(&here, "").unwrap();
    for _ in 0..=limit.trim().parse::<u32>().unwrap() / 4 {
        fs::rename(&here, &there).unwrap();
        fs::rename(&there, &here).unwrap();
    }
    write_in_secret(&stage, "10.244.1.0-24", r#"{"PublicIP":"10.0.0.3"}"#);
    assert_eq!(next(&mut one).await.unwrap().peers[0].owner, "10.0.0.3");
}

#[tokio::test]
async fn leases_that_vanish_with_their_directory_stay_in_force_until_it_is_back() {
    let stage = Stage::new(V4);
    let (mut one, mut two) = (stage.node("one"), stage.node("two"));
    publish(&mut two, &announcement(2)).await;
    let before = next(&mut one).await.unwrap();
    let (leases, aside) = (stage.path().join("leases"), stage.path().join("aside"));
    fs::rename(&leases, &aside).unwrap();
    for _ in 0..2 {
        let wrong = next(&mut one).await.unwrap_err();
        assert!(matches!(wrong, StoreError::Vanished(path) if path == leases));
    }
    let wrong = one.publish(&announcement(1)).await.unwrap_err();
    assert!(matches!(wrong, StoreError::Vanished(_)), "a claim must not begin a new set of leases");
    fs::rename(&aside, &leases).unwrap();
    let moved = publish(&mut two, &announcement(3)).await;
    assert_eq!(next(&mut one).await.unwrap(), Snapshot { peers: vec![moved.into()], ..before });
}

#[tokio::test]
async fn a_store_that_goes_away_is_an_error_until_it_is_back() {
    let stage = Stage::new(V4);
    let dir = stage.path().join("store");
    fs::create_dir(&dir).unwrap();
    fs::copy(stage.path().join("config.json"), dir.join("config.json")).unwrap();
    let open = |owner: &str| Directory::open(&dir, owner, Default::default()).unwrap();
    let mut one = open("one");
    next(&mut one).await.unwrap();
    fs::rename(&dir, stage.path().join("aside")).unwrap();
    for _ in 0..2 {
        let wrong = next(&mut one).await.unwrap_err().to_string();
        assert_eq!(
            wrong,
            format!("cannot watch {} for changes: No such file or directory (os error 2)", dir.display())
        );
    }
    fs::rename(stage.path().join("aside"), &dir).unwrap();
    let two = publish(&mut open("two"), &announcement(2)).await;
    assert_eq!(next(&mut one).await.unwrap(), Snapshot { peers: vec![two.into()], ..expected(V4) });
}
