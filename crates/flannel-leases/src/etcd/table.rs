//! What etcd's keys say: the config and all leases, as of the last whole read and the events since.
//!
//! Takes key-values, gives entries and faults. Garbage is not absence: a key that cannot be read any more says
//! what it said last. Nor is another history: leases that are missing because etcd was restored from a backup
//! stay until their nodes, or others in their place, claim anew, at most for as long as a lease lives.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flannel_plan::family::{ByFamily, overlap};
use flannel_plan::finding::Code;
use flannel_plan::lease::{Announcement, Lease, subnets_from_key};
use flannel_plan::quoted::quoted;
use ipnet::IpNet;
use tracing::warn;

use super::keys::Keys;
use super::messages::{Event, Header, KeyValue};
use crate::Fault;
use crate::in_force::{self, NetConf};
use crate::sorted::Sorted;

const DELETE: i32 = 1;

/// What a whole read gave.
#[derive(Debug, Default)]
pub(super) struct WholeRead {
    pub header: Header,
    pub config: Option<KeyValue>,
    pub leases: Vec<KeyValue>,
}

/// The config and all leases.
#[derive(Debug)]
pub(super) struct Table {
    pub keys: Keys,
    /// Grows with everything that a snapshot would tell.
    pub version: u64,
    /// The revision of the last whole read: what events say of older ones is known.
    pub revision: i64,
    newest: Option<Header>,
    pub net_conf: NetConf,
    entries: BTreeMap<Box<str>, Entry>,
    leases: Sorted,
}

/// One key below `subnets/`.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// What the key's name says; nothing if it names no subnet.
    pub subnets: Option<ByFamily<IpNet>>,
    /// What its value says or said last; nothing if it never could be read.
    pub lease: Option<Arc<Lease>>,
    /// The addresses that it says. Here as well, since every key is asked for them at every change, and leases lie
    /// all over the memory.
    pub public: ByFamily<IpAddr>,
    /// Why its value cannot be read now.
    pub fault: Option<String>,
    /// When it was made, and last changed.
    pub created: i64,
    pub changed: i64,
    /// The etcd lease that it lives by; 0 if it lives for ever.
    pub lease_id: i64,
    /// Until when it is remembered, if etcd lost it with a part of its history.
    pub remembered: Option<Instant>,
}

impl Table {
    pub(super) fn new(keys: Keys) -> Self {
        Self {
            keys,
            version: 0,
            revision: 0,
            newest: None,
            net_conf: NetConf::default(),
            entries: BTreeMap::new(),
            leases: Sorted::default(),
        }
    }

    /// Takes a whole read. `memory` is how long leases are remembered that were lost with history; `is_own`
    /// tells this node's own leases, which are claimed anew and not remembered.
    pub(super) fn take_read(
        &mut self,
        read: WholeRead,
        memory: Duration,
        is_own: impl Fn(&str, &Entry) -> bool,
    ) {
        let is_other_history = self.newest.is_some_and(|newest| is_other_history(&newest, &read.header));
        let forget_at = Instant::now() + memory;
        let mut before = std::mem::take(&mut self.entries);
        let mut is_changed = self.version == 0 || is_other_history;
        for kv in read.leases {
            let Some(name) = self.keys.lease_name(&kv.key).map(|name| Box::from(&*name)) else { continue };
            let known = before.remove(&name);
            let entry = Entry::read(&name, &kv, known.as_ref());
            is_changed |= known.is_none_or(|known| known.says_other(&entry));
            self.entries.insert(name, entry);
        }
        for (name, mut entry) in before {
            let stays = (entry.remembered.is_some() || is_other_history) && !is_own(&name, &entry);
            is_changed |= !stays;
            if stays && entry.lease.is_some() {
                entry.remembered.get_or_insert(forget_at);
                self.entries.insert(name, entry);
            }
        }
        self.leases = self.entries.values().filter_map(|entry| entry.lease.clone()).collect();
        is_changed |= self.take_config(read.config.as_ref()) | self.drop_refuted();
        if is_other_history {
            self.warn_of_history(&read.header);
        }
        self.version += u64::from(is_changed);
        self.revision = read.header.revision;
        self.newest = Some(read.header);
    }

