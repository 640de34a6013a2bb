//! Reading and writing everything at once, for tools that move a cluster from one store to another.

use std::time::Duration;

use flannel_plan::lease::{Lease, subnet_key};

use super::error::EtcdError;
use super::line::Call;
use super::messages::{
    Compare, Compared, LEASE_GRANT, LEASE_TIME_TO_LIVE, LeaseGrantRequest, LeaseGrantResponse, LeaseRequest,
    LeaseResponse, Operation, PutRequest, Relation, TXN, Target, TxnRequest, TxnResponse,
};
use super::{Etcd, StoreError, txn};
use crate::Fault;

const ASK_LIFE: Call =
    Call { path: LEASE_TIME_TO_LIVE, act: "tell how long a lease lives", stays_open: false };
const GRANT: Call = Call { path: LEASE_GRANT, act: "grant a lease", stays_open: false };
const PUT: Call = Call { path: TXN, act: "take a key", stays_open: false };

/// Everything that a store in etcd holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The net-conf as it is written there; none if it is not there.
    pub config: Option<String>,
    /// All leases that can be read, in the order of their keys.
    pub leases: Vec<StoredLease>,
    /// The keys that cannot.
    pub faults: Vec<Fault>,
}

/// A lease, and how long it is going to live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredLease {
    /// The lease.
    pub lease: Lease,
    /// For how long; for ever, as a reservation, if none.
    pub time_to_live: Option<Duration>,
}

impl Etcd {
    /// Reads everything. Asks for the life of each lease, one call each: not for daemons.
    pub async fn read_all(&mut self) -> Result<Contents, StoreError> {
        let read = txn::read(&mut self.client, &self.table.keys).await?;
        let config = read.config.as_ref().map(|kv| String::from_utf8_lossy(&kv.value).into_owned());
        self.take(read);
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
                Some(life) => self.grant_life(*life).await?,
            };
            self.put_new(key, value, life).await?;
        }
        Ok(())
    }

    async fn grant_life(&mut self, life: Duration) -> Result<i64, EtcdError> {
        let ttl = i64::try_from(life.as_secs()).unwrap_or(i64::MAX).max(1);
        let answer: LeaseGrantResponse = self.client.ask(GRANT, LeaseGrantRequest { ttl }).await?;
        Ok(answer.id)
    }

    async fn put_new(&mut self, key: String, value: String, lease: i64) -> Result<(), EtcdError> {
        let name = key.clone();
        let key = key.into_bytes();
        let compare = |target: Target, with| Compare {
            result: Relation::Equal.into(),
            target: target.into(),
            key: key.clone(),
            with: Some(with),
            range_end: Vec::new(),
        };
        let same = compare(Target::Value, Compared::Value(value.clone().into_bytes()));
        let put = PutRequest { key: key.clone(), value: value.into_bytes(), lease };
        let is_new = TxnRequest {
            compare: vec![compare(Target::Version, Compared::Version(0))],
            success: vec![txn::op(Operation::Put(put))],
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
