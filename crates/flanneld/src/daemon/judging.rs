//! Which net-conf holds in a pass: the store's, or the one before it while this node cannot follow the store's.
//!
//! The store's is tried against the host before anything is changed for it: the interface, the backend, what others
//! have, the kernel, the lease. Whatever fails is told, and the next pass tries again.

use std::time::Instant;

use flannel_kernel::Kernel;
use flannel_leases::Snapshot;
use flannel_plan::backend;
use flannel_plan::claim::Identity;
use flannel_plan::config_change::{Verdict, judge};
use flannel_plan::desired;
use flannel_plan::device_in_the_way::{in_the_way, untried};
use flannel_plan::family::ByFamily;
use flannel_plan::finding::{Code, Finding};
use flannel_plan::firewall::Firewall;
use flannel_plan::lease::Announcement;
use flannel_plan::observation::{Observation, ObserveOptions, Scope};
use flannel_plan::pod_bridge::{self, BridgeNetfilter};
use flannel_plan::underlay::{self, Choice, Host, NoUnderlay, Underlay};
use tracing::{info, warn};

use super::{Daemon, Haste};
use crate::gather::{self, NotYet};
use crate::in_force::InForce;
use crate::store_link::{StoreState, Wanted};

/// What holds, and what was found of it.
pub(super) struct Seen {
    pub(super) in_force: InForce,
    pub(super) scope: Scope,
    pub(super) firewall: Firewall,
    pub(super) observation: Observation,
}

/// The store's net-conf is not followed now.
pub(super) struct Held {
    findings: Vec<Finding>,
    /// What the store should say of this node all the same: nothing, unless a lease is all that is missing.
    pub(super) wanted: Option<Box<Wanted>>,
}

impl Held {
    /// This node cannot follow it.
    fn because(why: Finding) -> Self {
        let end = "; this node cannot follow it, and the one before stays in force";
        Self { findings: vec![held(why, end)], wanted: None }
    }
}

impl From<NotYet> for Held {
    fn from(why: NotYet) -> Self {
        match why {
            // What the host has is in the way of reading, and nobody's business.
            NotYet::Underlay(none) => Self::because(none.brief_finding()),
            why => Self::because(why.finding()),
        }
    }
}

/// What keeps the net-conf from being followed.
fn held(why: Finding, end: &str) -> Finding {
    why.as_code(Code::NetConfHeld).within("net-conf: ", end)
}

/// What a person should know of the net-conf and the interface while they are as they are.
pub(super) fn conditions(held: Option<&Held>, choice: &Choice) -> Vec<Finding> {
    let held = held.into_iter().flat_map(|held| held.findings.iter().cloned());
    held.chain(choice.note.clone()).collect()
}

impl<K: Kernel> Daemon<K> {
    /// Decides what holds, looks at the kernel for it, and says why that is not what the store says.
    pub(super) fn judge_and_see(
        &mut self,
        store: &StoreState,
        snapshot: &Snapshot,
        haste: Haste,
        now: Instant,
    ) -> Result<(Seen, Option<Held>), NotYet> {
        let told = InForce::of_store(snapshot);
        let before = self.in_force_before(snapshot);
        let is_news = |before: &InForce| told.as_ref().map_or(true, |told| told.config != before.config);
        let Some(before) = before.filter(is_news) else { return Ok((self.see(told?, haste, now)?, None)) };
        let seen = self.see(before, Haste::GoesOn, now)?;
        let judged =
            told.map_err(Held::from).and_then(|told| self.judge(told, &seen, (store, snapshot), now));
        match judged {
            Ok(followed) => Ok((self.see(followed, Haste::GoesOn, now)?, None)),
            // A start that a lease alone keeps waiting, which has not been asked for yet: no pod may begin by what is
            // over in a moment.
            Err(held)
                if self.planned.is_none() && held.wanted.is_some() && store.publish_trouble.is_none() =>
            {
                self.want(held.wanted.map(|wanted| *wanted));
                Err(NotYet::NoLease(None))
            }
            Err(held) => Ok((seen, Some(held))),
        }
    }

    /// What this daemon holds to, or held to before it was started.
    fn in_force_before(&self, snapshot: &Snapshot) -> Option<InForce> {
        if let Some(planned) = &self.planned {
            return Some(InForce::of_plan(planned));
        }
        let before = &self.parts.before;
        let holds = |held: &InForce| before.origin == snapshot.origin && !held.is_refuted_by(snapshot);
        before.in_force.clone().filter(holds)
    }

    fn scope(&self, in_force: &InForce) -> Scope {
        desired::scope(&self.parts.node, &in_force.config, &in_force.subnets(), &self.parts.earlier)
    }

    /// Observes everything that a net-conf asks for, and finds what rules are held with; the observation may have a say
    /// in that.
    fn see(&mut self, in_force: InForce, haste: Haste, now: Instant) -> Result<Seen, NotYet> {
        let mut scope = self.scope(&in_force);
        let kernel = &mut self.parts.kernel;
        let (gives_way, pod_subnets) = (haste == Haste::GivesWay, in_force.subnets());
        let mut options = ObserveOptions { gives_way, pod_subnets, ..ObserveOptions::default() };
        let mut firewall = self.firewall_backend.of(&in_force.config, kernel, now)?;
        scope.system = firewall.system;
        let mut observation = kernel.observe(&Scope { options: options.clone(), ..scope.clone() })?;
        if !self.firewall_backend.bears(&observation.rules) {
            firewall = self.firewall_backend.of(&in_force.config, kernel, now)?;
            scope.system = firewall.system;
            options.gives_way = false;
            observation = kernel.observe(&Scope { options, ..scope.clone() })?;
        }
        Ok(Seen { in_force, scope, firewall, observation })
    }

