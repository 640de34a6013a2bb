//! Many peers in the store: how long the node takes to settle, how much memory it holds, and how soon one
//! change of the store is in the kernel.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Context;
use flannel_kernel::watch::Notice;
use ipnet::IpNet;

use crate::cluster::{Cluster, LIMIT};
use crate::figure::Figure;

struct Goal {
    peers: u32,
    settle_ms: f64,
    memory_mb: f64,
}

const GOALS: [Goal; 2] = [
    Goal { peers: 1000, settle_ms: 150.0, memory_mb: 12.0 },
    Goal { peers: 5000, settle_ms: 800.0, memory_mb: 16.0 },
];
const CHANGES: u32 = 10;

/// Brings up a node for each goal.
pub fn measure() -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for goal in GOALS {
        let cluster = Cluster::up(goal.peers)?;
        let settle = cluster.metric("flannel_settle_seconds_sum")? * 1000.0;
        let Goal { peers, .. } = goal;
        figures.push(Figure::new(format!("{peers} peers: settle"), settle, "ms").at_most(goal.settle_ms));
        let times =
            (0..CHANGES).map(|n| one_change(&cluster, peers + n)).collect::<anyhow::Result<Vec<_>>>()?;
        figures.push(Figure::median(format!("{peers} peers: one change, store to kernel"), times));
        let memory = resident_mb(&cluster)?;
        let note = format!("after {CHANGES} more changes");
        figures.push(
            Figure::new(format!("{peers} peers: RSS"), memory, "MB").at_most(goal.memory_mb).note(note),
        );
    }
    Ok(figures)
}

/// Adds a peer and waits for the kernel's notice of its route.
fn one_change(cluster: &Cluster, number: u32) -> anyhow::Result<Duration> {
    let subnet: IpNet = format!("11.{}.{}.0/24", 1 + (number >> 8), number & 255).parse()?;
    cluster.inside(|eye| {
        let begun = Instant::now();
        cluster.add_peer(number)?;
        while eye.watch.wait_at_most(LIMIT)? != Some(Notice::Route(subnet)) {
            anyhow::ensure!(begun.elapsed() < LIMIT, "no route to {subnet} after {LIMIT:?}");
        }
        Ok(begun.elapsed())
    })
}

fn resident_mb(cluster: &Cluster) -> anyhow::Result<f64> {
    let pid = cluster.node()?.flanneld().pid().context("flanneld is gone")?;
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib / 1024.0)
}
