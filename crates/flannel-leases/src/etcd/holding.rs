//! Claims this node's key and holds it: carries out the transactions that `claim` decides, and names whoever is in the way.

use std::time::{Duration, Instant};

use flannel_plan::allocate::fits_config;
use flannel_plan::finding::Code;
use flannel_plan::lease::{Announcement, Lease};
use tracing::warn;

use super::claim::{ClaimTxn, Held, Lack, Life, next_txn};
use super::error::EtcdError;
use super::table::any_overlap;
use super::tenure::Title;
use super::{Etcd, txn};
use crate::rival::{Rival, Stand, said};
use crate::timing::random;
use crate::{Fault, StoreError};

const PATIENCE: Duration = Duration::from_secs(30);
/// How long a node without a memory waits for a word of whoever had its key before it.
const OBJECTION: Duration = Duration::from_secs(2);
/// How long somebody is named who wrote our key; one who still lives tries again before that is over.
pub(super) const NAMED: Duration = Duration::from_secs(600);
const WAY_OUT: &str = "give each node a public address of its own (--iface, --public-ip), or stop the flanneld that is \
                       not this node's; if no other is left, restart this one";

/// Somebody who wrote this node's key while this node held it.
pub(super) struct Intruder {
    pub rival: Rival,
    pub until: Instant,
}

impl Etcd {
    pub(super) async fn claim(&mut self) -> Result<Lease, StoreError> {
        let began = Instant::now();
        self.node.tenure.forget_old(began);
        self.read().await?;
        let mut times = 0;
        loop {
            match next_txn(&self.table, &self.node, random())? {
                Lack::Nothing(name) if self.lives_on(&name).await? => return self.hold(&name),
                Lack::Nothing(_) => {}
                Lack::Txn(txn) => times += usize::from(!self.take_over(&txn).await?),
                Lack::Rival(name) => return Err(self.give_way(&name)),
            }
            if began.elapsed() > PATIENCE {
                return Err(EtcdError::Outraced { times, waited: PATIENCE }.into());
            }
        }
    }

    /// Carries out a transaction, notes whose key it was, and says whether nobody was faster. One that nothing but an address
    /// says to be ours may have a holder, who then has a moment to write it again.
    async fn take_over(&mut self, txn: &ClaimTxn) -> Result<bool, StoreError> {
        let before = self.table.entry(&txn.name).map_or(0, |entry| entry.lease_id);
        if self.node.tenure.title(before) == Title::Own {
            return self.commit(txn).await;
        }
        let intruder = self.intruder(&txn.name);
        let is_known = self.node.held.is_some() && !self.node.tenure.is_wary;
        if !self.commit(txn).await? {
            return Ok(false);
        }
        self.node.tenure.note_replaced(before, Instant::now());
        if intruder.is_some() {
            self.intruder = intruder;
        } else if !is_known {
            tokio::time::sleep(OBJECTION).await;
            self.read().await?;
        }
        Ok(true)
    }

    /// Whoever wrote a key that this run holds.
    fn intruder(&self, name: &str) -> Option<Intruder> {
        let is_ours = |held: &&Held| *held.name == *name && self.node.tenure.mine == Some(held.lease_id);
        self.node.held.as_ref().filter(is_ours)?;
        Some(Intruder { rival: self.rival(name, Stand::Holds), until: Instant::now() + NAMED })
    }

    /// Whoever else writes a key of this node.
    pub(super) fn rival(&self, name: &str, stand: Stand) -> Rival {
        let entry = self.table.entry(name);
        let lease = entry.and_then(|entry| entry.lease.as_ref());
        let says = lease.map_or_else(|| "what cannot be read".to_owned(), |lease| said(&lease.announcement));
        Rival {
            object: self.table.keys.lease(name),
            says: format!("{says}, by etcd lease {:016x}", entry.map_or(0, |entry| entry.lease_id)),
            way_out: WAY_OUT.into(),
            stand,
        }
    }

