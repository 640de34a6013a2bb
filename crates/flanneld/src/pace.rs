//! How often news of one peer are passed on from the store to the loop. A lease that toggles would make every node
//! change its kernel each time; nobody else's news may wait for it.
//!
//! Takes whole snapshots and instants, gives whole snapshots: in place of a peer that changes too often stands what was
//! passed on of it last, until its time has come. Then the newest is passed on, whatever came in between.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use flannel_leases::Snapshot;
use flannel_plan::family::ByFamily;
use flannel_plan::lease::Lease;
use ipnet::IpNet;

/// So many changes of one peer are passed on at once,
const BURST: u32 = 5;
/// and then one in this time.
const EACH: Duration = Duration::from_secs(1);

/// What the store says, at a pace that the loop can keep.
#[derive(Debug, Default)]
pub struct Pace {
    /// What the store said last.
    newest: Option<Arc<Snapshot>>,
    /// What was passed on last.
    given: Option<Arc<Snapshot>>,
    /// When each that changed lately will have made up for all its changes.
    paid_at: BTreeMap<Topic, Instant>,
    /// When the next that is held back may be passed on.
    due: Option<Instant>,
}

/// What changes at a pace of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Topic {
    /// What cannot be read of the store.
    Faults,
    /// The peer with these subnets: the name that it has in every store, whatever else it says of itself.
    Peer(ByFamily<IpNet>),
}

impl Pace {
    /// Takes what the store says; gives what is to be passed on, if that is news.
    pub fn receive(&mut self, snapshot: Snapshot, now: Instant) -> Option<Arc<Snapshot>> {
        self.newest = Some(Arc::new(snapshot));
        self.pass_on(now)
    }

    /// When something that is held back may be passed on.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// What is to be passed on now, if that is news.
    pub fn pass_on(&mut self, now: Instant) -> Option<Arc<Snapshot>> {
        self.due = None;
        self.paid_at.retain(|_, paid_at| *paid_at > now);
        let newest = Arc::clone(self.newest.as_ref()?);
        let next = match self.given.clone() {
            Some(given) => self.mix(&given, newest, now)?,
            None => newest,
        };
        self.given = Some(Arc::clone(&next));
        Some(next)
    }

    /// The newest snapshot but for what is held back; none if nothing else in it is news.
    fn mix(&mut self, given: &Snapshot, newest: Arc<Snapshot>, now: Instant) -> Option<Arc<Snapshot>> {
        let changed = changed(given, &newest);
        let held: BTreeSet<Topic> =
            changed.iter().copied().filter(|topic| !self.admits(*topic, now)).collect();
        if held.len() == changed.len() && is_same_node(given, &newest) {
            return None;
        }
        if held.is_empty() {
            return Some(newest);
        }
        let mut mixed = Snapshot::clone(&newest);
        if held.contains(&Topic::Faults) {
            mixed.faults.clone_from(&given.faults);
        }
        let is_held = |lease: &Arc<Lease>| held.contains(&Topic::Peer(lease.subnets));
        mixed.peers.retain(|lease| !is_held(lease));
        mixed.peers.extend(given.peers.iter().filter(|lease| is_held(lease)).cloned());
        mixed.peers.sort_by_key(|lease| lease.subnets);
        Some(Arc::new(mixed))
    }

    /// Whether a change may be passed on now; if not, it is due when it may.
    fn admits(&mut self, topic: Topic, now: Instant) -> bool {
        let paid_at = self.paid_at.get(&topic).copied().unwrap_or(now);
        let credit = EACH * (BURST - 1);
        if paid_at > now + credit {
            let due = paid_at - credit;
            self.due = Some(self.due.map_or(due, |other| other.min(due)));
            return false;
        }
        self.paid_at.insert(topic, paid_at + EACH);
        true
    }
}

/// What differs between two snapshots and has a pace of its own.
fn changed(before: &Snapshot, after: &Snapshot) -> BTreeSet<Topic> {
    let mut topics = BTreeSet::new();
    if before.faults != after.faults {
        topics.insert(Topic::Faults);
    }
    let (mut old, mut new) = (before.peers.iter().peekable(), after.peers.iter().peekable());
    loop {
        let order = match (old.peek(), new.peek()) {
            (Some(a), Some(b)) if Arc::ptr_eq(a, b) || a == b => Ordering::Equal,
            (Some(a), Some(b)) => a.subnets.cmp(&b.subnets).then(Ordering::Less),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return topics,
        };
        let gone = if order == Ordering::Greater { None } else { old.next() };
        let come = if order == Ordering::Less { None } else { new.next() };
        if order != Ordering::Equal {
            topics.extend(gone.or(come).map(|lease| Topic::Peer(lease.subnets)));
        }
    }
}

/// Whether two snapshots say the same but for other nodes and faults.
fn is_same_node(a: &Snapshot, b: &Snapshot) -> bool {
    // Every field by name: what is added to a snapshot has to be thought of here. That a store has come to another
    // version is no news by itself.
    let Snapshot {
        origin,
        version: _,
        is_stale,
        config,
        own,
        own_is_damaged,
        rival,
        public,
        announced,
        peers: _,
        faults: _,
    } = a;
    (origin, is_stale, config, own) == (&b.origin, &b.is_stale, &b.config, &b.own)
        && (own_is_damaged, rival) == (&b.own_is_damaged, &b.rival)
        && (public, announced) == (&b.public, &b.announced)
}

#[cfg(test)]
mod tests;
