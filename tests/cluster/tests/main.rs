//! Real flanneld on real namespaces, many nodes, with faults. Needs root, and a flanneld built before:
//! `cargo build -p flanneld`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test stops at the first surprise, and prints what it measured"
)]

mod bad_input;
mod crash;
mod drift;
mod fight;
mod files;
mod foreign;
mod golden;
mod held_back;
mod hostile;
mod incumbents;
mod instances;
mod interface;
mod leftovers;
mod net_conf;
mod nic;
mod overlap;
mod peers;
mod reach;
mod restart;
mod rules;
mod scale;
mod side_by_side;
mod stop;
mod strangers;
mod threads;
mod watches;
