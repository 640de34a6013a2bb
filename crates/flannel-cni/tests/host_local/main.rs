//! host-local on folders and machines of its own: what it gives, what it leaves on disk, and what others that
//! keep the same files (Go's plugin, an administrator, a crash) do to it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod boots;
mod commands;
mod crashes;
mod files;
mod go;
mod golden;
mod need;
mod node;
