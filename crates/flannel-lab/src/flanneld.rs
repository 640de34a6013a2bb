//! The daemon on a node: start, stop, kill, wait until it is ready, read what it said.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::Duration;

use crate::machine::STORE;
use crate::node::Node;
use crate::process::{self, LabProcess};
use crate::wait::wait_for;
use crate::{LabError, Result, Signal, program};

/// Where flanneld answers for its health.
pub(crate) const HEALTH_PORT: u16 = 8081;
/// What flanneld writes for the CNI plugins, as the node sees it.
pub(crate) const SUBNET_FILE: &str = "/run/flannel/subnet.env";
/// Where the node keeps flanneld's number; in memory, as a real system does.
const PID_FILE: &str = "/run/flanneld.pid";
/// How long a stopped flanneld may take.
const FAREWELL: Duration = Duration::from_secs(10);

/// Starts in the background and leaves: PID 1 of the node becomes the parent.
const START: &str = r#"pid_file=$1; shift; "$@" </dev/null & echo $! > "$pid_file""#;

impl Node {
    /// Starts flanneld with the lab's arguments and these.
    pub fn start_flanneld<A: AsRef<str>>(&self, arguments: impl IntoIterator<Item = A>) -> Result<()> {
        self.machine.require_pid()?;
        let daemon = program::find_flanneld()?.display().to_string();
        let health_port = HEALTH_PORT.to_string();
        let mut words = vec!["-c", START, "sh", PID_FILE, &daemon, "--lease-dir", STORE, "--iface", "eth0"];
        words.extend(["--subnet-file", SUBNET_FILE, "--healthz-ip", "127.0.0.1"]);
        words.extend(["--healthz-port", &health_port, "-v", "1"]);
        let mut command = self.command("sh", words);
        command.args(&self.flanneld_args);
        arguments.into_iter().for_each(|argument| {
            command.arg(argument.as_ref());
        });
        // The caller's own settings for some flanneld are not for this one.
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("FLANNELD_"))
        {
            command.env_remove(name);
        }
        let (log, errors) = (self.machine.open_log()?, self.machine.open_log()?);
        command.env("NODE_NAME", self.name()).process_group(0);
        let shown = program::shown(&command);
        let failed = |why: String| LabError::Failed { command: shown.clone(), why };
        let status = command.stdin(Stdio::null()).stdout(log).stderr(errors).status();
        match status.map_err(|why| failed(why.to_string()))? {
            status if status.success() => Ok(()),
            status => Err(failed(format!("{status}; {}", self.log_end()))),
        }
    }

    /// flanneld's number inside the node, if it lives.
    fn flanneld_inner_pid(&self) -> Option<u32> {
        let number = fs::read_to_string(self.path(PID_FILE)).ok()?.trim().parse().ok()?;
        self.path(&format!("/proc/{number}")).exists().then_some(number)
    }

    fn flanneld_process(&self) -> Option<LabProcess> {
        let inner = self.flanneld_inner_pid()?;
        let own = process::processes_of(self.machine.lab()).into_iter();
        own.filter(|process| process.machine == self.name()).find(|process| process.inner_pid == Some(inner))
    }

    /// flanneld's number as seen from here, if it lives: for `/proc/PID/status` and the like.
    pub fn flanneld_pid(&self) -> Option<u32> {
        self.flanneld_process().map(|process| process.pid)
    }

    /// Whether flanneld lives.
    pub fn flanneld_lives(&self) -> bool {
        self.flanneld_inner_pid().is_some()
    }

    /// Sends a signal to flanneld, if it lives.
    pub fn signal_flanneld(&self, signal: Signal) {
        if let Some(process) = self.flanneld_process() {
            process::send(&process, signal);
        }
    }

    /// Sends a signal and waits until flanneld has ended.
    pub fn stop_flanneld(&self, signal: Signal) -> Result<()> {
        self.signal_flanneld(signal);
        wait_for(&format!("flanneld on {} to end", self.name()), FAREWELL, || {
            if self.flanneld_lives() { Err(format!("it goes on after {signal:?}")) } else { Ok(()) }
        })
    }

    /// Kills flanneld: it has no chance to tidy up.
    pub fn kill_flanneld(&self) -> Result<()> {
        self.stop_flanneld(Signal::KILL)
    }

    /// Stops flanneld as systemd does, and starts it again with the lab's arguments.
    pub fn restart_flanneld(&self) -> Result<()> {
        self.stop_flanneld(Signal::TERM)?;
        self.start_flanneld([] as [&str; 0])
    }

    /// Whether flanneld says that it is ready; if not, why in a few words.
    pub fn readiness(&self) -> std::result::Result<(), String> {
        if !self.flanneld_lives() {
            return Err("not running".to_owned());
        }
        match self.http_get(HEALTH_PORT, "/readyz") {
            Ok((200, _)) => Ok(()),
            Ok((code, body)) => Err(format!("{code} {}", body.trim())),
            Err(why) => Err(why.to_string()),
        }
    }

    /// Waits until flanneld says that it is ready.
    pub fn wait_ready(&self, limit: Duration) -> Result<()> {
        let what = format!("flanneld on {} to be ready", self.name());
        let ready = self.interrupt.wait_for(&what, limit, || {
            if !self.flanneld_lives() {
                return Ok(Err(LabError::FlanneldEnded {
                    node: self.name().to_owned(),
                    log: self.log_end(),
                }));
            }
            self.readiness().map(Ok).map_err(|why| format!("{why}\n{}", self.log_end()))
        });
        ready?
    }

    /// All that flanneld has written on this node, since the lab came up.
    pub fn log(&self) -> String {
        let bytes = fs::read(self.machine.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The last lines of the log.
    fn log_end(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }
}
