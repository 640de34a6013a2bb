//! The lease store that the operator chose, whichever it is.

use std::sync::Arc;

use flannel_leases::etcd::Etcd;
use flannel_leases::kubernetes::Kubernetes;
use flannel_leases::{Directory, LeaseStore, Readiness, Server, Snapshot, StoreError};
use flannel_plan::family::ByFamily;
use flannel_plan::lease::{Announcement, Lease};
use ipnet::IpNet;

use crate::options::Store;

/// One of the stores.
pub enum AnyStore {
    /// Files in a folder.
    Directory(Box<Directory>),
    Etcd(Box<Etcd>),
    Kubernetes(Box<Kubernetes>),
}

impl AnyStore {
    /// Opens it for this node, which asks for its previous subnets again.
    pub fn open(store: &Store, owner: &str, previous: ByFamily<IpNet>) -> Result<Self, StoreError> {
        match store {
            Store::Directory(dir) => {
                Directory::open(dir, owner.to_owned(), previous).map(Box::new).map(Self::Directory)
            }
            Store::Etcd(options) => Etcd::open(options.clone(), previous).map(Box::new).map(Self::Etcd),
            Store::Kubernetes(options) => {
                Kubernetes::open(options.clone()).map(Box::new).map(Self::Kubernetes)
            }
        }
    }

    /// What its server is known by before it has said a word.
    pub fn server(&self) -> Server {
        match self {
            Self::Directory(_) => Server::default(),
            Self::Etcd(store) => store.server(),
            Self::Kubernetes(store) => store.server(),
        }
    }

    /// Takes over what is remembered: by it some stores know this node's lease, or need not ask for all of them.
    #[must_use]
    pub fn remembering(self, before: &Snapshot) -> Self {
        match self {
            Self::Kubernetes(store) => Self::Kubernetes(Box::new(store.remembering(before))),
            Self::Etcd(store) => Self::Etcd(Box::new(store.remembering(before))),
            Self::Directory(store) => Self::Directory(store),
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

    fn origin(&self) -> Option<Arc<str>> {
        match self {
            Self::Directory(store) => store.origin(),
            Self::Etcd(store) => store.origin(),
            Self::Kubernetes(store) => store.origin(),
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
