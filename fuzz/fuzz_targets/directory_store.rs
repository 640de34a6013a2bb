//! The files of a lease store, which any node or person may have written: the first line is the name of a lease
//! file, the rest its content. Whatever they hold, the store can be listed, and garbage is named.
#![no_main]

use std::fs;
use std::path::Path;

use flannel_leases::Directory;
use flannel_plan::lease::subnet_key;
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

/// A new store, which goes with the value: in memory where that is possible, for a fuzzer makes thousands a second.
fn store() -> TempDir {
    let memory = Path::new("/dev/shm");
    let store = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let store = store.expect("a folder");
    fs::create_dir(store.path().join("leases")).expect("a folder");
    fs::write(store.path().join("config.json"), r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}"#)
        .expect("a file");
    store
}

fuzz_target!(|text: &str| {
    let (name, content) = text.split_once('\n').unwrap_or(("10.244.1.0-24", text));
    if name.contains(['/', '\0']) || name.starts_with('.') || name.len() > 200 {
        return;
    }
    let store = store();
    fs::write(store.path().join("leases").join(format!("{name}.json")), content).expect("a file");
    let snapshot = Directory::list(store.path()).expect("a store can be listed");
    assert_eq!(snapshot.peers.len() + snapshot.faults.len(), 1, "{snapshot:?}");
    for lease in &snapshot.peers {
        assert_eq!(subnet_key(&lease.subnets), name);
        assert!(!lease.owner.is_empty());
    }
});
