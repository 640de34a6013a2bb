//! Whether the flanneld that wrote a report still runs, as far as it can be seen from here.
//!
//! The report has the number that flanneld has for itself. In a container that is another one than the host's,
//! so processes are told by their number in the innermost namespace, their name and their network.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// What has become of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Life {
    /// It runs.
    Running,
    /// It was stopped by a signal or a debugger, and does nothing.
    Suspended,
    /// No such process is seen from here.
    NotSeen,
}

/// The daemon, as far as it can be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// What has become of it.
    pub life: Life,
    /// The number that it has here.
    pub pid: Option<u32>,
}

/// Looks for the flanneld that has this number for itself.
pub fn sighting(inner_pid: u32) -> Sighting {
    // Most often the number is the same here: then there is no need to look at thousands of processes.
    let same_number = seen(inner_pid, inner_pid);
    same_number.or_else(|| search(inner_pid)).unwrap_or(Sighting { life: Life::NotSeen, pid: None })
}

fn search(inner_pid: u32) -> Option<Sighting> {
    let names =
        fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).find_map(|pid| seen(pid, inner_pid))
}

fn seen(pid: u32, inner_pid: u32) -> Option<Sighting> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let name = fs::read_to_string(process.join("comm")).ok()?;
    if !name.starts_with("flanneld") {
        return None;
    }
    let life = life_in(&fs::read_to_string(process.join("status")).ok()?, inner_pid)?;
    shares_our_network(&process).then_some(Sighting { life, pid: Some(pid) })
}

/// What `/proc/PID/status` says of a process that has this number for itself.
fn life_in(status: &str, inner_pid: u32) -> Option<Life> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let innermost = field("NSpid:").or_else(|| field("Pid:"))?.split_whitespace().next_back()?;
    if innermost.parse() != Ok(inner_pid) {
        return None;
    }
    match field("State:")?.trim_start().chars().next()? {
        'T' | 't' => Some(Life::Suspended),
        'Z' | 'X' => None,
        _ => Some(Life::Running),
    }
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
    fn a_daemon_is_told_by_its_innermost_number() {
        let in_container = "Name:\tflanneld\nState:\tS (sleeping)\nPid:\t4711\nNSpid:\t4711\t1\n";
        assert_eq!(life_in(in_container, 1), Some(Life::Running));
        assert_eq!(life_in(in_container, 4711), None);
        assert_eq!(life_in("State:\tT (stopped)\nPid:\t9\n", 9), Some(Life::Suspended));
        assert_eq!(life_in("State:\tZ (zombie)\nPid:\t9\nNSpid:\t9\n", 9), None);
    }

    #[test]
    fn a_number_that_another_program_has_by_now_is_not_the_daemon() {
        let nobody = Sighting { life: Life::NotSeen, pid: None };
        assert_eq!(sighting(std::process::id()), nobody);
    }
}
