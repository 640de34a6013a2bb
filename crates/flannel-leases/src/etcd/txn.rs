//! The two transactions: reading everything, and writing this node's lease if nobody was faster.
//!
//! Both give a whole read, so that what comes next is decided from what etcd says now.

use super::claim::{Change, Guard};
use super::client::Client;
use super::error::EtcdError;
use super::keys::{Keys, end_of};
use super::line::Call;
use super::messages::{
    Compare, Compared, DeleteRangeRequest, Operation, Outcome, PutRequest, RangeRequest, Relation, RequestOp,
    TXN, Target, TxnRequest, TxnResponse,
};
use super::table::WholeRead;

const READ: Call = Call { path: TXN, act: "give the leases", stays_open: false };
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
    change: &Change,
    value: String,
    lease: i64,
) -> Result<(bool, WholeRead), EtcdError> {
    let key = keys.lease(&change.name).into_bytes();
    let mut compare = vec![match &change.guard {
        Guard::Unchanged(revision) => changed(key.clone(), Vec::new(), Relation::Equal, *revision),
        Guard::NoneSince(prefix, revision) => {
            changed(prefix.clone().into_bytes(), end_of(prefix), Relation::Less, revision + 1)
        }
    }];
    let mut success = vec![op(Operation::Put(PutRequest { key, value: value.into_bytes(), lease }))];
    for (name, revision) in &change.surplus {
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
