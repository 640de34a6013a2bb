//! Measures flanneld against the goals: a table for people, `target/bench.json` for programs.
//!
//! One node of the lab runs the real daemon; its peers are leases in the store, in Go flannel's form. Times are
//! taken inside the node's network, from the moment that a change was acknowledged by the kernel or the store.

mod cluster;
mod drift;
mod figure;
mod idle;
mod nic;
mod scale;

use std::io::Write;

use anyhow::Context;
use figure::{Figure, table};

const RESULT: &str = "target/bench.json";

/// One part of the run.
type Measurement = fn() -> anyhow::Result<Vec<Figure>>;

fn main() -> anyhow::Result<()> {
    let mut figures: Vec<Figure> = Vec::new();
    let steps: [(&str, Measurement); 4] = [
        ("drift: breaking 20 objects of each kind", drift::measure),
        ("nic: pulling the interface away and giving it back", nic::measure),
        ("scale: 1,000 and 5,000 peers", scale::measure),
        ("idle: counting wake-ups for 65 seconds", idle::measure),
    ];
    for (what, measure) in steps {
        writeln!(std::io::stderr(), "{what} ...")?;
        figures.extend(measure().with_context(|| what.to_owned())?);
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
