//! The lease store that the operator chose, whichever it is.

use flannel_leases::etcd::Etcd;
use flannel_leases::kubernetes::Kubernetes;
use flannel_leases::{Directory, LeaseStore, Readiness, Snapshot, StoreError};
use flannel_plan::family::ByFamily;
use flannel_plan::lease::{Announcement, Lease};
use ipnet::IpNet;

use crate::options::Store;

/// One of the stores.
pub enum AnyStore {
    /// Files in a folder.
    Directory(Box<Directory>),
    /// etcd.
    Etcd(Box<Etcd>),
    /// Kubernetes.
    Kubernetes(Box<Kubernetes>),
}

impl AnyStore {
    /// Opens it for this node, which asks for its previous subnets again. What is remembered of the nodes saves
    /// some stores from asking for all of it.
    pub fn open(
        store: &Store,
        owner: &str,
        previous: ByFamily<IpNet>,
        remembered: Option<&Snapshot>,
    ) -> Result<Self, StoreError> {
        match store {
            Store::Directory(dir) => {
                Directory::open(dir, owner.to_owned(), previous).map(Box::new).map(Self::Directory)
            }
            Store::Etcd(options) => Etcd::open(options.clone(), previous).map(Box::new).map(Self::Etcd),
            Store::Kubernetes(options) => {
                let leases =
                    remembered.into_iter().flat_map(|snapshot| snapshot.peers.iter().chain(&snapshot.own));
                let store = Kubernetes::open(options.clone())?.remembering(leases.map(|lease| &**lease));
                Ok(Self::Kubernetes(Box::new(store)))
            }
        }
    }
}

impl LeaseStore for AnyStore {
    async fn publish(&mut self, announcement: &Announcement) -> Result<Lease, StoreError> {
        match self {
            Self::Directory(store) => store.publish(announcement).await,
            Self::Etcd(store) => store.publish(announcement).await,
            Self::Kubernetes(store) => store.publish(announcement).await,
        }
    }

    async fn next(&mut self) -> Result<Snapshot, StoreError> {
        match self {
            Self::Directory(store) => store.next().await,
            Self::Etcd(store) => store.next().await,
            Self::Kubernetes(store) => store.next().await,
        }
    }

    fn tell(&mut self, readiness: &Readiness) {
        match self {
            Self::Directory(store) => store.tell(readiness),
            Self::Etcd(store) => store.tell(readiness),
            Self::Kubernetes(store) => store.tell(readiness),
        }
    }
}
