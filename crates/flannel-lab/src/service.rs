//! A program that runs in the background of a machine: started, found again by another process, signalled, ended.
//!
//! Takes a machine and a name; the machine keeps the program's number in a file, and what the program writes goes
//! to a log in the lab's folder.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::machine::Machine;
use crate::process::{self, LabProcess};
use crate::wait::wait_for;
use crate::{LabError, Result, Signal, program};

/// How long a program that was told to end may take. The kernel waits for all readers of file notices before it lets go
/// of somebody who watched files, even after SIGKILL: with every core full of packets that takes more than ten seconds.
const FAREWELL: Duration = Duration::from_secs(60);
/// How much of a log an error shows.
const LAST_WORDS: usize = 15;

/// Starts in the background and leaves: PID 1 of the machine becomes the parent.
const START: &str = r#"pid_file=$1; shift; "$@" </dev/null & echo $! > "$pid_file""#;

/// A program of a machine, whether it runs or not.
#[derive(Clone, Copy, Debug)]
pub struct Service<'a> {
    machine: &'a Machine,
    name: &'a str,
}

impl Machine {
    /// A program of this machine by the name it was started under.
    pub fn service<'a>(&'a self, name: &'a str) -> Service<'a> {
        Service { machine: self, name }
    }
}

impl Service<'_> {
    /// Starts the words of a command line; `prepare` may add to the environment.
    pub(crate) fn start(&self, words: &[String], prepare: impl FnOnce(&mut Command)) -> Result<()> {
        self.machine.require_pid()?;
        let pid_file = self.machine.pid_file(self.name);
        let before = ["-c", START, "sh", &pid_file];
        let mut command =
            self.machine.command("sh", before.into_iter().chain(words.iter().map(|word| &**word)));
        prepare(&mut command);
        let (log, errors) = (self.machine.open_log(self.name)?, self.machine.open_log(self.name)?);
        let what = format!("`{}` failed", program::shown(&command));
        let failed = |why: String| LabError::failed(&what, why);
        let status = command.process_group(0).stdin(Stdio::null()).stdout(log).stderr(errors).status();
        match status.map_err(|why| failed(why.to_string()))? {
            status if status.success() => Ok(()),
            status => Err(failed(format!("{status}; {}", self.last_words()))),
        }
    }

    /// Its number inside the machine, if it lives.
    fn inner_pid(&self) -> Option<u32> {
        let file = self.machine.path(&self.machine.pid_file(self.name));
        let number = fs::read_to_string(file).ok()?.trim().parse().ok()?;
        self.machine.path(&format!("/proc/{number}")).exists().then_some(number)
    }

    fn process(&self) -> Option<LabProcess> {
        let inner = self.inner_pid()?;
        let own = process::processes_of(self.machine.lab()).into_iter();
        own.filter(|process| process.machine == self.machine.name())
            .find(|process| process.inner_pid == Some(inner))
    }

    /// Its number as seen from here, if it lives: for `/proc/PID/status` and the like.
    pub fn pid(&self) -> Option<u32> {
        self.process().map(|process| process.pid)
    }

    /// Whether it lives.
    pub fn lives(&self) -> bool {
        self.inner_pid().is_some()
    }

    /// Sends a signal, if it lives.
    pub fn signal(&self, signal: Signal) {
        if let Some(process) = self.process() {
            process::send(&process, signal);
        }
    }

    /// Sends a signal and waits until it has ended.
    pub fn stop(&self, signal: Signal) -> Result<()> {
        self.signal(signal);
        wait_for(&format!("{} on {} to end", self.name, self.machine.name()), FAREWELL, || {
            if self.lives() { Err(format!("it goes on after {signal:?}")) } else { Ok(()) }
        })
    }

    /// All that it has written on this machine, since the lab came up.
    pub fn log(&self) -> String {
        let bytes = fs::read(self.machine.log_path(self.name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub(crate) fn last_words(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(LAST_WORDS)..].join("\n")
    }
}
