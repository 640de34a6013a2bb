//! What can go wrong in a lab, with the object, the cause and the way out in words.

use std::error::Error;
use std::io;
use std::path::Path;
use std::time::Duration;

use flannel_cni::runtime::LoadError;

/// Why the lab could not do something.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    #[error("a lab is made of namespaces, which only root may create: run it with sudo")]
    NotRoot,
    /// Something that is needed is not there, and where it is or how to get it.
    #[error("{0}")]
    Missing(String),
    #[error("{name:?} is no name for a {what}: use 1 to {most} small letters, digits and dashes")]
    BadName { what: &'static str, name: String, most: usize },
    #[error("no topology of {racks} racks and {nodes} nodes: {why}")]
    Topology { racks: usize, nodes: usize, why: &'static str },
    #[error("no etcd of {0} members: 1, 3 or 5 make sense")]
    Members(usize),
    #[error("lab {0} is there already: take it down with `flannelctl lab down --name {0}`")]
    Exists(String),
    #[error("no lab {0}: bring one up with `flannelctl lab up --name {0}`")]
    NoLab(String),
    #[error("this shell is inside the lab ({0}): leave it first")]
    Inside(String),
    #[error("{0} is powered off: power it on with `flannelctl lab heal {0}`")]
    PoweredOff(String),
    /// Something that the lab does, or has others do, went wrong.
    #[error("{what}: {why}")]
    Failed {
        /// What was tried, or what is wrong.
        what: String,
        /// Why, in words of whoever knows.
        why: String,
    },
    /// The system or a plugin does not do something.
    #[error("cannot {what}: {source}")]
    System { what: String, source: Box<dyn Error + Send + Sync> },
    #[error(transparent)]
    Network(#[from] LoadError),
    #[error("flanneld on {node} has ended; its last words:\n{log}")]
    FlanneldEnded { node: String, log: String },
    #[error("{from} gets no answer from {to}: {why}")]
    NoAnswer { from: String, to: String, why: String },
    #[error("waited {limit:?} for {what}: {last}")]
    Timeout { what: String, limit: Duration, last: String },
    #[error("interrupted")]
    Interrupted,
}

impl LabError {
    pub(crate) fn failed(what: impl ToString, why: impl ToString) -> Self {
        Self::Failed { what: what.to_string(), why: why.to_string() }
    }

    /// Turns an I/O error into one that names the file.
    pub(crate) fn file(act: &str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        let what = format!("{act} {}", path.as_ref().display());
        move |source| Self::System { what, source: source.into() }
    }
}
