//! The processes of a lab, found by FLANNEL_LAB in their environment, so that cleaning up needs no memory.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::wait::wait_for;
use crate::{LabError, Result};

/// The variable that every process of a lab carries: `FLANNEL_LAB=lab/machine`.
pub(crate) const MARK: &str = "FLANNEL_LAB";

/// How long killed processes may take to vanish; the kernel may be busy with hundreds of namespaces.
const BURIAL: Duration = Duration::from_secs(30);

/// One process of a lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabProcess {
    /// Its number in the namespace of the asking program.
    pub pid: u32,
    /// Its number inside the machine, if it runs in one.
    pub inner_pid: Option<u32>,
    pub lab: String,
    /// The node or router it belongs to.
    pub machine: String,
}

/// All processes of all labs that this program can see.
pub fn lab_processes() -> Vec<LabProcess> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(marked).collect()
}

/// The lab's processes alone.
pub(crate) fn processes_of(lab: &str) -> Vec<LabProcess> {
    lab_processes().into_iter().filter(|process| process.lab == lab).collect()
}

/// Reads one process; none if it is not of a lab, or gone, or a zombie (whose environment is empty).
fn marked(pid: u32) -> Option<LabProcess> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let (lab, machine) = mark_in(&environment)?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(LabProcess { pid, inner_pid: inner_pid(&status), lab, machine })
}

fn mark_in(environment: &[u8]) -> Option<(String, String)> {
    let value = |entry: &[u8]| {
        Some(std::str::from_utf8(entry).ok()?.strip_prefix(MARK)?.strip_prefix('=')?.to_owned())
    };
    let value = environment.split(|byte| *byte == 0).find_map(value)?;
    let (lab, machine) = value.split_once('/')?;
    Some((lab.to_owned(), machine.to_owned()))
}

/// The last number of the NSpid line, if there is more than one: the number in the innermost namespace.
fn inner_pid(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().skip(1).last()?.parse().ok()
}

/// Sends a signal to a process if it is still one of the lab's: the number may have a new owner by now.
pub(crate) fn send(process: &LabProcess, signal: Signal) {
    let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) else { return };
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    if marked(process.pid).as_ref() == Some(process) {
        // It may end by itself between the two lines, which is as good.
        let _ = pidfd_send_signal(handle, signal);
    }
}

/// How often in a row no process must be seen: one that just becomes another program shows no environment.
const EMPTY_LOOKS: u32 = 3;

/// Kills every process of a lab, or of one machine of it, and waits until none is left.
pub(crate) fn kill_all(lab: &str, machine: Option<&str>) -> Result<()> {
    let chosen = |process: &LabProcess| machine.is_none_or(|name| process.machine == name);
    let mut empty_looks = 0;
    wait_for(&format!("the processes of lab {lab} to end"), BURIAL, || {
        let left: Vec<_> = processes_of(lab).into_iter().filter(chosen).collect();
        for process in &left {
            send(process, Signal::KILL);
        }
        empty_looks = if left.is_empty() { empty_looks + 1 } else { 0 };
        if empty_looks == EMPTY_LOOKS { Ok(()) } else { Err(format!("{} are left", left.len())) }
    })
}

/// Refuses to work from inside a lab: it would kill itself half-way, or nest.
pub(crate) fn refuse_inside() -> Result<()> {
    match std::env::var(MARK) {
        Ok(place) => Err(LabError::Inside(place)),
        Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_found_among_other_variables() {
        let found = mark_in(b"PATH=/bin\0FLANNEL_LAB=two/worker1\0HOME=/\0");
        assert_eq!(found, Some(("two".to_owned(), "worker1".to_owned())));
        assert_eq!(mark_in(b"FLANNEL_LAB_DIR=/x/y\0XFLANNEL_LAB=a/b\0"), None);
    }

    #[test]
    fn only_a_process_of_an_inner_namespace_has_an_inner_number() {
        assert_eq!(inner_pid("Name:\tsleep\nNSpid:\t4711\t1\n"), Some(1));
        assert_eq!(inner_pid("Name:\tsleep\nNSpid:\t4711\n"), None);
    }
}
