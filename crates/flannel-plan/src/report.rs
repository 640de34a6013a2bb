//! `state.json`: what the daemon knows, for whoever asks why. The only interface between flanneld and
//! flannelctl: it can be read while the daemon hangs, and its inputs are a ready test case.

use std::borrow::Cow;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::family::ByFamily;
use crate::finding::Finding;
use crate::inputs::Inputs;
use crate::lease_list::LeaseList;
use crate::observation::Scope;
use crate::state::Key;

/// What the daemon knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport<'a> {
    pub version: Cow<'a, str>,
    pub pid: u32,
    /// When this was written, in milliseconds since 1970.
    pub written: u64,
    /// Whether pods can be started on this node.
    pub ready: bool,
    /// Why not, each with a way out where one is known.
    pub reasons: Vec<String>,
    /// What a person should know although the node is ready: peers that fail, leases that are ignored.
    pub notes: Vec<String>,
    /// The same, with codes and parts: the reasons first.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// Where other nodes send to, as the lease store has it; nothing before the first lease.
    #[serde(default)]
    pub announced: ByFamily<IpAddr>,
    /// How the last pass went; none before the first.
    pub outcome: Option<Outcome>,
    /// What was repaired since the daemon started, the latest last.
    pub repairs: Cow<'a, [Repair]>,
    pub contested: Vec<String>,
    /// What others put next to ours.
    pub foreign: Vec<String>,
    /// What was looked at; none before the first net-conf.
    pub scope: Option<Cow<'a, Scope>>,
    /// All that the last plan was made from; none before the first lease.
    pub inputs: Option<Cow<'a, Inputs>>,
}

impl NodeReport<'static> {
    /// Reads a report lease by lease; gives also which leases of its inputs are left out, and why.
    pub fn read(text: &[u8]) -> Result<(Self, Vec<Finding>), serde_json::Error> {
        #[derive(Deserialize)]
        struct Peers {
            inputs: Option<Listed>,
        }
        #[derive(Deserialize)]
        struct Listed {
            peers: LeaseList,
        }
        let report = serde_json::from_slice(text)?;
        let Peers { inputs } = serde_json::from_slice(text)?;
        Ok((report, inputs.map(|inputs| inputs.peers.left_out).unwrap_or_default()))
    }
}

impl NodeReport<'_> {
    /// The findings behind the reasons, as far as the daemon that wrote them has codes.
    pub fn reasons(&self) -> impl Iterator<Item = Finding> {
        self.reasons.iter().map(|text| self.finding(text))
    }

    /// The findings behind the notes.
    pub fn notes(&self) -> impl Iterator<Item = Finding> {
        self.notes.iter().map(|text| self.finding(text))
    }

    fn finding(&self, text: &str) -> Finding {
        let known = self.findings.iter().find(|finding| finding.text == text);
        known.cloned().unwrap_or_else(|| Finding::unlisted(text))
    }
}

/// How a pass went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Whether everything that can be was as it should be at the end.
    pub settled: bool,
    pub looks: u32,
    /// How long the pass took, in microseconds.
    pub micros: u64,
    pub peers: usize,
    /// How many objects the node should have.
    pub objects: usize,
    /// What could not be changed, and why.
    pub failures: Vec<String>,
}

/// An object that somebody else changed and that was put right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repair {
    pub object: String,
    pub kind: Cow<'static, str>,
    pub count: u64,
    /// When last, in milliseconds since 1970.
    pub last: u64,
}

/// Repairs by object; only the latest are kept.
#[derive(Clone, Debug, Default)]
pub struct RepairLog {
    repairs: Vec<Repair>,
}

/// More objects than anybody reads; a deleted device with thousands of peers would fill the file.
const MOST_REPAIRS: usize = 200;

impl RepairLog {
    /// Notes a repair.
    pub fn note(&mut self, key: &Key, at: u64) {
        let object = key.to_string();
        let known = self.repairs.iter().position(|repair| repair.object == object);
        let mut repair = match known {
            Some(position) => self.repairs.remove(position),
            None => Repair { object, kind: key.kind().into(), count: 0, last: at },
        };
        repair.count += 1;
        repair.last = at;
        if self.repairs.len() == MOST_REPAIRS {
            self.repairs.remove(0);
        }
        self.repairs.push(repair);
    }

    /// The repairs, the latest last.
    pub fn all(&self) -> &[Repair] {
        &self.repairs
    }
}

/// Where the report of an instance is: `subnet.env` has `state.json` beside it, `X.env` has `X.state.json`.
pub fn report_path(subnet_file: &str) -> String {
    let (folder, name) = match subnet_file.rsplit_once('/') {
        Some((folder, name)) => (format!("{folder}/"), name),
        None => (String::new(), subnet_file),
    };
    match name {
        "subnet.env" => format!("{folder}state.json"),
        name => format!("{folder}{}.state.json", name.strip_suffix(".env").unwrap_or(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_lies_beside_the_subnet_file() {
        assert_eq!(report_path("/run/flannel/subnet.env"), "/run/flannel/state.json");
        assert_eq!(report_path("/run/flannel/blue.env"), "/run/flannel/blue.state.json");
        assert_eq!(report_path("/tmp/x"), "/tmp/x.state.json");
        assert_eq!(report_path("subnet.env"), "state.json");
    }

    #[test]
    fn a_repair_is_counted_by_object_and_the_latest_comes_last() {
        let mut log = RepairLog::default();
        let route = |n: u8| Key::Route(format!("10.244.{n}.0/24").parse().unwrap());
        (0..=255).for_each(|n| log.note(&route(n), 1));
        log.note(&route(100), 2);
        assert_eq!(log.all().len(), MOST_REPAIRS);
        let last = Repair { object: "route 10.244.100.0/24".into(), kind: "route".into(), count: 2, last: 2 };
        assert_eq!(log.all().last(), Some(&last));
    }
}
