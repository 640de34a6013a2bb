//! What a person should know although the node is ready: put together after a pass, and told in the log when it is new.
//!
//! Others write what gives reason for notes, and may write without end: what is about one of them is told once a minute
//! at most. /readyz and `state.json` always have the present text.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use flannel_leases::Fault;
use flannel_leases::rival::{Rival, Stand};
use flannel_plan::finding::Finding;
use flannel_plan::peers::IgnoredLease;
use flannel_plan::state::Tier;

use crate::planned::Planned;
use crate::reconcile::Settlement;
use crate::store_link::StoreState;

/// The shortest time between two lines of the log about the same.
const PAUSE: Duration = Duration::from_secs(60);

/// What was told in the log, about what, and when.
#[derive(Debug, Default)]
pub struct Told {
    last: BTreeMap<String, (Instant, String)>,
}

impl Told {
    /// The findings that are to be told now, each with what it is about. What is told once is not told again while it
    /// stands, and what changes, or goes and comes, not within a minute.
    pub fn news<'a>(&mut self, findings: &[(&str, &'a Finding)], now: Instant) -> Vec<&'a Finding> {
        let standing: BTreeSet<&str> = findings.iter().map(|(about, _)| *about).collect();
        self.last.retain(|about, (at, _)| now < *at + PAUSE || standing.contains(&**about));
        let news = findings.iter().filter(|(about, finding)| self.is_news(about, &finding.text, now));
        news.map(|(_, finding)| *finding).collect()
    }

    fn is_news(&mut self, about: &str, text: &str, now: Instant) -> bool {
        let known = self.last.get(about);
        if known.is_some_and(|(at, known)| known == text || now < *at + PAUSE) {
            return false;
        }
        self.last.insert(about.to_owned(), (now, text.to_owned()));
        true
    }
}

/// What a person should know of the last pass, the plan and the store. A peer can change its mistakes as often as it
/// likes, and they are still about one and the same object.
pub fn notes(settlement: Option<&Settlement>, planned: Option<&Planned>, store: &StoreState) -> Vec<Finding> {
    let failed = settlement.into_iter().flat_map(|settlement| &settlement.failures);
    let failed = failed.filter(|trouble| trouble.key.tier() != Tier::Node);
    let failed = failed.map(|trouble| trouble.finding.clone());
    let ignored = planned.into_iter().flat_map(|planned| &planned.plan.ignored).map(IgnoredLease::finding);
    let faults = store.snapshot.iter().flat_map(|snapshot| &snapshot.faults).map(Fault::finding);
    let unseen = settlement.into_iter().flat_map(|settlement| settlement.unseen.iter().cloned());
    let rivals = rivals(store, Stand::Holds).map(Rival::finding);
    failed.chain(ignored).chain(faults).chain(unseen).chain(rivals).collect()
}

/// Those who claim to be this node, where it stands like that against them.
pub fn rivals(store: &StoreState, stand: Stand) -> impl Iterator<Item = &Rival> {
    store.rivals().filter(move |rival| rival.stand == stand)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(told: &mut Told, notes: &[(&str, &str)], now: Instant) -> Vec<String> {
        let notes: Vec<_> = notes.iter().map(|(about, text)| (*about, Finding::unlisted(text))).collect();
        let notes: Vec<_> = notes.iter().map(|(about, finding)| (*about, finding)).collect();
        told.news(&notes, now).into_iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_note_that_stands_is_told_once() {
        let (mut log, start) = (Told::default(), Instant::now());
        assert_eq!(told(&mut log, &[("a", "1"), ("b", "1")], start), ["1", "1"]);
        for minutes in [0, 1, 90] {
            assert_eq!(told(&mut log, &[("a", "1"), ("b", "1")], start + PAUSE * minutes), [""; 0]);
        }
    }

    #[test]
    fn notes_about_one_peer_that_keep_changing_are_told_once_a_minute_and_others_at_once() {
        let (mut log, start) = (Told::default(), Instant::now());
        assert_eq!(told(&mut log, &[("a", "0")], start), ["0"]);
        for second in 1..60 {
            let (now, text) = (start + Duration::from_secs(second), second.to_string());
            let expected: &[&str] = if second == 30 { &["other"] } else { &[] };
            let other: &[(&str, &str)] = if second >= 30 { &[("b", "other")] } else { &[] };
            assert_eq!(told(&mut log, &[&[("a", text.as_str())], other].concat(), now), expected, "{second}");
        }
        // The last one is told in the end, although nothing is new by then.
        assert_eq!(told(&mut log, &[("a", "59")], start + PAUSE), ["59"]);
    }

    #[test]
    fn a_note_that_goes_and_comes_is_told_again_after_a_minute() {
        let (mut log, start) = (Told::default(), Instant::now());
        assert_eq!(told(&mut log, &[("a", "1")], start), ["1"]);
        assert_eq!(told(&mut log, &[], start + PAUSE / 3), [""; 0]);
        assert_eq!(told(&mut log, &[("a", "1")], start + PAUSE / 2), [""; 0]);
        assert_eq!(told(&mut log, &[], start + PAUSE), [""; 0]);
        assert_eq!(told(&mut log, &[("a", "1")], start + PAUSE), ["1"]);
    }
}
