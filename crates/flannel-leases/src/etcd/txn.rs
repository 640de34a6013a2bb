//! The transactions: reading everything, writing this node's lease if nobody was faster, and, for tools that move a
//! cluster from one store to another, writing what is not there.
//!
//! The first two give a whole read, so that what comes next is decided from what etcd says now.

use std::time::Duration;

use flannel_plan::lease::{Lease, subnet_key};

use super::channel::Call;
use super::claim::{ClaimTxn, Guard};
use super::client::Client;
use super::error::EtcdError;
use super::keys::{Keys, end_of};
use super::messages::{
    Compare, Compared, DeleteRangeRequest, LEASE_TIME_TO_LIVE, LeaseRequest, LeaseResponse, Operation,
    Outcome, PutRequest, RangeRequest, Relation, RequestOp, TXN, Target, TxnRequest, TxnResponse,
};
use super::table::WholeRead;
use super::{Etcd, StoreError};
use crate::Fault;

const READ: Call = Call { path: TXN, act: "give the leases", stays_open: false };
const ASK_LIFE: Call =
    Call { path: LEASE_TIME_TO_LIVE, act: "tell how long a lease lives", stays_open: false };
const PUT: Call = Call { path: TXN, act: "take a key", stays_open: false };
const SECOND: Duration = Duration::from_secs(1);
const WRITE: Call = Call { path: TXN, act: "take a lease", stays_open: false };

/// Reads the config and all leases, as they are at one moment.
pub(super) async fn read(client: &mut Client, keys: &Keys) -> Result<WholeRead, EtcdError> {
    let request = TxnRequest { success: whole(keys), ..TxnRequest::default() };
    let answer: TxnResponse = client.ask(READ, request).await?;
    whole_read(answer)
}

/// Writes this node's lease, and says whether nobody was faster.
pub(super) async fn write(
    client: &mut Client,
    keys: &Keys,
    claim: &ClaimTxn,
    value: String,
    lease: i64,
) -> Result<(bool, WholeRead), EtcdError> {
    let key = keys.lease(&claim.name).into_bytes();
    let mut compare = vec![match &claim.guard {
        Guard::Unchanged(revision) => changed(key.clone(), Vec::new(), Relation::Equal, *revision),
        Guard::NoneSince(prefix, revision) => {
            changed(prefix.clone().into_bytes(), end_of(prefix), Relation::Less, revision + 1)
        }
    }];
    let mut success = vec![op(Operation::Put(PutRequest { key, value: value.into_bytes(), lease }))];
    for (name, revision) in &claim.surplus {
        let key = keys.lease(name).into_bytes();
        compare.push(changed(key.clone(), Vec::new(), Relation::Equal, *revision));
        success.push(op(Operation::Delete(DeleteRangeRequest { key })));
    }
    success.extend(whole(keys));
    let answer: TxnResponse =
        client.ask(WRITE, TxnRequest { compare, success, failure: whole(keys) }).await?;
    Ok((answer.succeeded, whole_read(answer)?))
}

pub(super) fn op(operation: Operation) -> RequestOp {
    RequestOp { operation: Some(operation) }
}

/// A condition on when keys were changed last; keys that are not there count as changed at 0.
fn changed(key: Vec<u8>, range_end: Vec<u8>, relation: Relation, revision: i64) -> Compare {
    Compare {
        result: relation.into(),
        target: Target::ModRevision.into(),
        key,
        with: Some(Compared::ModRevision(revision)),
        range_end,
    }
}

fn whole(keys: &Keys) -> Vec<RequestOp> {
    let config = RangeRequest { key: keys.config.clone().into_bytes(), range_end: Vec::new() };
    let leases = RangeRequest { key: keys.subnets.clone().into_bytes(), range_end: end_of(&keys.subnets) };
    vec![op(Operation::Range(config)), op(Operation::Range(leases))]
}

