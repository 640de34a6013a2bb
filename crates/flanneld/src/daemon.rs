//! The loop: wait for a wake-up, gather, plan, settle, report.

mod judging;
mod minding;
mod settling;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use flannel_kernel::Kernel;
use flannel_kernel::watch::Interest;
use flannel_leases::Snapshot;
use flannel_plan::backoff::Backoff;
use flannel_plan::family::ByFamily;
use flannel_plan::inputs::{Inputs, NodeOptions};
use flannel_plan::lease::Lease;
use flannel_plan::observation::Scope;
use flannel_plan::ownership;
use flannel_plan::peers::{self, Newcomer};
use flannel_plan::rules::System;
use flannel_plan::underlay::{Choice, Underlay};
use ipnet::IpNet;
use tokio::sync::watch;

use crate::clock;
use crate::damper::Damper;
use crate::fast_path::FastPath;
use crate::firewall_backend::FirewallBackend;
use crate::gather::NotYet;
use crate::identity::IdentityChoice;
use crate::in_force::InForce;
use crate::options::Options;
use crate::planned::Planned;
use crate::reconcile::{self, Admission, Settlement};
use crate::remembered::Remembered;
use crate::report::{Pass, Reporter};
use crate::store_link::{SharedState, StoreState, Wanted};
use crate::trial::Trial;
use crate::wake::{Alarm, Wake};
use judging::{Seen, conditions};

/// Settings change without notice, and a notice may be lost: a look now and then finds it.
const SAFETY_INTERVAL: Duration = Duration::from_secs(60);
/// A new plan with more objects than this leaves memory behind that is worth giving back.
const LARGE_PLAN: usize = 1000;
const FIRST_RETRY: Duration = Duration::from_millis(100);

/// What the loop needs of the rest of the daemon.
pub struct Parts<K> {
    pub options: Arc<Options>,
    /// The same as far as a plan needs it, and which daemon of the host this is.
    pub node: NodeOptions,
    pub kernel: K,
    pub store: SharedState,
    /// What the store is to be told of this node.
    pub wanted: watch::Sender<Option<Wanted>>,
    /// What the watch is told to mind.
    pub interest: Arc<RwLock<Interest>>,
    pub reporter: Reporter,
    /// Keeps what the store said for the next start.
    pub remembered: Remembered,
    /// Pod networks that this instance served before it was started.
    pub earlier: Vec<IpNet>,
    /// What held before it was started, as far as that is remembered.
    pub before: Before,
}

/// What held before a start.
#[derive(Debug, Default)]
pub struct Before {
    /// Of which cluster and node what is remembered is.
    pub origin: Option<Arc<str>>,
    pub in_force: Option<InForce>,
    pub underlay: Option<Underlay>,
}

/// How a pass goes about something more urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Haste {
    /// It is ended for it.
    GivesWay,
    GoesOn,
}

/// A turn of the loop, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    took: Duration,
    observations: u32,
}

/// The loop and what it remembers.
pub struct Daemon<K> {
    parts: Parts<K>,
    identity: IdentityChoice,
    firewall_backend: FirewallBackend,
    /// Whether it was told that the settings of bridges are hidden.
    told_hidden: bool,
    damper: Damper,
    underlay: Option<Underlay>,
    planned: Option<Planned>,
    /// Whether the store's net-conf is not followed now.
    holds_back: bool,
    trial: Trial,
    fast_path: FastPath,
    retry: Backoff,
}

impl<K: Kernel> Daemon<K> {
    /// Puts the parts together.
    pub fn new(parts: Parts<K>) -> Self {
        let firewall_backend = FirewallBackend::new(parts.options.rules);
        let (identity, damper) = (IdentityChoice::default(), Damper::default());
        Self {
            parts,
            identity,
            firewall_backend,
            told_hidden: false,
            damper,
            underlay: None,
            planned: None,
            holds_back: false,
            trial: Trial::default(),
            fast_path: FastPath::default(),
            retry: Backoff::new(FIRST_RETRY, SAFETY_INTERVAL),
        }
    }

    /// Runs until it is told to stop. The kernel is left as it is then.
    pub fn run(&mut self, alarm: &mut Alarm) {
        let mut wake = Wake::Observation;
        while wake != Wake::Stop {
            wake = match self.turn(wake) {
                Some(Turn { took, observations }) => {
                    alarm.note_pass(took, observations, &self.fast_path);
                    self.sleep(alarm)
                }
                None => Wake::Store,
            };
        }
        self.parts.reporter.stop();
    }

