//! A folder of reservations, a machine, and calls of host-local there.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use flannel_cni::error::CniError;
use flannel_cni::plugins::host_local::{self, Machine};
use flannel_cni::request::{Command, Request};
use flannel_cni::version::Version;
use serde_json::{Value, json};
use tempfile::TempDir;

pub const BOOT: &str = "88a5af9c-4dbd-48de-bbeb-dedcf3562288";
pub const NEXT_BOOT: &str = "00112233-4dbd-48de-bbeb-dedcf3562288";
pub const NETWORK: &str = "mynet";

/// A machine on which nothing uses any address.
pub struct Node {
    pub data: TempDir,
    pub machine: Machine,
    _run: TempDir,
}

impl Node {
    pub fn new() -> Self {
        let run = tempfile::tempdir().unwrap();
        let machine = Machine {
            run: run.path().join("host-local"),
            boot: Some(BOOT.into()),
            in_use: |_| Ok([].into()),
        };
        Self { data: tempfile::tempdir().unwrap(), machine, _run: run }
    }

    pub fn reboot(&mut self) {
        self.machine.boot = Some(NEXT_BOOT.into());
    }

    /// A configuration whose `ipam` part is this and our folder.
    pub fn config(&self, version: Version, ipam: &Value) -> Value {
        let mut ipam = ipam.clone();
        ipam["dataDir"] = json!(self.data.path());
        ipam["type"] = json!("host-local");
        json!({ "cniVersion": version.as_str(), "name": NETWORK, "type": "ipvlan", "ipam": ipam })
    }

    /// A call with the configuration's own version.
    pub fn request(&self, command: Command, id: &str, config: &Value) -> Request {
        Request {
            command,
            container_id: id.into(),
            netns: Some("/some/where".into()),
            ifname: "eth0".into(),
            args: String::new(),
            path: Vec::new(),
            version: Version::parse(config["cniVersion"].as_str().unwrap()).unwrap(),
            network: config["name"].as_str().unwrap().into(),
            config: config.as_object().unwrap().clone(),
        }
    }

    pub fn add(&self, id: &str, config: &Value) -> Result<Vec<String>, String> {
        self.add_request(&self.request(Command::Add, id, config)).map_err(|error| error.msg)
    }

    pub fn add_request(&self, request: &Request) -> Result<Vec<String>, CniError> {
        let attachment = host_local::add(&self.machine, request)?;
        Ok(attachment.ips.iter().map(|ip| ip.address.to_string()).collect())
    }

    pub fn del(&self, id: &str, config: &Value) -> Result<(), CniError> {
        host_local::del(&self.machine, &self.request(Command::Del, id, config))
    }

    pub fn check(&self, id: &str, config: &Value) -> Result<(), CniError> {
        host_local::check(&self.machine, &self.request(Command::Check, id, config))
    }

    pub fn status(&self, config: &Value) -> Result<(), CniError> {
        host_local::status(&self.machine, &self.request(Command::Status, "", config))
    }

    pub fn gc(&self, config: &Value) -> Result<(), CniError> {
        host_local::gc(&self.machine, &self.request(Command::Gc, "", config))
    }

    pub fn folder(&self) -> PathBuf {
        self.data.path().join(NETWORK)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// Writes a reservation as somebody else does.
    pub fn write(&self, name: &str, content: &str) {
        fs::create_dir_all(self.folder()).unwrap();
        fs::write(self.file(name), content).unwrap();
    }

    /// Every file of the network but the lock.
    pub fn files(&self) -> BTreeMap<String, String> {
        let Ok(folder) = fs::read_dir(self.folder()) else { return BTreeMap::new() };
        let file = |entry: std::io::Result<fs::DirEntry>| {
            let entry = entry.unwrap();
            let content = String::from_utf8(fs::read(entry.path()).unwrap()).unwrap();
            (entry.file_name().into_string().unwrap(), content)
        };
        folder.map(file).filter(|(name, _)| name != "lock").collect()
    }

    /// The reservations: address and content.
    pub fn reservations(&self) -> Vec<(String, String)> {
        self.files().into_iter().filter(|(name, _)| name.parse::<IpAddr>().is_ok()).collect()
    }
}

/// The content of a reservation.
pub fn owned_by(id: &str) -> String {
    format!("{id}\r\neth0")
}

/// Files as [`Node::files`] gives them.
pub fn files<const N: usize>(files: [(&str, &str); N]) -> BTreeMap<String, String> {
    files.into_iter().map(|(name, content)| (name.to_owned(), content.to_owned())).collect()
}
