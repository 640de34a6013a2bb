//! portmap in namespaces of its own, as a runtime calls it: what it answers, what `iptables-save` and `nft list`
//! see afterwards, and what packets see.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]
#![allow(clippy::print_stderr, reason = "a test that cannot run says so")]

mod checks;
mod config;
mod go;
mod golden;
mod leftovers;
#[path = "../own_run/mod.rs"]
mod own_run;
mod stage;
mod traffic;
