//! What should be against what is: plain data in, plain data out.
//!
//! Takes the daemon's report and an observation of the kernel. Plans anew from the report's inputs, so that what is
//! shown is decided by the same code as what the daemon does.

use flannel_plan::backend::BackendError;
use flannel_plan::desired::{self, Plan};
use flannel_plan::diff::{Change, diff};
use flannel_plan::finding::{Finding, texts};
use flannel_plan::inputs::Inputs;
use flannel_plan::observation::{Observation, Scope};
use flannel_plan::ownership;
use flannel_plan::pod_bridge;
use flannel_plan::state::Item;
use serde::Serialize;

/// What should be, and how what is differs from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    pub plan: Plan,
    pub changes: Vec<Change>,
    /// What others put next to ours.
    pub foreign: Vec<Item>,
    /// What could not be looked at, and why.
    pub unseen: Vec<Finding>,
    /// What is wrong with the bridges of pods.
    pub bridges: Vec<Finding>,
}

/// Whether something differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Same,
    Different,
    /// Nothing that could be looked at does.
    Unknown,
}

/// What differs, what is not ours, and what could not be looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Differences<'a> {
    changes: &'a [Change],
    foreign: &'a [Item],
    unseen: Vec<String>,
}

impl Comparison {
    /// Compares what the inputs ask for with what was found.
    pub fn of(inputs: &Inputs, scope: &Scope, observation: &Observation) -> Result<Self, BackendError> {
        let plan = desired::plan(inputs)?;
        let mut observed = ownership::observed(scope, observation);
        ownership::claim(&plan.desired, &mut observed);
        let unseen = ownership::unseen(&plan.desired, &observed);
        let mut changes = diff(&plan.desired, &observed.ours);
        changes.retain(|change| !unseen.iter().any(|(key, _)| *key == change.key()));
        let unseen = unseen.into_iter().map(|(_, finding)| finding).collect();
        let bridges = pod_bridge::findings(observation, &inputs.config, &inputs.own.subnets, &inputs.node);
        Ok(Self { plan, changes, foreign: observed.foreign, unseen, bridges })
    }

    /// Whether something differs, as far as that is known.
    pub fn verdict(&self) -> Verdict {
        match (self.changes.is_empty(), self.unseen.is_empty()) {
            (false, _) => Verdict::Different,
            (true, false) => Verdict::Unknown,
            (true, true) => Verdict::Same,
        }
    }

    /// What differs, for programs.
    pub fn differences(&self) -> Differences<'_> {
        Differences { changes: &self.changes, foreign: &self.foreign, unseen: texts(&self.unseen) }
    }

    /// How many objects are as they should be.
    pub fn in_place(&self) -> usize {
        let wrong = self.changes.iter().filter(|change| !matches!(change, Change::Remove(_))).count();
        self.plan.desired.len().saturating_sub(wrong + self.unseen.len())
    }
}
