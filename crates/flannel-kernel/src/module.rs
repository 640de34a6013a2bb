//! Modules of the kernel: loaded by `modprobe`, which knows where they are and what they need.

use std::io;
use std::process::Command;
use std::time::Duration;

use flannel_plan::quoted::quoted;

use crate::child;

/// A module that finds no device may take its time.
const LIMIT: Duration = Duration::from_secs(20);

/// Loads a module.
pub fn load(name: &str) -> io::Result<()> {
    let output = child::run(Command::new("modprobe").arg(name), b"", LIMIT)?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(quoted(String::from_utf8_lossy(&output.stderr).trim()).to_string()))
}
