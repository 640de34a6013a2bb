//! The form of the file in which a daemon keeps what the store said last, for a start without the store.
//!
//! Whose file it is (`Of`) is the daemon's business. What was written is read again as it was; a lease that is
//! damaged is left out alone.

use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::config::NetworkConfig;
use crate::family::ByFamily;
use crate::lease::Lease;
use crate::lease_list::LeaseList;
use crate::peers::Newcomer;

/// A file of another format is not read.
pub const FORMAT: u32 = 2;

/// What is written.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Kept<'a, Of> {
    pub format: u32,
    pub of: &'a Of,
    /// Of which cluster and node it is, by the store's own word.
    pub origin: Option<&'a str>,
    /// How new it is, by the store's own word.
    pub version: Option<&'a str>,
    pub config: &'a NetworkConfig,
    pub own: &'a Lease,
    /// The addresses that the store gives this node.
    pub public: &'a ByFamily<IpAddr>,
    /// The leases of all other nodes.
    pub peers: &'a [Arc<Lease>],
    /// Those of them that were not followed.
    pub newcomers: &'a [Newcomer],
}

/// What is read: the same.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Recalled<Of> {
    pub format: u32,
    pub of: Of,
    pub origin: Option<Arc<str>>,
    pub version: Option<Arc<str>>,
    pub config: NetworkConfig,
    pub own: Arc<Lease>,
    pub public: ByFamily<IpAddr>,
    pub peers: LeaseList,
    #[serde(default)]
    pub newcomers: Vec<Newcomer>,
}
