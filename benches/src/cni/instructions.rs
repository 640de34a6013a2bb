//! How many instructions the calls for one pod take, counted by valgrind: the same on a busy machine and on an idle
//! one, to half a percent. The bounds guard the plugins against getting slower unnoticed.

use anyhow::{Context, ensure};
use serde_json::Value;

use super::chain::{Contender, Pod, Ports, run};
use super::{node, size};
use crate::figure::Figure;

/// Thousands of instructions when they were last looked at. To raise one, write the new count here, and in the
/// commit what it buys.
const COUNTS: [(&str, f64); 4] = [
    ("ADD of flannel", 260.0),
    ("ADD of portmap", 275.0),
    ("DEL of portmap", 212.0),
    ("DEL of flannel", 124.0),
];
/// What a compiler or a kernel may add before it is a regression.
const MARGIN: f64 = 1.15;
const HOW: &str =
    "by valgrind; if it must be more: COUNTS in benches/src/cni/instructions.rs, with the reason";
const BUILD: &str = "`cargo build --profile cni --target x86_64-unknown-linux-musl -p flannel-cni`";

/// Counts the calls of one pod with a host port, and shows that the bounds notice a call that does more.
pub(super) fn measure(ours: &Contender) -> anyhow::Result<Vec<Figure>> {
    let is_shipped = size::programs().first().is_some_and(|(library, _)| *library == size::SHIPPED);
    ensure!(is_shipped, "the bounds are those of the program that is shipped, which is not built: {BUILD}");
    let pods: Vec<Pod> = (0..2).map(Pod::new).collect();
    node::make_pods(pods.iter().map(|pod| pod.id.clone()))?;
    ours.add(&pods[0], Ports::One("nftables"))?;
    let counts = cycle(ours, &pods[1], Ports::One("nftables"))?;
    let [_, more, ..] = cycle(ours, &pods[1], Ports::Twenty("nftables"))?;
    // Another processor has other instructions.
    let are_bounds_known = cfg!(target_arch = "x86_64");
    let figure = |((what, known), count): (&(&str, f64), f64)| {
        let figure = Figure::new(format!("{what}: instructions"), count, "k").note(HOW);
        if are_bounds_known { figure.at_most(bound(*known)) } else { figure }
    };
    let mut figures: Vec<Figure> = COUNTS.iter().zip(counts).map(figure).collect();
    let canary = Figure::new("ADD of portmap with 20 ports: instructions", more, "k");
    let canary = canary.note("above the bound of one port, or the bounds would notice nothing");
    figures.push(if are_bounds_known { canary.at_least(bound(COUNTS[1].1)) } else { canary });
    Ok(figures)
}

fn bound(known: f64) -> f64 {
    (known * MARGIN).round()
}

/// Attaches and detaches a pod; thousands of instructions, in the order of [`COUNTS`].
fn cycle(ours: &Contender, pod: &Pod, ports: Ports) -> anyhow::Result<[f64; 4]> {
    let (result, flannel) = counted(ours, "ADD", "flannel", pod, &ours.flannel())?;
    let result: Value = serde_json::from_slice(&result)?;
    let (_, portmap) = counted(ours, "ADD", "portmap", pod, &ours.portmap(pod, ports, Some(&result)))?;
    let (_, no_portmap) = counted(ours, "DEL", "portmap", pod, &ours.portmap(pod, ports, None))?;
    let (_, no_flannel) = counted(ours, "DEL", "flannel", pod, &ours.flannel())?;
    Ok([flannel, portmap, no_portmap, no_flannel])
}

fn counted(
    contender: &Contender,
    verb: &str,
    plugin: &str,
    pod: &Pod,
    config: &Value,
) -> anyhow::Result<(Vec<u8>, f64)> {
    let file = "/run/callgrind";
    let out = format!("--callgrind-out-file={file}");
    let valgrind = ["valgrind", "--tool=callgrind", "--log-file=/run/valgrind", &out];
    let missing = "instructions are counted by valgrind, which is not installed or does not run here";
    let (answer, _) =
        run(&mut contender.call_under(&valgrind, verb, plugin, pod)?, config).context(missing)?;
    let text = std::fs::read_to_string(file).context(missing)?;
    let total =
        text.lines().find_map(|line| line.strip_prefix("totals: ").or(line.strip_prefix("summary: ")));
    let total: f64 = total.context("valgrind gave no sum")?.trim().parse()?;
    ensure!(total > 0.0, "valgrind counted nothing");
    Ok((answer, total / 1e3))
}
