//! Who holds which subnet and how to reach it, and the forms in which Go flannel stores that.
//!
//! Two forms, byte-compatible in both directions: the value of an etcd key ([`Announcement::to_etcd`]) and the
//! annotations of a Kubernetes node (`annotations.rs`). A store gives a [`Lease`]; a node gives an
//! [`Announcement`] of itself.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use crate::backend_data::{BackendData, BackendDataError};
use crate::family::{ByFamily, Family};
use crate::quoted::{is_name, quoted};

/// One node's claim to its subnets, as a store has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "FlatLease")]
pub struct Lease {
    /// Who holds it: the node's name, or its address where the store knows no names.
    pub owner: String,
    /// The pods' addresses on that node.
    pub subnets: ByFamily<IpNet>,
    /// How the node is reached.
    #[serde(flatten)]
    pub announcement: Announcement,
    /// When it was first granted, in the store's own count: of two that claim the same, the older is right.
    pub since: u64,
}

/// How a node is reached: what it says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// The addresses that other nodes send to.
    pub public: ByFamily<IpAddr>,
    /// The backend that it speaks; empty for those that need none.
    pub backend: String,
    /// What the backend says, for each family.
    pub detail: ByFamily<BackendData>,
}

/// Whether two sets of public addresses are of one node: they agree in every family that both have, and have one in
/// common. IPv4 alone does not tell: every box that Vagrant makes has 10.0.2.15.
pub fn is_same_node(a: &ByFamily<IpAddr>, b: &ByFamily<IpAddr>) -> bool {
    let mut common =
        Family::BOTH.into_iter().filter_map(|family| a.get(family).zip(b.get(family))).peekable();
    common.peek().is_some() && common.all(|(a, b)| a == b)
}

/// A lease as it is read: raw JSON such as backend data cannot be had from inside a flattened struct.
#[derive(Deserialize)]
struct FlatLease {
    owner: String,
    subnets: ByFamily<IpNet>,
    public: ByFamily<IpAddr>,
    backend: String,
    detail: ByFamily<BackendData>,
    since: u64,
}

impl From<FlatLease> for Lease {
    fn from(FlatLease { owner, subnets, public, backend, detail, since }: FlatLease) -> Self {
        Self { owner, subnets, announcement: Announcement { public, backend, detail }, since }
    }
}

/// A stored lease that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// The key names no subnet.
    #[error(
        "lease key \"{}\" names no subnet: expected 10.244.1.0-24 or 10.244.1.0-24&fd00:244:0:1::-64",
        quoted(.0)
    )]
    Key(String),
    /// The value is not what Go flannel writes.
    #[error("lease of {}: {}", quoted(.key), quoted(&.source.to_string()))]
    Value { key: String, source: serde_json::Error },
    /// It speaks a backend whose name is none.
    #[error("lease of {}: BackendType \"{}\" is no name", quoted(.key), quoted(.name))]
    Backend { key: String, name: String },
    /// What its backend says cannot be kept.
    #[error("lease of {}: {source}", quoted(.key))]
    Data { key: String, source: BackendDataError },
}

#[derive(Serialize, Deserialize)]
struct EtcdValue<'a> {
    #[serde(rename = "PublicIP", default = "no_address")]
    public_ip: Ipv4Addr,
    #[serde(rename = "PublicIPv6", default)]
    public_ipv6: Option<Ipv6Addr>,
    #[serde(rename = "BackendType", default, skip_serializing_if = "String::is_empty")]
    backend_type: String,
    #[serde(rename = "BackendData", borrow, default, skip_serializing_if = "Option::is_none")]
    backend_data: Option<&'a RawValue>,
    #[serde(rename = "BackendV6Data", borrow, default, skip_serializing_if = "Option::is_none")]
    backend_v6_data: Option<&'a RawValue>,
}

fn no_address() -> Ipv4Addr {
    Ipv4Addr::UNSPECIFIED
}

