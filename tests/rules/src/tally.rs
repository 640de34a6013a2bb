//! Counts the packets that open connections at both ends of a way: what is sent here and never comes there was lost.
//!
//! Time is no witness: on a busy machine a packet may be late for a second and more.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::site::Site;

/// Counts calls and answers that pass, in whichever direction.
const TABLE: &str = "\
table inet tally {
  counter calls { }
  counter answers { }
  chain out { type filter hook output priority 0; goto count; }
  chain in { type filter hook input priority 0; goto count; }
  chain count {
    tcp dport PORT tcp flags & (syn | ack) == syn counter name calls
    tcp sport PORT tcp flags & (syn | ack) == syn | ack counter name answers
  }
}
";

/// The two ends: the pod one.a, and far.
#[derive(Debug)]
pub(crate) struct Tally;

/// How many packets were seen at one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    calls: u64,
    answers: u64,
}

impl Tally {
    /// Begins to count at both ends.
    pub(crate) fn begin(site: &Site, port: u16) -> Self {
        let rules = TABLE.replace("PORT", &port.to_string());
        for mut command in ends(site, &["-f", "-"]) {
            let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
            child.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
            assert!(child.wait().unwrap().success(), "nft refuses:\n{rules}");
        }
        Self
    }

    /// What was lost on the way there and back, in words.
    pub(crate) fn lost(self, site: &Site) -> Vec<String> {
        let [pod, far] = ends(site, &["-j", "list", "counters", "table", "inet", "tally"]).map(seen);
        let ways = [("calls", pod.calls, far.calls), ("answers", far.answers, pod.answers)];
        let lost = ways.iter().filter(|(_, sent, came)| sent != came);
        lost.map(|(what, sent, came)| format!("of {sent} {what}, {came} came")).collect()
    }
}

fn ends(site: &Site, words: &[&str]) -> [Command; 2] {
    let pods = site.node("one").pods().unwrap();
    let pod = pods.iter().find(|pod| pod.name() == "one-a").unwrap();
    [pod.command("nft", words), site.node("far").command("nft", words)]
}

fn seen(mut list: Command) -> Seen {
    let answer: Value = serde_json::from_slice(&list.output().unwrap().stdout).unwrap();
    let counters = answer["nftables"].as_array().unwrap();
    let count = |name: &str| {
        let found = counters.iter().find(|object| object["counter"]["name"] == name).unwrap();
        found["counter"]["packets"].as_u64().unwrap()
    };
    Seen { calls: count("calls"), answers: count("answers") }
}
