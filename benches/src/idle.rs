//! How often a daemon wakes that has nothing to do, counted by the kernel over all its threads.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::cluster::Cluster;
use crate::figure::Figure;

/// A little more than the daemon's own safety look.
const WATCHED: Duration = Duration::from_secs(65);
const GOAL: f64 = 2.0;

/// Waits for the node to be quiet, then counts.
pub fn measure() -> anyhow::Result<Vec<Figure>> {
    let cluster = Cluster::up(20)?;
    let pid = cluster.node()?.flanneld().pid().context("flanneld is gone")?;
    wait_for_quiet(pid)?;
    let before = switches(pid)?;
    std::thread::sleep(WATCHED);
    let woken = switches(pid)?.saturating_sub(before);
    let passes = wakes_of_threads(woken);
    let note = format!("{woken} times off the processor in {} s", WATCHED.as_secs());
    Ok(vec![
        Figure::new("idle: wake-ups a minute", passes * 60.0 / WATCHED.as_secs_f64(), "")
            .at_most(GOAL)
            .note(note),
    ])
}

/// Every wake-up ends with one voluntary switch: going back to sleep.
fn wakes_of_threads(switches: u64) -> f64 {
    f64::from(u32::try_from(switches).unwrap_or(u32::MAX))
}

/// IPv6 addresses of new devices are checked for doubles for up to two seconds, and each one is a notice.
fn wait_for_quiet(pid: u32) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mut last = (switches(pid)?, Instant::now());
    while last.1.elapsed() < Duration::from_secs(3) {
        anyhow::ensure!(begun.elapsed() < Duration::from_secs(60), "flanneld does not come to rest");
        std::thread::sleep(Duration::from_millis(100));
        let now = switches(pid)?;
        if now != last.0 {
            last = (now, Instant::now());
        }
    }
    Ok(())
}

fn switches(pid: u32) -> anyhow::Result<u64> {
    let mut sum = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let status = fs::read_to_string(thread?.path().join("status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        sum += line.context("no count of switches")?.trim().parse::<u64>()?;
    }
    Ok(sum)
}
