//! What the kernel announces on a node while a test does something: `ip monitor`, without what it does by itself.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use flannel_lab::Node;

/// A running `ip monitor`.
#[derive(Debug)]
pub struct Notices {
    child: Child,
    lines: BufReader<ChildStdout>,
}

/// Changes of our own, which concern nobody: when one is heard, all before it was.
const MARKS: &str = "198.51.100.";
/// Between two tries to be heard.
const PAUSE: Duration = Duration::from_millis(20);

impl Notices {
    /// Begins to listen, and returns when it does.
    pub fn begin(node: &Node) -> Self {
        let words = ["monitor", "link", "address", "route", "neigh"];
        let listen = || Command::new("ip").args(words).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = node.inside(listen).unwrap().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut notices = Self { child, lines };
        notices.until_mark(node, 1);
        notices
    }

    /// All that was announced about devices, addresses and routes, and about neighbours on our devices.
    pub fn end(mut self, node: &Node) -> Vec<String> {
        let mut heard = self.until_mark(node, 2);
        // A line that is drawn in says more about the one before it.
        let mut dropped = false;
        heard.retain(|line| {
            dropped = is_by_itself(line) || dropped && line.starts_with(' ');
            !dropped
        });
        heard
    }

    /// Changes something harmless until that is heard; gives what was heard before.
    fn until_mark(&mut self, node: &Node, number: u8) -> Vec<String> {
        let mark = format!("{MARKS}{number}");
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    let _ = node.ip(&format!("route add {mark} dev lo"));
                    let _ = node.ip(&format!("route del {mark} dev lo"));
                    thread::sleep(PAUSE);
                }
            });
            let mut lines = self.lines.by_ref().lines().map_while(Result::ok);
            let heard: Vec<_> = lines.by_ref().take_while(|line| !line.contains(&mark)).collect();
            done.store(true, Ordering::SeqCst);
            heard
        })
    }
}

impl Drop for Notices {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What is left of the first mark, neighbours of other devices, link-local addresses, which the kernel makes usable
/// a second or two after the device is up, and the cables of pods: their ports begin to forward when they like.
fn is_by_itself(line: &str) -> bool {
    let states = ["REACHABLE", "STALE", "DELAY", "PROBE", "FAILED", "INCOMPLETE", "PERMANENT", "NOARP"];
    let neighbour = states.iter().any(|state| line.contains(state));
    let detail_of_address = line.trim_start().starts_with("valid_lft");
    line.contains(MARKS)
        || (neighbour && !line.contains(" dev flannel"))
        || line.contains("fe80::")
        || ["veth", "cni0"].iter().any(|device| line.contains(device))
        || detail_of_address
}
