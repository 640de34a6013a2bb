//! What nodes say is their own: the words in which leases are judged, followed one by one, and shown.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::backend;
use crate::family::{Family, overlap};
use crate::lease::Lease;
use crate::link_name::LinkName;
use crate::mac::Mac;
use crate::peers::Endpoint;
use crate::state::Item;

/// What a node is known by in one family, beyond its address. Peers hold it, so it is kept for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Identity {
    /// The MAC of its tunnel device.
    Mac(Mac),
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mac(mac) => write!(f, "MAC {mac}"),
        }
    }
}

/// Where the identity of a node comes from, if no lease has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentitySource {
    /// The MAC of this device, or a random one before there is a device.
    Device(LinkName),
}

/// One thing that a node says is its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    Subnet(IpNet),
    /// Its public address, which nodes behind one NAT share.
    Address(IpAddr),
    /// What it is known by in a family.
    Identity(Family, Identity),
}

impl Claim {
    /// All that a lease claims, followed or not.
    pub fn of_lease(lease: &Lease) -> impl Iterator<Item = Self> {
        let identity = backend::identity(&lease.announcement);
        Family::BOTH.into_iter().flat_map(move |family| {
            let subnet = lease.subnets.get(family).copied().map(Self::Subnet);
            let address = lease.announcement.public.get(family).copied().map(Self::Address);
            let identity = identity.get(family).map(|identity| Self::Identity(family, *identity));
            [subnet, address, identity].into_iter().flatten()
        })
    }

    /// What a peer claims in a family.
    pub fn of_endpoint(family: Family, endpoint: &Endpoint) -> impl Iterator<Item = Self> {
        let identity = endpoint.identity.map(|identity| Self::Identity(family, identity));
        [Self::Subnet(endpoint.subnet), Self::Address(endpoint.public)].into_iter().chain(identity)
    }

    /// What of a peer's claims an object of it is made of; the first is the peer's alone.
    pub fn of_item(item: &Item) -> impl Iterator<Item = Self> {
        let claims = match item {
            Item::Route(route) => [Some(Self::Subnet(route.destination)), route.via.map(Self::Address)],
            Item::Neighbour(neighbour) => [Some(Self::Subnet(neighbour.address.into())), None],
            Item::Fdb(entry) => {
                let family = entry.destination.map(Family::of);
                let mac = family.map(|family| Self::Identity(family, Identity::Mac(entry.mac)));
                [mac, entry.destination.map(Self::Address)]
            }
            Item::Link(_) | Item::Address(_) | Item::Sysctl(_) | Item::Rules(_) | Item::File(_) => [None; 2],
        };
        claims.into_iter().flatten()
    }

    /// The family that it is about.
    pub fn family(&self) -> Family {
        match self {
            Self::Subnet(subnet) => Family::of_net(*subnet),
            Self::Address(address) => Family::of(*address),
            Self::Identity(family, _) => *family,
        }
    }

    /// Whether two nodes that claim this and that claim a part of the same.
    pub fn meets(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Subnet(a), Self::Subnet(b)) => overlap(*a, *b),
            (Self::Subnet(_) | Self::Address(_) | Self::Identity(..), _) => self == other,
        }
    }
}
