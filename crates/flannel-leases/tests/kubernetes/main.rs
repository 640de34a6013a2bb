//! The Kubernetes store against a real API server: run by `make test-peers`, or by
//! `cargo test -p flannel-leases --test kubernetes -- --ignored` after `make peers`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test stops at the first surprise and says what it measured"
)]

mod access;
mod cluster;
mod condition;
mod faults;
mod leases;
mod proxy;
mod scale;
mod stage;
mod subnets;
