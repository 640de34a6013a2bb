//! One pass over the kernel: diff, apply, look again, until nothing differs or it is clear that it will not.

use std::collections::BTreeSet;

use flannel_kernel::{Failure, Kernel, ObserveError};
use flannel_plan::desired::Plan;
use flannel_plan::device_in_the_way::name_taken;
use flannel_plan::diff::{Change, diff};
use flannel_plan::finding::Finding;
use flannel_plan::observation::Scope;
use flannel_plan::ownership::{self, Observed};
use flannel_plan::rules::found::Unreadable;
use flannel_plan::state::{Item, Key, State, Tier};
use tracing::debug;

/// The last one only observes.
const MOST_OBSERVATIONS: u32 = 3;

/// How a pass ended.
#[derive(Debug, Default)]
pub struct Settlement {
    /// How often the kernel was looked at.
    pub observations: u32,
    pub done: Vec<(Key, &'static str)>,
    /// What could not be changed, and why.
    pub failures: Vec<Trouble>,
    /// What was left alone because somebody else keeps undoing it.
    pub held: BTreeSet<Key>,
    /// What others put next to ours.
    pub foreign: Vec<Item>,
    /// Where nothing can be seen and nothing is wanted: something old may be left there.
    pub unseen: Vec<Finding>,
    /// What still differs after the last look, whatever the reason.
    pub left: BTreeSet<Key>,
}

/// An object that is not as it should be, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub key: Key,
    pub finding: Finding,
}

impl Settlement {
    /// Notes why some of what is planned is not even tried.
    fn note_unattainable(&mut self, planned: &State, observed: &Observed) {
        let taken = ownership::obstacles(planned, observed).into_iter();
        let taken = taken.map(|link| Trouble { key: Key::Link(link.name), finding: name_taken(link) });
        let unseen = ownership::unseen(planned, observed).into_iter();
        self.unseen = observed
            .unreadable
            .iter()
            .filter(|unreadable| !unreadable.hides_any(planned))
            .map(Unreadable::finding)
            .collect();
        for trouble in taken.chain(unseen.map(|(key, finding)| Trouble { key, finding })) {
            self.failures.retain(|known| known.key != trouble.key);
            self.failures.push(trouble);
        }
    }

    /// Whether everything that the node itself needs is in place.
    pub fn is_wired(&self) -> bool {
        self.left.iter().all(|key| key.tier() != Tier::Node)
    }
}

/// What becomes of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    Made,
    /// It is held back: the object counts as not in place.
    Held,
    /// There is no proof that it is right: the object stays, and nothing is wrong with it.
    Unproven,
}

/// Makes the kernel what the plan says. `admit` is asked before each change; what it declines is left alone.
pub fn settle(
    plan: &Plan,
    scope: &Scope,
    mut observed: Observed,
    kernel: &mut impl Kernel,
    admit: &mut impl FnMut(&Change) -> Admission,
) -> Result<Settlement, ObserveError> {
    let mut end = Settlement::default();
    loop {
        end.observations += 1;
        let desired = ownership::attainable(&plan.desired, &observed);
        end.note_unattainable(&plan.desired, &observed);
        ownership::claim(&desired, &mut observed);
        let mut changes = diff(&desired, &observed.ours);
        end.foreign = std::mem::take(&mut observed.foreign);
        drop(observed);
        let declined = decline(&mut changes, &mut end, admit);
        if changes.is_empty() || end.observations == MOST_OBSERVATIONS {
            let left = declined.iter().chain(&changes).map(Change::key);
            end.left = left.chain(missing(&plan.desired, &desired)).collect();
            return Ok(end);
        }
        apply(&changes, kernel, &mut end);
        drop(changes);
        observed = ownership::observed(scope, &kernel.observe(scope)?);
    }
}

/// Makes changes without a look before or after; none if any of them failed, so that only a look can tell.
pub fn follow(changes: &[Change], kernel: &mut impl Kernel) -> Option<Settlement> {
    let mut end = Settlement::default();
    apply(changes, kernel, &mut end);
    end.failures.is_empty().then_some(end)
}

/// A failed try is not repeated in one pass, except for what the node cannot be without.
fn is_hopeless(change: &Change, failures: &[Trouble]) -> bool {
    let key = change.key();
    key.tier() != Tier::Node && failures.iter().any(|trouble| trouble.key == key)
}

/// Takes out what is not to be done now; gives what of it is still wanted.
fn decline(
    changes: &mut Vec<Change>,
    end: &mut Settlement,
    admit: &mut impl FnMut(&Change) -> Admission,
) -> Vec<Change> {
    let mut declined = Vec::new();
    changes.retain(|change| {
        if is_hopeless(change, &end.failures) {
            declined.push(change.clone());
            return false;
        }
        let key = change.key();
        let admission = if end.held.contains(&key) { Admission::Held } else { admit(change) };
        if admission == Admission::Held {
            end.held.insert(key);
            declined.push(change.clone());
        }
        admission == Admission::Made
    });
    declined
}

/// Files tell others that the node is wired, so they wait until it is.
fn apply(changes: &[Change], kernel: &mut impl Kernel, end: &mut Settlement) {
    end.failures.retain(|trouble| !changes.iter().any(|change| change.key() == trouble.key));
    let is_file = |change: &Change| matches!(change.key(), Key::File(_));
    for part in changes.chunk_by(|a, b| is_file(a) == is_file(b)) {
        let blocked = end.failures.iter().any(|trouble| trouble.key.tier() == Tier::Node);
        if !(blocked && part.iter().any(is_file)) {
            note(part, kernel.apply(part), end);
        }
    }
}

fn note(changes: &[Change], failures: Vec<Failure>, end: &mut Settlement) {
    let failed: BTreeSet<Key> = failures.iter().map(|failure| failure.change.key()).collect();
    for change in changes.iter().filter(|change| !failed.contains(&change.key())) {
        debug!("{change}");
        end.done.push((change.key(), change.verb()));
    }
    let root_causes = failures.into_iter().filter(|failure| !follows(&failure.change, &failed));
    end.failures.extend(root_causes.map(|failure| {
        let key = failure.change.key();
        Trouble { finding: failure.why.finding(&key), key }
    }));
}

/// Whether a change could only fail, because the device that it needs could not be made.
fn follows(change: &Change, failed: &BTreeSet<Key>) -> bool {
    change.item().link().is_some_and(|link| failed.contains(&Key::Link(link)))
}

/// What was planned and is not even tried.
fn missing(planned: &State, desired: &State) -> impl Iterator<Item = Key> {
    let missing = if planned.len() == desired.len() { &[][..] } else { planned.as_slice() };
    missing.iter().map(Item::key).filter(|key| desired.get(key).is_none())
}

#[cfg(test)]
mod tests;