impl Announcement {
    /// The value of a lease's key in etcd, as Go writes it.
    pub fn to_etcd(&self) -> Result<String, serde_json::Error> {
        let raw = |data: Option<&BackendData>| -> Result<Option<Box<RawValue>>, serde_json::Error> {
            data.map(|data| RawValue::from_string(data.as_str().to_owned())).transpose()
        };
        let (v4, v6) = (raw(self.detail.v4.as_ref())?, raw(self.detail.v6.as_ref())?);
        serde_json::to_string(&EtcdValue {
            public_ip: match self.public.v4 {
                Some(IpAddr::V4(address)) => address,
                _ => Ipv4Addr::UNSPECIFIED,
            },
            public_ipv6: match self.public.v6 {
                Some(IpAddr::V6(address)) => Some(address),
                _ => None,
            },
            backend_type: self.backend.clone(),
            backend_data: v4.as_deref(),
            backend_v6_data: v6.as_deref(),
        })
    }

    /// Reads the value of a lease's key in etcd; `key` is only for the error.
    pub fn from_etcd(key: &str, value: &str) -> Result<Self, LeaseError> {
        let wrong = |source| LeaseError::Value { key: key.to_owned(), source };
        let value: EtcdValue<'_> = serde_json::from_str(value).map_err(wrong)?;
        let data = |raw: Option<&RawValue>| match raw {
            Some(raw) => BackendData::from_json(raw.get())
                .map_err(|source| LeaseError::Data { key: key.to_owned(), source }),
            None => Ok(None),
        };
        if !is_name(&value.backend_type) {
            return Err(LeaseError::Backend { key: key.to_owned(), name: value.backend_type });
        }
        Ok(Self {
            public: ByFamily {
                v4: Some(IpAddr::V4(value.public_ip)).filter(|ip| !ip.is_unspecified()),
                v6: value.public_ipv6.map(IpAddr::V6).filter(|ip| !ip.is_unspecified()),
            },
            backend: value.backend_type,
            detail: ByFamily { v4: data(value.backend_data)?, v6: data(value.backend_v6_data)? },
        })
    }
}

/// The last part of a lease's key in etcd: `10.244.1.0-24`, `10.244.1.0-24&fd00:244:0:1::-64`, or for IPv6
/// alone `0.0.0.0-0&fd00:244:0:1::-64`, which is what Go makes of it.
pub fn subnet_key(subnets: &ByFamily<IpNet>) -> String {
    let part = |net: &IpNet| format!("{}-{}", net.network(), net.prefix_len());
    let v4 = subnets.v4.as_ref().map_or_else(|| "0.0.0.0-0".to_owned(), part);
    match &subnets.v6 {
        Some(v6) => format!("{v4}&{}", part(v6)),
        None => v4,
    }
}

/// Reads the last part of a lease's key in etcd.
pub fn subnets_from_key(key: &str) -> Result<ByFamily<IpNet>, LeaseError> {
    let wrong = || LeaseError::Key(key.to_owned());
    let (v4, v6) = match key.split_once('&') {
        Some((v4, v6)) => (v4, Some(v6)),
        None => (key, None),
    };
    let (address, length) = v4.split_once('-').ok_or_else(wrong)?;
    let (address, length) = (address.parse().map_err(|_| wrong())?, length.parse().map_err(|_| wrong())?);
    let nothing = v6.is_some() && length == 0 && address == Ipv4Addr::UNSPECIFIED;
    let v4 = match Ipv4Net::new(address, length) {
        Ok(_) if nothing => None,
        Ok(net) if (1..=31).contains(&length) => Some(IpNet::V4(net.trunc())),
        _ => return Err(wrong()),
    };
    let v6 = v6.map(|v6| v6_part(v6).ok_or_else(wrong)).transpose()?;
    Ok(ByFamily { v4, v6 })
}

