//! Whether pods can be started on a node, why not, and what else a person should know: what flanneld tells of itself in
//! `/readyz`, to systemd and in `state.json`, and what is left of that when somebody else looks at the node.

use std::collections::BTreeSet;

use flannel_plan::device_in_the_way::name_taken;
use flannel_plan::diff::Change;
use flannel_plan::finding::{Code, Finding, texts};
use flannel_plan::peers::IgnoredLease;
use flannel_plan::state::{Item, Key, Tier};

use crate::comparison::Comparison;
use crate::daemon::{DaemonProcess, Life};
use crate::evidence::Evidence;

/// Whether pods can be started on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    pub ready: bool,
    /// Why not. A node may be ready in spite of some that may be gone in a moment.
    pub reasons: Vec<Finding>,
    /// What a person should know all the same.
    pub notes: Vec<Finding>,
}

impl Readiness {
    /// What the daemon says, checked against what was found.
    pub(crate) fn checked(evidence: &Evidence, comparison: Option<&Comparison>) -> Self {
        let reasons = reasons(evidence, comparison);
        let ready = evidence.report.ready && reasons.is_empty();
        Self { ready, reasons, notes: notes(evidence, comparison) }
    }

    /// All findings, the reasons first.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.reasons.iter().chain(&self.notes)
    }

    /// The findings that a probe is told: not those that may be gone in a moment.
    pub fn told(&self) -> impl Iterator<Item = &Finding> {
        self.reasons.iter().filter(|_| !self.ready).chain(&self.notes)
    }

    /// Why pods cannot be started, in one line.
    pub fn why_not(&self) -> String {
        texts(&self.reasons).join("; ")
    }

    /// All of it in one line.
    pub fn line(&self) -> String {
        if self.ready { "ready".to_owned() } else { format!("not ready: {}", self.why_not()) }
    }
}

/// An object that is not as it should be, when that is all that is known.
pub fn differs(key: &Key) -> Finding {
    Finding::new(Code::Differs, key, format!("{key} is not as it should be"))
}

/// The daemon's reasons while it says that the node is not ready, and what we found missing ourselves.
fn reasons(evidence: &Evidence, comparison: Option<&Comparison>) -> Vec<Finding> {
    let report = &evidence.report;
    let mut reasons: Vec<Finding> = report.reasons().filter(|_| !report.ready).collect();
    // The daemon names a failed object with its cause, which is more than we know.
    let told: BTreeSet<String> = reasons.iter().map(|finding| finding.object.clone()).collect();
    if let Some(Err(error)) = &evidence.comparison {
        reasons.push(error.finding());
    }
    if let Some(Comparison { changes, foreign, .. }) = comparison {
        let is_told = |key: &Key| told.contains(&key.to_string());
        let of_node = |change: &&Change| change.key().tier() == Tier::Node && !is_told(&change.key());
        reasons.extend(changes.iter().filter(of_node).map(|change| fault(change, foreign)));
    }
    reasons
}

fn fault(change: &Change, foreign: &[Item]) -> Finding {
    let key = change.key();
    let in_the_way = foreign.iter().find(|item| item.key() == key);
    match (change, in_the_way) {
        (_, Some(Item::Link(link))) => name_taken(link),
        (Change::Create(_), _) => Finding::new(Code::Differs, &key, format!("{key} is missing")),
        (Change::Replace { .. }, _) => differs(&key),
        (Change::Remove(_), _) => Finding::new(Code::Differs, &key, format!("{key} should be gone")),
    }
}

/// Ignored leases and fights, which are told among the peers and as what is contested.
pub(crate) fn elsewhere(evidence: &Evidence, comparison: Option<&Comparison>) -> Vec<Finding> {
    let ignored = comparison.into_iter().flat_map(|comparison| &comparison.plan.ignored);
    let contested = evidence.report.notes().filter(|note| note.code == Code::Contested);
    ignored.map(IgnoredLease::finding).chain(contested).collect()
}

fn notes(evidence: &Evidence, comparison: Option<&Comparison>) -> Vec<Finding> {
    let report = &evidence.report;
    let mut notes: Vec<Finding> = life_note(evidence.daemon, report.pid).into_iter().collect();
    if report.version != env!("CARGO_PKG_VERSION") {
        let (theirs, ours) = (&report.version, env!("CARGO_PKG_VERSION"));
        let text = format!("flanneld is {theirs} and flannelctl {ours}: they may not plan the same");
        notes.push(Finding::new(Code::VersionDiffers, "flanneld", text));
    }
    notes.extend(evidence.left_out.iter().cloned());
    // While the daemon takes a trouble for a blink it is ready and has reasons.
    notes.extend(report.reasons().filter(|_| report.ready));
    let elsewhere = elsewhere(evidence, comparison);
    let is_elsewhere = |note: &Finding| elsewhere.iter().any(|other| other.text == note.text);
    notes.extend(report.notes().filter(|note| !is_elsewhere(note)));
    // What the daemon knows is told in its order; what we found ourselves comes after it.
    let found = comparison.into_iter();
    let found = found.flat_map(|found| [&found.plan.warnings, &found.bridges, &found.unseen]).flatten();
    for finding in found.filter(|finding| !report.reasons.contains(&finding.text)) {
        if !notes.iter().any(|note| note.text == finding.text) {
            notes.push(finding.clone());
        }
    }
    notes
}

fn life_note(daemon: DaemonProcess, pid: u32) -> Option<Finding> {
    let pid = daemon.pid.unwrap_or(pid);
    let finding = |text| Finding::new(Code::Daemon, "flanneld", text);
    match daemon.life {
        Life::Running => None,
        Life::Suspended => {
            let remedy = format!("wake it with `kill -CONT {pid}`");
            let text = format!("flanneld is suspended, so nothing is repaired or followed: {remedy}");
            Some(finding(text).with_parts(None, Some(remedy)))
        }
        Life::NotSeen => Some(
            finding("flanneld is not running".to_owned())
                .because("packets still flow as it left them, but nothing is repaired or followed")
                .or_do("start it with `systemctl start flanneld`, or look at its pod"),
        ),
    }
}
