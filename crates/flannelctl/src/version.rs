//! `flannelctl version`: our own version, and that of the flanneld on this node if it says.

use std::io::Write;

use flannel_status::Life;
use serde::Serialize;

use crate::daemon;
use crate::evidence::{EvidenceError, NodeArguments, read_report};

#[derive(Serialize)]
struct Versions {
    flannelctl: &'static str,
    flanneld: Option<Daemon>,
}

#[derive(Serialize)]
struct Daemon {
    version: String,
    /// None where the report cannot be understood.
    life: Option<Life>,
}

pub fn run(node: &NodeArguments, out: &mut dyn Write) -> anyhow::Result<()> {
    let flanneld = daemon(&node.subnet_file)?;
    let versions = Versions { flannelctl: env!("CARGO_PKG_VERSION"), flanneld };
    node.output.write(out, &versions, || text(&versions))
}

/// A node without a report has no daemon worth a word, which is no failure here.
fn daemon(subnet_file: &str) -> Result<Option<Daemon>, EvidenceError> {
    match read_report(subnet_file) {
        Ok((_, report, _)) => Ok(Some(Daemon {
            life: Some(daemon::find(report.pid).life),
            version: report.version.into_owned(),
        })),
        Err(EvidenceError::NoReport { .. }) => Ok(None),
        Err(EvidenceError::OtherVersion { theirs, .. }) => Ok(Some(Daemon { version: theirs, life: None })),
        Err(error) => Err(error),
    }
}

fn text(versions: &Versions) -> String {
    let mut text = format!("flannelctl {}\n", versions.flannelctl);
    if let Some(Daemon { version, life }) = &versions.flanneld {
        let life = match life {
            None | Some(Life::Running) => "",
            Some(Life::Suspended) => " (suspended)",
            Some(Life::NotSeen) => " (not running)",
        };
        text += &format!("flanneld {version}{life}\n");
    }
    text
}
