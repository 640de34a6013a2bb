//! Changes of rules among those of a pass: neighbours in the list go together, so that one program does them all.

use flannel_plan::diff::Change;
use flannel_plan::state::{Item, Key};

use super::Linux;
use crate::firewall::rules::RuleFailure;
use crate::{ApplyError, Failure};

/// Whether a change is one of rules.
pub(super) fn is_one(change: &Change) -> bool {
    matches!(change.item(), Item::Rules(_))
}

impl Linux {
    /// Makes changes to the tables of the last look.
    pub(super) fn apply_rules(&mut self, changes: &[Change]) -> Vec<Failure> {
        let scope = self.rule_scope.clone();
        let failures = Self::rules(self).apply(&scope, changes);
        let failed = |change: &Change| {
            let Key::Rules(id) = change.key() else { return None };
            let failure = failures.iter().find(|failure| failure.id == id)?;
            Some(Failure { change: change.clone(), why: why(change, failure) })
        };
        changes.iter().filter_map(failed).collect()
    }
}

fn why(change: &Change, failure: &RuleFailure) -> ApplyError {
    let (verb, object) = (change.verb(), change.key().to_string());
    ApplyError::Rules { verb, object, why: failure.why.to_string(), hint: failure.hint.clone() }
}
