//! ip-masq-agent without a kernel: its file as the original reads it, and its rules as the original writes them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod config;
mod rules;
