//! The plan in force, what it was made from, and what of it has been put in place so far.

use std::collections::BTreeSet;
use std::net::IpAddr;

use flannel_leases::Snapshot;
use flannel_plan::backend::BackendError;
use flannel_plan::delta::{self, Delta};
use flannel_plan::desired::{self, Plan};
use flannel_plan::diff::Change;
use flannel_plan::family::ByFamily;
use flannel_plan::inputs::Inputs;
use flannel_plan::observation::Scope;
use flannel_plan::state::Key;

/// A plan with its past.
#[derive(Debug)]
pub struct Planned {
    pub inputs: Inputs,
    pub scope: Scope,
    pub plan: Plan,
    /// The addresses that the store gave this node, which the choice of the interface depended on.
    public: ByFamily<IpAddr>,
    /// The objects that are not in place yet; none known before the first pass.
    unplaced: Option<BTreeSet<Key>>,
}

impl Planned {
    /// Plans. Newcomers that are followed are none any more, which changes nothing in the plan.
    pub fn new(mut inputs: Inputs, scope: Scope, public: ByFamily<IpAddr>) -> Result<Self, BackendError> {
        let plan = desired::plan(&inputs)?;
        inputs.newcomers.clone_from(&plan.newcomers);
        Ok(Self { plan, inputs, scope, public, unplaced: None })
    }

    /// What the peers of a snapshot change, if nothing else is new in it and they can be told alone.
    pub fn delta_of(&self, snapshot: &Snapshot) -> Option<Delta> {
        let inputs = &self.inputs;
        let same = snapshot.config.as_ref().ok() == Some(&inputs.config)
            && snapshot.own.as_deref() == Some(&inputs.own)
            && snapshot.public == self.public;
        let only_peers = same && !snapshot.own_is_damaged;
        only_peers.then(|| delta::of_peers(&self.plan, inputs, &snapshot.peers)).flatten()
    }

    /// Takes the delta of a snapshot, which is in place.
    pub fn follow(&mut self, delta: Delta, snapshot: &Snapshot) {
        self.plan.follow(delta);
        self.inputs.peers.clone_from(&snapshot.peers);
    }

    /// Notes which objects a pass could not put in place.
    pub fn note_pass(&mut self, unplaced: BTreeSet<Key>) {
        self.unplaced = Some(unplaced);
    }

    /// Whether somebody else changed the object: it had been put in place, by this plan or by the one before it, and
    /// nothing new is wanted of it, nor of the device that it hangs on.
    pub fn is_repair(&self, change: &Change, before: Option<&Self>) -> bool {
        let by_earlier = |before: &Self| before.had_in_place(change) && self.agrees_about(change, before);
        self.had_in_place(change) || before.is_some_and(by_earlier)
    }

    /// Whether the object of a change was as this plan wants it.
    fn had_in_place(&self, change: &Change) -> bool {
        self.unplaced.as_ref().is_some_and(|unplaced| !unplaced.contains(&change.key()))
    }

    /// Whether another plan wants the same of an object, and of its device: what is on a device goes when we build
    /// that anew.
    fn agrees_about(&self, change: &Change, other: &Self) -> bool {
        let same = |key: &Key| self.plan.desired.get(key) == other.plan.desired.get(key);
        same(&change.key()) && change.item().link().is_none_or(|link| same(&Key::Link(link)))
    }
}

#[cfg(test)]
mod tests {
    use fake_kernel::Fake;
    use flannel_kernel::Kernel;
    use flannel_plan::mac::Mac;
    use flannel_plan::observation::{LinkFact, Observation};
    use flannel_plan::ownership;
    use flannel_plan::state::{Link, LinkKind};

    use super::*;
    use crate::reconcile::{self, Admission};

    const FIRST_START: &str = include_str!("../../flannel-plan/tests/cases/first-start/inputs.json");

    fn device(name: &str) -> LinkFact {
        let kind = LinkKind::Other("veth".into());
        let link = Link {
            name: name.parse().unwrap(),
            mac: Some(Mac([2; 6])),
            mtu: 1500,
            up: true,
            alias: "".into(),
            kind,
        };
        LinkFact { index: 2, link, running: true, loopback: false }
    }

    fn planned(change: impl FnOnce(&mut Inputs)) -> Planned {
        let mut inputs: Inputs = serde_json::from_str(FIRST_START).unwrap();
        change(&mut inputs);
        let scope = desired::scope(&inputs.node, &inputs.config, &inputs.own.subnets, &[]);
        Planned::new(inputs, scope, ByFamily::default()).unwrap()
    }

    /// Settles a plan; gives the kinds of what counts as repaired.
    fn settle(planned: &mut Planned, before: Option<&Planned>, kernel: &mut Fake) -> Vec<&'static str> {
        let observed = ownership::observed(&planned.scope, &kernel.observe(&planned.scope).unwrap());
        let mut repaired = Vec::new();
        let mut admit = |change: &Change| {
            repaired.extend(planned.is_repair(change, before).then(|| change.key().kind()));
            Admission::Made
        };
        let end = reconcile::settle(&planned.plan, &planned.scope, observed, kernel, &mut admit).unwrap();
        assert_eq!(end.left, BTreeSet::new());
        planned.note_pass(end.left);
        repaired
    }

    #[test]
    fn what_goes_with_a_device_that_we_build_anew_is_not_repaired_and_what_others_take_is() {
        let mut kernel =
            Fake::new(Observation { links: vec![device("eth0"), device("eth1")], ..Observation::default() });
        let mut first = planned(|_| {});
        assert_eq!(settle(&mut first, None, &mut kernel), [] as [&str; 0]);
        let mut moved = planned(|inputs| inputs.underlay.link = "eth1".parse().unwrap());
        assert_eq!(settle(&mut moved, Some(&first), &mut kernel), [] as [&str; 0], "another interface");
        let mut smaller = planned(|inputs| {
            inputs.underlay.link = "eth1".parse().unwrap();
            inputs.underlay.mtu = 1400;
        });
        assert_eq!(settle(&mut smaller, Some(&moved), &mut kernel), [] as [&str; 0], "another MTU");
        kernel.now.routes.pop();
        assert_eq!(settle(&mut smaller, None, &mut kernel), ["route"], "by somebody else");
        kernel.lose_link("flannel.1".parse().unwrap());
        let mut same = planned(|inputs| inputs.clone_from(&smaller.inputs));
        let all = ["link", "address", "sysctl", "fdb", "fdb", "neighbour", "neighbour", "route", "route"];
        assert_eq!(settle(&mut same, Some(&smaller), &mut kernel), all, "a new plan that wants the same");
    }
}
