//! Scenes with faults: something is broken, flanneld repairs it, and a clock runs.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Context;
use flannel_lab::{Fault, Lab, Node};
use flannel_plan::report::NodeReport;

use super::overlay::first_pod;
use super::stage::Stage;

/// Longer than any repair should take.
const LIMIT: Duration = Duration::from_secs(30);
/// How many pings run while flanneld is restarted, and how far apart.
const PINGS: &str = "60";
const PING_SECONDS: &str = "0.01";

/// What is broken, and what a user would notice if it stayed so.
const FAULTS: [(Fault, &str); 4] = [
    (Fault::Route, "pods of worker3 are unreachable from here"),
    (Fault::Fdb, "packets to worker3 vanish without a word"),
    (Fault::Mac, "packets from all peers are dropped"),
    (Fault::Link, "all peers are lost, with every route and entry"),
];

/// Breaks four things on worker1, and times each repair.
pub fn faults(stage: &mut Stage<'_>, lab: &Lab) -> anyhow::Result<()> {
    stage.scene("Breaking it on purpose")?;
    stage.say(
        "The kernel tells flanneld of every change. It looks at everything, compares it with what should be,\n\
         and changes only what differs. Watch worker1:",
    )?;
    let (from, to) = (first_pod(lab.node("worker1")?)?, first_pod(lab.node("worker3")?)?.address());
    for (fault, harm) in FAULTS {
        stage.interrupt.check()?;
        let broken = lab.break_node("worker1", fault, Some("worker3"))?;
        let took = broken.wait_repaired(LIMIT)?;
        stage.bad(&format!("  ✗ {}  ({harm})", broken.command()))?;
        let answer = from.wait_ping(to, LIMIT)?.as_secs_f64() * 1000.0;
        stage.good(&format!(
            "  ✓ all as before after {} ms; a ping to {to} takes {answer:.2} ms",
            took.as_millis()
        ))?;
    }
    witness(stage, lab)
}

/// flanneld's own count of what it put right, from its report: a second witness.
fn witness(stage: &mut Stage<'_>, lab: &Lab) -> anyhow::Result<()> {
    let worker1 = lab.node("worker1")?;
    let path = worker1.path("/run/flannel/state.json");
    let repairs = stage.interrupt.wait_for("flanneld's report of four repairs", LIMIT, || {
        let text = fs::read_to_string(&path).map_err(|why| why.to_string())?;
        let report: NodeReport<'_> = serde_json::from_str(&text).map_err(|why| why.to_string())?;
        let count = |kind| {
            report.repairs.iter().filter(|repair| repair.kind == kind).map(|repair| repair.count).sum()
        };
        let counts: [u64; 3] = ["link", "fdb", "route"].map(count);
        // The device twice (its MAC, then itself); with it three peers' entries, one of which was broken before.
        let is_all = counts.iter().zip([2, 4, 4]).all(|(count, least)| *count >= least);
        if is_all { Ok(counts) } else { Err(format!("it counts {counts:?}")) }
    });
    let [links, entries, routes] = repairs?;
    Ok(stage.say(&format!(
        "  flanneld's own count: {links} repairs of the device, {entries} of FDB entries, {routes} of routes"
    ))?)
}

/// Restarts flanneld while a pod pings; no packet may be lost.
pub fn restart(stage: &mut Stage<'_>, lab: &Lab) -> anyhow::Result<()> {
    stage.scene("Restarting flanneld under traffic")?;
    stage.say(
        "Packets are the kernel's business. flanneld leaves everything in place when it stops, and finds it\n\
         in place when it starts again.",
    )?;
    let worker1 = lab.node("worker1")?;
    let (from, to) = (first_pod(worker1)?, first_pod(lab.node("worker3")?)?.address().to_string());
    let mut ping = from.command("ping", ["-q", "-n", "-i", PING_SECONDS, "-c", PINGS, "-W", "1", &to]);
    let ping = ping.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cannot run ping")?;
    let restarted = worker1.restart_flanneld().and_then(|()| worker1.wait_ready(LIMIT));
    let said = ping.wait_with_output().context("cannot run ping")?;
    restarted?;
    let said = String::from_utf8_lossy(&said.stdout);
    let counts = said.lines().find(|line| line.contains("packets transmitted")).unwrap_or_default();
    if !counts.contains(" 0% packet loss") {
        anyhow::bail!("a restart of flanneld lost packets: {counts}");
    }
    Ok(stage.good(&format!("  ✓ {counts}"))?)
}

/// Cuts worker3's power and boots it again: the same subnet, the same MAC.
pub fn reboot(stage: &mut Stage<'_>, lab: &Lab) -> anyhow::Result<()> {
    stage.scene("Power failure")?;
    let worker3 = lab.node("worker3")?;
    let (from, before) = (first_pod(lab.node("worker1")?)?, bridge(worker3)?);
    let start = Instant::now();
    lab.break_node("worker3", Fault::Power, None)?;
    stage.bad("  ✗ worker3 is off: its kernel state, its /run and its pods are gone; its disk and its lease are not")?;
    lab.heal("worker3", LIMIT)?;
    let (after, to) = (bridge(worker3)?, first_pod(worker3)?.address());
    from.wait_ping(to, LIMIT)?;
    let seconds = start.elapsed().as_secs_f64();
    stage.good(&format!(
        "  ✓ {seconds:.1} s later it is back with {after} (before: {before}), and its pod answers at {to}"
    ))?;
    Ok(())
}

/// The subnet of a node's pods, with the address of its bridge.
fn bridge(node: &Node) -> anyhow::Result<String> {
    let subnet = node.pod_subnet()?;
    Ok(format!("{}/{}", subnet.hosts().next().unwrap_or(subnet.addr()), subnet.prefix_len()))
}
