//! The store in etcd, against a real etcd: Debian's, or the program that ETCD names.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod claims;
mod server;
mod stage;