    /// Takes what a watch tells.
    pub(super) fn take_events(&mut self, header: Option<Header>, events: Vec<Event>) {
        for event in events {
            let Some(kv) = event.kv.filter(|kv| kv.mod_revision > self.revision) else { continue };
            let is_gone = event.kind == DELETE;
            let is_changed = if kv.key == self.keys.config.as_bytes() {
                self.take_config(Some(&kv).filter(|_| !is_gone))
            } else {
                self.take_lease(&kv, is_gone)
            };
            self.version += u64::from(is_changed);
        }
        if let (Some(newest), Some(header)) = (&mut self.newest, header)
            && header.revision > newest.revision
        {
            *newest = header;
        }
    }

    fn take_lease(&mut self, kv: &KeyValue, is_gone: bool) -> bool {
        let Some(name) = self.keys.lease_name(&kv.key).map(|name| Box::<str>::from(&*name)) else {
            return false;
        };
        let known = self.entries.remove(&name);
        let old = known.as_ref().and_then(|known| known.lease.as_ref());
        if is_gone {
            self.leases.replace(old, None);
            return known.is_some();
        }
        let entry = Entry::read(&name, kv, known.as_ref());
        self.leases.replace(old, entry.lease.as_ref());
        let is_changed = known.is_none_or(|known| known.says_other(&entry));
        self.entries.insert(name, entry);
        is_changed | self.drop_refuted()
    }

    fn take_config(&mut self, kv: Option<&KeyValue>) -> bool {
        let text = match kv {
            None => Err(
                "was not found in etcd: was it written by the etcdv3 API? Write the net-conf there by `etcdctl put`"
                    .to_owned(),
            ),
            Some(kv) => std::str::from_utf8(&kv.value).map_err(|_| "is no text".to_owned()),
        };
        self.net_conf.take_text(Path::new(&self.keys.config), text)
    }

    /// Drops remembered leases that the new history speaks against: their subnet, or their node, is elsewhere.
    fn drop_refuted(&mut self) -> bool {
        if self.entries.values().all(|entry| entry.remembered.is_none()) {
            return false;
        }
        let live = || self.entries.values().filter(|entry| entry.remembered.is_none());
        let owners: BTreeSet<_> =
            live().filter_map(|entry| Some(entry.lease.as_ref()?.owner.clone())).collect();
        let taken: Vec<_> = live().filter_map(|entry| entry.subnets).collect();
        let is_taken = |ours: ByFamily<IpNet>| taken.iter().any(|theirs| any_overlap(&ours, theirs));
        self.drop_remembered(|entry, _| {
            entry.lease.as_ref().is_some_and(|lease| owners.contains(&lease.owner))
                || entry.subnets.is_some_and(is_taken)
        })
    }

    /// Forgets what has been remembered for long enough.
    pub(super) fn forget_old(&mut self) {
        let now = Instant::now();
        let is_changed = self.drop_remembered(|_, until| until <= now);
        self.version += u64::from(is_changed);
    }

    /// Drops some of the remembered leases, and says whether there were any of them.
    fn drop_remembered(&mut self, is_over: impl Fn(&Entry, Instant) -> bool) -> bool {
        let (count, leases) = (self.entries.len(), &mut self.leases);
        self.entries.retain(|_, entry| {
            let is_over = entry.remembered.is_some_and(|until| is_over(entry, until));
            if is_over {
                leases.replace(entry.lease.as_ref(), None);
            }
            !is_over
        });
        self.entries.len() != count
    }

    /// When something has to be forgotten next.
    pub(super) fn forget_next(&self) -> Option<Instant> {
        self.entries.values().filter_map(|entry| entry.remembered).min()
    }

    /// The id of the cluster that was read.
    pub(super) fn origin(&self) -> Option<Arc<str>> {
        self.newest.map(|newest| format!("{:x}", newest.cluster_id).into())
    }