    /// What is wrong with the bridges of this node's pods.
    pub(super) fn bridge_findings(&mut self, seen: &Seen) -> Vec<Finding> {
        let Seen { in_force, observation, .. } = seen;
        self.tell_hidden(&observation.bridge_netfilter);
        let mut findings = pod_bridge::netfilter_findings(&observation.bridge_netfilter);
        let (config, own, node) = (&in_force.config, in_force.subnets(), &self.parts.node);
        findings.extend(pod_bridge::findings(observation, config, &own, node));
        findings
    }

    /// Tells once that there is no telling whether packets over a bridge meet rules.
    fn tell_hidden(&mut self, settings: &ByFamily<BridgeNetfilter>) {
        let hidden = settings.iter().find(|(_, setting)| **setting == BridgeNetfilter::Unknown);
        let Some((family, _)) = hidden.filter(|_| !std::mem::replace(&mut self.told_hidden, true)) else {
            return;
        };
        info!(
            setting = BridgeNetfilter::sysctl(family),
            "unknown whether packets between pods of one bridge meet rules: the setting cannot be read here"
        );
    }

    /// Whether this node can follow the store's net-conf; gives it back, with the lease, if so.
    fn judge(
        &mut self,
        told: InForce,
        seen: &Seen,
        (store, snapshot): (&StoreState, &Snapshot),
        now: Instant,
    ) -> Result<InForce, Held> {
        let consequences = self.consequences(&told, &seen.in_force)?;
        let scope = self.scope(&told);
        let choice = self.choose(&told, snapshot, (&scope, &seen.observation)).map_err(NotYet::from)?;
        let heir = InForce { own: told.own.clone().or_else(|| seen.in_force.own.clone()), ..told.clone() };
        let (announcement, identity) = self.announce(&heir, snapshot, &choice.underlay, &seen.observation)?;
        let devices = backend::devices(&told.config, &self.parts.node, &choice.underlay, &identity);
        let devices: Vec<_> = devices.v4.into_iter().chain(devices.v6).collect();
        if let Some(why) = in_the_way(&devices, &scope, &seen.observation) {
            return Err(Held::because(why));
        }
        let untried = untried(&devices, &scope, &seen.observation);
        if let Some(why) = self.trial.failure(&untried, &mut self.parts.kernel, now) {
            return Err(Held::because(why));
        }
        if told.own_lease(&announcement).is_none() {
            let why = NotYet::NoLease(store.publish_trouble.clone()).finding();
            let findings = vec![held(why, "; the one before stays in force until then")];
            let wanted = Wanted { announcement, config: told.config };
            return Err(Held { findings, wanted: Some(Box::new(wanted)) });
        }
        consequences.iter().for_each(|finding| warn!(code = %finding.code, "net-conf: {finding}"));
        Ok(told)
    }

    /// What it means for running pods; after a start nobody can tell any more.
    fn consequences(&self, told: &InForce, before: &InForce) -> Result<Vec<Finding>, Held> {
        let Some(own) = before.own.as_ref().filter(|_| self.planned.is_some()) else { return Ok(Vec::new()) };
        match judge(&before.config, &told.config, &own.subnets) {
            Verdict::Follow(consequences) => Ok(consequences),
            Verdict::Restart(why) => {
                let findings = why.into_iter().map(|why| held(why, "")).collect();
                Err(Held { findings, wanted: None })
            }
        }
    }

    /// Chooses the external interface for a net-conf. The one in use stays, also that of an earlier run.
    pub(super) fn choose(
        &self,
        in_force: &InForce,
        snapshot: &Snapshot,
        (scope, observation): (&Scope, &Observation),
    ) -> Result<Choice, NoUnderlay> {
        let (options, config) = (&self.parts.options, &in_force.config);
        let host =
            Host { observation, links: &scope.links, networks: &config.networks, own: in_force.subnets() };
        let earlier = || {
            let own = snapshot.own.as_deref().or(in_force.own.as_ref());
            let leased = own.and_then(|own| underlay::announced_from(&own.announcement.public, observation));
            leased.or_else(|| self.parts.before.underlay.clone())
        };
        let current = self.underlay.clone().or_else(earlier);
        gather::choose_underlay(options, config, &snapshot.public, host, current.as_ref())
    }

    /// What this node says of itself under a net-conf, and its identity.
    pub(super) fn announce(
        &mut self,
        in_force: &InForce,
        snapshot: &Snapshot,
        underlay: &Underlay,
        observation: &Observation,
    ) -> Result<(Announcement, ByFamily<Identity>), NotYet> {
        let heritage = in_force.own.as_ref().or_else(|| gather::inherited_lease(snapshot, underlay));
        let identity = self.identity.identity(&in_force.config, heritage, observation)?;
        Ok((backend::announce(&in_force.config, underlay, &identity)?, identity))
    }
}
