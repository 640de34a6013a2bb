//! Tells people and programs how the node is: log, /readyz, /metrics, systemd and `state.json`.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flannel_leases as leases;
use flannel_leases::rival::{Rival, Stand};
use flannel_plan::family::ByFamily;
use flannel_plan::finding::{Code, Finding, texts};
use flannel_plan::quoted::line;
use flannel_plan::report::{NodeReport, Outcome, RepairLog};
use flannel_plan::state::{Key, Tier};
use flannel_plan::underlay::{Choice, Underlay};
use flannel_status::{Readiness, differs};
use tokio::sync::watch;
use tracing::{debug, error, info, warn};

use crate::clock;
use crate::culprits::{Culprits, Kinds, Suspects};
use crate::damper::Damper;
use crate::gather::NotYet;
use crate::http::Health;
use crate::notes::{Told, notes, rivals};
use crate::notify::{self, Supervisor};
use crate::planned::Planned;
use crate::reconcile::Settlement;
use crate::store_link::StoreState;
use crate::throttled_file::ThrottledFile;

/// A repair that is shorter than this does not make a node unready: a probe must not act on a blink.
const GRACE: Duration = Duration::from_secs(5);
const REMEMBERED: &str =
    "the lease store has not been heard since this start: what it said before is in force";
const UNWRITTEN: &str = "cannot write the state report";
/// So many objects are named in one line of the log; the rest is counted.
const MOST_NAMED: usize = 5;

/// Tells people and programs how the node is.
pub struct Reporter {
    health: Arc<Health>,
    supervisor: Supervisor,
    state_file: ThrottledFile,
    repairs: RepairLog,
    logged: Told,
    outcome: Option<Outcome>,
    /// Where other nodes send to, as the store has it.
    announced: ByFamily<IpAddr>,
    foreign: Vec<String>,
    readiness: Readiness,
    /// Since when it should not be ready.
    trouble_since: Option<Instant>,
    /// Why the store's net-conf is not followed, and what is wrong with the interface.
    pub conditions: Vec<Finding>,
    /// The lease store, which may pass on how the node is.
    store: watch::Sender<leases::Readiness>,
    pub suspects: Suspects,
}

/// A pass over the kernel, ended.
pub struct Pass {
    /// How it ended, or why it did not get that far.
    pub result: Result<Settlement, NotYet>,
    pub took: Duration,
    /// Why what the store says is not kept for the next start.
    pub memory_lost: Option<Finding>,
}

impl Reporter {
    /// Nothing told so far.
    pub fn new(
        health: Arc<Health>,
        supervisor: Supervisor,
        state_file: ThrottledFile,
        store: watch::Sender<leases::Readiness>,
        culprits: Culprits,
    ) -> Self {
        Self {
            suspects: Suspects::new(culprits),
            conditions: Vec::new(),
            store,
            health,
            supervisor,
            state_file,
            repairs: RepairLog::default(),
            logged: Told::default(),
            outcome: None,
            announced: ByFamily::default(),
            foreign: Vec::new(),
            readiness: Readiness::default(),
            trouble_since: None,
        }
    }

    /// Tells that the loop comes round.
    pub fn beat(&self) {
        self.health.metrics.pulse.note(Instant::now());
    }

    /// Tells which interface was chosen, and why.
    pub fn tell_choice(&self, choice: &Choice) {
        let Underlay { link, mtu, public, .. } = &choice.underlay;
        let public: Vec<String> = public.iter().map(|(_, ip)| ip.to_string()).collect();
        info!(interface = %link, mtu, public = public.join(","), "external interface chosen");
        choice.reasons.iter().for_each(|reason| debug!("{reason}"));
    }

    /// Tells how many peers a new plan follows and leaves out.
    pub fn tell_plan(&mut self, peers_before: Option<usize>, planned: &Planned) {
        let plan = &planned.plan;
        self.health.metrics.ignored.set(plan.ignored.iter().map(|ignored| ignored.why.label()));
        self.health.metrics.set_peers(plan.peers);
        if peers_before != Some(plan.peers) {
            info!(peers = plan.peers, ignored = plan.ignored.len(), "peers changed");
        }
        self.state_file.touch();
    }

    /// Counts and tells what a pass changed; repairs are named.
    pub fn tell_changes(&mut self, settlement: &Settlement, repairs: &BTreeSet<Key>) {
        let now = unix_millis();
        let mut repaired = BTreeSet::new();
        for (key, verb) in &settlement.done {
            self.health.metrics.count_change(key.kind(), verb);
            if repairs.contains(key) {
                repaired.insert(key.clone());
            }
        }
        for key in &repaired {
            self.repairs.note(key, now);
            self.health.metrics.count_repair(key.kind());
        }
        let is_rules = |key: &Key| matches!(key, Key::Rules(_));
        let of_rules = Kinds {
            changed: settlement.done.iter().any(|(key, _)| is_rules(key)),
            repaired: repaired.iter().any(is_rules),
        };
        let by = self.suspects.judge(of_rules);
        if !repaired.is_empty() {
            warn!(objects = repaired.len(), by, "repaired what something else changed: {}", named(&repaired));
        } else if !settlement.done.is_empty() {
            info!(changes = settlement.done.len(), looks = settlement.observations, "kernel changed");
        }
        if !settlement.done.is_empty() {
            self.state_file.touch();
        }
    }

