//! Root for the lab: if we are not root, sudo is asked, with the same words.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::Context;

/// What the lab takes from the environment, which sudo would drop.
const KEPT: [&str; 3] = ["FLANNELD", "FLANNEL_LAB_DIR", "NO_COLOR"];

/// Returns if we are root; otherwise becomes root by sudo, or says that it could not.
pub fn ensure() -> anyhow::Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let own = std::env::current_exe().context("cannot find this program")?;
    let kept = KEPT.iter().filter_map(|name| Some(format!("{name}={}", std::env::var(name).ok()?)));
    let error = Command::new("sudo").args(kept).arg(own).args(std::env::args_os().skip(1)).exec();
    Err(error).context("a lab is made of namespaces, which only root may create, and sudo cannot be run")
}
