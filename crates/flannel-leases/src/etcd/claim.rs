//! Decides which subnets this node should hold, and what has to be changed in etcd for it. Pure.
//!
//! Takes the table as of a whole read and what the node wants; gives one transaction at a time. One that was
//! overtaken changes nothing: the next one is decided from the newer table that etcd answers with.

use std::sync::Arc;

use flannel_plan::allocate::{SubnetClaim, fits_config};
use flannel_plan::config::NetworkConfig;
use flannel_plan::family::ByFamily;
use flannel_plan::lease::{Announcement, Lease, is_same_node, subnet_key};
use ipnet::IpNet;

use super::table::{Entry, Table, any_overlap};
use super::tenure::{Tenure, Title};
use crate::StoreError;

// etcd takes 128 operations in a transaction.
const MOST_SURPLUS: usize = 50;

/// Who this node is in etcd: by what it says of itself, and by what it holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    /// What it said last; nothing before the first claim, when nothing can be told to be its own by its address.
    pub said: Option<Announcement>,
    /// What it has held last.
    pub held: Option<Held>,
    /// Whether this run holds that, or somebody else.
    pub tenure: Tenure,
    /// The subnets that it had before this program started.
    pub previous: ByFamily<IpNet>,
    /// What etcd said of it then.
    pub remembered: Option<Memory>,
}

/// A lease as it was before this program started.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    /// The cluster that had it: another one's says nothing.
    pub origin: Option<Arc<str>>,
    pub own: Arc<Lease>,
}

/// A key that this node has held, and as what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub name: Box<str>,
    pub subnets: ByFamily<IpNet>,
    pub created: i64,
    pub lease_id: i64,
}

/// What this node lacks to hold its lease.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// Nothing: this key says what it should.
    Nothing(Box<str>),
    Txn(ClaimTxn),
    /// The end of somebody else who has this node's address, holds this key, and lives.
    Rival(Box<str>),
}

/// A transaction that writes this node's lease.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ClaimTxn {
    pub name: Box<str>,
    /// What must not have happened since the table was read.
    pub guard: Guard,
    pub life: Life,
    /// Other keys of this node, and when they were changed last: deleted by the same transaction.
    pub surplus: Vec<(Box<str>, i64)>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Guard {
    /// The key is as it was at this revision.
    Unchanged(i64),
    /// No key that begins so was written after this revision.
    NoneSince(String, i64),
}

/// How long a key lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// For ever: the operator reserved it.
    Reserved,
    /// By the etcd lease of this run.
    Own,
}

impl Node {
    /// Recognises the key that this node had before this program started: what etcd says of it is what it said then,
    /// or it has our subnets and an address of ours. The address alone may be a dead node's.
    pub(super) fn recall(&mut self, table: &Table) {
        if self.held.is_some() {
            return;
        }
        let origin = table.origin();
        let remembered = self.remembered.as_ref().filter(|memory| memory.origin == origin);
        let as_remembered =
            |entry: &Entry| remembered.is_some_and(|memory| entry.lease.as_ref() == Some(&memory.own));
        let as_before = |entry: &Entry| {
            let public = self.said.as_ref().map(|said| said.public).unwrap_or_default();
            entry.subnets == Some(self.previous)
                && public.iter().any(|(family, ours)| entry.public.get(family) == Some(ours))
        };
        let find = |is_ours: &dyn Fn(&Entry) -> bool| table.entries().find(|(_, entry)| is_ours(entry));
        let found = find(&as_remembered).or_else(|| find(&as_before));
        self.held = found.and_then(|(name, entry)| Held::of(name, entry));
    }

    /// Whether a key is this node's. Go flannel knows nodes by their address: that is what counts as long as this
    /// node holds nothing. Then it is the key that it holds, also after its address changed, whoever else has the new
    /// one. A key that was never readable is nobody's: it may be another's, so its subnet is not touched.
    pub(super) fn owns(&self, name: &str, entry: &Entry) -> bool {
        let is_of_this_run = entry.lease_id != 0 && self.tenure.mine == Some(entry.lease_id);
        let has_our_address =
            || self.said.as_ref().is_some_and(|said| is_same_node(&said.public, &entry.public));
        let is_candidate = || match &self.held {
            None => has_our_address(),
            Some(held) => *held.name == *name && (held.is(entry) || has_our_address()),
        };
        is_of_this_run || is_candidate()
    }

