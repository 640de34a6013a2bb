//! What host-local knows of the machine beside the network's folder: which boot this is, where a cache may
//! live, and which addresses are in use. A test brings its own.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::in_use::{self, InUseError};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const RUN: &str = "/run/flannel-cni/host-local";

/// The machine that the plugin runs on.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Where what need not outlive this boot is kept.
    pub run: PathBuf,
    /// The kernel's name for this boot; none if it does not say, then nothing is ever of another boot.
    pub boot: Option<String>,
    /// The addresses that something on this machine uses; the path is the namespace of the container.
    pub in_use: fn(Option<&Path>) -> Result<BTreeSet<IpAddr>, InUseError>,
}

impl Machine {
    /// This machine.
    pub fn this() -> Self {
        let boot = std::fs::read_to_string(BOOT_ID).ok().map(|id| id.trim().to_owned());
        Self { run: RUN.into(), boot: boot.filter(|id| !id.is_empty()), in_use: in_use::addresses }
    }
}
