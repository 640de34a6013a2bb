//! `flannelctl lease`: who holds which subnet in a store, and giving one back.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use flannel_leases::{Directory, Snapshot};
use flannel_plan::lease::Lease;
use flannel_plan::quoted::line;
use serde::Serialize;

use flannel_screen::{Form, Screen, listed, stacked, table_text};

/// List or release the leases of a lease directory
#[derive(clap::Subcommand)]
pub enum Command {
    /// List who holds which subnet
    List {
        /// The lease directory
        #[command(flatten)]
        store: Store,
        /// The form of the output
        #[arg(short, long, value_enum, default_value = "text")]
        output: Form,
    },
    /// Give the subnets of a node back, so that others can have them
    ///
    /// For nodes that are gone for good: other nodes drop their routes to it at once. A flanneld that still runs
    /// under that name claims its subnets again.
    Release {
        /// The lease directory
        #[arg(long, value_name = "DIR")]
        lease_dir: PathBuf,
        /// The node's name, as `flannelctl lease list` shows it
        owner: String,
    },
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
pub struct Store {
    /// The lease directory
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The lease directory, as flanneld names it
    #[arg(long, value_name = "DIR")]
    lease_dir: Option<PathBuf>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Listing {
    leases: Vec<Arc<Lease>>,
    faults: Vec<String>,
}

pub fn run(command: &Command, out: &mut dyn Write) -> anyhow::Result<()> {
    match command {
        Command::List { store, output } => list(store, *output, out),
        Command::Release { lease_dir, owner } => release(lease_dir, owner, out),
    }
}

fn list(store: &Store, output: Form, out: &mut dyn Write) -> anyhow::Result<()> {
    let dir = store.dir.as_ref().or(store.lease_dir.as_ref()).context("no lease directory is named")?;
    let snapshot = Directory::list(dir)?;
    let listing = Listing { faults: faults(&snapshot), leases: snapshot.peers };
    output.write(out, &listing, || {
        let mut table = Screen::of_stdout().table(&["NODE", "SUBNET", "PUBLIC IP", "BACKEND"]);
        table.add_rows(listing.leases.iter().map(|lease| row(lease)));
        page(&table, &listing.faults)
    })
}

fn release(dir: &Path, owner: &str, out: &mut dyn Write) -> anyhow::Result<()> {
    let lease = Directory::release(dir, owner)?;
    let subnets = listed(lease.subnets.iter().map(|(_, subnet)| subnet));
    Ok(writeln!(out, "released {subnets} of {owner}")?)
}

/// What cannot be read of a store, in words.
pub fn faults(snapshot: &Snapshot) -> Vec<String> {
    let mut faults: Vec<_> = snapshot.faults.iter().map(ToString::to_string).collect();
    let config = snapshot.config.as_ref().err().map(ToString::to_string);
    faults.extend(config.filter(|config| !faults.contains(config)));
    faults
}

/// A lease as a row: node, subnets, public addresses, backend. Strangers wrote it.
pub fn row(lease: &Lease) -> Vec<String> {
    let backend = &lease.announcement.backend;
    vec![
        line(&lease.owner).to_string(),
        stacked(lease.subnets.iter().map(|(_, subnet)| subnet)),
        stacked(lease.announcement.public.iter().map(|(_, address)| address)),
        if backend.is_empty() { "-".to_owned() } else { line(backend).to_string() },
    ]
}

/// A table of leases, and what could not be read.
pub fn page(leases: &comfy_table::Table, faults: &[String]) -> String {
    let mut text = if leases.is_empty() { "no leases\n".to_owned() } else { table_text(leases) };
    text.extend(faults.iter().map(|fault| format!("! {fault}\n")));
    text
}

#[cfg(test)]
mod tests {
    use flannel_plan::family::ByFamily;
    use flannel_plan::lease::Announcement;

    use super::*;

    #[test]
    fn a_lease_is_shown_whole_and_acts_on_no_terminal() {
        let long = "x".repeat(253);
        let lease = |owner: &str| Lease {
            owner: owner.to_owned(),
            subnets: ByFamily { v4: "10.244.1.0/24".parse().ok(), v6: None },
            announcement: Announcement { backend: "a\u{1b}[2J".to_owned(), ..Announcement::default() },
            since: 1,
        };
        assert_eq!(row(&lease(&long)), [&long, "10.244.1.0/24", "", "a\u{fffd}[2J"]);
        assert_eq!(row(&lease("a\nb"))[0], "a b");
    }
}
