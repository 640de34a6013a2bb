//! What the tests of whole clusters share: labs, daemons, the kernel in words, leases written by hand, traffic.
//!
//! Everything here looks from outside, with the programs an operator has (`ip`, `bridge`, `ping`, HTTP), so that
//! no test trusts the code that it tests. A helper that meets a surprise ends the test, with the reason.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "only tests use it, and a test stops at the first surprise"
)]

mod cluster;
mod daemon;
mod lease;
mod notices;
mod pace;
mod picture;
mod room;
mod said;
mod traffic;

pub use cluster::{Cluster, apart, ip_on, options, pair_up, wait_until};
pub use daemon::{Daemon, flanneld_path};
pub use lease::{Leases, PeerLease};
pub use notices::Notices;
pub use pace::{Chance, cpu_time};
pub use picture::{BEFORE_A_SAFETY_LOOK, Picture, healed, vxlan_mac};
pub use said::{Metrics, is_ready, metrics, readyz, state};
pub use traffic::{PingFlood, Stream, Toll, ping_all, ping_pairs};

/// A pod network of IPv4 in vxlan.
pub const VXLAN: &str = r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}"#;
/// The same with IPv6.
pub const VXLAN_DUAL: &str = r#"{"Network":"10.244.0.0/16","EnableIPv6":true,"IPv6Network":"fd00:244::/48","Backend":{"Type":"vxlan"}}"#;