    fn give_way(&mut self, name: &str) -> StoreError {
        self.node.tenure.give_way(Instant::now());
        self.follow_own();
        StoreError::Rival(Box::new(self.rival(name, Stand::Yields)))
    }

    /// Carries out a transaction, and says whether nobody was faster. Either way the table is new.
    async fn commit(&mut self, claim: &ClaimTxn) -> Result<bool, StoreError> {
        let Some(said) = &self.node.said else { return Ok(false) };
        let value = said.to_etcd().map_err(|cause| unwritable(said, cause))?;
        let lease_id = match claim.life {
            Life::Reserved => 0,
            Life::Own => self.own_life().await?,
        };
        match txn::write(&mut self.client, &self.table.keys, claim, value, lease_id).await {
            Ok((is_done, read)) => {
                self.take(read);
                Ok(is_done)
            }
            // It ended meanwhile: the key that it held is gone, too.
            Err(EtcdError::Refused { reason, .. }) if reason.contains("lease not found") => {
                self.node.tenure.note_lost(lease_id);
                self.read().await?;
                Ok(false)
            }
            Err(why) => Err(why.into()),
        }
    }

    /// The etcd lease of this run.
    async fn own_life(&mut self) -> Result<i64, EtcdError> {
        if let Some(mine) = self.node.tenure.mine {
            return Ok(mine);
        }
        let granted = self.keeper.grant(&mut self.client, self.ttl).await?;
        Ok(*self.node.tenure.mine.insert(granted))
    }

    /// Whether the etcd lease of a key of ours is there.
    async fn lives_on(&mut self, name: &str) -> Result<bool, StoreError> {
        let lease_id = self.table.entry(name).map_or(0, |entry| entry.lease_id);
        let lives = lease_id == 0 || !self.keeper.keep_alive(&mut self.client, lease_id).await?.is_zero();
        if !lives {
            self.node.tenure.note_lost(lease_id);
            self.read().await?;
        }
        Ok(lives)
    }

    fn hold(&mut self, name: &str) -> Result<Lease, StoreError> {
        let entry = self.table.entry(name);
        let held = entry.and_then(|entry| Some((Held::of(name, entry)?, entry.lease.as_ref()?)));
        let Some((held, lease)) = held else { return Err(EtcdError::Malformed("a claim").into()) };
        let before = self.node.held.replace(held);
        if let Some(before) = before.filter(|before| before.subnets != lease.subnets) {
            warn!(before = %before.name, now = %name, "this node has other subnets than before");
        }
        self.node.tenure.note_held();
        self.told = None;
        Ok(Lease::clone(lease))
    }

    /// What became of the lease that this node held.
    pub(super) fn loss(&self) -> Option<Fault> {
        let held = self.node.held.as_ref()?;
        let config = self.table.net_conf.config().ok()?;
        let mut others = self.table.entries().filter(|(name, entry)| !self.node.owns(name, entry));
        let taker =
            others.find(|(_, other)| other.subnets.is_some_and(|theirs| any_overlap(&held.subnets, &theirs)));
        let (code, reason) = match taker {
            Some((name, taker)) => {
                let taker = taker.lease.as_ref().map_or(name, |lease| &lease.owner);
                let reason = format!(
                    "was lost by this node and is held by {taker} now: this node takes another subnet; its pods keep \
                     their addresses, which are no longer reached, until they are made anew"
                );
                (Code::LeaseTaken, reason)
            }
            None if !fits_config(config, &held.subnets) => {
                let reason = "does not fit the net-conf any more: this node takes another subnet";
                (Code::LeaseLost, reason.to_owned())
            }
            None => {
                let reason = "is gone (expired, revoked or deleted): this node claims it again";
                (Code::LeaseLost, reason.to_owned())
            }
        };
        Some(Fault::new(code, self.table.keys.lease(&held.name), reason))
    }
}

pub(super) fn unwritable(said: &Announcement, cause: serde_json::Error) -> StoreError {
    let owner = said.public.v4.or(said.public.v6).map(|address| address.to_string());
    StoreError::Unwritable { owner: owner.unwrap_or_default(), cause }
}
