//! Who was here first. A lease that was followed keeps its subnet and its identity against one that comes
//! later, however old that one says it is: an old node must not cut off a younger one by copying its claims.
//!
//! Takes the leases of the last plan and the present ones; gives those that rank behind the others. Usually there are
//! none, so that little has to be remembered.

use std::collections::BTreeMap;
use std::sync::Arc;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::backend;
use crate::family::ByFamily;
use crate::lease::Lease;

/// A lease that ranks behind those that were followed as they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Newcomer {
    pub owner: String,
    pub subnets: ByFamily<IpNet>,
    pub newness: Newness,
}

/// How much of a lease is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Newness {
    /// Its identity: it was followed with others, and its subnets are its own.
    Part,
    /// All of it: it was not followed.
    Whole,
}

type Name<'a> = (&'a str, &'a ByFamily<IpNet>);

fn name(lease: &Lease) -> Name<'_> {
    (&lease.owner, &lease.subnets)
}

impl Newcomer {
    /// A lease and how new it is.
    pub fn new(lease: &Lease, newness: Newness) -> Self {
        Self { owner: lease.owner.clone(), subnets: lease.subnets, newness }
    }

    fn name(&self) -> Name<'_> {
        (&self.owner, &self.subnets)
    }
}

/// Where leases rank: those that are no newcomers first.
pub(super) fn ranks(newcomers: &[Newcomer]) -> impl Fn(&Lease) -> Option<Newness> {
    let newness: BTreeMap<_, _> =
        newcomers.iter().map(|newcomer| (newcomer.name(), newcomer.newness)).collect();
    move |lease| newness.get(&name(lease)).copied()
}

/// The newcomers among the present leases. `before` are the leases of the last plan, and `ignored` those of them that
/// it did not follow.
pub fn newcomers(before: &[Arc<Lease>], ignored: &[Newcomer], now: &[Arc<Lease>]) -> Vec<Newcomer> {
    if before == now {
        return ignored.to_vec();
    }
    let rank = ranks(ignored);
    let followed = before.iter().filter(|lease| rank(lease).is_none());
    let followed: BTreeMap<_, _> = followed.map(|lease| (name(lease), lease)).collect();
    let identity = |lease: &Lease| backend::identity(&lease.announcement);
    let newness = |lease: &Arc<Lease>| match followed.get(&name(lease)) {
        Some(known) if Arc::ptr_eq(known, lease) || identity(known) == identity(lease) => None,
        Some(_) => Some(Newness::Part),
        None => Some(Newness::Whole),
    };
    now.iter().filter_map(|lease| Some(Newcomer::new(lease, newness(lease)?))).collect()
}
