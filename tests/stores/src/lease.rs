//! Leases as Go flannel writes them, to the byte, and what is read from them.

use std::net::IpAddr;

use flannel_lab::Entry;
use serde_json::Value;

/// A lease of Go flannel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoLease {
    /// The last part of its key.
    pub key: String,
    /// Its value.
    pub value: String,
}

impl GoLease {
    /// A vxlan node of IPv4.
    pub fn vxlan(key: &str, public: &str, mac: &str) -> Self {
        let value = format!(
            r#"{{"PublicIP":"{public}","PublicIPv6":null,"BackendType":"vxlan","BackendData":{{"VNI":1,"VtepMAC":"{mac}"}}}}"#
        );
        Self { key: key.to_owned(), value }
    }

    /// A vxlan node of both families.
    pub fn vxlan_dual(key: &str, public: [&str; 2], macs: [&str; 2]) -> Self {
        let data = macs.map(|mac| format!(r#"{{"VNI":1,"VtepMAC":"{mac}"}}"#));
        let value = format!(
            r#"{{"PublicIP":"{}","PublicIPv6":"{}","BackendType":"vxlan","BackendData":{},"BackendV6Data":{}}}"#,
            public[0], public[1], data[0], data[1]
        );
        Self { key: key.to_owned(), value }
    }

    /// A host-gw node of IPv4.
    pub fn host_gw(key: &str, public: &str) -> Self {
        let value = format!(r#"{{"PublicIP":"{public}","PublicIPv6":null,"BackendType":"host-gw"}}"#);
        Self { key: key.to_owned(), value }
    }

    /// Its whole key under the usual prefix.
    pub fn path(&self) -> String {
        format!("{}/subnets/{}", flannel_lab::Etcd::PREFIX, self.key)
    }

    /// Its IPv4 subnet, as `ip` writes it.
    pub fn subnet(&self) -> String {
        subnet_of(&self.key)
    }
}

/// The IPv4 subnet of a key, as `ip` writes it.
pub(crate) fn subnet_of(key: &str) -> String {
    key.split('&').next().unwrap().replace('-', "/")
}

/// The MAC of IPv4 that a lease announces.
pub fn vtep(lease: &Entry) -> String {
    let value: Value = serde_json::from_str(&lease.value).unwrap();
    value["BackendData"]["VtepMAC"].as_str().unwrap_or_default().to_owned()
}

/// Whether a lease announces an address.
pub(crate) fn is_at(lease: &Entry, address: IpAddr) -> bool {
    let value: Value = serde_json::from_str(&lease.value).unwrap_or_default();
    value["PublicIP"] == address.to_string() || value["PublicIPv6"] == address.to_string()
}
