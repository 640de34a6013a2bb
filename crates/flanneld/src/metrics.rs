//! The figures of the daemon, in the text form that Prometheus reads. The loop writes them, /metrics reads them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use flannel_plan::finding::{Code, Finding};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::pulse::Pulse;

/// The media type of [`Metrics::text`].
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The figures of the daemon.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    ready: Gauge,
    peers: Gauge,
    ignored: Family<ByReason, Gauge>,
    repairs: Family<ByKind, Counter>,
    rivals: Gauge,
    corrections: Counter,
    changes: Family<ByKindAndVerb, Counter>,
    settle: Histogram,
    pub watch_failures: Failures,
    last_word: LastWord,
    pub pulse: Pulse,
    // Labels are static texts so that no peer can make up series without end.
    reasons: Mutex<BTreeMap<&'static str, usize>>,
    findings: Family<ByCode, Gauge>,
    codes: Mutex<BTreeMap<Code, usize>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReason {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByCode {
    code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByKind {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByWatch {
    watch: &'static str,
}

/// How often watches failed: whoever keeps one counts.
#[derive(Clone, Debug, Default)]
pub struct Failures(Family<ByWatch, Counter>);

impl Failures {
    /// Counts one.
    pub fn count(&self, watch: &'static str) {
        self.0.get_or_create(&ByWatch { watch }).inc();
    }

    /// How many there were.
    #[cfg(test)]
    pub fn of(&self, watch: &'static str) -> u64 {
        self.0.get_or_create(&ByWatch { watch }).get()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByKindAndVerb {
    kind: &'static str,
    verb: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("flannel_build", "The version of this daemon", version);
        let metrics = Self {
            ready: Gauge::default(),
            peers: Gauge::default(),
            ignored: Family::default(),
            repairs: Family::default(),
            rivals: Gauge::default(),
            corrections: Counter::default(),
            changes: Family::default(),
            // From a millisecond to half a minute: an idle look, and a thousand peers on a busy machine.
            settle: Histogram::new(exponential_buckets(0.001, 2.0, 16)),
            watch_failures: Failures::default(),
            last_word: LastWord::default(),
            pulse: Pulse::default(),
            reasons: Mutex::default(),
            findings: Family::default(),
            codes: Mutex::default(),
            registry,
        };
        metrics.registered()
    }
}

impl Metrics {
    fn registered(mut self) -> Self {
        let registry = &mut self.registry;
        registry.register("flannel_ready", "1 when this node is wired, else 0", self.ready.clone());
        registry.register("flannel_peers", "Nodes that packets can be sent to", self.peers.clone());
        registry.register(
            "flannel_peers_ignored",
            "Nodes that are left out, by reason",
            self.ignored.clone(),
        );
        registry.register("flannel_findings", "What is wrong on this node, by code", self.findings.clone());
        registry.register("flannel_repairs", "Objects that somebody else had broken", self.repairs.clone());
        registry.register(
            "flannel_rivals",
            "Others that write what the lease store says of this node",
            self.rivals.clone(),
        );
        registry.register(
            "flannel_lease_corrections",
            "How often the lease store had to be put right about this node",
            self.corrections.clone(),
        );
        registry.register("flannel_changes", "Changes made on this node", self.changes.clone());
        registry.register("flannel_settle_seconds", "Time to make the node as desired", self.settle.clone());
        let failures = self.watch_failures.0.clone();
        registry.register("flannel_watch_failures", "Watches that failed and were opened again", failures);
        registry.register_collector(Box::new(self.last_word.clone()));
        registry.register_collector(Box::new(self.pulse.clone()));
        self
    }

    /// Tells whether the node is wired: 1 or 0.
    pub fn set_ready(&self, ready: i64) {
        self.ready.set(ready);
    }

    /// Tells how many nodes packets can be sent to.
    pub fn set_peers(&self, count: usize) {
        self.peers.set(whole(count));
    }

    /// Tells how many nodes are left out, and why; a reason that is not named again falls to 0.
    pub fn set_ignored(&self, by_reason: BTreeMap<&'static str, usize>) {
        let mut known = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
        known.values_mut().for_each(|count| *count = 0);
        known.extend(by_reason);
        for (reason, count) in known.iter() {
            self.ignored.get_or_create(&ByReason { reason }).set(whole(*count));
        }
    }

    /// Tells what is wrong; a code that is not found again falls to 0.
    pub fn set_findings<'a>(&self, findings: impl Iterator<Item = &'a Finding>) {
        let mut known = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        known.values_mut().for_each(|count| *count = 0);
        findings.for_each(|finding| *known.entry(finding.code).or_default() += 1);
        for (code, count) in known.iter() {
            self.findings.get_or_create(&ByCode { code: code.as_str() }).set(whole(*count));
        }
    }

    /// Counts one object that somebody else had broken.
    pub fn count_repair(&self, kind: &'static str) {
        self.repairs.get_or_create(&ByKind { kind }).inc();
    }

    /// Tells how many others write what the store says of this node, and how often it had to be put right so far.
    pub fn set_rivals(&self, count: usize, corrections: u64) {
        self.rivals.set(whole(count));
        self.corrections.inc_by(corrections.saturating_sub(self.corrections.get()));
    }

    /// Counts one change on this node.
    pub fn count_change(&self, kind: &'static str, verb: &'static str) {
        self.changes.get_or_create(&ByKindAndVerb { kind, verb }).inc();
    }

    /// Tells how long it took to make the node as desired.
    pub fn settled_in(&self, time: Duration) {
        self.settle.observe(time.as_secs_f64());
    }

    /// Tells when the store was heard last.
    pub fn heard_store(&self, at: Instant) {
        *self.last_word.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
    }

    /// All figures as text.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// When the store was heard last; its age is worked out when somebody asks.
#[derive(Clone, Debug, Default)]
struct LastWord(Arc<Mutex<Option<Instant>>>);

impl Collector for LastWord {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(at) = *self.0.lock().unwrap_or_else(PoisonError::into_inner) else { return Ok(()) };
        let help = "Time since the lease store was heard";
        encode_age(&mut encoder, "flannel_store_last_word_age_seconds", help, at.elapsed())
    }
}

impl Collector for Pulse {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "Time since the loop came round: a minute at most, unless it hangs";
        encode_age(&mut encoder, "flannel_loop_age_seconds", help, self.age())
    }
}

fn encode_age(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    age: Duration,
) -> Result<(), fmt::Error> {
    let age = ConstGauge::new(age.as_secs_f64());
    age.encode(encoder.encode_descriptor(name, help, None, age.metric_type())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines that are figures, without the buckets of the histogram and the age of the loop, which grows.
    fn figures(metrics: &Metrics) -> Vec<String> {
        let text = metrics.text().unwrap();
        assert!(text.ends_with("# EOF\n"), "{text}");
        let varies = |line: &str| line.contains("_bucket") || line.starts_with("flannel_loop_age");
        let plain = |line: &&str| !line.starts_with('#') && !varies(line);
        let mut figures: Vec<_> = text.lines().filter(plain).map(str::to_owned).collect();
        figures.sort();
        figures
    }

    #[test]
    fn a_new_daemon_shows_its_version_and_zeros() {
        let build = format!("flannel_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
        let expected = [
            &build,
            "flannel_lease_corrections_total 0",
            "flannel_peers 0",
            "flannel_ready 0",
            "flannel_rivals 0",
            "flannel_settle_seconds_count 0",
            "flannel_settle_seconds_sum 0.0",
        ];
        assert_eq!(figures(&Metrics::default()), expected);
    }

    #[test]
    fn every_figure_is_shown_as_it_was_told() {
        let metrics = Metrics::default();
        metrics.set_ready(1);
        metrics.set_peers(7);
        metrics.set_ignored(BTreeMap::from([("same subnet", 2), ("no address", 1)]));
        metrics.set_ignored(BTreeMap::from([("no address", 3)]));
        let [gone, stays] = [Code::Overlap, Code::NotOnLink].map(|code| Finding::new(code, "x", "y"));
        metrics.set_findings([&gone, &stays].into_iter());
        metrics.set_findings([&stays, &stays].into_iter());
        metrics.count_repair("route");
        metrics.count_repair("route");
        metrics.count_change("link", "create");
        metrics.settled_in(Duration::from_millis(500));
        metrics.set_rivals(1, 3);
        metrics.set_rivals(1, 4);
        let build = format!("flannel_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
        let expected = [
            &build,
            "flannel_changes_total{kind=\"link\",verb=\"create\"} 1",
            "flannel_findings{code=\"FL-0408\"} 2",
            "flannel_findings{code=\"FL-0505\"} 0",
            "flannel_lease_corrections_total 4",
            "flannel_peers 7",
            "flannel_peers_ignored{reason=\"no address\"} 3",
            "flannel_peers_ignored{reason=\"same subnet\"} 0",
            "flannel_ready 1",
            "flannel_repairs_total{kind=\"route\"} 2",
            "flannel_rivals 1",
            "flannel_settle_seconds_count 1",
            "flannel_settle_seconds_sum 0.5",
        ];
        assert_eq!(figures(&metrics), expected);
    }

    #[test]
    fn the_age_of_the_stores_last_word_is_worked_out_when_asked() {
        let metrics = Metrics::default();
        let hour = Duration::from_secs(3600);
        metrics.heard_store(Instant::now().checked_sub(hour).unwrap());
        let shown = figures(&metrics);
        let age = shown.iter().find_map(|line| line.strip_prefix("flannel_store_last_word_age_seconds "));
        let age: f64 = age.unwrap().parse().unwrap();
        assert!((3600.0..3660.0).contains(&age), "{age}");
    }
}
