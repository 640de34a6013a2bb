//! The runtime's side on folders of its own, with shell scripts for plugins.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod cache;
mod garbage;
mod list;
mod load;
mod stage;
