//! What the CNI plugins leave behind when they are killed, hurried, lied to or forgotten. Needs root, and the
//! program built before: `cargo build -p flannel-cni`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test stops at the first surprise, and prints what it counted"
)]

mod bad_input;
mod crowd;
mod each_step;
mod kill;
mod lost;
mod mutation;
mod reboot;
