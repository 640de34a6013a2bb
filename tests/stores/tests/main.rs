//! Whole clusters on etcd and Kubernetes. Needs root, a built flanneld and flannel-cni, and an etcd: `$ETCD`, or the
//! one on the PATH.
//!
//! A word on the command line chooses scenarios whose `module::name` contains it. `--peers` adds what needs the
//! programs of `make peers`; `GO_FLANNELD` names a Go flanneld for mixed fleets.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod boot;
mod etcd_access;
mod etcd_crowd;
mod etcd_faults;
mod etcd_leases;
mod kube_faults;
mod kube_nodes;
mod later;
mod memory;
mod mixed;
mod moving;
mod rivals;

use std::process::ExitCode;

fn main() -> ExitCode {
    store_tests::run(
        &[
            boot::SCENARIOS,
            memory::SCENARIOS,
            mixed::SCENARIOS,
            moving::SCENARIOS,
            etcd_faults::SCENARIOS,
            etcd_leases::SCENARIOS,
            etcd_access::SCENARIOS,
            etcd_crowd::SCENARIOS,
            rivals::SCENARIOS,
            kube_faults::SCENARIOS,
            kube_nodes::SCENARIOS,
            later::SCENARIOS,
        ]
        .concat(),
    )
}
