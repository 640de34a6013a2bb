//! What has become of a flanneld, by what `/proc` says of its process.

use serde::Serialize;

/// What has become of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Life {
    Running,
    /// It was stopped by a signal or a debugger, and does nothing.
    Suspended,
    /// No such process is seen from here.
    NotSeen,
}

/// The daemon's process, as far as it can be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DaemonProcess {
    pub life: Life,
    pub pid: Option<u32>,
}

impl DaemonProcess {
    pub const NOT_SEEN: Self = Self { life: Life::NotSeen, pid: None };

    /// What `/proc/PID/status` says of a process, if that has this PID in its innermost namespace and still lives.
    pub fn in_status(status: &str, pid: u32, inner_pid: u32) -> Option<Self> {
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let innermost = field("NSpid:").or_else(|| field("Pid:"))?.split_whitespace().next_back()?;
        if innermost.parse() != Ok(inner_pid) {
            return None;
        }
        let life = match field("State:")?.trim_start().chars().next()? {
            'T' | 't' => Life::Suspended,
            'Z' | 'X' => return None,
            _ => Life::Running,
        };
        Some(Self { life, pid: Some(pid) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_is_told_by_its_innermost_pid() {
        let life = |status, inner| DaemonProcess::in_status(status, 4711, inner).map(|found| found.life);
        let in_container = "Name:\tflanneld\nState:\tS (sleeping)\nPid:\t4711\nNSpid:\t4711\t1\n";
        assert_eq!(life(in_container, 1), Some(Life::Running));
        assert_eq!(life(in_container, 4711), None);
        assert_eq!(life("State:\tT (stopped)\nPid:\t9\n", 9), Some(Life::Suspended));
        assert_eq!(life("State:\tZ (zombie)\nPid:\t9\nNSpid:\t9\n", 9), None);
    }
}
