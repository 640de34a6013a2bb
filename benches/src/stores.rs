//! Five thousand nodes in a real etcd and on a real API server: what a daemon costs, and how soon it follows. With
//! `GO_FLANNELD`, Go's does the same in the same run, and the goals are parts of what it needs.

mod api;
mod cluster;
mod etcd;
mod kubernetes;
mod race;

use std::path::PathBuf;
use std::time::Duration;

use crate::figure::Figure;
use race::{Cost, percentile};

/// How many peers there are.
const PEERS: u32 = 5000;

/// What Go's flanneld 0.28.9 needed where it is not here to be measured.
struct Known {
    settle_ms: f64,
    cpu_ms: f64,
    p50_ms: f64,
    p99_ms: f64,
}

const ON_ETCD: Known = Known { settle_ms: 3500.0, cpu_ms: 2500.0, p50_ms: 6.0, p99_ms: 20.0 };
const ON_KUBERNETES: Known = Known { settle_ms: 5000.0, cpu_ms: 4100.0, p50_ms: 6.0, p99_ms: 20.0 };

/// Go, which asks for gzip, receives 4.5.
const RECEIVED_MB: f64 = 6.0;
/// A change does not wait for a look at 15,000 objects.
const BESIDE_A_LOOK_MS: f64 = 10.0;

/// Both stores.
pub fn measure() -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let mut place = etcd::Etcd::up(PEERS)?;
    figures.extend(compared("etcd", 16.0, ON_ETCD, &race::costs(&mut place, PEERS)?));
    drop(place);
    let mut place = kubernetes::Kubernetes::up(PEERS)?;
    figures.extend(compared("Kubernetes", 25.0, ON_KUBERNETES, &race::costs(&mut place, PEERS)?));
    Ok(figures)
}

/// A Go flanneld, if there is one.
pub(crate) fn go_flanneld() -> Option<PathBuf> {
    std::env::var_os("GO_FLANNELD").filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Ours with goals, and Go's beside it. A goal that Go's own figure gives is better than one from a table.
fn compared(store: &str, rss_mb: f64, known: Known, costs: &[Cost]) -> Vec<Figure> {
    let Some(ours) = costs.first() else { return Vec::new() };
    let known = costs.get(1).map_or(known, |go| Known {
        settle_ms: millis(go.settle),
        cpu_ms: millis(go.cpu),
        p50_ms: go.percentile(50),
        p99_ms: go.percentile(99),
    });
    let goals = [
        Some(known.settle_ms / 3.0),
        Some(known.cpu_ms / 5.0),
        Some(rss_mb),
        Some(known.p50_ms),
        Some(known.p99_ms),
        Some(BESIDE_A_LOOK_MS),
        Some(RECEIVED_MB),
        None,
    ];
    let with_goals = named(store, "ours", ours).into_iter().zip(goals);
    let ours = with_goals.map(|(figure, goal)| match goal {
        Some(goal) => figure.at_most((goal * 100.0).round() / 100.0),
        None => figure,
    });
    ours.chain(costs.iter().skip(1).flat_map(|go| named(store, "Go", go))).collect()
}

fn named(store: &str, whose: &str, cost: &Cost) -> [Figure; 8] {
    let name = |what: &str| format!("{PEERS} peers on {store}, {whose}: {what}");
    let changes = format!("of {} changes", cost.changes.len());
    [
        Figure::new(name("start to settled"), millis(cost.settle), "ms"),
        Figure::new(name("CPU until idle"), millis(cost.cpu), "ms"),
        Figure::new(name("RSS"), cost.rss_mb, "MB").note("after the changes below"),
        Figure::new(name("one change, store to kernel, p50"), cost.percentile(50), "ms").note(&*changes),
        Figure::new(name("one change, store to kernel, p99"), cost.percentile(99), "ms").note(changes),
        Figure::new(
            name("one change beside a look at everything, p99"),
            percentile(&cost.beside_looks, 99),
            "ms",
        )
        .note(format!("of {} changes", cost.beside_looks.len())),
        Figure::new(name("received at the start"), cost.received_mb, "MB"),
        Figure::new(name("received for a peer's sign of life"), cost.heartbeat_bytes, "bytes")
            .note(cost.sign),
    ]
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
