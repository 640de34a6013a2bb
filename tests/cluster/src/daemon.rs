//! A flanneld that the test itself runs on a node: with its exit code, its log, its environment.
//!
//! The lab's own daemons know neither; for all else those are the shorter way.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use flannel_lab::{Node, Signal, wait_for};
use rustix::process::{Pid, kill_process};

/// The interface that every daemon of a lab is told, unless the test is about that.
const IFACE: [&str; 2] = ["--iface", "eth0"];
/// What every daemon of a lab is told.
const ARGUMENTS: [&str; 12] = [
    "--lease-dir",
    "/var/lib/flannel-store",
    "--subnet-file",
    "/run/flannel/subnet.env",
    "--healthz-ip",
    "127.0.0.1",
    "--healthz-port",
    "8081",
    "-v",
    "1",
    "--log-format",
    "text",
];

/// The program under test: two folders above the test's own, or `$FLANNELD`.
pub fn flanneld_path() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let beside = own.parent().and_then(|deps| deps.parent()).unwrap().join("flanneld");
    std::env::var_os("FLANNELD").map_or(beside, PathBuf::from)
}

/// A flanneld of the test. Dropping it kills it.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts one with the lab's arguments and these; a later argument overrides an earlier one.
    pub fn start(node: &Node, arguments: &[&str]) -> Self {
        Self::start_under(node, &[], arguments, &[])
    }

    /// Starts one that is told nothing of the interface but these words.
    pub fn start_with_iface(node: &Node, words: &[&str]) -> Self {
        Self::spawn(node, &[], words, &[])
    }

    /// Starts one under another program, with these variables in its environment.
    pub fn start_under(node: &Node, under: &[&str], arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let arguments: Vec<&str> = IFACE.iter().chain(arguments).copied().collect();
        Self::spawn(node, under, &arguments, variables)
    }

    fn spawn(node: &Node, under: &[&str], arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let program = flanneld_path().display().to_string();
        let words: Vec<&str> = under.iter().copied().chain([&*program]).chain(ARGUMENTS).collect();
        let words: Vec<&str> = words.into_iter().chain(arguments.iter().copied()).collect();
        let log = log_path();
        let file = File::create_new(&log).unwrap();
        let mut command: Command = node.command(words[0], &words[1..]);
        command.env("NODE_NAME", node.name()).envs(variables.iter().copied());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).spawn().unwrap();
        Self { child, log }
    }

    /// flanneld's own number: the child of the program that enters the node.
    pub fn pid(&self) -> u32 {
        let outer = self.child.id();
        let children = format!("/proc/{outer}/task/{outer}/children");
        let observation = || {
            let text = fs::read_to_string(&children).unwrap_or_default();
            text.split_whitespace()
                .next()
                .and_then(|pid| pid.parse().ok())
                .ok_or_else(|| "none yet".to_owned())
        };
        wait_for("flanneld to be born", Duration::from_secs(5), observation).unwrap()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits until it has ended; gives its exit status and the time that took.
    pub fn ended(&mut self) -> (ExitStatus, Duration) {
        let (start, mut status) = (Instant::now(), None);
        let observation = || {
            status = self.child.try_wait().unwrap();
            status.map(|_| ()).ok_or_else(|| fs::read_to_string(&self.log).unwrap())
        };
        wait_for("flanneld to end", Duration::from_secs(60), observation).unwrap();
        (status.unwrap(), start.elapsed())
    }

    /// Whether it still runs.
    pub fn lives(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// All that it has written so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.lives() {
            self.signal(Signal::KILL);
            let _ = self.child.wait();
        }
        let _ = fs::remove_file(&self.log);
    }
}

fn log_path() -> PathBuf {
    std::env::temp_dir().join(format!("{}.log", flannel_lab::unique_name("flanneld")))
}
