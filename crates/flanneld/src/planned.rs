//! The plan in force, what it was made from, and what of it has been put in place so far.

use std::collections::BTreeSet;

use flannel_plan::backend::BackendError;
use flannel_plan::desired::{self, Plan};
use flannel_plan::diff::Change;
use flannel_plan::inputs::Inputs;
use flannel_plan::look::Scope;
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
    /// The objects that are not in place yet; none known before the first pass.
    unplaced: Option<BTreeSet<Key>>,
}

impl Planned {
    /// Plans.
    pub fn new(inputs: Inputs, scope: Scope) -> Result<Self, BackendError> {
        Ok(Self { plan: desired::plan(&inputs)?, inputs, scope, unplaced: None })
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
