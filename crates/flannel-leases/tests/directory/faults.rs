//! Files that cannot be read, disks that cannot be written: named, and nothing is lost.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use flannel_leases::{Directory, LeaseStore, Snapshot};
use flannel_plan::family::ByFamily;

use crate::stage::{Stage, V4, all, announcement, configure, next, publish, run, soon, v4};

const INSIDE: &str = "FLANNEL_TEST_INSIDE";

fn reasons(snapshot: &Snapshot) -> Vec<String> {
    snapshot.faults.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn a_lease_that_turns_to_garbage_stays_in_force_while_its_file_is_there() {
    let stage = Stage::new(V4);
    publish(&mut stage.node("two"), &announcement(2)).await;
    let mut one = stage.node("one");
    let good = next(&mut one).await.unwrap();
    let file = stage.lease_file("10.244.1.0-24");
    fs::write(&file, "{").unwrap();
    let bad = next(&mut one).await.unwrap();
    assert_eq!(
        reasons(&bad),
        [format!(
            "{} holds no lease: EOF while parsing an object at line 1 column 1; what it said before stays in force",
            file.display()
        )]
    );
    assert_eq!(Snapshot { faults: Vec::new(), ..bad }, good);
    fs::remove_file(&file).unwrap();
    assert_eq!(next(&mut one).await.unwrap(), Snapshot { peers: Vec::new(), ..good });
}

#[tokio::test]
async fn what_never_was_a_lease_is_named_and_harms_nobody() {
    let stage = Stage::new(V4);
    stage.put("10.244.1.0-24", r#"{"PublicIP":"10.0.0.2","Unknown":{"more":1}}"#);
    stage.put("10.244.2.0-24", r#"{"PublicIP":"ten"}"#);
    stage.put("10.244.3.0-24", r"{}");
    stage.put("10.244.4.9-24", r#"{"PublicIP":"10.0.0.2"}"#);
    stage.put("10.244.5.0-24", "\u{0}");
    stage.put("notes", "mine");
    stage.put(".hidden", "mine");
    fs::write(stage.path().join("leases/README"), "mine").unwrap();
    fs::create_dir(stage.lease_file("10.244.6.0-24")).unwrap();
    fs::write(stage.lease_file("10.244.7.0-24"), vec![b' '; 300_000]).unwrap();
    let snapshot = next(&mut stage.node("one")).await.unwrap();
    let leases = stage.path().join("leases");
    let expected = [
        r#"10.244.2.0-24.json holds no lease: lease of 10.244.2.0-24: invalid IPv4 address syntax at line 1 column 17"#,
        "10.244.3.0-24.json holds no lease: it names neither Owner nor PublicIP",
        "10.244.4.9-24.json is not the name of a subnet: should it be 10.244.4.0-24.json?",
        "10.244.5.0-24.json holds no lease: expected value at line 1 column 1",
        "10.244.6.0-24.json cannot be read: it is a directory, not a regular file",
        "10.244.7.0-24.json cannot be read: it is larger than 262144 bytes",
        "notes.json is not a lease: lease key \"notes\" names no subnet: expected 10.244.1.0-24 or \
         10.244.1.0-24&fd00:244:0:1::-64",
    ];
    assert_eq!(reasons(&snapshot), expected.map(|reason| format!("{}/{reason}", leases.display())));
    let owners: Vec<_> = snapshot.peers.iter().map(|peer| (peer.owner.as_str(), peer.subnets)).collect();
    assert_eq!(owners, [("10.0.0.2", v4("10.244.1.0/24"))]);
}

#[tokio::test]
async fn backend_data_that_no_file_can_hold_is_refused_with_its_lease_alone() {
    let stage = Stage::new(V4);
    stage.put("10.244.1.0-24", r#"{"PublicIP":"10.0.0.2"}"#);
    let deep = "[".repeat(200) + &"]".repeat(200);
    let poison = [deep.as_str(), "1e999", r#""\ud800""#, &format!("\"{}\"", "x".repeat(5000))];
    for (number, data) in poison.iter().enumerate() {
        let value = format!(r#"{{"PublicIP":"10.0.0.9","BackendData":{data}}}"#);
        stage.put(&format!("10.244.2{number}.0-24"), &value);
    }
    let snapshot = next(&mut stage.node("one")).await.unwrap();
    let expected = [
        "backend data that is nested 200 deep is not kept, 16 are the most",
        "backend data is no JSON that can be kept: number out of range at line 1 column 5",
        "backend data is no JSON that can be kept: unexpected end of hex escape at line 1 column 8",
        "backend data of 5002 bytes is not kept, 4096 are the most",
    ];
    let told = |(number, why): (usize, &&str)| {
        let key = format!("10.244.2{number}.0-24");
        format!("{} holds no lease: lease of {key}: {why}", stage.lease_file(&key).display())
    };
    assert_eq!(reasons(&snapshot), expected.iter().enumerate().map(told).collect::<Vec<_>>());
    let subnets: Vec<_> = snapshot.peers.iter().map(|peer| peer.subnets).collect();
    assert_eq!(subnets, [v4("10.244.1.0/24")]);
}

#[tokio::test]
async fn a_config_that_turns_to_garbage_or_vanishes_leaves_the_last_good_one_in_force() {
    let stage = Stage::new(V4);
    let mut one = stage.node("one");
    let good = next(&mut one).await.unwrap();
    stage.configure("{");
    let bad = next(&mut one).await.unwrap();
    assert_eq!(bad.config, good.config);
    let file = stage.path().join("config.json").display().to_string();
    assert_eq!(bad.faults.len(), 1);
    assert!(reasons(&bad)[0].starts_with(&format!("{file} holds no net-conf: ")), "{:?}", bad.faults);
    assert_eq!(publish(&mut one, &announcement(1)).await.subnets, v4("10.244.1.0/24"));
    let own = next(&mut one).await.unwrap().own;

    fs::remove_file(&file).unwrap();
    let gone = next(&mut one).await.unwrap();
    assert_eq!(
        reasons(&gone),
        [format!("{file} is not there: write the net-conf into it; what it said before stays in force")]
    );
    assert_eq!(Snapshot { faults: Vec::new(), ..gone }, Snapshot { own, ..good });
}

#[tokio::test]
async fn a_node_mends_its_own_lease_when_that_turned_to_garbage() {
    let stage = Stage::new(V4);
    let mut one = stage.node("one");
    let lease = publish(&mut one, &announcement(1)).await;
    next(&mut one).await.unwrap();
    fs::write(stage.lease_file("10.244.1.0-24"), "").unwrap();
    assert_eq!(publish(&mut one, &announcement(1)).await, lease);
    assert_eq!(all(stage.path()), [lease]);
}

#[test]
fn a_store_that_is_not_there_and_an_owner_without_a_name_are_refused() {
    let missing = PathBuf::from("/nowhere/store");
    let refused =
        |dir: &Path, owner: &str| Directory::open(dir, owner, ByFamily::default()).err().unwrap().to_string();
    let no_store = "lease store /nowhere/store cannot be used: No such file or directory (os error 2): create the \
                    directory, or name another one";
    assert_eq!(refused(&missing, "one"), no_store);
    assert_eq!(Directory::list(&missing).unwrap_err().to_string(), no_store);
    assert_eq!(Directory::release(&missing, "one").unwrap_err().to_string(), no_store);
    assert_eq!(
        refused(Path::new("/"), ""),
        "a lease needs an owner, but this node has no name: set NODE_NAME or the host's name"
    );
}

/// Runs one of these tests again inside another program, such as `unshare`.
fn inside(mut program: Command, test: &str, dir: &Path) {
    // Other users may not be allowed to go where this program was built.
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = place.path().join("directory");
    fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let ran = program.env(INSIDE, dir).arg(copy);
    let ran = ran.args(["--exact", test, "--nocapture"]).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout) + String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && said.contains("1 passed"), "{test}: {said}");
}

fn fill(dir: &Path) -> PathBuf {
    let path = dir.join("filler");
    let mut filler = fs::File::create(&path).unwrap();
    while filler.write_all(&[0; 512]).is_ok() {}
    path
}

#[test]
fn a_full_or_read_only_disk_loses_nothing_and_is_named() {
    let Ok(dir) = std::env::var(INSIDE) else {
        let dir = tempfile::tempdir().unwrap();
        let mount = r#"mount -t tmpfs -o size=64k tmpfs "$FLANNEL_TEST_INSIDE" && exec "$@""#;
        let mut program = Command::new("unshare");
        program.args(["--mount", "sh", "-c", mount, "sh"]);
        return inside(program, "faults::a_full_or_read_only_disk_loses_nothing_and_is_named", dir.path());
    };
    fill_and_lock_up(Path::new(&dir));
}

fn fill_and_lock_up(dir: &Path) {
    configure(dir, V4);
    let open = |owner: &str| Directory::open(dir, owner, ByFamily::default()).unwrap();
    let lease = run(publish(&mut open("one"), &announcement(1)));
    let refused = |owner: &str| {
        run(soon(async { open(owner).publish(&announcement(2)).await.unwrap_err().to_string() }))
    };
    let unfinished = dir.join("leases/.unfinished");

    let filler = fill(dir);
    for owner in ["one", "two"] {
        assert_eq!(
            refused(owner),
            format!(
                "cannot write {}: No space left on device (os error 28): free some space there; nothing was changed",
                unfinished.display()
            )
        );
        assert_eq!(all(dir), std::slice::from_ref(&lease));
        assert!(!unfinished.exists());
    }
    fs::remove_file(filler).unwrap();

    let remount =
        |how: &str| assert!(Command::new("mount").args(["-o", how]).arg(dir).status().unwrap().success());
    remount("remount,ro");
    assert_eq!(
        refused("two"),
        format!("cannot lock {}/lock: Read-only file system (os error 30): mount it writable", dir.display())
    );
    assert_eq!(all(dir), std::slice::from_ref(&lease));
    remount("remount,rw");
    let second = run(publish(&mut open("two"), &announcement(2)));
    assert_eq!(all(dir), [lease, second]);
}

#[test]
fn a_user_who_may_not_write_or_read_is_told_so() {
    const NOBODY: u32 = 65534;
    let Ok(dir) = std::env::var(INSIDE).map(PathBuf::from) else {
        let stage = Stage::new(V4);
        run(publish(&mut stage.node("one"), &announcement(1)));
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(stage.path(), open).unwrap();
        fs::set_permissions(stage.lease_file("10.244.1.0-24"), fs::Permissions::from_mode(0o600)).unwrap();
        let mut program = Command::new("setpriv");
        program.args([&format!("--reuid={NOBODY}"), "--clear-groups"]);
        return inside(program, "faults::a_user_who_may_not_write_or_read_is_told_so", stage.path());
    };
    let wrong = Directory::release(&dir, "one").unwrap_err().to_string();
    let lock = dir.join("lock");
    assert_eq!(
        wrong,
        format!(
            "cannot lock {}: Permission denied (os error 13): run as root, or let this user write there",
            lock.display()
        )
    );
    let listed = Directory::list(&dir).unwrap();
    let file = dir.join("leases/10.244.1.0-24.json");
    assert_eq!(
        reasons(&listed),
        [format!("{} cannot be read: Permission denied (os error 13)", file.display())]
    );
}
