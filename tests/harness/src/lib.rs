//! What the harnesses of scenarios share: what the command line asks for, what a panic said, what came of a scenario,
//! and the sum of it.
//!
//! Rust's own harness knows passed and failed. Scenarios may also be known to differ, or not be run for a reason, and
//! both are told and counted.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "only tests use it, and a test stops at the first surprise"
)]

mod name;
mod outcome;
mod panics;
mod wishes;
mod workers;

pub use name::{path, title};
pub use outcome::{Outcome, conclude, say};
pub use panics::{attempt, not_run, remember_panics};
pub use wishes::Wishes;
pub use workers::side_by_side;
