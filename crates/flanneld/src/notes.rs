//! What a person should know although the node is ready: put together after a pass, and told in the log when it is new.
//!
//! Others write what gives reason for notes, and may write without end: what is about one of them is told once a minute
//! at most. /readyz and `state.json` always have the present text.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use flannel_leases::rival::{Rival, Stand};
use flannel_plan::peers::IgnoredLease;
use flannel_plan::state::Tier;

use crate::planned::Planned;
use crate::reconcile::Settlement;
use crate::store_link::Word;

/// The shortest time between two lines of the log about the same.
const PAUSE: Duration = Duration::from_secs(60);

/// Something that a person should know, and what it is about: a peer can change its mistakes as often as it likes, and
/// they are still one and the same peer's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The peer, file or object that it is about.
    pub about: String,
    /// What is to be known, as one sentence.
    pub text: String,
}

impl Note {
    /// A note about something that may give reason for others.
    pub fn about(what: impl ToString, text: impl ToString) -> Self {
        Self { about: what.to_string(), text: text.to_string() }
    }
}

impl From<String> for Note {
    /// A note that is about nothing else than what it says.
    fn from(text: String) -> Self {
        Self { about: text.clone(), text }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What was told in the log, about what, and when.
#[derive(Debug, Default)]
pub struct Told {
    last: BTreeMap<String, (Instant, String)>,
}

impl Told {
    /// The notes that are to be told now. What is told once is not told again while it stands, and what changes, or goes
    /// and comes, not within a minute.
    pub fn news<'a>(&mut self, notes: &'a [Note], now: Instant) -> Vec<&'a Note> {
        self.last.retain(|about, (at, _)| now < *at + PAUSE || notes.iter().any(|note| note.about == *about));
        notes.iter().filter(|note| self.is_news(note, now)).collect()
    }

    fn is_news(&mut self, note: &Note, now: Instant) -> bool {
        let known = self.last.get(&note.about);
        if known.is_some_and(|(at, text)| *text == note.text || now < *at + PAUSE) {
            return false;
        }
        self.last.insert(note.about.clone(), (now, note.text.clone()));
        true
    }
}

/// What a person should know of the last pass, the plan and the store.
pub fn notes(settlement: Option<&Settlement>, planned: Option<&Planned>, word: &Word) -> Vec<Note> {
    let failed = settlement.into_iter().flat_map(|settlement| &settlement.failures);
    let failed = failed.filter(|trouble| trouble.key.tier() != Tier::Node);
    let failed = failed.map(|trouble| Note::about(&trouble.key, &trouble.why));
    let refused = planned.into_iter().flat_map(|planned| &planned.plan.refused).map(of_refusal);
    let faults = word.snapshot.iter().flat_map(|snapshot| &snapshot.faults);
    let faults = faults.map(|fault| Note::about(fault.file.display(), fault));
    let unseen = settlement.into_iter().flat_map(|settlement| settlement.unseen.iter().cloned());
    let rivals = rivals(word, Stand::Holds).map(|rival| Note::about(&rival.object, rival));
    failed.chain(refused).chain(faults).chain(unseen.map(Note::from)).chain(rivals).collect()
}

/// Those who claim to be this node, where it stands like that against them.
pub fn rivals(word: &Word, stand: Stand) -> impl Iterator<Item = &Rival> {
    word.rivals().filter(move |rival| rival.stand == stand)
}

/// By the subnet, which is the name that a lease has in every store: in etcd an owner is but an address.
fn of_refusal(refusal: &IgnoredLease) -> Note {
    match refusal.subnet {
        Some(subnet) => Note::about(subnet, refusal),
        None => Note::about(&refusal.owner, refusal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(told: &mut Told, notes: &[(&str, &str)], now: Instant) -> Vec<String> {
        let notes: Vec<_> = notes.iter().map(|(about, text)| Note::about(about, text)).collect();
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