    /// What a person should know as well, and was told in the log when it began.
    fn old_news(&self, pass: &Pass, store: &StoreState, damper: &Damper) -> Vec<Finding> {
        let who = |key: &Key| if let Key::Rules(_) = key { self.suspects.accused() } else { None };
        let contested = damper.contested().map(|key| {
            let who = who(key).unwrap_or_else(|| "something".to_owned());
            Finding::new(Code::Contested, key, key).because(format!("{who} keeps undoing it"))
        });
        let remembered =
            store.is_remembered.then(|| Finding::new(Code::Remembered, "lease store", REMEMBERED));
        // What a node waits for because of it names it already.
        let waits = pass.result.as_ref().err().and_then(NotYet::trouble);
        let unread = store.read_trouble.as_deref().filter(|trouble| waits != Some(trouble)).cloned();
        let watches = self.health.metrics.watch_failures.findings();
        let unwritten = self.state_file.trouble().map(|why| {
            Finding::new(Code::ReportLost, self.state_file.path().display(), UNWRITTEN).because(why)
        });
        contested.chain(unread).chain(remembered).chain(watches).chain(unwritten).collect()
    }

    /// Draws the sum of a pass.
    pub fn conclude(&mut self, pass: &Pass, store: &StoreState, planned: Option<&Planned>, damper: &Damper) {
        if let Some(received) = store.received {
            self.health.metrics.store_heard.note(received);
        }
        self.health.metrics.set_rivals(store.rivals().count(), store.corrections);
        let mut reasons = match &pass.result {
            Ok(settlement) => self.sum_up(settlement, pass.took, planned),
            Err(not_yet) => vec![not_yet.finding()],
        };
        for rival in rivals(store, Stand::Yields).map(Rival::finding) {
            // A lease that is not had because of a rival names it already.
            if !reasons.iter().any(|reason| (reason.code, &reason.object) == (rival.code, &rival.object)) {
                reasons.push(rival);
            }
        }
        let mut notes = notes(pass.result.as_ref().ok(), planned, store);
        let warnings = planned.into_iter().flat_map(|planned| &planned.plan.warnings);
        let conditions: Vec<Finding> = self.conditions.iter().chain(warnings).cloned().collect();
        let objects = notes.iter().map(|finding| (&*finding.object, finding));
        let sentences = conditions.iter().map(|finding| (&*finding.text, finding));
        let news = self.logged.news(&objects.chain(sentences).collect::<Vec<_>>(), clock::now());
        news.iter().for_each(|finding| warn!(code = %finding.code, "{finding}"));
        notes.extend(conditions);
        notes.extend(self.old_news(pass, store, damper));
        notes.extend(pass.memory_lost.clone());
        self.note_announced(store);
        // Two nodes with one subnet are no blink.
        let grace = if rivals(store, Stand::Yields).next().is_some() { Duration::ZERO } else { GRACE };
        if self.stand(reasons, notes, grace) {
            // In this order: whoever waits for ready finds the report in place.
            self.write_if_due(planned, damper);
            self.tell_outside(store);
        }
    }

    /// Notes what the store says of this node: that may be another address than it was told.
    fn note_announced(&mut self, store: &StoreState) {
        let announced = store.snapshot.as_ref().map(|snapshot| match &snapshot.own {
            Some(own) if snapshot.announced.is_empty() => own.announcement.public,
            _ => snapshot.announced,
        });
        let announced = announced.unwrap_or_default();
        if announced != self.announced {
            self.announced = announced;
            self.state_file.touch();
        }
    }

    fn sum_up(&mut self, settlement: &Settlement, took: Duration, planned: Option<&Planned>) -> Vec<Finding> {
        if !settlement.done.is_empty() {
            self.health.metrics.settled_in(took);
        }
        let failures = clean(settlement.failures.iter().map(|trouble| &trouble.finding.text));
        let before = self.outcome.as_ref().map(|outcome| (outcome.settled, outcome.failures.clone()));
        let outcome = Outcome {
            settled: settlement.left.is_empty(),
            looks: settlement.observations,
            micros: took.as_micros().try_into().unwrap_or(u64::MAX),
            peers: planned.map_or(0, |planned| planned.plan.peers),
            objects: planned.map_or(0, |planned| planned.plan.desired.len()),
            failures: failures.clone(),
        };
        if before != Some((outcome.settled, failures)) {
            self.state_file.touch();
        }
        self.outcome = Some(outcome);
        let foreign = clean(settlement.foreign.iter());
        // Without a look, nothing is known of others.
        if foreign != self.foreign && settlement.observations > 0 {
            self.foreign = foreign;
            self.state_file.touch();
        }
        why_not_wired(settlement)
    }

