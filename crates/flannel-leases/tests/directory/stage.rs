//! What every test needs: a store in a directory of its own, nodes, and patience with a limit.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use flannel_leases::{Directory, LeaseStore, Snapshot, StoreError};
use flannel_plan::family::ByFamily;
use flannel_plan::lease::{Announcement, BackendData, Lease};
use ipnet::IpNet;
use tempfile::TempDir;

pub const V4: &str = r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}"#;
pub const V6: &str =
    r#"{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fd00:244::/48","Backend":{"Type":"vxlan"}}"#;
pub const DUAL: &str = r#"{"Network":"10.244.0.0/16","EnableIPv6":true,"IPv6Network":"fd00:244::/48","Backend":{"Type":"vxlan"}}"#;

/// A store that goes away with the test.
pub struct Stage {
    pub dir: TempDir,
}

impl Stage {
    pub fn new(config: &str) -> Self {
        let stage = Self { dir: TempDir::new().unwrap() };
        stage.configure(config);
        stage
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Replaces the config as editors do: a new file under the old name.
    pub fn configure(&self, config: &str) {
        configure(self.path(), config);
    }

    pub fn node(&self, owner: &str) -> Directory {
        Directory::open(self.path(), owner, ByFamily::default()).unwrap()
    }

    pub fn lease_file(&self, key: &str) -> PathBuf {
        self.path().join(format!("leases/{key}.json"))
    }

    /// Puts a lease file there by hand.
    pub fn put(&self, key: &str, content: &str) {
        fs::create_dir_all(self.path().join("leases")).unwrap();
        fs::write(self.lease_file(key), content).unwrap();
    }

    /// The names in the directory of the leases, sorted.
    pub fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path().join("leases")).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

pub fn configure(dir: &Path, config: &str) {
    let unfinished = dir.join(format!(".config.{}", std::process::id()));
    fs::write(&unfinished, config).unwrap();
    fs::rename(unfinished, dir.join("config.json")).unwrap();
}

/// What node number `n` says of itself.
pub fn announcement(n: u8) -> Announcement {
    let data = |tail: u8| {
        BackendData::from_json(&format!(r#"{{"VNI":1,"VtepMAC":"02:00:00:00:{tail:02x}:{n:02x}"}}"#))
    };
    Announcement {
        public: ByFamily { v4: Some(IpAddr::from([10, 0, 0, n])), v6: None },
        backend: "vxlan".to_owned(),
        detail: ByFamily { v4: data(4).unwrap(), v6: None },
    }
}

pub fn v4(subnet: &str) -> ByFamily<IpNet> {
    ByFamily { v4: Some(subnet.parse().unwrap()), v6: None }
}

pub fn both(v4: &str, v6: &str) -> ByFamily<IpNet> {
    ByFamily { v4: Some(v4.parse().unwrap()), v6: Some(v6.parse().unwrap()) }
}

/// Runs something that must not take long.
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), what).await.expect("it should not take 20 s")
}

pub async fn next(store: &mut Directory) -> Result<Snapshot, StoreError> {
    soon(store.next()).await
}

pub async fn publish(store: &mut Directory, announcement: &Announcement) -> Lease {
    soon(store.publish(announcement)).await.unwrap()
}

/// All leases in a store that has no fault.
pub fn all(dir: &Path) -> Vec<Lease> {
    let listed = Directory::list(dir).unwrap();
    assert_eq!(listed.faults, []);
    listed.peers.into_iter().map(Arc::unwrap_or_clone).collect()
}

/// Runs something to its end without a runtime around it.
pub fn run<T>(what: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(what)
}
