//! The store in etcd, against a real etcd: Debian's, or the program that ETCD names.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "figures and etcd's last words are for people")]

mod claims;
mod life;
mod login;
mod outages;
mod proxy;
mod rivals;
mod server;
mod size;
mod stage;
mod tls;
mod transfer;
mod watching;
