//! Why a lease is not followed, and how that is told. The names in it are those that other nodes gave themselves.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::finding::{Code, Finding};
use crate::link_name::LinkName;
use crate::mac::Mac;
use crate::quoted::quoted;

/// A lease that is not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IgnoredLease {
    pub owner: String,
    /// Which lease: its first subnet, if it has any.
    pub subnet: Option<IpNet>,
    pub why: Why,
}

/// Why a lease is not followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    #[error("{}", spoken(.0))]
    OtherBackend(String),
    #[error("{0} is outside of the pod network")]
    OutsideNetwork(IpNet),
    #[error("{0} overlaps this node's own subnet")]
    OverlapsOurs(IpNet),
    #[error("{0} overlaps the lease of {owner}, which was here first", owner = quoted(.1))]
    OverlapsPeer(IpNet, String),
    #[error("it takes packets from {0}, which {1} is connected to")]
    Connected(IpNet, LinkName),
    /// The address is this host's own, or its router's.
    #[error("it covers {0}, which this host needs to reach anybody")]
    CoversHost(IpAddr),
    #[error("public address {0} is this node's own")]
    OurPublicAddress(IpAddr),
    #[error("public address {0} cannot be a node's")]
    BadPublicAddress(IpAddr),
    #[error("public address {0} is no host's: it stands for {1}")]
    NoHostAddress(IpAddr, IpNet),
    /// Packets to it would go into the tunnel that leads there.
    #[error("public address {0} lies inside the pod network")]
    PublicAddressInNetwork(IpAddr),
    /// Packets to it would go round in circles.
    #[error("public address {0} lies inside its own subnet")]
    PublicAddressInSubnet(IpAddr),
    #[error("hardware address {0} is this node's own")]
    OurMac(Mac),
    #[error("hardware address {0} is that of {owner}, which was here first", owner = quoted(.1))]
    PeersMac(Mac, String),
    #[error("its backend data cannot be used: {}", quoted(.0))]
    BadDetail(String),
    #[error("it has no subnet and address of a family that this node speaks")]
    NoFamily,
    #[error("{0} is not on this segment, and host-gw reaches no further")]
    NotOnLink(IpAddr),
}

fn spoken(backend: &str) -> String {
    if backend.is_empty() {
        "it names no backend".to_owned()
    } else {
        format!("it speaks {}", quoted(backend))
    }
}

impl Why {
    /// Which finding it is.
    pub fn code(&self) -> Code {
        self.code_and_label().0
    }

    /// The word for it in metrics.
    pub fn label(&self) -> &'static str {
        self.code_and_label().1
    }

    fn code_and_label(&self) -> (Code, &'static str) {
        match self {
            Self::OtherBackend(_) => (Code::OtherBackend, "other_backend"),
            Self::OutsideNetwork(_) => (Code::OutsideNetwork, "outside_network"),
            Self::OverlapsOurs(_) => (Code::LeaseOverlaps, "overlaps_ours"),
            Self::OverlapsPeer(..) => (Code::LeaseOverlaps, "overlaps_peer"),
            Self::Connected(..) => (Code::Overlap, "connected_network"),
            Self::CoversHost(_) => (Code::Overlap, "covers_host"),
            Self::OurPublicAddress(_) => (Code::SamePublicAddress, "our_public_address"),
            Self::BadPublicAddress(_) | Self::NoHostAddress(..) => {
                (Code::BadPublicAddress, "bad_public_address")
            }
            Self::PublicAddressInNetwork(_) => (Code::BadPublicAddress, "public_address_in_network"),
            Self::PublicAddressInSubnet(_) => (Code::BadPublicAddress, "public_address_in_subnet"),
            Self::OurMac(_) => (Code::SameMac, "our_mac"),
            Self::PeersMac(..) => (Code::SameMac, "peers_mac"),
            Self::BadDetail(_) => (Code::LeaseUnusable, "bad_detail"),
            Self::NoFamily => (Code::LeaseUnusable, "no_family"),
            Self::NotOnLink(_) => (Code::NotOnLink, "not_on_link"),
        }
    }
}

impl IgnoredLease {
    /// The same to be told. It is about the subnet, which is the name that a lease has in every store: in etcd an owner is
    /// but an address.
    pub fn finding(&self) -> Finding {
        let object = self.subnet.map_or_else(|| self.owner.clone(), |subnet| subnet.to_string());
        Finding::new(self.why.code(), object, self).with_parts(Some(self.why.to_string()), None)
    }
}

impl fmt::Display for IgnoredLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = quoted(&self.owner);
        match self.subnet {
            Some(subnet) => write!(f, "lease of {owner} ({subnet}) is ignored: {}", self.why),
            None => write!(f, "lease of {owner} is ignored: {}", self.why),
        }
    }
}