    /// Every key of a lease, by the part of it that names the subnets.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries.iter().map(|(name, entry)| (&**name, entry))
    }

    /// All leases but some, in the order of their subnets.
    pub(super) fn leases_without(&self, some: &[&Arc<Lease>]) -> Vec<Arc<Lease>> {
        let mut leases = self.leases.to_vec();
        leases.retain(|lease| !some.iter().any(|other| Arc::ptr_eq(lease, other)));
        leases
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name)
    }

    /// Everything that cannot be read; the config only if an older one is in force.
    pub(super) fn faults(&self) -> Vec<Fault> {
        let config = self.net_conf.fault().cloned();
        let leases = self.entries.iter().filter_map(|(name, entry)| {
            let reason = entry.fault.clone()?;
            let name = quoted(name).to_string();
            Some(Fault::new(Code::LeaseUnreadable, self.keys.lease(&name), reason))
        });
        config.into_iter().chain(leases).chain(self.memory_fault()).collect()
    }

    fn memory_fault(&self) -> Option<Fault> {
        let mut remembered = self.entries.values().filter(|entry| entry.remembered.is_some());
        let first = remembered.next()?.lease.as_ref()?;
        let reason = format!(
            "lacks {} leases since etcd lost a part of its history, that of {first} among them; they stay in force \
             until their nodes claim them again, or as long as a lease lives",
            remembered.count() + 1
        );
        Some(Fault::new(Code::HistoryLost, &self.keys.subnets, reason))
    }

    fn warn_of_history(&self, now: &Header) {
        let before = self.newest.unwrap_or_default();
        let remembered = self.entries.values().filter(|entry| entry.remembered.is_some()).count();
        warn!(
            revision_before = before.revision,
            revision = now.revision,
            cluster_before = format_args!("{:x}", before.cluster_id),
            cluster = format_args!("{:x}", now.cluster_id),
            remembered,
            code = %Code::HistoryLost,
            "etcd has another history than before, as after a restored backup; leases it lacks stay in force"
        );
    }
}

/// Whether an answer cannot follow from what was there before: of another cluster, or from the past.
fn is_other_history(before: &Header, now: &Header) -> bool {
    now.cluster_id != before.cluster_id || now.revision < before.revision || now.raft_term < before.raft_term
}

impl Entry {
    fn read(name: &str, kv: &KeyValue, known: Option<&Self>) -> Self {
        // A key that was made anew is another node's: what it said before is over.
        let same_key = known.filter(|known| known.created == kv.create_revision);
        let before = same_key.and_then(|known| known.lease.as_ref());
        let (lease, fault) = in_force::lease(read_lease(name, kv), before);
        Self {
            subnets: subnets_from_key(name).ok(),
            public: lease.as_ref().map(|lease| lease.announcement.public).unwrap_or_default(),
            lease,
            fault,
            created: kv.create_revision,
            changed: kv.mod_revision,
            lease_id: kv.lease,
            remembered: None,
        }
    }

    /// Whether a snapshot would tell the difference. Go renews by writing the same value again: that is no news.
    fn says_other(&self, new: &Self) -> bool {
        self.lease != new.lease || self.fault != new.fault || self.remembered != new.remembered
    }
}

fn read_lease(name: &str, kv: &KeyValue) -> Result<Lease, String> {
    let subnets = subnets_from_key(name).map_err(|why| format!("is in the way: {why}"))?;
    let value =
        std::str::from_utf8(&kv.value).map_err(|_| "cannot be read: its value is no text".to_owned())?;
    let announcement =
        Announcement::from_etcd(name, value).map_err(|why| format!("cannot be read: {why}"))?;
    // `{}` and `[]` can be read, too, but say nothing: whose subnet it is, and where packets go.
    let address = announcement.public.v4.or(announcement.public.v6);
    let address = address.ok_or("cannot be read: it names no PublicIP")?;
    Ok(Lease {
        owner: address.to_string(),
        subnets,
        announcement,
        since: u64::try_from(kv.create_revision).unwrap_or_default(),
    })
}

/// Whether two leases share an address of either family.
pub(super) fn any_overlap(ours: &ByFamily<IpNet>, theirs: &ByFamily<IpNet>) -> bool {
    ours.iter().any(|(family, net)| theirs.get(family).is_some_and(|theirs| overlap(*net, *theirs)))
}

#[cfg(test)]
mod tests;
