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
    Compare, DeleteRangeRequest, LEASE_TIME_TO_LIVE, LeaseRequest, LeaseResponse, MOD_REVISION, Operation,
    PutRequest, RangeRequest, Relation, RequestOp, TXN, TxnRequest, TxnResponse,
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
    let key = keys.lease(&claim.name);
    let mut compare = vec![match &claim.guard {
        Guard::Unchanged(revision) => changed(one(&key), Relation::Equal, *revision),
        Guard::NoneSince(prefix, revision) => changed(all_below(prefix), Relation::Less, revision + 1),
    }];
    let mut success = vec![put(&key, value, lease)];
    for (name, revision) in &claim.surplus {
        let key = keys.lease(name);
        compare.push(changed(one(&key), Relation::Equal, *revision));
        success.push(op(Operation::Delete(DeleteRangeRequest { key: key.into_bytes() })));
    }
    success.extend(whole(keys));
    let answer: TxnResponse =
        client.ask(WRITE, TxnRequest { compare, success, failure: whole(keys) }).await?;
    Ok((answer.succeeded, whole_read(answer)?))
}

fn op(operation: Operation) -> RequestOp {
    RequestOp { operation: Some(operation) }
}

fn put(key: &str, value: String, lease: i64) -> RequestOp {
    op(Operation::Put(PutRequest { key: key.into(), value: value.into(), lease }))
}

fn one(key: &str) -> RangeRequest {
    RangeRequest { key: key.into(), range_end: Vec::new() }
}

fn all_below(prefix: &str) -> RangeRequest {
    RangeRequest { key: prefix.into(), range_end: end_of(prefix) }
}

/// A condition on when keys were changed last.
fn changed(keys: RangeRequest, relation: Relation, revision: i64) -> Compare {
    let (key, range_end, mod_revision) = (keys.key, keys.range_end, Some(revision));
    Compare { result: relation.into(), target: MOD_REVISION, key, mod_revision, range_end }
}

fn whole(keys: &Keys) -> Vec<RequestOp> {
    [one(&keys.config), all_below(&keys.subnets)].map(|range| op(Operation::Range(range))).into()
}

pub(super) fn whole_read(answer: TxnResponse) -> Result<WholeRead, EtcdError> {
    let ranges = answer.responses.into_iter().filter_map(|response| Some(response.range?.kvs));
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
        let mut leases = Vec::new();
        for (_, entry) in self.table.entries() {
            let Some(lease) = &entry.lease else { continue };
            let time_to_live = match entry.lease_id {
                0 => None,
                id => {
                    let answer: LeaseResponse = self.client.ask(ASK_LIFE, LeaseRequest { id }).await?;
                    Some(Duration::from_secs(u64::try_from(answer.ttl).unwrap_or_default()))
                }
            };
            leases.push(StoredLease { lease: Lease::clone(lease), time_to_live });
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
        let request = TxnRequest {
            compare: vec![changed(one(&key), Relation::Equal, 0)],
            success: vec![put(&key, value.clone(), lease)],
            failure: vec![op(Operation::Range(one(&key)))],
        };
        let answer: TxnResponse = self.client.ask(PUT, request).await?;
        let mut there = answer.responses.into_iter().filter_map(|response| response.range);
        let is_there = there.any(|range| range.kvs.iter().any(|kv| kv.value == value.as_bytes()));
        if answer.succeeded || is_there { Ok(()) } else { Err(EtcdError::Exists(key)) }
    }
}
