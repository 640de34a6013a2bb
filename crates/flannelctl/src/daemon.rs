//! Finds the process of the flanneld that wrote a report, in `/proc`.
//!
//! The report has the PID that flanneld has for itself. In a container that is another one than the host's,
//! so processes are told by their PID in the innermost namespace, their name and their network.

use std::fs;
use std::path::{Path, PathBuf};

use flannel_status::DaemonProcess;

/// Looks for the flanneld that has this PID for itself.
pub fn find(inner_pid: u32) -> DaemonProcess {
    // Most often the PID is the same here: then there is no need to look at thousands of processes.
    let same_pid = seen(inner_pid, inner_pid);
    same_pid.or_else(|| search(inner_pid)).unwrap_or(DaemonProcess::NOT_SEEN)
}

fn search(inner_pid: u32) -> Option<DaemonProcess> {
    let names =
        fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).find_map(|pid| seen(pid, inner_pid))
}

fn seen(pid: u32, inner_pid: u32) -> Option<DaemonProcess> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let name = fs::read_to_string(process.join("comm")).ok()?;
    if !name.starts_with("flanneld") {
        return None;
    }
    let status = fs::read_to_string(process.join("status")).ok()?;
    DaemonProcess::in_status(&status, pid, inner_pid).filter(|_| shares_our_network(&process))
}

/// A process that may not be asked counts as one of our network: only root may ask about root's.
fn shares_our_network(process: &Path) -> bool {
    match (fs::read_link(process.join("ns/net")), fs::read_link("/proc/self/ns/net")) {
        (Ok(its), Ok(ours)) => its == ours,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_that_another_program_has_by_now_is_not_the_daemon() {
        assert_eq!(find(std::process::id()), DaemonProcess::NOT_SEEN);
    }
}
