//! Measures flanneld and the CNI plugins against the goals: a table for people, `target/bench.json` for programs.
//!
//! One node of the lab runs the real daemon; its peers are leases in the store, in Go flannel's form. Times are
//! taken inside the node's network, from the moment that a change was acknowledged by the kernel or the store.
//! Without arguments all parts run, else those that are named.

mod cluster;
mod cni;
mod crowd;
mod drift;
mod figure;
mod idle;
mod masq;
mod nic;
mod rules;
mod scale;
mod stores;

use std::io::Write;

use anyhow::Context;
use figure::{Figure, table};

const RESULT: &str = "target/bench.json";

/// One part of the run.
type Measurement = fn() -> anyhow::Result<Vec<Figure>>;

/// Every part: its name, what it does, and how.
const PARTS: [(&str, &str, Measurement); 11] = [
    ("drift", "breaking 20 objects of each kind", drift::measure),
    ("nic", "pulling the interface away and giving it back", nic::measure),
    ("scale", "1,000 and 5,000 peers", scale::measure),
    ("stores", "5,000 peers in etcd and on Kubernetes, by Go's flanneld and by ours", stores::measure),
    ("idle", "counting wake-ups for 65 seconds", idle::measure),
    ("masq", "first packets by lists of 4 and of 1,000 networks", masq::measure),
    ("rules", "breaking rules, and counting programs in a quiet minute", rules::measure),
    ("crowd", "a pass beside 60,000 rules of kube-proxy", crowd::measure),
    ("cni", "attaching pods, by Go's plugins and by ours", cni::measure),
    ("size", "weighing the program of the plugins", cni::weigh),
    ("instructions", "counting the instructions of the plugins", cni::count),
];

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, part] = &arguments[..]
        && flag == cni::ON_NODE
    {
        let figures = cni::on_node(part)?;
        writeln!(std::io::stdout(), "{}", serde_json::to_string(&figures)?)?;
        return Ok(());
    }
    let known = |name: &String| PARTS.iter().any(|(part, ..)| part == name);
    if let Some(unknown) = arguments.iter().find(|name| !known(name)) {
        anyhow::bail!(
            "there is no part {unknown:?}: the parts are {}",
            PARTS.map(|(name, ..)| name).join(", ")
        );
    }
    let mut figures: Vec<Figure> = Vec::new();
    for (name, what, measure) in PARTS {
        if arguments.is_empty() || arguments.iter().any(|wanted| wanted == name) {
            writeln!(std::io::stderr(), "{name}: {what} ...")?;
            figures.extend(measure().with_context(|| name.to_owned())?);
        }
    }
    writeln!(std::io::stdout(), "{}", table(&figures))?;
    let text = serde_json::to_string_pretty(&figures)?;
    std::fs::create_dir_all("target")?;
    std::fs::write(RESULT, text).with_context(|| format!("cannot write {RESULT}"))?;
    let missed = figures.iter().filter(|figure| figure.is_met() == Some(false)).count();
    anyhow::ensure!(
        missed == 0,
        "{missed} goals are missed (see the table; on a busy machine, run it again)"
    );
    Ok(())
}
