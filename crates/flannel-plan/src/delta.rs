//! What a few changed leases change in a plan, found without planning all the others anew.
//!
//! Takes the plan, what it was made from and the new leases; gives the objects that go and come. With thousands of
//! peers one that changes is found in a fraction of a millisecond.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::claim::Claim;
use crate::desired::{self, Draft, Plan};
use crate::diff::{Change, diff};
use crate::inputs::Inputs;
use crate::lease::Lease;
use crate::peers::Why;
use crate::state::{Item, State};

/// More leases at once are planned sooner together with all others.
const MOST: usize = 32;

/// The objects of leases that go and of leases that come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    gone: State,
    come: State,
    /// How many peers there are then.
    peers: usize,
}

impl Delta {
    /// The steps from the plan before to the plan after.
    pub fn changes(&self) -> Vec<Change> {
        diff(&self.come, &self.gone)
    }
}

/// What other peers change in a plan. None if that cannot be told from the new leases alone: where two leases claim
/// the same, all ages count, and where many are new, nothing is saved.
pub fn of_peers(plan: &Plan, inputs: &Inputs, peers: &[Arc<Lease>]) -> Option<Delta> {
    if plan.ignored.iter().any(|lease| is_about_others(&lease.why)) {
        return None;
    }
    let Difference { gone, come } = Difference::of(&inputs.peers, peers)?;
    let claims: Vec<Claim> = gone.iter().chain(&come).flat_map(|lease| Claim::of_lease(lease)).collect();
    let is_claimed = |claim: Claim| claims.iter().any(|own| own.meets(&claim));
    let stays = |lease: &Arc<Lease>| !come.iter().any(|new| Arc::ptr_eq(new, lease));
    let clashes = |lease: &Arc<Lease>| Claim::of_lease(lease).any(is_claimed);
    if !is_told_by_objects(plan, inputs) && peers.iter().any(|lease| clashes(lease) && stays(lease)) {
        return None;
    }
    let (gone, come) = (alone(inputs, &gone)?, alone(inputs, &come)?);
    let stays = |item: &Item| gone.desired.get(&item.key()).is_none();
    if plan.desired.iter().any(|item| Claim::of_item(item).any(is_claimed) && stays(item)) {
        return None;
    }
    let peers = (plan.peers + come.peers).checked_sub(gone.peers)?;
    Some(Delta { gone: gone.desired, come: come.desired, peers })
}

impl Plan {
    /// Becomes the plan that the delta speaks of.
    pub fn follow(&mut self, delta: Delta) {
        let of_no_other = |item: &&Item| delta.come.get(&item.key()).is_none();
        for item in delta.gone.iter().filter(of_no_other) {
            self.desired.remove(&item.key());
        }
        for item in delta.come.iter() {
            self.desired.insert(item.clone());
        }
        self.peers = delta.peers;
    }
}

/// What some leases need; none if there is anything to say about them.
fn alone(inputs: &Inputs, leases: &[&Arc<Lease>]) -> Option<Plan> {
    let mut draft = Draft::default();
    desired::add_peers(inputs, leases.iter().map(|lease| &***lease), &mut draft);
    let plan = Plan::from(draft);
    (plan.ignored.is_empty() && plan.warnings.is_empty()).then_some(plan)
}

/// Whether a lease is ignored because of another one, which may go.
fn is_about_others(why: &Why) -> bool {
    matches!(why, Why::OverlapsPeer(..) | Why::PeersMac(..))
}

/// Whether all that leases claim is found in their objects, which is sooner looked through; ignored leases have none.
fn is_told_by_objects(plan: &Plan, inputs: &Inputs) -> bool {
    plan.ignored.is_empty() && inputs.config.backend.has_claims_in_objects()
}

/// What two lists of leases in the order of their subnets do not share.
struct Difference<'a> {
    gone: Vec<&'a Arc<Lease>>,
    come: Vec<&'a Arc<Lease>>,
}

impl<'a> Difference<'a> {
    fn of(before: &'a [Arc<Lease>], after: &'a [Arc<Lease>]) -> Option<Self> {
        let mut found = Self { gone: Vec::new(), come: Vec::new() };
        let (mut before, mut after) = (before.iter().peekable(), after.iter().peekable());
        while found.gone.len().max(found.come.len()) <= MOST {
            let order = match (before.peek(), after.peek()) {
                (Some(a), Some(b)) if Arc::ptr_eq(a, b) => None,
                (Some(a), Some(b)) => Some(a.subnets.cmp(&b.subnets)),
                (Some(_), None) => Some(Ordering::Less),
                (None, Some(_)) => Some(Ordering::Greater),
                (None, None) => return Some(found),
            };
            let old = if order == Some(Ordering::Greater) { None } else { before.next() };
            let new = if order == Some(Ordering::Less) { None } else { after.next() };
            if order.is_some() && old != new {
                found.gone.extend(old);
                found.come.extend(new);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
