//! `flannelctl store`: everything that a lease store holds, shown, saved to a file, or put into another store.

mod file;
mod flags;

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use flannel_plan::quoted::line;

use file::{Held, Holdings};
use flags::StoreFlags;
use flannel_screen::{Form, Screen, stacked};

use crate::lease;

/// Show, export or import everything that a lease store holds
#[derive(clap::Subcommand)]
pub enum Command {
    /// Show the net-conf and all leases of a store
    Show {
        /// The store
        #[command(flatten)]
        store: StoreFlags,
        /// The form of the output: JSON is that of `store export`
        #[arg(short, long, value_enum, default_value = "text")]
        output: Form,
    },
    /// Write everything that a store holds to standard output, for `store import`
    Export {
        /// The store
        #[command(flatten)]
        store: StoreFlags,
        /// Write it to this file
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
    /// Put what was exported from one store into another
    ///
    /// What is there already and says the same is left; what says something else is an error, and stays. Subnets of
    /// Kubernetes nodes are their podCIDRs, which only Kubernetes gives: nothing can be imported there.
    Import {
        /// The store
        #[command(flatten)]
        store: StoreFlags,
        /// What `flannelctl store export` wrote; - for standard input
        file: PathBuf,
    },
}

pub fn run(command: &Command, out: &mut dyn Write) -> anyhow::Result<()> {
    match command {
        Command::Show { store, output: Form::Text } => {
            let holdings = store.read()?;
            Ok(out.write_all(text(&holdings, Screen::of_stdout()).as_bytes())?)
        }
        Command::Show { store, output: Form::Json } | Command::Export { store, to: None } => {
            export(store, out)
        }
        Command::Export { store, to: Some(path) } => {
            let mut bytes = Vec::new();
            export(store, &mut bytes)?;
            fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
        }
        Command::Import { store, file } => import(store, file, out),
    }
}

fn export(store: &StoreFlags, out: &mut dyn Write) -> anyhow::Result<()> {
    let holdings = store.read()?;
    // On the other stream, so that the file holds nothing else; nobody may be left to read it.
    for fault in &holdings.faults {
        let _ = writeln!(std::io::stderr(), "flannelctl: left out: {fault}");
    }
    Ok(writeln!(out, "{}", holdings.to_json()?)?)
}

fn import(store: &StoreFlags, path: &Path, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut text = String::new();
    if path == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
    } else {
        text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    }
    let holdings = Holdings::from_json(&text).with_context(|| format!("{} is no export", path.display()))?;
    if holdings.leases.is_empty() && holdings.config.is_none() {
        bail!("{} holds neither a net-conf nor leases", path.display());
    }
    store.write(&holdings)?;
    let config = if holdings.config.is_some() { "the net-conf and " } else { "" };
    Ok(writeln!(out, "{config}{} leases are in {store}", holdings.leases.len())?)
}

fn text(holdings: &Holdings, screen: Screen) -> String {
    let text = match &holdings.config {
        Some(config) => format!("net-conf  {}\n\n", one_line(config)),
        None => String::new(),
    };
    let mut table = screen.table(&["NODE", "SUBNET", "PUBLIC IP", "BACKEND", "DATA"]);
    table.add_rows(holdings.leases.iter().map(|Held { lease, reserved }| {
        let mut row = lease::row(lease);
        row[1] += if *reserved { " (reserved)" } else { "" };
        row.push(stacked(lease.announcement.detail.iter().map(|(_, data)| line(data.as_str()))));
        row
    }));
    text + &lease::page(&table, &holdings.faults)
}

/// A net-conf that was written on many lines is still one value.
fn one_line(config: &str) -> String {
    let value: Result<serde_json::Value, _> = serde_json::from_str(config);
    value.map_or_else(|_| config.trim().to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use flannel_plan::family::ByFamily;
    use flannel_plan::lease::{Announcement, BackendData, Lease};

    use super::*;

    #[test]
    fn what_a_backend_says_of_itself_acts_on_no_terminal() {
        let detail = ByFamily { v4: BackendData::from_json("{\"a\":\"\u{9b}2J\"}").unwrap(), v6: None };
        let announcement = Announcement { detail, ..Announcement::default() };
        let lease = Lease { owner: "a".to_owned(), subnets: ByFamily::default(), announcement, since: 1 };
        let holdings = Holdings { leases: vec![Held { lease, reserved: false }], ..Holdings::default() };
        let shown = text(&holdings, Screen { width: None, colour: false });
        assert!(shown.contains("{\"a\":\"\u{fffd}2J\"}"), "{shown:?}");
    }
}