    /// One turn of the loop: a pass, or the fast path, and a report. None if it gave way to the store's news.
    fn turn(&mut self, wake: Wake) -> Option<Turn> {
        self.parts.reporter.beat();
        let (begun, was_taken) = (clock::now(), self.fast_path.is_taken());
        let store = self.parts.store.get();
        // A look for which only time asked is due again soon.
        let gives_way = wake == Wake::Time && self.fast_path.holds(begun);
        let haste = if gives_way { Haste::GivesWay } else { Haste::GoesOn };
        let followed = self.follow_peers(&store, wake, begun);
        let result = followed.map_or_else(|| self.pass(&store, haste, begun), Ok);
        if result.as_ref().is_err_and(NotYet::gave_way) {
            return None;
        }
        let memory_lost = self.parts.remembered.lost();
        let pass = Pass { result, took: clock::now() - begun, memory_lost };
        let observations = pass.result.as_ref().map_or(1, |settlement| settlement.observations);
        self.plan_retry(&pass.result);
        let is_new = |settlement: &Settlement| was_taken || !settlement.done.is_empty();
        let leaves_memory = pass.result.as_ref().is_ok_and(|end| end.observations > 0 && is_new(end));
        self.parts.reporter.conclude(&pass, &store, self.planned.as_ref(), &self.damper);
        drop(store);
        let objects = self.planned.as_ref().map_or(0, |planned| planned.plan.desired.len());
        if leaves_memory && objects > LARGE_PLAN {
            flannel_kernel::memory::give_back();
        }
        Some(Turn { took: pass.took, observations })
    }

    /// Waits for a reason to look again, and writes files meanwhile.
    fn sleep(&mut self, alarm: &mut Alarm) -> Wake {
        // Once: a file that is written meanwhile must not put it off.
        let observation = self.next_pass();
        loop {
            self.parts.reporter.beat();
            if !self.fast_path.is_taken() {
                self.write_files();
            }
            let turn = self.files_due().map_or(observation, |due| due.min(observation));
            match alarm.wait(turn) {
                Some(wake) => return wake,
                None if turn == observation => return Wake::Time,
                None => {}
            }
        }
    }

    fn write_files(&mut self) {
        self.parts.reporter.write_if_due(self.planned.as_ref(), &self.damper);
        self.parts.remembered.write_if_due();
    }

    /// When to write files next: while peers change, the next change must not wait for that.
    fn files_due(&self) -> Option<Instant> {
        let due = [self.parts.reporter.file_due(), self.parts.remembered.due()];
        due.into_iter().flatten().min().filter(|_| !self.fast_path.is_taken())
    }

    /// The short way where only other nodes came, went or changed; none if the whole way has to be gone.
    fn follow_peers(&mut self, store: &StoreState, wake: Wake, now: Instant) -> Option<Settlement> {
        let snapshot = store.snapshot.as_ref().filter(|_| wake == Wake::Store && store.is_proof())?;
        let planned = self.planned.as_mut().filter(|_| self.fast_path.holds(now) && !self.holds_back)?;
        let delta = planned.delta_of(snapshot)?;
        let changes = delta.changes();
        minding::own_entries(&self.parts.interest, &changes);
        let settlement = reconcile::follow(&changes, &mut self.parts.kernel)?;
        if !changes.is_empty() {
            self.fast_path.take(now);
        }
        let peers_before = planned.plan.peers;
        planned.follow(delta, snapshot);
        self.parts.reporter.tell_plan(Some(peers_before), planned);
        self.parts.reporter.tell_changes(&settlement, &BTreeSet::new());
        self.parts.remembered.accept(snapshot, &planned.plan.newcomers);
        Some(settlement)
    }

    /// One pass: everything from the store's last state to a settled kernel.
    fn pass(&mut self, store: &StoreState, haste: Haste, now: Instant) -> Result<Settlement, NotYet> {
        let fast_path = std::mem::take(&mut self.fast_path);
        self.parts.reporter.suspects.hear();
        let snapshot =
            store.snapshot.as_ref().ok_or_else(|| NotYet::NoSnapshot(store.read_trouble.clone()))?;
        let seen = self.judge_and_see(store, snapshot, haste, now);
        if seen.as_ref().is_err_and(NotYet::gave_way) {
            self.fast_path = fast_path;
        }
        let (seen, held) = seen?;
        self.holds_back = held.is_some();
        let bridges = self.bridge_findings(&seen);
        let Seen { in_force, scope, mut firewall, observation } = seen;
        firewall.notes.extend(bridges);
        let choice = self.choose(&in_force, snapshot, (&scope, &observation));
        // While there is no choice to be content with, every device matters.
        let content = choice.as_ref().ok().filter(|choice| held.is_none() && choice.note.is_none());
        minding::scope(&self.parts.interest, &scope, content.map(|choice| choice.underlay.link));
        let choice = choice?;
        self.parts.reporter.conditions = conditions(held.as_ref(), &choice);
        let underlay = self.follow(choice);
        let (announcement, _) = self.announce(&in_force, snapshot, &underlay, &observation)?;
        let (own, held_back) = (in_force.own_lease(&announcement), held.is_some());
        let wanted = Wanted { announcement, config: in_force.config.clone() };
        self.want(held.map_or(Some(wanted), |held| held.wanted.map(|wanted| *wanted)));
        let own = own.filter(|own| held_back || self.is_told(own, store));
        let own = own.ok_or_else(|| NotYet::NoLease(store.publish_trouble.clone()))?;
        let mut observed = ownership::observed(&scope, &observation);
        drop(observation);
        let (node, config, peers) =
            (self.parts.node.clone(), in_force.config.clone(), snapshot.peers.clone());
        let routes = std::mem::take(&mut observed.routes);
        let newcomers = self.newcomers(snapshot);
        let inputs = Inputs { node, config, underlay, own, peers, newcomers, routes, firewall };
        let before = self.replan(inputs, scope, snapshot.public)?;
        if let Some(planned) = self.planned.as_ref().filter(|_| store.is_proof()) {
            self.parts.remembered.accept(&in_force.to_remember(snapshot), &planned.plan.newcomers);
        }
        let removal = if store.is_proof() { Admission::Made } else { Admission::Unproven };
        self.settle(before.as_ref(), observed, removal, now)
    }

