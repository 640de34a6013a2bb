//! Leases written into the store by hand, in the form of Go flannel or in ours, and read back.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// The folder of leases of one store.
#[derive(Clone, Debug)]
pub struct Leases(PathBuf);

/// A lease of a peer that may not exist: what is not set is left out.
#[derive(Clone, Debug)]
pub struct PeerLease {
    /// The name of its file, without the ending.
    pub key: String,
    /// What the file says.
    pub value: Value,
}

impl PeerLease {
    /// A vxlan peer of IPv4 with an owner; younger than every lease that a daemon made.
    pub fn vxlan(key: &str, owner: &str, public: &str, mac: &str) -> Self {
        let value = json!({
            "Owner": owner, "Since": u64::MAX / 2, "PublicIP": public, "PublicIPv6": null,
            "BackendType": "vxlan", "BackendData": { "VNI": 1, "VtepMAC": mac },
        });
        Self { key: key.to_owned(), value }
    }

    /// The same with one field changed.
    pub fn with(mut self, field: &str, value: Value) -> Self {
        self.value[field] = value;
        self
    }

    /// The same without a field.
    pub fn without(mut self, field: &str) -> Self {
        self.value.as_object_mut().unwrap().remove(field);
        self
    }
}

impl Leases {
    /// The leases of a store.
    pub fn of(store: &Path) -> Self {
        Self(store.join("leases"))
    }

    /// Writes a lease's file whole, whatever it says.
    pub fn write_text(&self, key: &str, text: &str) {
        fs::create_dir_all(&self.0).unwrap();
        let (draft, file) = (self.0.join(".by-hand"), self.file(key));
        fs::write(&draft, text).unwrap();
        fs::rename(draft, file).unwrap();
    }

    /// Writes a lease.
    pub fn write(&self, lease: &PeerLease) {
        self.write_text(&lease.key, &lease.value.to_string());
    }

    /// Removes a lease.
    pub fn remove(&self, key: &str) {
        fs::remove_file(self.file(key)).unwrap();
    }

    /// The key and the value of an owner's lease.
    pub fn owned_by(&self, owner: &str) -> (String, Value) {
        let mut own: Vec<_> = self.all().into_iter().filter(|(_, value)| value["Owner"] == owner).collect();
        assert_eq!(own.len(), 1, "{owner} holds one lease: {own:?}");
        own.remove(0)
    }

    /// Every lease: the key, and the value if it is one.
    pub fn all(&self) -> Vec<(String, Value)> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let names =
            entries.filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".json")?.to_owned()));
        let mut keys: Vec<_> = names.filter(|key| !key.starts_with('.')).collect();
        keys.sort();
        let value =
            |key: &String| fs::read(self.file(key)).ok().and_then(|text| serde_json::from_slice(&text).ok());
        keys.iter().map(|key| (key.clone(), value(key).unwrap_or_default())).collect()
    }

    /// The IPv4 subnet of an owner's lease, as `ip route` writes it.
    pub fn subnet_of(&self, owner: &str) -> String {
        let (key, _) = self.owned_by(owner);
        key.split('&').next().unwrap().replace('-', "/")
    }

    /// The IPv6 subnet of an owner's lease.
    pub fn subnet6_of(&self, owner: &str) -> String {
        let (key, _) = self.owned_by(owner);
        key.split('&').nth(1).unwrap().replace('-', "/")
    }

    fn file(&self, key: &str) -> PathBuf {
        self.0.join(format!("{key}.json"))
    }
}
