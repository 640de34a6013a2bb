use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::mpsc;

use super::*;

const BOOT: &str = "88a5af9c-4dbd-48de-bbeb-dedcf3562288";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn locked(path: &Path) -> Folder {
    Folder::lock(path, Missing::Make).unwrap().unwrap()
}

fn network() -> (tempfile::TempDir, PathBuf) {
    let data = tempfile::tempdir().unwrap();
    let path = data.path().join("mynet");
    (data, path)
}

fn listed(folder: &Folder) -> Vec<(IpAddr, Option<Content>)> {
    let mut listed = folder.list().unwrap();
    listed.sort_by_key(|(address, _)| *address);
    listed
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn the_files_are_those_of_go() {
    let (_data, path) = network();
    let folder = locked(&path);
    folder.create(ip("10.22.0.2"), b"c0ffee01\r\neth0", Some(BOOT)).unwrap();
    folder.set_last_reserved(0, ip("10.22.0.2")).unwrap();
    assert_eq!(names(&path), ["10.22.0.2", "last_reserved_ip.0", "lock"]);
    assert_eq!(fs::read(path.join("10.22.0.2")).unwrap(), b"c0ffee01\r\neth0");
    assert_eq!(fs::read(path.join("last_reserved_ip.0")).unwrap(), b"10.22.0.2");
    let mode = |name: &str| fs::metadata(path.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(["10.22.0.2", "last_reserved_ip.0", "lock", "."].map(mode), [0o600, 0o600, 0o750, 0o755]);
}

#[test]
fn both_ways_to_make_a_file_make_the_same() {
    let (data, path) = network();
    let folder = locked(&path);
    folder.create(ip("10.22.0.2"), b"a\r\neth0", Some(BOOT)).unwrap();
    folder.create_by_draft(ip("fd00::2"), b"a\r\neth0", Some(BOOT)).unwrap();
    let content = |name: &str| {
        let modified = fs::metadata(path.join(name)).unwrap();
        let modified = (modified.mtime(), modified.mtime_nsec());
        Some(Content { owner: b"a\r\neth0".to_vec(), stamp: Some(BOOT.into()), modified })
    };
    let expected = ["10.22.0.2", "fd00::2"].map(|name| (ip(name), content(name)));
    assert_eq!(listed(&folder), expected);
    assert_eq!(fs::metadata(path.join("fd00::2")).unwrap().mode() & 0o777, 0o600);
    assert_eq!(names(data.path()), ["mynet"]);
}

#[test]
fn a_file_that_is_there_is_left_as_it_is() {
    let (data, path) = network();
    let folder = locked(&path);
    folder.create(ip("10.22.0.2"), b"a\r\neth0", None).unwrap();
    assert_eq!(folder.create(ip("10.22.0.2"), b"b\r\neth0", None), Err(Errno::EXIST));
    assert_eq!(folder.create_by_draft(ip("10.22.0.2"), b"b\r\neth0", None), Err(Errno::EXIST));
    assert_eq!(fs::read(path.join("10.22.0.2")).unwrap(), b"a\r\neth0");
    assert_eq!(
        (names(&path), names(data.path())),
        (vec!["10.22.0.2".into(), "lock".into()], vec!["mynet".into()])
    );
}

#[test]
fn a_draft_that_a_crash_left_beside_its_reservation_is_not_written_to() {
    let (data, path) = network();
    let folder = locked(&path);
    folder.create(ip("10.22.0.2"), b"a\r\neth0", None).unwrap();
    fs::hard_link(path.join("10.22.0.2"), data.path().join(".mynet.draft")).unwrap();
    folder.create_by_draft(ip("10.22.0.3"), b"b\r\neth0", None).unwrap();
    assert_eq!(fs::read(path.join("10.22.0.2")).unwrap(), b"a\r\neth0");
    assert_eq!(fs::read(path.join("10.22.0.3")).unwrap(), b"b\r\neth0");
}

#[test]
fn only_names_that_go_writes_are_reservations() {
    let (_data, path) = network();
    let folder = locked(&path);
    for name in
        ["10.22.0.2", "fd00::2", "FD00::3", "fd00:0::4", "::ffff:10.0.0.1", "10.0.0.01", "last_reserved_ip.0"]
    {
        fs::write(path.join(name), "x").unwrap();
    }
    let listed: Vec<IpAddr> = listed(&folder).into_iter().map(|(address, _)| address).collect();
    assert_eq!(listed, ["10.22.0.2", "fd00::2"].map(ip));
}

#[test]
fn what_is_no_file_is_not_read_and_not_waited_for() {
    let (_data, path) = network();
    let folder = locked(&path);
    fs::create_dir(path.join("10.22.0.2")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, path.join("10.22.0.3"), FileType::Fifo, FILE, 0).unwrap();
    std::os::unix::fs::symlink("lock", path.join("10.22.0.4")).unwrap();
    assert_eq!(listed(&folder), ["10.22.0.2", "10.22.0.3", "10.22.0.4"].map(|name| (ip(name), None)));
}

#[test]
fn the_last_address_may_be_shorter_than_the_one_before_and_may_be_unreadable() {
    let (_data, path) = network();
    let folder = locked(&path);
    assert_eq!(folder.last_reserved(0), None);
    for address in ["10.22.0.100", "10.22.0.7", "10.22.0.22"].map(ip) {
        folder.set_last_reserved(0, address).unwrap();
        assert_eq!(fs::read_to_string(path.join("last_reserved_ip.0")).unwrap(), address.to_string());
        assert_eq!(folder.last_reserved(0), Some(address));
    }
    fs::write(path.join("last_reserved_ip.0"), "10.22.0.700").unwrap();
    assert_eq!(folder.last_reserved(0), None);
}

#[test]
fn a_folder_is_one_at_a_time_even_if_the_lock_is_replaced_meanwhile() {
    let (_data, path) = network();
    let first = locked(&path);
    let (tell, told) = mpsc::channel();
    let second = std::thread::spawn({
        let path = path.clone();
        move || {
            tell.send(()).unwrap();
            let folder = locked(&path);
            // The lock that is held is the one that others will find.
            let held = fstat(&folder._lock).unwrap().st_ino;
            assert_eq!(fs::metadata(path.join("lock")).unwrap().ino(), held);
        }
    });
    told.recv().unwrap();
    fs::remove_file(path.join("lock")).unwrap();
    drop(first);
    second.join().unwrap();
}

#[test]
fn a_folder_that_is_not_there_is_made_or_left() {
    let (_data, path) = network();
    assert!(Folder::lock(&path, Missing::Leave).unwrap().is_none());
    assert!(!path.exists());
    assert!(Folder::lock(&path, Missing::Make).unwrap().is_some());
}

#[test]
fn a_folder_that_cannot_be_is_none() {
    let data = tempfile::tempdir().unwrap();
    let long = data.path().join("x".repeat(300));
    assert!(Folder::lock(&long, Missing::Leave).unwrap().is_none());
    assert_eq!(Folder::lock(&long, Missing::Make).err(), Some(Errno::NAMETOOLONG));
    fs::write(data.path().join("file"), "").unwrap();
    let below = data.path().join("file").join("mynet");
    assert!(Folder::lock(&below, Missing::Leave).unwrap().is_none());
    assert_eq!(Folder::lock(&below, Missing::Make).err(), Some(Errno::NOTDIR));
}

/// A file system with room for one folder and nothing else.
#[allow(deprecated, reason = "its successor is unsafe for the sake of FILES, which is not asked for here")]
fn full_disk(path: &Path) {
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
    rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNS).unwrap();
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
    mount("full", path, "tmpfs", MountFlags::empty(), Some(c"nr_inodes=2")).unwrap();
}

#[test]
fn who_locks_the_folder_of_a_full_disk_cannot_keep_addresses_from_being_freed() {
    let (data, path) = network();
    let on_a_full_disk = || {
        full_disk(data.path());
        fs::create_dir(&path).unwrap();
        let anybody = fs::File::open(&path).unwrap();
        anybody.lock().unwrap();
        assert!(Folder::lock(&path, Missing::Leave).unwrap().is_some());
        assert_eq!(Folder::lock(&path, Missing::Make).map(|_| ()), Err(Errno::NOSPC));
    };
    std::thread::scope(|scope| scope.spawn(on_a_full_disk).join().unwrap());
}