    /// Takes a stand on readiness; says whether it is new.
    fn stand(&mut self, reasons: Vec<Finding>, notes: Vec<Finding>, grace: Duration) -> bool {
        let harmless =
            |findings: Vec<Finding>| findings.into_iter().map(Finding::harmless).collect::<Vec<_>>();
        let (reasons, notes) = (harmless(reasons), harmless(notes));
        let blink = |since: Instant| clock::now().duration_since(since) < grace;
        let ready = if reasons.is_empty() {
            self.trouble_since = None;
            true
        } else {
            let since = *self.trouble_since.get_or_insert_with(clock::now);
            self.readiness.ready && blink(since)
        };
        let readiness = Readiness { ready, reasons, notes };
        let news = self.readiness != readiness;
        if news {
            tell_readiness(&self.readiness, &readiness);
            self.readiness = readiness;
            self.state_file.touch();
        }
        if ready {
            self.state_file.hurry();
        }
        news
    }

    fn tell_outside(&self, store: &StoreState) {
        let readiness = &self.readiness;
        self.store.send_replace(match readiness.ready {
            // Nodes are told apart by what the store says, and it has said nothing: another may be meant. That it
            // is heard again takes a note away, which is news.
            true if store.is_remembered => leases::Readiness::Remembered,
            true => leases::Readiness::Ready,
            false => leases::Readiness::NotReady(readiness.why_not()),
        });
        self.health.set_readiness(readiness.clone());
        let status = readiness.line();
        let words = [notify::ServiceState::Status(&status), notify::ServiceState::Ready];
        // Systemd is told READY once; later words of it change nothing.
        self.tell_supervisor(if readiness.ready { &words[..] } else { &words[..1] });
    }

    fn tell_supervisor(&self, words: &[notify::ServiceState<'_>]) {
        if let Err(error) = self.supervisor.tell(words) {
            debug!(%error, "systemd does not listen");
        }
    }

    /// When a stand is to be taken again although nothing wakes the loop.
    pub fn grace_ends(&self) -> Option<Instant> {
        self.trouble_since.filter(|_| self.readiness.ready).map(|since| since + GRACE)
    }

    /// When the report is to be written, if there is something new.
    pub fn file_due(&self) -> Option<Instant> {
        self.state_file.due()
    }

    /// Writes the report, if there is something new and it is time.
    pub fn write_if_due(&mut self, planned: Option<&Planned>, damper: &Damper) {
        let readiness = &self.readiness;
        // Whoever reads it has a report that could be written.
        let stands = |finding: &&Finding| finding.code != Code::ReportLost;
        let report = || NodeReport {
            version: Cow::Borrowed(env!("CARGO_PKG_VERSION")),
            pid: std::process::id(),
            written: unix_millis(),
            ready: readiness.ready,
            reasons: texts(&readiness.reasons),
            notes: texts(readiness.notes.iter().filter(stands)),
            findings: readiness.findings().filter(stands).cloned().collect(),
            announced: self.announced,
            outcome: self.outcome.clone(),
            repairs: Cow::Borrowed(self.repairs.all()),
            contested: damper.contested().map(ToString::to_string).collect(),
            foreign: self.foreign.clone(),
            scope: planned.map(|planned| Cow::Borrowed(&planned.scope)),
            inputs: planned.map(|planned| Cow::Borrowed(&planned.inputs)),
        };
        if let Err(error) = self.state_file.write_if_due(|| Some(report())) {
            warn!(file = %self.state_file.path().display(), %error, code = %Code::ReportLost, "{UNWRITTEN}");
        }
    }

    /// Says good-bye. The kernel stays as it is.
    pub fn stop(&self) {
        info!("stopping; the kernel is left as it is");
        self.tell_supervisor(&[notify::ServiceState::Stopping]);
    }
}

fn tell_readiness(before: &Readiness, now: &Readiness) {
    let (ready, reasons) = (now.ready, &now.reasons);
    if *reasons != before.reasons || before.ready && !ready {
        reasons.iter().for_each(|reason| match reason.code {
            // The first moments: nothing is wrong, and what comes next is told anyway.
            Code::StoreAwaited | Code::LeaseAwaited => debug!("{reason}"),
            code if ready => warn!(%code, "trouble: {reason}"),
            code => error!(%code, "not ready: {reason}"),
        });
    }
    if ready && !before.ready {
        info!("ready");
    }
}

/// Lines that may quote strangers, for whoever reads them.
fn clean(lines: impl Iterator<Item = impl ToString>) -> Vec<String> {
    lines.map(|text| line(&text.to_string()).to_string()).collect()
}

fn why_not_wired(settlement: &Settlement) -> Vec<Finding> {
    if settlement.is_wired() {
        return Vec::new();
    }
    let failed = settlement.failures.iter().filter(|trouble| trouble.key.tier() == Tier::Node);
    let reasons: Vec<Finding> = failed.map(|trouble| trouble.finding.clone()).collect();
    if !reasons.is_empty() {
        return reasons;
    }
    let left = settlement.left.iter().filter(|key| key.tier() == Tier::Node);
    left.map(differs).collect()
}

fn named(keys: &BTreeSet<Key>) -> String {
    let first: Vec<String> = keys.iter().take(MOST_NAMED).map(ToString::to_string).collect();
    match keys.len().saturating_sub(MOST_NAMED) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(u64::MAX)
}