    /// The key that this node holds: of its own the one that fits the config, and of those the oldest.
    pub(super) fn own<'a>(
        &self,
        table: &'a Table,
        config: Option<&NetworkConfig>,
    ) -> Option<(&'a str, &'a Entry)> {
        let own = table.entries().filter(|(name, entry)| self.owns(name, entry));
        let fitting = own.filter(|(_, entry)| {
            let Some(subnets) = &entry.subnets else { return false };
            // Without a config nobody can say that a lease does not fit.
            config.is_none_or(|config| fits_config(config, subnets))
                && !self.is_contested(table, entry, subnets)
        });
        fitting.min_by_key(|(_, entry)| entry.created)
    }

    /// The older lease of somebody else that has a part of the same subnets.
    fn is_contested(&self, table: &Table, own: &Entry, subnets: &ByFamily<IpNet>) -> bool {
        table.entries().any(|(name, other)| {
            other.created < own.created
                && other.remembered.is_none()
                && other.subnets.is_some_and(|theirs| any_overlap(subnets, &theirs))
                && !self.owns(name, other)
        })
    }
}

impl Held {
    /// A key as it is; nothing if it cannot be read.
    pub(super) fn of(name: &str, entry: &Entry) -> Option<Self> {
        let subnets = entry.lease.as_ref()?.subnets;
        Some(Self { name: name.into(), subnets, created: entry.created, lease_id: entry.lease_id })
    }

    /// Whether a key of this name is still the same: nobody else has made it anew, or given it another life.
    fn is(&self, entry: &Entry) -> bool {
        (self.created, self.lease_id) == (entry.created, entry.lease_id) && self.lease_id != 0
    }
}

/// Decides what to write next. `start` chooses among free subnets.
pub(super) fn next_txn(table: &Table, node: &Node, start: u64) -> Result<Lack, StoreError> {
    let config = table.net_conf.config().map_err(StoreError::NoConfig)?;
    let kept = node.own(table, Some(config));
    let surplus = table.entries().filter(|(name, entry)| {
        node.owns(name, entry) && entry.remembered.is_none() && kept.is_none_or(|(kept, _)| kept != *name)
    });
    let surplus: Vec<_> =
        surplus.map(|(name, entry)| (name.into(), entry.changed)).take(MOST_SURPLUS).collect();
    if let Some((name, entry)) = kept {
        let title = node.tenure.title(entry.lease_id);
        if title == Title::Rivals {
            return Ok(Lack::Rival(name.into()));
        }
        let is_said =
            entry.lease.as_ref().is_some_and(|lease| Some(&lease.announcement) == node.said.as_ref());
        if is_said && entry.fault.is_none() && surplus.is_empty() && title == Title::Own {
            return Ok(Lack::Nothing(name.into()));
        }
        let life = if entry.lease_id == 0 { Life::Reserved } else { Life::Own };
        let guard = Guard::Unchanged(entry.changed);
        return Ok(Lack::Txn(ClaimTxn { name: name.into(), guard, life, surplus }));
    }
    let subnets = subnets(table, config, node, start)?;
    let name = subnet_key(&subnets).into_boxed_str();
    let guard = Guard::NoneSince(table.keys.lease(same_base(&name)), table.revision);
    Ok(Lack::Txn(ClaimTxn { name, guard, life: Life::Own, surplus }))
}

/// The beginning of a lease's key that all keys of the same subnet have in common, whatever its length and
/// whether IPv6 is on.
fn same_base(name: &str) -> &str {
    let tail = if name.starts_with("0.0.0.0-0&") { name.rfind('-') } else { name.find('-') };
    tail.and_then(|tail| name.get(..=tail)).unwrap_or(name)
}

/// The subnets to claim anew. `start` chooses among those that are free.
fn subnets(
    table: &Table,
    config: &NetworkConfig,
    node: &Node,
    start: u64,
) -> Result<ByFamily<IpNet>, StoreError> {
    let (own, others): (Vec<_>, Vec<_>) = table.entries().partition(|(name, entry)| node.owns(name, entry));
    let others = others.into_iter().filter_map(|(_, entry)| entry.subnets);
    let taken: Vec<_> = others.flat_map(|subnets| [subnets.v4, subnets.v6]).flatten().collect();
    let own = own.into_iter().filter_map(|(_, entry)| entry.subnets);
    let held = node.held.as_ref().map(|held| held.subnets);
    let previous: Vec<_> = own.chain(held).chain([node.previous]).collect();
    let claim = SubnetClaim { kept: &[], previous: &previous, taken: &taken, start };
    claim.choose(config).map_err(|none_free| {
        let below = &table.keys.subnets;
        let way_out = format!("delete the key of a node that is gone for good below {below}");
        StoreError::NoSubnetLeft { none_free, way_out }
    })
}

#[cfg(test)]
mod tests;
