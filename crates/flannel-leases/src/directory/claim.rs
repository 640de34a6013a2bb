//! Decides which subnets a node gets, and writes that down: all that happens while the store is locked.
//!
//! Takes what the files say and what the node wants, and gives the lease as stored. Killed at any point, it
//! leaves whole leases only; two of one owner are made one by the next claim.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use flannel_plan::allocate::{SubnetClaim, fits_config};
use flannel_plan::config::NetworkConfig;
use flannel_plan::family::{ByFamily, overlap};
use flannel_plan::lease::{Announcement, Lease, is_same_node, subnets_from_key};
use ipnet::IpNet;

use super::lease_file::{self, AGE_UNKNOWN};
use super::lock::{Lock, Target};
use super::notice::Suspects;
use super::reading::Reading;
use crate::StoreError;

/// What a node wants of the store.
pub(super) struct Claim {
    pub dir: PathBuf,
    pub owner: String,
    pub announcement: Announcement,
    /// The subnets that it had at some time: taken again if nobody has them.
    pub previous: ByFamily<IpNet>,
    /// What the files said last: it speaks for those that are unreadable now.
    pub reading: Reading,
}

impl Claim {
    /// Claims or renews the lease.
    pub(super) fn settle(mut self, lock: &Lock) -> Result<Lease, StoreError> {
        let held = self.held_before();
        self.reading.refresh(&self.dir, &Suspects::default())?;
        let config = self.reading.net_conf.config().map_err(StoreError::NoConfig)?;
        let own = self.own_leases(config);
        let subnets = self.subnets(config, &own, &held)?;
        let kept = own.iter().find(|own| own.subnets == subnets);
        let lease = Lease {
            owner: self.owner.clone(),
            subnets,
            announcement: self.announcement.clone(),
            since: kept
                .map(|kept| kept.since)
                .filter(|since| *since != AGE_UNKNOWN)
                .unwrap_or_else(|| self.now()),
        };
        self.store(lock, &lease, kept.map(|kept| &***kept))?;
        for surplus in own.iter().filter(|own| own.subnets != subnets) {
            lock.remove(&lease_file::name(surplus))?;
        }
        Ok(lease)
    }

    /// The subnets that this node holds as far as it knows, then those it had before: a lease that was
    /// removed under a running node is claimed again as it was, if nobody else has it by now.
    fn held_before(&self) -> Vec<ByFamily<IpNet>> {
        let held = self.reading.leases().filter(|lease| lease.owner == self.owner);
        held.map(|lease| lease.subnets).chain([self.previous]).collect()
    }

    /// Our leases, the one to keep first: what fits before what does not, then the older.
    fn own_leases(&self, config: &NetworkConfig) -> Vec<&Arc<Lease>> {
        let mut own: Vec<_> = self.reading.leases().filter(|lease| self.is_own(lease)).collect();
        own.sort_by_key(|lease| (!fits_config(config, &lease.subnets), lease.since));
        own
    }

    /// Go flannel knows nodes by their address: a lease of its making is ours if it has ours, and we have none yet.
    fn is_own(&self, lease: &Lease) -> bool {
        let is_ours = |lease: &Lease| lease.owner == self.owner;
        let is_adopted = || {
            lease_file::is_nameless(lease)
                && is_same_node(&lease.announcement.public, &self.announcement.public)
                && !self.reading.leases().any(|lease| is_ours(lease))
        };
        is_ours(lease) || is_adopted()
    }

    fn subnets(
        &self,
        config: &NetworkConfig,
        own: &[&Arc<Lease>],
        previous: &[ByFamily<IpNet>],
    ) -> Result<ByFamily<IpNet>, StoreError> {
        let kept: Vec<_> = own.iter().map(|lease| self.uncontested(lease)).collect();
        let claim = SubnetClaim { kept: &kept, previous, taken: &self.taken(), start: 0 };
        claim.choose(config).map_err(|none_free| StoreError::NoSubnetLeft {
            none_free,
            way_out: "release one that nobody needs (`flannelctl lease release NODE --lease-dir DIR`)".into(),
        })
    }

    /// The subnets of all others, those of unreadable files included: their names are proof enough, unless
    /// this node had just these subnets before, so that the damaged file must be its own.
    fn taken(&self) -> Vec<IpNet> {
        let others = self.reading.leases().filter(|lease| !self.is_own(lease)).map(|lease| lease.subnets);
        let unknown = self.reading.unknown_keys().filter_map(|key| subnets_from_key(key).ok());
        let unknown = unknown.filter(|subnets| *subnets != self.previous);
        others.chain(unknown).flat_map(|subnets| [subnets.v4, subnets.v6]).flatten().collect()
    }

    /// The subnets of a lease of ours of which nobody else had a part first. That cannot come from claims, only from
    /// files that were copied by hand.
    fn uncontested(&self, own: &Lease) -> ByFamily<IpNet> {
        let mut subnets = own.subnets;
        let older = |other: &&Arc<Lease>| (other.since, &other.owner) < (own.since, &own.owner);
        for other in self.reading.leases().filter(|other| !self.is_own(other)).filter(older) {
            for (family, theirs) in other.subnets.iter() {
                subnets.slot(family).take_if(|ours| overlap(*theirs, *ours));
            }
        }
        subnets
    }

    /// Later than every lease there is, whatever the clocks of their nodes said.
    fn now(&self) -> u64 {
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let newest =
            self.reading.leases().map(|lease| lease.since).filter(|since| *since != AGE_UNKNOWN).max();
        u64::try_from(clock).unwrap_or(u64::MAX).max(newest.map_or(0, |newest| newest.saturating_add(1)))
    }

    fn store(&self, lock: &Lock, lease: &Lease, kept: Option<&Lease>) -> Result<(), StoreError> {
        let name = lease_file::name(lease);
        if kept == Some(lease) && !self.reading.is_unreadable(&name) {
            return Ok(());
        }
        let text = lease_file::text(lease)?;
        let ours = kept.is_some() || self.reading.is_unreadable(&name);
        lock.write(&name, &text, if ours { Target::Ours } else { Target::New })
    }
}
