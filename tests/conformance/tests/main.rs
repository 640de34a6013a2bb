//! The CNI specification as scenarios. Needs root, and a flannel-cni built before: `cargo build -p flannel-cni`.
//!
//! `CNI_PLUGINS=/opt/cni/bin` runs them on other plugins, `ours:/usr/lib/cni` on two sets. A word on the command
//! line chooses scenarios whose `module::name` contains it. `--peers` adds what needs Go's newest plugins, cnitool,
//! podman and containerd.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod beside;
mod bridge;
mod clients;
mod cross;
mod flannel;
mod golden;
mod host_local;
mod known;
mod loopback;
mod picture;
mod portmap;
mod skeleton;

use std::process::ExitCode;

use conformance_tests::{Suite, harness};

fn main() -> ExitCode {
    let files = [
        skeleton::SCENARIOS,
        loopback::SCENARIOS,
        host_local::store::SCENARIOS,
        host_local::addresses::SCENARIOS,
        host_local::config::SCENARIOS,
        host_local::garbage::SCENARIOS,
        bridge::life::SCENARIOS,
        bridge::address::SCENARIOS,
        bridge::config::SCENARIOS,
        bridge::check::SCENARIOS,
        bridge::masquerade::SCENARIOS,
        bridge::macspoof::SCENARIOS,
        bridge::loss::SCENARIOS,
        bridge::vlan::SCENARIOS,
        portmap::config::SCENARIOS,
        portmap::iptables::SCENARIOS,
        portmap::nftables::SCENARIOS,
        portmap::life::SCENARIOS,
        portmap::traffic::SCENARIOS,
        flannel::life::SCENARIOS,
        flannel::delegate::SCENARIOS,
        flannel::subnet_env::SCENARIOS,
        flannel::loss::SCENARIOS,
        golden::SCENARIOS,
        cross::SCENARIOS,
        cross::flannel::SCENARIOS,
        beside::SCENARIOS,
        clients::cnitool::SCENARIOS,
        clients::podman::SCENARIOS,
        clients::containerd::SCENARIOS,
    ];
    harness::run(&Suite { scenarios: files.concat(), known: known::KNOWN })
}
