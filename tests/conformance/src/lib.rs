//! What the conformance tests share: plugin sets, sites to call plugins in, and the harness that runs scenarios.
//!
//! Everything here looks from outside, with the programs an operator has (`ip`, `bridge`, `nft`, `iptables-save`),
//! so that a scenario is right on any plugins that keep to the specification. Go's plugins show that it is.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "only tests use it, and a test stops at the first surprise"
)]

pub mod call;
pub mod chain;
pub mod harness;
pub mod listing;
pub mod plugins;
pub mod scenario;
pub mod site;
pub mod traffic;
pub mod version;
pub mod wait;

pub use call::{Answer, Call};
pub use chain::{Chain, PodInterface};
pub use plugins::Plugins;
pub use scenario::{Known, Scenario, Stage, Suite};
pub use scenario_harness::not_run;
pub use site::Site;
pub use wait::wait_until;
