//! `flannelctl lease`: who holds which subnet in a store, and giving one back.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use flannel_leases::{Directory, Snapshot};
use flannel_plan::lease::Lease;
use flannel_plan::quoted::quoted;
use serde::Serialize;

use flannel_screen::{Form, Screen, listed, stacked, table_text, write_json};

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

/// Lists or releases leases.
pub fn run(command: &Command, out: &mut dyn Write) -> anyhow::Result<()> {
    match command {
        Command::List { store, output } => list(store, *output, out),
        Command::Release { lease_dir, owner } => release(lease_dir, owner, out),
    }
}

fn list(store: &Store, output: Form, out: &mut dyn Write) -> anyhow::Result<()> {
    let dir = store.dir.as_ref().or(store.lease_dir.as_ref()).context("no lease directory is named")?;
    let listing = Listing::from(Directory::list(dir)?);
    match output {
        Form::Json => write_json(out, &listing),
        Form::Text => Ok(out.write_all(listing.text(Screen::of_stdout()).as_bytes())?),
    }
}

fn release(dir: &Path, owner: &str, out: &mut dyn Write) -> anyhow::Result<()> {
    let lease = Directory::release(dir, owner)?;
    let subnets = listed(lease.subnets.iter().map(|(_, subnet)| subnet));
    Ok(writeln!(out, "released {subnets} of {owner}")?)
}

impl From<Snapshot> for Listing {
    fn from(snapshot: Snapshot) -> Self {
        let mut faults: Vec<_> = snapshot.faults.iter().map(ToString::to_string).collect();
        let config = snapshot.config.err().map(|fault| fault.to_string());
        faults.extend(config.filter(|config| !faults.contains(config)));
        Self { leases: snapshot.peers, faults }
    }
}

impl Listing {
    fn text(&self, screen: Screen) -> String {
        let mut text = match self.leases.len() {
            0 => "no leases\n".to_owned(),
            _ => table_text(&self.table(screen)),
        };
        text.extend(self.faults.iter().map(|fault| format!("! {fault}\n")));
        text
    }

    fn table(&self, screen: Screen) -> comfy_table::Table {
        let mut table = screen.table(&["NODE", "SUBNET", "PUBLIC IP", "BACKEND"]);
        table.add_rows(self.leases.iter().map(|lease| {
            let backend = &lease.announcement.backend;
            [
                quoted(&lease.owner).to_string(),
                stacked(lease.subnets.iter().map(|(_, subnet)| subnet)),
                stacked(lease.announcement.public.iter().map(|(_, address)| address)),
                if backend.is_empty() { "-".to_owned() } else { quoted(backend).to_string() },
            ]
        }));
        table
    }
}
