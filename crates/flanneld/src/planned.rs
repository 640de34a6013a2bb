//! The plan in force, what it was made from, and what of it has been put in place so far.

use std::collections::BTreeSet;
use std::net::IpAddr;

use flannel_leases::Snapshot;
use flannel_plan::backend::BackendError;
use flannel_plan::desired::{self, Plan};
use flannel_plan::diff::Change;
use flannel_plan::family::ByFamily;
use flannel_plan::inputs::Inputs;
use flannel_plan::look::Scope;
use flannel_plan::news::{self, News};
use flannel_plan::state::Key;

/// A plan with its past.
#[derive(Debug)]
pub struct Planned {
    /// What it was made from.
    pub inputs: Inputs,
    /// What it was made for.
    pub scope: Scope,
    /// The plan.
    pub plan: Plan,
    /// The addresses that the store gave this node, which the choice of the interface depended on.
    public: ByFamily<IpAddr>,
    /// The objects that are not in place yet; none known before the first pass.
    unplaced: Option<BTreeSet<Key>>,
}

impl Planned {
    /// Plans.
    pub fn new(inputs: Inputs, scope: Scope, public: ByFamily<IpAddr>) -> Result<Self, BackendError> {
        Ok(Self { plan: desired::plan(&inputs)?, inputs, scope, public, unplaced: None })
    }

    /// What the peers of a snapshot change, if nothing else is new in it and they can be told alone.
    pub fn news_of(&self, snapshot: &Snapshot) -> Option<News> {
        let inputs = &self.inputs;
        let same = snapshot.config.as_ref().ok() == Some(&inputs.config)
            && snapshot.own.as_deref() == Some(&inputs.own)
            && snapshot.public == self.public;
        let only_peers = same && !snapshot.own_is_damaged;
        only_peers.then(|| news::of_peers(&self.plan, inputs, &snapshot.peers)).flatten()
    }

    /// Takes the news of a snapshot, which are in place.
    pub fn follow(&mut self, news: News, snapshot: &Snapshot) {
        self.plan.follow(news);
        self.inputs.peers.clone_from(&snapshot.peers);
    }

    /// Notes which objects a pass could not put in place.
    pub fn note_pass(&mut self, unplaced: BTreeSet<Key>) {
        self.unplaced = Some(unplaced);
    }

    /// Whether the object of a change was as this plan wants it, so that somebody else must have changed it.
    pub fn had_in_place(&self, change: &Change) -> bool {
        self.unplaced.as_ref().is_some_and(|unplaced| !unplaced.contains(&change.key()))
    }

    /// Whether another plan wants the same of an object.
    pub fn agrees(&self, other: &Self, key: &Key) -> bool {
        self.plan.desired.get(key) == other.plan.desired.get(key)
    }
}
