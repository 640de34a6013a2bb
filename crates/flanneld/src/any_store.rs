//! The lease store that the operator chose, whichever it is.

use flannel_leases::{Directory, LeaseStore, Readiness, Snapshot, StoreError};
use flannel_plan::family::ByFamily;
use flannel_plan::lease::{Announcement, Lease};
use ipnet::IpNet;

use crate::options::Store;

/// One of the stores.
pub enum AnyStore {
    /// Files in a folder.
    Directory(Directory),
}

impl AnyStore {
    /// Opens it for this node, which asks for its previous subnets again.
    pub fn open(store: &Store, owner: &str, previous: ByFamily<IpNet>) -> Result<Self, StoreError> {
        match store {
            Store::Directory(dir) => Directory::open(dir, owner.to_owned(), previous).map(Self::Directory),
        }
    }
}

impl LeaseStore for AnyStore {
    async fn publish(&mut self, announcement: &Announcement) -> Result<Lease, StoreError> {
        match self {
            Self::Directory(store) => store.publish(announcement).await,
        }
    }

    async fn next(&mut self) -> Result<Snapshot, StoreError> {
        match self {
            Self::Directory(store) => store.next().await,
        }
    }

    fn tell(&mut self, readiness: &Readiness) {
        match self {
            Self::Directory(store) => store.tell(readiness),
        }
    }
}
