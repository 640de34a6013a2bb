//! Modules of the kernel: loaded by `modprobe`, which knows where they are and what they need.

use std::io;
use std::process::{Command, Stdio};

/// Loads a module.
pub fn load(name: &str) -> io::Result<()> {
    let mut command = Command::new("modprobe");
    // Pipes, since a container may have no /dev/null.
    command.arg(name).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
