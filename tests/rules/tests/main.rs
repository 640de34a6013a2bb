//! Rules of masquerade and forwarding on real kernels, with real packets. Needs root, a built flanneld and flannel-cni,
//! and the programs of iptables and nftables.
//!
//! A word on the command line chooses scenarios whose `module::name` contains it. `--peers` adds what needs the
//! programs of `make peers`; `GO_FLANNELD` names a Go flanneld to compare with and to take over from.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod combinations;
mod kube_proxy;
mod passing;
mod quiet;
mod repair;
mod truth;

use std::process::ExitCode;

fn main() -> ExitCode {
    store_tests::run(
        &[
            truth::SCENARIOS,
            combinations::SCENARIOS,
            repair::SCENARIOS,
            quiet::SCENARIOS,
            passing::SCENARIOS,
            kube_proxy::SCENARIOS,
        ]
        .concat(),
    )
}
