//! What a pass changes: all that the plan asks for, repairs as far as the damper lets them, removals if there is proof.

use std::collections::BTreeSet;
use std::time::Instant;

use flannel_kernel::Kernel;
use flannel_plan::diff::Change;
use flannel_plan::finding::Code;
use flannel_plan::ownership::Observed;
use flannel_plan::state::Key;
use tracing::warn;

use super::Daemon;
use crate::damper::{Advice, Damper};
use crate::fast_path::FastPath;
use crate::gather::NotYet;
use crate::planned::Planned;
use crate::reconcile::{self, Admission, Settlement};

impl<K: Kernel> Daemon<K> {
    /// Makes the kernel what the plan says.
    pub(super) fn settle(
        &mut self,
        before: Option<&Planned>,
        observed: Observed,
        removal: Admission,
        now: Instant,
    ) -> Result<Settlement, NotYet> {
        let Some(planned) = &mut self.planned else { return Err(NotYet::NoLease(None)) };
        self.damper.forget_old(now);
        let damper = &mut self.damper;
        let mut repairs = BTreeSet::new();
        let mut admit = |change: &Change| match change {
            // What is remembered is no proof that anything is gone.
            Change::Remove(_) if removal != Admission::Made => removal,
            change if !planned.is_repair(change, before) => Admission::Made,
            change => repair(change, damper, &mut repairs, now),
        };
        let settlement =
            reconcile::settle(&planned.plan, &planned.scope, observed, &mut self.parts.kernel, &mut admit)?;
        planned.note_pass(settlement.left.difference(&settlement.held).cloned().collect());
        // What was not proven to be gone is still there: the store's next word asks for a pass.
        let proven = Some(&settlement).filter(|_| removal == Admission::Made);
        self.fast_path = proven.map(FastPath::after).unwrap_or_default();
        self.parts.reporter.tell_changes(&settlement, &repairs);
        Ok(settlement)
    }
}

/// Asks whether to repair an object, once a pass.
fn repair(change: &Change, damper: &mut Damper, repairs: &mut BTreeSet<Key>, now: Instant) -> Admission {
    let key = change.key();
    if repairs.contains(&key) {
        return Admission::Made;
    }
    match damper.ask(&key, now) {
        Advice::Hold => return Admission::Held,
        Advice::Repair => {}
        Advice::RepairAndTell => {
            warn!(object = %key, code = %Code::Contested, "something keeps undoing this object: it is put back once a second at most from now on");
        }
    }
    repairs.insert(key);
    Admission::Made
}
