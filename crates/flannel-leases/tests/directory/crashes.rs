//! kill -9 at any moment, and locks that are not let go.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::hash::{BuildHasher, RandomState};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use flannel_leases::{Directory, LeaseStore, StoreError};
use flannel_plan::family::{ByFamily, overlap};
use flannel_plan::lease::Lease;

use crate::stage::{Stage, V4, all, announcement, configure, publish, run, soon};

const STORE: &str = "FLANNEL_TEST_STORE";
const OWNER: &str = "FLANNEL_TEST_OWNER";
const ROUNDS: u64 = 30;
const NODES: u8 = 3;

fn config(subnet_len: u8) -> String {
    V4.replace("/16\"", &format!("/16\",\"SubnetLen\":{subnet_len}"))
}

/// Not a test but the node that the next one kills: it claims, moves and changes its lease without end.
#[test]
fn a_node_that_is_made_to_be_killed() {
    let (Ok(store), Ok(owner)) = (std::env::var(STORE), std::env::var(OWNER)) else { return };
    let dir = PathBuf::from(store);
    let mut node = Directory::open(&dir, owner.clone(), ByFamily::default()).unwrap();
    let mut progress = std::io::stdout();
    for turn in 0_u8.. {
        match turn % 8 {
            0 => configure(&dir, &config(24)),
            4 => configure(&dir, &config(25)),
            6 => drop(Directory::release(&dir, &owner)),
            _ => {}
        }
        run(publish(&mut node, &announcement(turn)));
        progress.write_all(b".").unwrap();
        progress.flush().unwrap();
    }
}

fn start(dir: &Path, owner: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crashes::a_node_that_is_made_to_be_killed", "--nocapture"])
        .env(STORE, dir)
        .env(OWNER, owner)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Lets it get somewhere, and a random bit further; then ends it without warning.
fn kill(mut node: Child, dice: u64) {
    let mut output = node.stdout.take().unwrap();
    let mut byte = [0];
    let mut claims = 1 + dice % 12;
    while claims > 0 {
        output.read_exact(&mut byte).unwrap();
        claims -= u64::from(byte == *b".");
    }
    let until = Instant::now() + Duration::from_micros(dice / 12 % 3000);
    while Instant::now() < until {
        std::hint::spin_loop();
    }
    node.kill().unwrap();
    node.wait().unwrap();
}

fn assert_sound(leases: &[Lease]) {
    for (position, one) in leases.iter().enumerate() {
        for other in leases.iter().skip(position + 1).filter(|other| other.owner != one.owner) {
            assert!(!overlap(one.subnets.v4.unwrap(), other.subnets.v4.unwrap()), "{one} and {other}");
        }
    }
}

#[test]
fn nodes_killed_at_any_moment_leave_whole_leases_and_no_subnet_with_two_owners() {
    let stage = Stage::new(V4);
    let mut most = BTreeMap::new();
    for round in 0..ROUNDS {
        let owners = (0..NODES).map(|n| format!("node-{n}"));
        let nodes: Vec<_> = owners.map(|owner| start(stage.path(), &owner)).collect();
        for (number, node) in nodes.into_iter().enumerate() {
            kill(node, RandomState::new().hash_one((round, number)));
        }
        let leases = all(stage.path());
        assert_sound(&leases);
        *most.entry(leases.len()).or_insert(0) += 1;
    }
    println!("leases left by {NODES} killed nodes: {most:?} (count: rounds)");
    for n in 0..NODES {
        run(publish(&mut stage.node(&format!("node-{n}")), &announcement(n)));
    }
    let leases = all(stage.path());
    assert_sound(&leases);
    assert_eq!(leases.len(), usize::from(NODES), "one lease for each owner");
    assert_eq!(stage.files().len(), usize::from(NODES), "and no unfinished file");
}

#[tokio::test]
async fn a_lock_that_is_not_let_go_is_named_and_then_only_the_newest_announcement_is_written() {
    let stage = Stage::new(V4);
    let lock = File::create(stage.path().join("lock")).unwrap();
    lock.lock().unwrap();
    let mut node = stage.node("one");
    tokio::time::pause();
    for n in 1..=3 {
        let wrong = node.publish(&announcement(n)).await.unwrap_err();
        assert_eq!(
            wrong.to_string(),
            format!(
                "{0}/lock has been locked by another program for 30s: `fuser {0}/lock` names it",
                stage.path().display()
            )
        );
    }
    let wrong = node.publish(&announcement(4)).await.unwrap_err();
    assert!(matches!(wrong, StoreError::Locked { .. }));
    tokio::time::resume();
    let last = announcement(5);
    let publishing = node.publish(&last);
    drop(lock);
    let lease = soon(publishing).await.unwrap();
    assert_eq!(lease.announcement, last);
    assert_eq!(all(stage.path()), [lease]);
}

/// Waits until somebody stands in line for the lock on this file.
fn wait_for_a_line(lock: &File) {
    let inode = format!(":{} ", lock.metadata().unwrap().ino());
    let until = Instant::now() + Duration::from_secs(20);
    let in_line = |line: &str| line.contains("->") && line.contains(&inode);
    while !fs::read_to_string("/proc/locks").unwrap().lines().any(in_line) {
        assert!(Instant::now() < until, "nobody stands in line");
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn a_lock_file_that_is_removed_while_somebody_waits_lets_only_one_in() {
    let stage = Stage::new(V4);
    let path = stage.path().join("lock");
    let old = File::create(&path).unwrap();
    old.lock().unwrap();
    let mut node = stage.node("one");
    let said = announcement(1);
    let mut publishing = Box::pin(node.publish(&said));
    assert!(tokio::time::timeout(Duration::ZERO, &mut publishing).await.is_err());
    wait_for_a_line(&old);
    fs::remove_file(&path).unwrap();
    let new = File::create(&path).unwrap();
    new.lock().unwrap();
    drop(old);
    wait_for_a_line(&new);
    drop(new);
    assert_eq!(soon(publishing).await.unwrap().announcement, said);
}

/// Whether a user without rights gets the lock, which nobody holds.
fn anybody_can_lock(path: &Path) -> bool {
    let mut program = Command::new("setpriv");
    program.args(["--reuid=65534", "--regid=65534", "--clear-groups", "flock", "-n"]);
    program.arg(path).arg("true").stderr(Stdio::null()).status().unwrap().success()
}

#[test]
fn no_user_without_rights_can_lock_a_store_not_even_one_of_an_earlier_version() {
    let stage = Stage::new(V4);
    let lock = stage.path().join("lock");
    fs::set_permissions(stage.path(), Permissions::from_mode(0o755)).unwrap();
    run(publish(&mut stage.node("one"), &announcement(1)));
    assert!(!anybody_can_lock(&lock));
    fs::set_permissions(&lock, Permissions::from_mode(0o664)).unwrap();
    assert!(anybody_can_lock(&lock));
    run(publish(&mut stage.node("one"), &announcement(2)));
    assert!(!anybody_can_lock(&lock));
    let kept = fs::metadata(&lock).unwrap().mode() & 0o777;
    assert_eq!(kept, 0o660, "a group that shares the store is the operator's wish");
}
