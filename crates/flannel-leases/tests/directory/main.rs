//! The embedded store on real files: claims, crashes, faults, notices and size.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test stops at the first surprise and says what it measured"
)]

mod claims;
mod crashes;
mod faults;
mod notices;
mod size;
mod stage;