    /// Whether the store has taken what this node says of itself. A start waits for that: what the store says in its
    /// place may be another's, who uses the same subnet.
    fn is_told(&self, own: &Lease, store: &StoreState) -> bool {
        let said = store.snapshot.as_ref().and_then(|snapshot| snapshot.own.as_ref());
        let is_said = said.is_none_or(|said| said.announcement == own.announcement);
        is_said || self.planned.is_some() || store.is_remembered
    }

    /// Who of the peers comes after those that the last plan followed, or that of an earlier run.
    fn newcomers(&self, snapshot: &Snapshot) -> Vec<Newcomer> {
        let (before, refused) = match &self.planned {
            Some(planned) => (&*planned.inputs.peers, &*planned.inputs.newcomers),
            None => self.parts.remembered.followed(snapshot),
        };
        peers::newcomers(before, refused, &snapshot.peers)
    }

    /// Notes the external interface and tells of it, if it is new.
    fn follow(&mut self, choice: Choice) -> Underlay {
        if self.underlay.as_ref() != Some(&choice.underlay) {
            self.parts.reporter.tell_choice(&choice);
            self.underlay = Some(choice.underlay.clone());
        }
        choice.underlay
    }

    /// Tells the store what it should say of this node, if that is new.
    fn want(&self, wanted: Option<Wanted>) {
        self.parts.wanted.send_if_modified(|before| {
            let new = *before != wanted;
            *before = wanted;
            new
        });
    }

    /// Makes a new plan if anything that it depends on is new; returns the one before it then.
    fn replan(
        &mut self,
        inputs: Inputs,
        scope: Scope,
        public: ByFamily<IpAddr>,
    ) -> Result<Option<Planned>, NotYet> {
        if self.planned.as_ref().is_some_and(|planned| planned.inputs == inputs && planned.scope == scope) {
            return Ok(None);
        }
        self.remember_networks(&scope);
        let planned = Planned::new(inputs, scope, public)?;
        let peers_before = self.planned.as_ref().map(|planned| planned.plan.peers);
        self.parts.reporter.tell_plan(peers_before, &planned);
        minding::obstacles(&self.parts.interest, planned.plan.obstacles(&planned.inputs));
        Ok(self.planned.replace(planned))
    }

    /// What was served once is ours to clean up when the net-conf changes.
    fn remember_networks(&mut self, scope: &Scope) {
        for network in &scope.networks {
            if !self.parts.earlier.contains(network) {
                self.parts.earlier.push(*network);
            }
        }
    }

    fn plan_retry(&mut self, pass: &Result<Settlement, NotYet>) {
        let unsettled = match pass {
            Ok(settlement) => !settlement.failures.is_empty(),
            Err(NotYet::Observation(_) | NotYet::Identity(_)) => true,
            Err(_) => false, // a notice will come when that changes
        };
        if unsettled {
            self.retry.grow();
        } else {
            self.retry.reset();
        }
    }

    /// Nobody tells of changes to legacy iptables.
    fn resync(&self, now: Instant) -> Option<Instant> {
        let system = self.planned.as_ref().and_then(|planned| planned.scope.system);
        (system == Some(System::IptablesLegacy)).then(|| now + self.parts.options.rules.resync)
    }

    fn next_pass(&self) -> Instant {
        let now = clock::now();
        let retry = self.retry.pause().map(|pause| now + pause);
        let grace = self.parts.reporter.grace_ends();
        let trial = self.trial.again().filter(|_| self.holds_back);
        let due =
            [retry, self.resync(now), self.damper.next_release(now), self.fast_path.ends(), grace, trial];
        due.into_iter().flatten().chain([now + SAFETY_INTERVAL]).min().unwrap_or(now)
    }
}

#[cfg(test)]
mod tests;
