//! The bridge plugin in namespaces of its own, as a runtime calls it: what it answers, what `ip` and `bridge`
//! see afterwards, and what is left when something goes wrong.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod check;
mod concurrent;
mod config;
mod failures;
mod frames;
mod gateway;
mod housekeeping;
mod lifecycle;
#[path = "../own_run/mod.rs"]
mod own_run;
mod rules;
mod stage;
