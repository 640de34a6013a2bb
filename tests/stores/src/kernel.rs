//! What a node's kernel lost while a test did something: every route, neighbour and forwarding entry of flannel's
//! that was deleted, be it for a moment.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use flannel_lab::{Node, wait_for};

/// Changes of our own, which concern nobody: when the last one is heard, all before it was.
const MARK: &str = "198.51.100.7";
const MARK_MAC: &str = "02:00:00:00:00:07";
const PATIENCE: Duration = Duration::from_secs(60);
/// The pods of all labs are in these.
const NETWORKS: [&str; 4] = ["10.244.", "fd00:244:", "10.11.", "10.12."];

/// A watch on the kernel of one node, from its making to its end.
#[derive(Debug)]
pub struct Watch<'a> {
    node: &'a Node,
    listeners: Vec<Child>,
    heard: Arc<Mutex<Vec<String>>>,
}

impl<'a> Watch<'a> {
    /// Begins to listen, and returns when it does.
    pub fn begin(node: &'a Node) -> Self {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let listeners = [
            listen(node, "ip", &["monitor", "link", "address", "route", "neigh"], &heard),
            listen(node, "bridge", &["monitor", "fdb"], &heard),
        ];
        let watch = Self { node, listeners: listeners.into(), heard };
        watch.mark();
        watch
    }

    /// What was deleted of flannel's since the beginning.
    pub fn lost(&self) -> Vec<String> {
        self.mark();
        let heard = self.heard.lock().unwrap();
        heard.iter().filter(|line| is_loss(line)).cloned().collect()
    }

    /// All that was announced about flannel's objects since the beginning.
    pub fn changes(&self) -> Vec<String> {
        self.mark();
        let heard = self.heard.lock().unwrap();
        heard.iter().filter(|line| is_flannels(line)).cloned().collect()
    }

    /// Fails if anything of flannel's was deleted.
    #[track_caller]
    pub fn assert_lost_nothing(&self) {
        assert_eq!(
            self.lost(),
            [""; 0],
            "{} lost this; flanneld says:\n{}",
            self.node.name(),
            self.node.log()
        );
    }

    /// Fails if anything of flannel's was deleted that is not of these subnets or MACs.
    #[track_caller]
    pub fn assert_lost_only(&self, allowed: &[&str]) {
        let mut lost = self.lost();
        lost.retain(|line| !allowed.iter().any(|part| line.contains(part)));
        assert_eq!(
            lost,
            [""; 0],
            "{} lost this; flanneld says:\n{}",
            self.node.name(),
            last_words(self.node)
        );
    }

    /// Changes something harmless until both listeners have told of it.
    fn mark(&self) {
        let before = |heard: &[String], mark: &str| heard.iter().filter(|line| line.contains(mark)).count();
        let told = || {
            let heard = self.heard.lock().unwrap();
            [MARK, MARK_MAC].map(|mark| before(&heard, mark))
        };
        let first = told();
        wait_for("the kernel's own listeners", PATIENCE, || {
            let _ = self.node.ip(&format!("route replace {MARK} dev lo"));
            let _ = self.node.ip(&format!("route del {MARK} dev lo"));
            let _ = self.node.bridge(&format!("fdb add {MARK_MAC} dev eth0 self"));
            let _ = self.node.bridge(&format!("fdb del {MARK_MAC} dev eth0 self"));
            let now = told();
            let both = first.iter().zip(&now).all(|(first, now)| now > first);
            if both { Ok(()) } else { Err(format!("{first:?} {now:?}")) }
        })
        .unwrap();
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        for listener in &mut self.listeners {
            let _ = listener.kill();
            let _ = listener.wait();
        }
    }
}

fn listen(node: &Node, program: &str, words: &[&str], heard: &Arc<Mutex<Vec<String>>>) -> Child {
    let spawn = || Command::new(program).args(words).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = node.inside(spawn).unwrap().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let heard = Arc::clone(heard);
    thread::spawn(move || lines.map_while(Result::ok).for_each(|line| heard.lock().unwrap().push(line)));
    child
}

/// Whether a line tells of a route to pods, or of an entry of flannel's devices. The pods of the node itself come and
/// go as they like.
fn is_flannels(line: &str) -> bool {
    let pods = NETWORKS.iter().any(|network| line.contains(network));
    let own_pods = ["cni0", "veth"].iter().any(|device| line.contains(device));
    (pods || line.contains("flannel")) && !own_pods && !line.contains(MARK)
}

/// What the kernel keeps for itself, link-local addresses and groups, was never ours.
fn is_loss(line: &str) -> bool {
    let kernels = [" NOARP", "fe80::", "ff00::/8"].iter().any(|mark| line.contains(mark));
    line.starts_with("Deleted") && is_flannels(line) && !kernels
}

/// The end of what a node's daemon has written; Go's lines are long.
pub(crate) fn last_words(node: &Node) -> String {
    let log = node.log();
    let lines: Vec<_> = log.lines().map(|line| line.chars().take(300).collect::<String>()).collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}