fn v6_part(text: &str) -> Option<IpNet> {
    let (address, length) = text.split_once('-')?;
    let length = length.parse().ok().filter(|length| (1..=127).contains(length))?;
    Some(IpNet::V6(Ipv6Net::new(address.parse().ok()?, length).ok()?.trunc()))
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (", quoted(&self.owner))?;
        for (position, (_, subnet)) in self.subnets.iter().enumerate() {
            write!(f, "{}{subnet}", if position == 0 { "" } else { ", " })?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both_ways(key: &str, value: &str) {
        assert_eq!(subnet_key(&subnets_from_key(key).unwrap()), key);
        assert_eq!(Announcement::from_etcd(key, value).unwrap().to_etcd().unwrap(), value);
    }

    #[test]
    fn a_node_is_known_by_every_family_that_both_sides_have() {
        let is_same = |a: &str, b: &str| {
            let public = |value: &str| Announcement::from_etcd("", value).unwrap().public;
            is_same_node(&public(a), &public(b)) && is_same_node(&public(b), &public(a))
        };
        let both = r#"{"PublicIP":"10.0.0.1","PublicIPv6":"fd00::1"}"#;
        assert!(is_same(both, r#"{"PublicIP":"10.0.0.1"}"#) && is_same(both, r#"{"PublicIPv6":"fd00::1"}"#));
        assert!(!is_same(both, r#"{"PublicIP":"10.0.0.9","PublicIPv6":"fd00::1"}"#));
        assert!(!is_same(both, r#"{"PublicIP":"10.0.0.1","PublicIPv6":"fd00::9"}"#));
        assert!(!is_same(r#"{"PublicIP":"10.0.0.1"}"#, r#"{"PublicIPv6":"fd00::1"}"#), "nothing in common");
        assert!(
            !is_same(r#"{"PublicIP":"0.0.0.0"}"#, r#"{"PublicIP":"0.0.0.0"}"#),
            "nobody is nobody's twin"
        );
    }

    #[test]
    fn leases_that_go_flannel_wrote_come_back_to_the_byte() {
        both_ways(
            "10.244.10.0-24",
            r#"{"PublicIP":"10.0.0.22","PublicIPv6":null,"BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"ce:dc:bf:10:49:a9"}}"#,
        );
        both_ways(
            "10.244.10.0-24&fd00:244:0:29::-64",
            r#"{"PublicIP":"30.0.0.23","PublicIPv6":"fd00:30::23","BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"72:0f:7a:19:e7:3a"},"BackendV6Data":{"VNI":1,"VtepMAC":"92:e2:f7:ce:46:92"}}"#,
        );
        both_ways(
            "0.0.0.0-0&fd00:244:0:7::-64",
            r#"{"PublicIP":"0.0.0.0","PublicIPv6":"fd00:30::23","BackendType":"vxlan","BackendV6Data":{"VNI":1,"VtepMAC":"2a:37:9d:77:10:a9"}}"#,
        );
        both_ways("10.244.27.0-24", r#"{"PublicIP":"10.0.0.22","PublicIPv6":null}"#);
        both_ways("10.244.4.0-24", r#"{"PublicIP":"10.0.0.22","PublicIPv6":null,"BackendType":"host-gw"}"#);
    }

    #[test]
    fn keys_that_name_no_subnet_are_refused() {
        for key in ["", "config", "10.244.1.0", "10.244.1.0-", "10.244.1.0-32", "10.244.1.0-33", "0.0.0.0-0"]
        {
            assert!(matches!(subnets_from_key(key), Err(LeaseError::Key(named)) if named == key), "{key}");
        }
        for key in [
            "10.244.1.0-24&",
            "10.244.1.0-24&fd00::",
            "10.244.1.0-24&fd00::-128",
            "10.244.1.0-24&10.0.0.0-24",
        ] {
            assert!(matches!(subnets_from_key(key), Err(LeaseError::Key(named)) if named == key), "{key}");
        }
    }
}
