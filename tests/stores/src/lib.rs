//! What the tests of lease stores share: a harness that counts what it cannot run, fleets on a store, leases as Go
//! writes them, and a watch on the kernel.
//!
//! Everything looks from outside, with the programs an operator has, so that no test trusts the code that it tests.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "only tests use it, and a test stops at the first surprise"
)]

mod calm;
mod certificates;
mod fleet;
mod harness;
mod kernel;
mod lease;
mod object;
mod scenario;
mod stand_in;

pub use calm::Calm;
pub use certificates::{Authority, Life};
pub use fleet::{Fleet, Program, go_flanneld, start, time_to};
pub use harness::run;
pub use kernel::Watch;
pub use lease::{GoLease, vtep};
pub use object::NodeObject;
pub use scenario::{Need, Scenario, tell};
pub use scenario_harness::not_run;
pub use stand_in::{go_annotations, stand_in};
