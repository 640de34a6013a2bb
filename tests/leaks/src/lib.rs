//! What the tests of leaks share: a node of its own for each test, a runtime that calls plugins, and a scan.
//!
//! Nothing here uses the code under test: the scan reads folders and asks `ip`, `nft` and `iptables-save`, as an
//! operator would. A helper that meets a surprise ends the test, with the reason.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "only tests use it, and a test stops at the first surprise"
)]

mod call;
mod chance;
mod node;
mod runtime;
mod scan;

pub use call::{Answer, Call, Running};
pub use chance::Chance;
pub use node::{DUAL_STACK, Node, RECORDS, RESERVATIONS, on_a_node};
pub use runtime::{Firewall, Network, Pod, Step};
pub use scan::Scan;
