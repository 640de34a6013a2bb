//! How many instructions one ADD takes, counted by valgrind: the same on a busy machine and on an idle one.

use anyhow::{Context, ensure};
use serde_json::Value;

use super::chain::{Contender, Pod, Ports, run};
use super::{node, size};
use crate::figure::Figure;

/// Thousands of instructions on the day when they were last looked at; more than a tenth above is a regression, or
/// a reason to write a new number down.
const BOUNDS: [(&str, f64); 4] = [
    ("ADD of flannel", 375.0),
    ("ADD of portmap", 415.0),
    ("DEL of portmap", 510.0),
    ("DEL of flannel", 180.0),
];
const MARGIN: f64 = 1.1;
const BUILD: &str = "`cargo build --profile cni --target x86_64-unknown-linux-musl -p flannel-cni`";

/// Counts the calls of one pod with a host port.
pub(super) fn measure(ours: &Contender) -> anyhow::Result<Vec<Figure>> {
    let is_shipped = size::programs().first().is_some_and(|(library, _)| *library == size::SHIPPED);
    ensure!(is_shipped, "the bounds are those of the program that is shipped, which is not built: {BUILD}");
    let pods: Vec<Pod> = (0..2).map(Pod::new).collect();
    node::make_pods(pods.iter().map(|pod| pod.id.clone()))?;
    let (first, pod) = (&pods[0], &pods[1]);
    let ports = Ports::One("nftables");
    ours.add(first, ports)?;
    let (result, flannel) = counted(ours, "ADD", "flannel", pod, &ours.flannel())?;
    let result: Value = serde_json::from_slice(&result)?;
    let (_, portmap) = counted(ours, "ADD", "portmap", pod, &ours.portmap(pod, ports, Some(&result)))?;
    let (_, no_portmap) = counted(ours, "DEL", "portmap", pod, &ours.portmap(pod, ports, None))?;
    let (_, no_flannel) = counted(ours, "DEL", "flannel", pod, &ours.flannel())?;
    let counts = [flannel, portmap, no_portmap, no_flannel];
    let figure = |((what, bound), count): (&(&str, f64), f64)| {
        let figure = Figure::new(format!("{what}: instructions"), count / 1e3, "k").note("by valgrind");
        // Another processor has other instructions.
        if cfg!(target_arch = "x86_64") { figure.at_most((bound * MARGIN).round()) } else { figure }
    };
    Ok(BOUNDS.iter().zip(counts).map(figure).collect())
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
    let answer = run(&mut contender.call_under(&valgrind, verb, plugin, pod)?, config).context(missing)?;
    let text = std::fs::read_to_string(file).context(missing)?;
    let total =
        text.lines().find_map(|line| line.strip_prefix("totals: ").or(line.strip_prefix("summary: ")));
    let total: f64 = total.context("valgrind gave no sum")?.trim().parse()?;
    ensure!(total > 0.0, "valgrind counted nothing");
    Ok((answer, total))
}
