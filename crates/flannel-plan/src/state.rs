//! The vocabulary: what a node has, or should have, of one kind each.
//!
//! Desired and observed are the same type, so one [`crate::diff::diff`] compares them. The order of the
//! variants of [`Item`] is the order of creation: FDB entry and neighbour exist before the route that
//! needs them, and files come last, so that no pod starts on a half-built node.

mod display;
mod kind;
mod link;

use std::cmp::Ordering;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::link_name::LinkName;
use crate::mac::Mac;
pub use kind::{Item, Key, Tier};
pub use link::{Link, LinkKind, Vxlan};

/// The protocol number that marks our routes and neighbours in the kernel: `F`, in no table of known numbers.
pub const PROTOCOL: u8 = 70;

/// The protocol number of `ip route add`, and so of every route that Go flannel makes.
pub const PROTOCOL_BOOT: u8 = 3;

/// The protocol number of routes that the kernel makes by itself for connected networks.
pub const PROTOCOL_KERNEL: u8 = 2;

/// An address on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Address {
    pub link: LinkName,
    pub address: IpNet,
}

/// A kernel setting.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Sysctl {
    /// Its path below `/proc/sys`, with slashes: a device name may hold dots.
    pub path: Box<str>,
    /// Its value as text, without the line end.
    pub value: Box<str>,
}

/// An FDB entry of a vxlan device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FdbEntry {
    pub link: LinkName,
    /// The MAC of the peer's device.
    pub mac: Mac,
    /// The node that frames for it are sent to; none for an entry that has no single one.
    pub destination: Option<IpAddr>,
    /// Whether the entry carries our mark, the `extern_learn` flag.
    pub marked: bool,
}

/// A permanent neighbour entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Neighbour {
    pub link: LinkName,
    /// The address of the peer's device.
    pub address: IpAddr,
    pub mac: Mac,
    /// Who made the entry; [`PROTOCOL`] is us, 0 says nothing.
    pub protocol: u8,
}

/// A route of the main table without a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Route {
    pub destination: IpNet,
    pub kind: RouteKind,
    pub via: Option<IpAddr>,
    pub link: Option<LinkName>,
    /// Whether the next router counts as reachable although no address of the device says so.
    pub onlink: bool,
    /// Who made the route; [`PROTOCOL`] is us.
    pub protocol: u8,
}

/// What a route does with packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteKind {
    /// Sends them on, one way.
    Unicast,
    /// Sends them on, one of several ways.
    Multipath,
    /// Drops them, with or without a message.
    Blackhole,
    /// Anything else; only ever observed.
    Other,
}

/// A file with its whole content.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct File {
    pub path: Box<str>,
    pub content: Box<str>,
    pub mode: u32,
}

impl Sysctl {
    /// The device whose setting it is: `net/ipv6/conf/NAME/accept_ra` comes and goes with NAME.
    pub fn link(&self) -> Option<LinkName> {
        match self.path.split('/').collect::<Vec<_>>()[..] {
            ["net", _, "conf" | "neigh", name, _] if !["all", "default"].contains(&name) => name.parse().ok(),
            _ => None,
        }
    }
}

/// A set of items, each object once, in the order of creation.
///
/// A sorted vector rather than a map: a state of thousands of peers is built once and then compared, and
/// lies in memory without gaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    items: Vec<Item>,
}

impl State {
    /// Puts one item in; an item for the same object is replaced and returned. To put in many, collect them.
    pub fn insert(&mut self, item: Item) -> Option<Item> {
        match self.items.binary_search_by(|other| other.cmp_object(&item)) {
            Ok(at) => Some(std::mem::replace(&mut self.items[at], item)),
            Err(at) => {
                self.items.insert(at, item);
                None
            }
        }
    }

    /// Takes the item of one object out.
    pub fn remove(&mut self, key: &Key) -> Option<Item> {
        self.position(key).map(|at| self.items.remove(at))
    }

    /// The item of one object.
    pub fn get(&self, key: &Key) -> Option<&Item> {
        self.position(key).map(|at| &self.items[at])
    }

    fn position(&self, key: &Key) -> Option<usize> {
        self.items.binary_search_by(|item| item.key().cmp(key)).ok()
    }

    /// All items in the order of creation.
    pub fn iter(&self) -> std::slice::Iter<'_, Item> {
        self.items.iter()
    }

    /// All items in the order of creation, as a slice.
    pub fn as_slice(&self) -> &[Item] {
        &self.items
    }

    /// Keeps only the items that a question is answered for with yes.
    pub fn retain(&mut self, keep: impl FnMut(&Item) -> bool) {
        self.items.retain(keep);
    }

    /// How many objects it has.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

/// Of several items for one object the last counts.
impl FromIterator<Item> for State {
    fn from_iter<I: IntoIterator<Item = Item>>(items: I) -> Self {
        let mut items: Vec<Item> = items.into_iter().collect();
        // Keys are made once each, which takes a quarter of the time of comparing items: there are thousands.
        items.sort_by_cached_key(Item::key);
        items.dedup_by(|later, earlier| {
            let same = later.cmp_object(earlier) == Ordering::Equal;
            if same {
                std::mem::swap(later, earlier);
            }
            same
        });
        items.shrink_to_fit();
        Self { items }
    }
}

/// One item a line, in the order of creation: the form of golden files.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.items.iter().try_for_each(|item| writeln!(f, "{item}"))
    }
}
