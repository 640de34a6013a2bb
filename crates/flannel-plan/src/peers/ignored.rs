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
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    OtherBackend(String),
    /// Its subnet is not part of the pod network.
    OutsideNetwork(IpNet),
    /// Its subnet overlaps this node's own.
    OverlapsOurs(IpNet),
    /// Its subnet overlaps that of another peer, which was here first.
    OverlapsPeer(IpNet, String),
    /// Its subnet takes packets from a network that this host is connected to.
    Connected(IpNet, LinkName),
    /// Its subnet covers an address without which this host is cut off: its own, or its router's.
    CoversHost(IpAddr),
    /// Its public address is this node's own.
    OurPublicAddress(IpAddr),
    /// Its public address cannot be a node's.
    BadPublicAddress(IpAddr),
    /// Its public address stands for a whole network that this host is connected to, not for a node of it.
    NoHostAddress(IpAddr, IpNet),
    /// Its public address is one of pods: packets to it would go into the tunnel that leads there.
    PublicAddressInNetwork(IpAddr),
    /// Its public address lies inside its own subnet: packets to it would go round in circles.
    PublicAddressInSubnet(IpAddr),
    /// Its MAC is this node's own.
    OurMac(Mac),
    /// Its MAC is that of another peer, which was here first.
    PeersMac(Mac, String),
    /// What its backend says cannot be used.
    BadDetail(String),
    /// It has nothing that this node could use.
    NoFamily,
    /// It is not on this segment, and the backend cannot reach further.
    NotOnLink(IpAddr),
}

impl Why {
    /// Which finding it is.
    pub fn code(&self) -> Code {
        match self {
            Self::OtherBackend(_) => Code::OtherBackend,
            Self::OutsideNetwork(_) => Code::OutsideNetwork,
            Self::OverlapsOurs(_) | Self::OverlapsPeer(..) => Code::LeaseOverlaps,
            Self::Connected(..) | Self::CoversHost(_) => Code::Overlap,
            Self::OurPublicAddress(_) => Code::SamePublicAddress,
            Self::BadPublicAddress(_)
            | Self::NoHostAddress(..)
            | Self::PublicAddressInNetwork(_)
            | Self::PublicAddressInSubnet(_) => Code::BadPublicAddress,
            Self::OurMac(_) | Self::PeersMac(..) => Code::SameMac,
            Self::BadDetail(_) | Self::NoFamily => Code::LeaseUnusable,
            Self::NotOnLink(_) => Code::NotOnLink,
        }
    }

    /// The word for it in metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::OtherBackend(_) => "other_backend",
            Self::OutsideNetwork(_) => "outside_network",
            Self::OverlapsOurs(_) => "overlaps_ours",
            Self::OverlapsPeer(..) => "overlaps_peer",
            Self::Connected(..) => "connected_network",
            Self::CoversHost(_) => "covers_host",
            Self::OurPublicAddress(_) => "our_public_address",
            Self::BadPublicAddress(_) | Self::NoHostAddress(..) => "bad_public_address",
            Self::PublicAddressInNetwork(_) => "public_address_in_network",
            Self::PublicAddressInSubnet(_) => "public_address_in_subnet",
            Self::OurMac(_) => "our_mac",
            Self::PeersMac(..) => "peers_mac",
            Self::BadDetail(_) => "bad_detail",
            Self::NoFamily => "no_family",
            Self::NotOnLink(_) => "not_on_link",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherBackend(name) if name.is_empty() => write!(f, "it names no backend"),
            Self::OtherBackend(name) => write!(f, "it speaks {}", quoted(name)),
            Self::OutsideNetwork(net) => write!(f, "{net} is outside of the pod network"),
            Self::OverlapsOurs(net) => write!(f, "{net} overlaps this node's own subnet"),
            Self::OverlapsPeer(net, owner) => {
                write!(f, "{net} overlaps the lease of {}, which was here first", quoted(owner))
            }
            Self::Connected(net, link) => {
                write!(f, "it takes packets from {net}, which {link} is connected to")
            }
            Self::CoversHost(ip) => write!(f, "it covers {ip}, which this host needs to reach anybody"),
            Self::OurPublicAddress(ip) => write!(f, "public address {ip} is this node's own"),
            Self::BadPublicAddress(ip) => write!(f, "public address {ip} cannot be a node's"),
            Self::NoHostAddress(ip, net) => {
                write!(f, "public address {ip} is no host's: it stands for {net}")
            }
            Self::PublicAddressInNetwork(ip) => write!(f, "public address {ip} lies inside the pod network"),
            Self::PublicAddressInSubnet(ip) => write!(f, "public address {ip} lies inside its own subnet"),
            Self::OurMac(mac) => write!(f, "hardware address {mac} is this node's own"),
            Self::PeersMac(mac, owner) => {
                write!(f, "hardware address {mac} is that of {}, which was here first", quoted(owner))
            }
            Self::BadDetail(what) => write!(f, "its backend data cannot be used: {}", quoted(what)),
            Self::NoFamily => write!(f, "it has no subnet and address of a family that this node speaks"),
            Self::NotOnLink(ip) => write!(f, "{ip} is not on this segment, and host-gw reaches no further"),
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
