//! The figures of the daemon, in the text form that Prometheus reads. The loop writes them, /metrics reads them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};

use crate::watching::Failures;

/// The media type of [`Metrics::text`].
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What tells the series of a figure apart: static texts, so that no peer can make up series without end.
pub type Labels<const N: usize> = [(&'static str, &'static str); N];

/// The figures of the daemon.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// 1 or 0.
    pub ready: Gauge,
    peers: Gauge,
    pub ignored: Tally,
    pub findings: Tally,
    repairs: Family<Labels<1>, Counter>,
    rivals: Gauge,
    corrections: Counter,
    changes: Family<Labels<2>, Counter>,
    settle: Histogram,
    pub watch_failures: Failures,
    pub store_heard: Age,
    /// When the loop came round.
    pub pulse: Age,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let to = &mut registry;
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        to.register("flannel_build", "The version of this daemon", version);
        // From a millisecond to half a minute: an idle look, and a thousand peers on a busy machine.
        let settle = Histogram::new(exponential_buckets(0.001, 2.0, 16));
        let failures = "Watches that failed and were opened again";
        let hangs = "Time since the loop came round: a minute at most, unless it hangs";
        // In the order in which they are shown.
        let metrics = Self {
            ready: add(to, "flannel_ready", "1 when this node is wired, else 0"),
            peers: add(to, "flannel_peers", "Nodes that packets can be sent to"),
            ignored: Tally::by(
                "reason",
                add(to, "flannel_peers_ignored", "Nodes that are left out, by reason"),
            ),
            findings: Tally::by("code", add(to, "flannel_findings", "What is wrong on this node, by code")),
            repairs: add(to, "flannel_repairs", "Objects that somebody else had broken"),
            rivals: add(to, "flannel_rivals", "Others that write what the lease store says of this node"),
            corrections: add(
                to,
                "flannel_lease_corrections",
                "How often the lease store had to be put right about this node",
            ),
            changes: add(to, "flannel_changes", "Changes made on this node"),
            settle: added(to, "flannel_settle_seconds", "Time to make the node as desired", settle),
            watch_failures: Failures::new(add(to, "flannel_watch_failures", failures)),
            store_heard: Age::added(
                to,
                "flannel_store_last_word_age_seconds",
                "Time since the lease store was heard",
            ),
            pulse: Age::added(to, "flannel_loop_age_seconds", hangs),
            registry,
        };
        metrics.pulse.note(Instant::now());
        metrics
    }
}

fn add<M: Metric + Clone + Default>(to: &mut Registry, name: &str, help: &str) -> M {
    added(to, name, help, M::default())
}

fn added<M: Metric + Clone>(to: &mut Registry, name: &str, help: &str, figure: M) -> M {
    to.register(name, help, figure.clone());
    figure
}

impl Metrics {
    /// Tells how many nodes packets can be sent to.
    pub fn set_peers(&self, count: usize) {
        self.peers.set(whole(count));
    }

    /// Counts one object that somebody else had broken.
    pub fn count_repair(&self, kind: &'static str) {
        self.repairs.get_or_create(&[("kind", kind)]).inc();
    }

    /// Tells how many others write what the store says of this node, and how often it had to be put right so far.
    pub fn set_rivals(&self, count: usize, corrections: u64) {
        self.rivals.set(whole(count));
        self.corrections.inc_by(corrections.saturating_sub(self.corrections.get()));
    }

    /// Counts one change on this node.
    pub fn count_change(&self, kind: &'static str, verb: &'static str) {
        self.changes.get_or_create(&[("kind", kind), ("verb", verb)]).inc();
    }

    /// Tells how long it took to make the node as desired.
    pub fn settled_in(&self, time: Duration) {
        self.settle.observe(time.as_secs_f64());
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

/// How many there are of each value of a label.
#[derive(Debug)]
pub struct Tally {
    label: &'static str,
    figures: Family<Labels<1>, Gauge>,
    known: Mutex<BTreeMap<&'static str, i64>>,
}

impl Tally {
    fn by(label: &'static str, figures: Family<Labels<1>, Gauge>) -> Self {
        Self { label, figures, known: Mutex::default() }
    }

    /// Tells all that there are now; a value that is not named again falls to 0.
    pub fn set(&self, values: impl Iterator<Item = &'static str>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.values_mut().for_each(|count| *count = 0);
        values.for_each(|value| *known.entry(value).or_default() += 1);
        for (value, count) in known.iter() {
            self.figures.get_or_create(&[(self.label, value)]).set(*count);
        }
    }
}

/// How long ago something was: worked out when somebody asks.
#[derive(Clone, Debug)]
pub struct Age {
    name: &'static str,
    help: &'static str,
    last: Arc<Mutex<Option<Instant>>>,
}

impl Age {
    fn added(to: &mut Registry, name: &'static str, help: &'static str) -> Self {
        let age = Self { name, help, last: Arc::default() };
        to.register_collector(Box::new(age.clone()));
        age
    }

    /// Notes when it was last.
    pub fn note(&self, at: Instant) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
    }

    /// How long ago that is; none before the first time.
    pub fn get(&self) -> Option<Duration> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).map(|at| at.elapsed())
    }
}

impl Collector for Age {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(age) = self.get() else { return Ok(()) };
        let age = ConstGauge::new(age.as_secs_f64());
        age.encode(encoder.encode_descriptor(self.name, self.help, None, age.metric_type())?)
    }
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
        metrics.ready.set(1);
        metrics.set_peers(7);
        metrics.ignored.set(["same subnet", "same subnet", "no address"].into_iter());
        metrics.ignored.set(["no address"; 3].into_iter());
        metrics.findings.set(["FL-0505", "FL-0408"].into_iter());
        metrics.findings.set(["FL-0408"; 2].into_iter());
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
        metrics.store_heard.note(Instant::now().checked_sub(hour).unwrap());
        let shown = figures(&metrics);
        let age = shown.iter().find_map(|line| line.strip_prefix("flannel_store_last_word_age_seconds "));
        let age: f64 = age.unwrap().parse().unwrap();
        assert!((3600.0..3660.0).contains(&age), "{age}");
    }
}
