//! The kinds of object, and every fact that depends on the kind: what names an object, what device it is on, what it is
//! called, and whose failure its failure is. A new kind is a variant of both enums and a row of each match.

use std::cmp::Ordering;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::Serialize;

use super::{Address, FdbEntry, File, Link, Neighbour, Route, Sysctl};
use crate::link_name::LinkName;
use crate::mac::Mac;
use crate::rules::{RuleTable, TableId};

/// One object of the kernel or the file system that we keep as it should be; the variants in the order of creation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Item {
    Link(Box<Link>),
    Address(Address),
    Sysctl(Box<Sysctl>),
    /// Where the frames for a peer's device are sent.
    Fdb(FdbEntry),
    /// The MAC of a peer's device.
    Neighbour(Neighbour),
    /// The way to a peer's pods.
    Route(Route),
    Rules(Box<RuleTable>),
    File(Box<File>),
}

/// What makes two items the same object, in the order of [`Item`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    Link(LinkName),
    Address(LinkName, IpNet),
    Sysctl(Box<str>),
    Fdb(LinkName, Mac),
    Neighbour(LinkName, IpAddr),
    Route(IpNet),
    Rules(TableId),
    File(Box<str>),
}

/// Whose failure an item's failure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Without it the node is not wired.
    Node,
    /// Nice to have: a pod's `/proc/sys` may be read-only.
    BestEffort,
    /// Without it one peer is not reached; the node is fine.
    Peer,
}

impl Item {
    /// What makes it this object and no other.
    pub fn key(&self) -> Key {
        match self {
            Self::Link(link) => Key::Link(link.name),
            Self::Address(address) => Key::Address(address.link, address.address),
            Self::Sysctl(sysctl) => Key::Sysctl(sysctl.path.clone()),
            Self::Fdb(entry) => Key::Fdb(entry.link, entry.mac),
            Self::Neighbour(neighbour) => Key::Neighbour(neighbour.link, neighbour.address),
            Self::Route(route) => Key::Route(route.destination),
            Self::Rules(table) => Key::Rules(table.id.clone()),
            Self::File(file) => Key::File(file.path.clone()),
        }
    }

    /// The device without which it cannot be.
    pub fn link(&self) -> Option<LinkName> {
        match self {
            Self::Link(_) | Self::Rules(_) | Self::File(_) => None,
            Self::Address(address) => Some(address.link),
            Self::Sysctl(sysctl) => sysctl.link(),
            Self::Fdb(entry) => Some(entry.link),
            Self::Neighbour(neighbour) => Some(neighbour.link),
            Self::Route(route) => route.link,
        }
    }

    /// Which of two items comes first; equal if they are about the same object.
    pub fn cmp_object(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl Key {
    /// The kind of object, as metrics and `state.json` name it.
    pub fn kind(&self) -> &'static str {
        self.kind_and_tier().0
    }

    /// Whose failure the failure of this object is.
    pub fn tier(&self) -> Tier {
        self.kind_and_tier().1
    }

    fn kind_and_tier(&self) -> (&'static str, Tier) {
        match self {
            Self::Link(_) => ("link", Tier::Node),
            Self::Address(..) => ("address", Tier::Node),
            Self::Sysctl(_) => ("sysctl", Tier::BestEffort),
            Self::Fdb(..) => ("fdb", Tier::Peer),
            Self::Neighbour(..) => ("neighbour", Tier::Peer),
            Self::Route(_) => ("route", Tier::Peer),
            // Connection tracking costs time where it is not needed, and does no harm.
            Self::Rules(table) if table.is_raw() => ("rules", Tier::BestEffort),
            Self::Rules(_) => ("rules", Tier::Node),
            Self::File(_) => ("file", Tier::Node),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind())?;
        match self {
            Self::Link(name) => write!(f, "{name}"),
            Self::Address(link, address) => write!(f, "{address} dev {link}"),
            Self::Sysctl(path) | Self::File(path) => f.write_str(path),
            Self::Fdb(link, mac) => write!(f, "{mac} dev {link}"),
            Self::Neighbour(link, address) => write!(f, "{address} dev {link}"),
            Self::Route(destination) => write!(f, "{destination}"),
            Self::Rules(table) => write!(f, "{table}"),
        }
    }
}
