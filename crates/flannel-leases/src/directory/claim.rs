//! Decides which subnets a node gets, and writes that down: all that happens while the store is locked.
//!
//! Takes what the files say and what the node wants, and gives the lease as stored. Killed at any point, it
//! leaves whole leases only; two of one owner are made one by the next claim.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use flannel_plan::allocate::{fits, free_subnet};
use flannel_plan::config::{NetworkConfig, PodNetwork};
use flannel_plan::family::{ByFamily, Family, overlap};
use flannel_plan::lease::{Announcement, Lease, is_same_node, subnets_from_key};
use ipnet::IpNet;

use super::lease_file::{self, AGE_UNKNOWN};
use super::lock::{Lock, Place};
use super::notice::Suspects;
use super::reading::Reading;
use crate::StoreError;

/// What a node wants of the store.
pub(super) struct Claim {
    /// The store.
    pub dir: PathBuf,
    /// Who claims.
    pub owner: String,
    /// What it says of itself.
    pub announcement: Announcement,
    /// The subnets that it had at some time: taken again if nobody has them.
    pub previous: ByFamily<IpNet>,
    /// What the files said last: it speaks for those that are unreadable now.
    pub reading: Reading,
}

impl Claim {
    /// Claims or renews the lease.
    pub(super) fn settle(mut self, lock: &Lock) -> Result<Lease, StoreError> {
        let held = self.wishes();
        self.reading.look(&self.dir, &Suspects::default())?;
        let config = self.reading.config().map_err(StoreError::NoConfig)?;
        let own = self.own_leases(config);
        let subnets = self.subnets(config, &own, held)?;
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
    fn wishes(&self) -> Vec<ByFamily<IpNet>> {
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
        wishes: Vec<ByFamily<IpNet>>,
    ) -> Result<ByFamily<IpNet>, StoreError> {
        let taken = self.taken();
        let mut subnets = ByFamily::default();
        for (family, network) in config.networks.iter() {
            let kept = own.iter().filter(|lease| !self.is_contested(lease, family));
            let kept =
                kept.filter_map(|lease| lease.subnets.get(family)).find(|subnet| fits(network, **subnet));
            let wished = || {
                let wished = wishes.iter().filter_map(|wish| wish.get(family));
                wished.copied().find(|subnet| fits(network, *subnet) && !overlaps_any(*subnet, &taken))
            };
            let subnet =
                kept.copied().or_else(wished).or_else(|| free_subnet(network, taken.iter().copied()));
            *subnets.slot(family) = Some(subnet.ok_or_else(|| none_left(network, &taken))?);
        }
        Ok(subnets)
    }

    /// The subnets of all others, those of unreadable files included: their names are proof enough, unless
    /// this node had just these subnets before, so that the damaged file must be its own.
    fn taken(&self) -> Vec<IpNet> {
        let others = self.reading.leases().filter(|lease| !self.is_own(lease)).map(|lease| lease.subnets);
        let unknown = self.reading.unknown_keys().filter_map(|key| subnets_from_key(key).ok());
        let unknown = unknown.filter(|subnets| *subnets != self.previous);
        others.chain(unknown).flat_map(|subnets| [subnets.v4, subnets.v6]).flatten().collect()
    }

    /// Whether somebody else has a part of our subnet, and had it first. Cannot come from claims, only from
    /// files that were copied by hand.
    fn is_contested(&self, own: &Lease, family: Family) -> bool {
        let Some(subnet) = own.subnets.get(family) else { return false };
        self.reading.leases().filter(|other| !self.is_own(other)).any(|other| {
            let older = (other.since, &other.owner) < (own.since, &own.owner);
            older && other.subnets.get(family).is_some_and(|theirs| overlap(*theirs, *subnet))
        })
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
        let text = lease_file::text(lease)
            .map_err(|cause| StoreError::Unwritable { owner: lease.owner.clone(), cause })?;
        let ours = kept.is_some() || self.reading.is_unreadable(&name);
        lock.write(&name, &text, if ours { Place::Ours } else { Place::New })
    }
}

/// Whether a lease has a subnet for each family that is switched on, and for no other.
pub(super) fn fits_config(config: &NetworkConfig, subnets: &ByFamily<IpNet>) -> bool {
    Family::BOTH.into_iter().all(|family| match (config.networks.get(family), subnets.get(family)) {
        (Some(network), Some(subnet)) => fits(network, *subnet),
        (network, subnet) => network.is_none() && subnet.is_none(),
    })
}

fn overlaps_any(subnet: IpNet, taken: &[IpNet]) -> bool {
    taken.iter().any(|taken| overlap(*taken, subnet))
}

fn none_left(network: &PodNetwork, taken: &[IpNet]) -> StoreError {
    let taken = taken.iter().filter(|taken| overlap(**taken, network.network)).count();
    StoreError::NoSubnetLeft { network: network.network, subnet_len: network.subnet_len, taken }
}
