//! Listens to a lease store and hands out whole snapshots.
//!
//! A store takes what a node says of itself ([`LeaseStore::publish`]) and gives what all nodes said
//! ([`LeaseStore::next`]): always everything, never an event, so that nothing is lost by missing one.

mod directory;
mod error;
pub mod etcd;
mod finding;
mod in_force;
pub mod kubernetes;
mod proxy;
mod readable;
pub mod rival;
mod server;
mod sorted;
mod timing;
pub mod yaml;

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use flannel_plan::config::NetworkConfig;
use flannel_plan::family::ByFamily;
use flannel_plan::finding::Code;
use flannel_plan::lease::{Announcement, Lease};

pub use directory::Directory;
pub use error::StoreError;
pub use rival::Rival;
pub use server::Server;

/// Where nodes claim their subnets and learn of each other.
pub trait LeaseStore {
    /// Claims or renews this node's lease under this announcement, and gives it as stored. Idempotent.
    fn publish(
        &mut self,
        announcement: &Announcement,
    ) -> impl Future<Output = Result<Lease, StoreError>> + Send;

    /// The next whole snapshot: the first call gives at once what is there, later calls wait for a change.
    ///
    /// May be dropped at any moment without losing a change. After an error the last snapshot stays in
    /// force, and the next call tries again at once: the caller chooses the pause.
    fn next(&mut self) -> impl Future<Output = Result<Snapshot, StoreError>> + Send;

    /// Of which cluster, and on Kubernetes of which node of it, the store has turned out to speak: etcd's cluster id,
    /// or the UID of this node's object. None while that is not known, and where a store has no such thing.
    fn origin(&self) -> Option<Arc<str>> {
        None
    }

    /// Takes how this node is, whenever that changes: a store that keeps a condition of it passes it on, from
    /// [`LeaseStore::next`], for as long as it takes. Does not wait.
    fn tell(&mut self, _readiness: &Readiness) {}

    /// What its server is known by before it has said a word.
    fn server(&self) -> Server {
        Server::default()
    }

    /// Takes over what was known before the daemon was started.
    #[must_use]
    fn remembering(self, _before: &Snapshot) -> Self
    where
        Self: Sized,
    {
        self
    }
}

/// Whether pods can be started on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// They can.
    Ready,
    /// They can by what is remembered: the store itself has not said so, and it is nothing to pass on.
    Remembered,
    /// They cannot, for this reason.
    NotReady(String),
}

/// All that a store says at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Of which cluster and node this is: see [`LeaseStore::origin`].
    pub origin: Option<Arc<str>>,
    /// How new it is, in the store's own words; none where a store is always asked for the newest.
    pub version: Option<Arc<str>>,
    /// Whether it may be older than what the kernel was made by: what it lacks is not known to be gone.
    pub is_stale: bool,
    /// The config in force, or why there has been none so far.
    pub config: Result<NetworkConfig, Fault>,
    /// This node's own lease; none while it has none that fits the config, and must publish to get one.
    pub own: Option<Arc<Lease>>,
    /// Whether the store has lost what it should say of this node: it has to be published again as it was.
    pub own_is_damaged: bool,
    /// Somebody else who writes what the store says of this node.
    pub rival: Option<Rival>,
    /// The addresses that the store gives this node in place of `--public-ip` and `--public-ipv6`.
    pub public: ByFamily<IpAddr>,
    /// Where the store tells other nodes to send to, if that need not be what our lease says: an operator may overwrite
    /// it there.
    pub announced: ByFamily<IpAddr>,
    /// The leases of all other nodes, in the order of their subnets.
    pub peers: Vec<Arc<Lease>>,
    /// What is there but cannot be read; what it said before, if anything, is still in force above.
    pub faults: Vec<Fault>,
}

impl Snapshot {
    /// One that says nothing but what the net-conf is.
    pub fn of(config: Result<NetworkConfig, Fault>) -> Self {
        Self {
            origin: None,
            version: None,
            is_stale: false,
            config,
            own: None,
            own_is_damaged: false,
            rival: None,
            public: ByFamily::default(),
            announced: ByFamily::default(),
            peers: Vec::new(),
            faults: Vec::new(),
        }
    }
}

/// A part of a store that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub code: Code,
    /// The file, or the key, in question.
    pub file: PathBuf,
    /// What is wrong with it: reads on after its name.
    pub reason: String,
}

impl Fault {
    /// What is wrong with a file or a key.
    pub fn new(code: Code, file: impl Into<PathBuf>, reason: impl Into<String>) -> Self {
        Self { code, file: file.into(), reason: reason.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.file.display(), self.reason)
    }
}
