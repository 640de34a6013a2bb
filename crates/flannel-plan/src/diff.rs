//! What has to change for the observed state to become the desired one, in an order that is safe at every step.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use serde::Serialize;

use crate::link_name::LinkName;
use crate::state::{Item, Key, State};

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    Create(Item),
    Replace { from: Item, to: Item },
    Remove(Item),
}

impl Change {
    /// The object that changes, as it should be; of one that goes, as it is.
    pub fn item(&self) -> &Item {
        match self {
            Self::Create(item) | Self::Remove(item) | Self::Replace { to: item, .. } => item,
        }
    }

    /// What names the object that changes.
    pub fn key(&self) -> Key {
        self.item().key()
    }

    /// The word for it in logs and metrics.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::Replace { .. } => "replace",
            Self::Remove(_) => "remove",
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create(item) => write!(f, "+ {item}"),
            Self::Replace { from, to } => write!(f, "~ {from} -> {to}"),
            Self::Remove(item) => write!(f, "- {item}"),
        }
    }
}

/// The changes that turn `observed` into `desired`.
///
/// First devices that stand in the way of a create, then creates and replaces in the order of [`Item`], then all other
/// removals backwards: a route never lacks the neighbour and the FDB entry it needs. An address of ours that a
/// peer has now goes as soon as its successor is there: no route can lead to it, and without any the kernel would drop
/// what the device has.
pub fn diff(desired: &State, observed: &State) -> Vec<Change> {
    let lost = Lost::by_link_changes(desired, observed);
    let gateways = gateways(desired, observed);
    let (mut first, mut changes, mut given_up, mut last) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (want, have) in pairs(desired, observed) {
        match (want, have.filter(|have| !lost.includes(have))) {
            (Some(want), None) => changes.push(Change::Create(want.clone())),
            (Some(want), Some(have)) if want == have => {}
            (Some(want), Some(have)) => {
                changes.push(Change::Replace { from: have.clone(), to: want.clone() })
            }
            (None, Some(have)) if blocks_a_create(have, desired, observed) => {
                first.push(Change::Remove(have.clone()))
            }
            (None, Some(Item::Address(have))) if gateways.contains(&have.address.addr()) => {
                given_up.push(Change::Remove(Item::Address(*have)));
            }
            (None, Some(have)) => last.push(Change::Remove(have.clone())),
            (None, None) => {}
        }
    }
    let rest = changes.partition_point(|change| matches!(change.item(), Item::Link(_) | Item::Address(_)));
    changes.splice(rest..rest, given_up);
    first.extend(changes);
    first.extend(last.into_iter().rev());
    first
}

/// The routers of all routes that are desired, where an address goes at all: rarely, and there are thousands of routes.
fn gateways(desired: &State, observed: &State) -> BTreeSet<IpAddr> {
    let addresses = observed.iter().skip_while(|item| matches!(item, Item::Link(_)));
    let mut addresses = addresses.take_while(|item| matches!(item, Item::Address(_)));
    if addresses.all(|item| desired.get(&item.key()).is_some()) {
        return BTreeSet::new();
    }
    let router = |item: &Item| if let Item::Route(route) = item { route.via } else { None };
    desired.iter().filter_map(router).collect()
}

/// The items of two states, those about the same object side by side.
fn pairs<'a>(
    desired: &'a State,
    observed: &'a State,
) -> impl Iterator<Item = (Option<&'a Item>, Option<&'a Item>)> {
    let (mut want, mut have) = (desired.iter().peekable(), observed.iter().peekable());
    std::iter::from_fn(move || {
        let order = match (want.peek(), have.peek()) {
            (Some(want), Some(have)) => want.cmp_object(have),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return None,
        };
        Some(match order {
            Ordering::Less => (want.next(), None),
            Ordering::Equal => (want.next(), have.next()),
            Ordering::Greater => (None, have.next()),
        })
    })
}

/// What of the observed state is gone by the time that the links are as desired.
struct Lost {
    rebuilt: BTreeSet<LinkName>,
    without_neighbours: BTreeSet<LinkName>,
}

impl Lost {
    fn by_link_changes(desired: &State, observed: &State) -> Self {
        let mut lost = Self { rebuilt: BTreeSet::new(), without_neighbours: BTreeSet::new() };
        for item in observed.iter() {
            let Item::Link(have) = item else { break }; // links come first
            let Some(Item::Link(want)) = desired.get(&item.key()) else { continue };
            if have.kind.must_be_rebuilt(&want.kind) {
                lost.rebuilt.insert(have.name);
            } else if have.mac != want.mac {
                // The kernel drops permanent neighbours when a device changes its address, and keeps the rest.
                lost.without_neighbours.insert(have.name);
            }
        }
        lost
    }

    fn includes(&self, item: &Item) -> bool {
        item.link().is_some_and(|link| {
            self.rebuilt.contains(&link)
                || (self.without_neighbours.contains(&link) && matches!(item, Item::Neighbour(_)))
        })
    }
}

/// A device of ours that the kernel cannot have beside one that is to be made must go first.
fn blocks_a_create(have: &Item, desired: &State, observed: &State) -> bool {
    let Item::Link(have) = have else { return false };
    let missing = |want: &&Item| observed.get(&want.key()).is_none();
    let excludes = |want: &Item| matches!(want, Item::Link(want) if have.kind.excludes(&want.kind));
    desired.iter().filter(missing).any(excludes)
}
