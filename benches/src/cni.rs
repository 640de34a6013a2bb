//! The CNI plugins against Go's, called as a container runtime calls them, in one run on one node.
//!
//! The node is a set of namespaces; the bench runs itself again in it, and what it measured comes back as JSON.

mod chain;
mod compare;
mod instructions;
mod node;
mod size;
mod trace;

use crate::figure::Figure;
use chain::Contender;

/// The word that tells the bench that it runs on the node.
pub const ON_NODE: &str = "--on-node";

/// Compares, and tells where the time goes.
pub fn measure() -> anyhow::Result<Vec<Figure>> {
    let mut figures = node::run("compare")?;
    figures.extend(node::run("trace")?);
    Ok(figures)
}

/// Looks how large the program is.
pub fn weigh() -> anyhow::Result<Vec<Figure>> {
    size::measure()
}

/// Counts instructions, which no busy machine changes.
pub fn count() -> anyhow::Result<Vec<Figure>> {
    node::run("instructions")
}

/// A part of the above, on the node.
pub fn on_node(part: &str) -> anyhow::Result<Vec<Figure>> {
    match part {
        "compare" => compare::measure(&Contender::all()?),
        "trace" => trace::measure(&Contender::shipped()?),
        "instructions" => instructions::measure(&Contender::shipped()?),
        _ => anyhow::bail!("there is no part {part:?}"),
    }
}