pub(super) fn whole_read(answer: TxnResponse) -> Result<WholeRead, EtcdError> {
    let ranges = answer.responses.into_iter().filter_map(|response| match response.outcome {
        Some(Outcome::Range(range)) => Some(range.kvs),
        _ => None,
    });
    let ranges: Vec<_> = ranges.collect();
    // Half an answer must never pass for a whole one: what it lacks would count as gone.
    let (Some(header), Ok([config, leases])) = (answer.header, <[_; 2]>::try_from(ranges)) else {
        return Err(EtcdError::Malformed("a read of all leases"));
    };
    Ok(WholeRead { header, config: config.into_iter().next(), leases })
}

/// Everything that a store in etcd holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The net-conf as it is written there; none if it is not there.
    pub config: Option<String>,
    /// All leases that can be read, in the order of their keys.
    pub leases: Vec<StoredLease>,
    pub faults: Vec<Fault>,
}

/// A lease, and how long it is going to live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredLease {
    pub lease: Lease,
    /// For how long; for ever, as a reservation, if none.
    pub time_to_live: Option<Duration>,
}

impl Etcd {
    /// Reads everything. Asks for the life of each lease, one call each: not for daemons.
    pub async fn read_all(&mut self) -> Result<Contents, StoreError> {
        let whole = read(&mut self.client, &self.table.keys).await?;
        let config = whole.config.as_ref().map(|kv| String::from_utf8_lossy(&kv.value).into_owned());
        self.take(whole);
        let entries: Vec<_> =
            self.table.entries().map(|(_, entry)| (entry.lease.clone(), entry.lease_id)).collect();
        let mut leases = Vec::new();
        for (lease, id) in entries {
            let Some(lease) = lease else { continue };
            let time_to_live = match id {
                0 => None,
                id => {
                    let answer: LeaseResponse = self.client.ask(ASK_LIFE, LeaseRequest { id }).await?;
                    Some(Duration::from_secs(u64::try_from(answer.ttl).unwrap_or_default()))
                }
            };
            leases.push(StoredLease { lease: Lease::clone(&lease), time_to_live });
        }
        Ok(Contents { config, leases, faults: self.table.faults() })
    }

    /// Writes a net-conf and leases. What is there already and says the same is left; what says something else
    /// is an error, and stays.
    pub async fn write(&mut self, config: Option<&str>, leases: &[StoredLease]) -> Result<(), StoreError> {
        if let Some(config) = config {
            self.put_new(self.table.keys.config.clone(), config.to_owned(), 0).await?;
        }
        for StoredLease { lease, time_to_live } in leases {
            let key = self.table.keys.lease(&subnet_key(&lease.subnets));
            let value = lease.announcement.to_etcd();
            let value =
                value.map_err(|cause| StoreError::Unwritable { owner: lease.owner.clone(), cause })?;
            let life = match time_to_live {
                None => 0,
                Some(life) => self.keeper.grant(&mut self.client, (*life).max(SECOND)).await?,
            };
            self.put_new(key, value, life).await?;
        }
        Ok(())
    }

    async fn put_new(&mut self, key: String, value: String, lease: i64) -> Result<(), EtcdError> {
        let name = key.clone();
        let key = key.into_bytes();
        let equal = |target: Target, with| Compare {
            result: Relation::Equal.into(),
            target: target.into(),
            key: key.clone(),
            with: Some(with),
            range_end: Vec::new(),
        };
        let same = equal(Target::Value, Compared::Value(value.clone().into_bytes()));
        let put = PutRequest { key: key.clone(), value: value.into_bytes(), lease };
        let is_new = TxnRequest {
            compare: vec![equal(Target::Version, Compared::Version(0))],
            success: vec![op(Operation::Put(put))],
            failure: Vec::new(),
        };
        let answer: TxnResponse = self.client.ask(PUT, is_new).await?;
        if answer.succeeded {
            return Ok(());
        }
        let is_same = TxnRequest { compare: vec![same], ..TxnRequest::default() };
        let answer: TxnResponse = self.client.ask(PUT, is_same).await?;
        if answer.succeeded { Ok(()) } else { Err(EtcdError::Exists(name)) }
    }
}
