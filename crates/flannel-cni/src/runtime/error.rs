//! Why a runtime could not do what was asked: which plugin, at which command, and what it said.

use super::cache::CacheError;
use crate::error::CniError;

/// Why an operation on a network failed.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// A plugin failed, or is not there.
    #[error("plugin {plugin} failed ({command}): {source}")]
    Plugin {
        /// Its type, and its name if it has one.
        plugin: String,
        /// What it was asked to do.
        command: String,
        source: CniError,
    },
    /// A name, a version or a remembered result that cannot be used.
    #[error(transparent)]
    Unusable(#[from] CniError),
    /// The network has no plugins.
    #[error("network {0:?} has no plugins")]
    NoPlugins(String),
    /// The network's version is too old.
    #[error("configuration version {0:?} does not support the CHECK command")]
    NoCheck(String),
    /// What is remembered cannot be read or written.
    #[error("network {network:?}: {source}")]
    Cache { network: String, source: CacheError },
    /// The list of what is remembered cannot be read.
    #[error(transparent)]
    Records(#[from] CacheError),
    /// An attachment of nobody could not be removed.
    #[error("failed to delete stale attachment {container_id} {ifname}: {source}")]
    Stale {
        container_id: String,
        /// Its interface.
        ifname: String,
        source: Box<RuntimeError>,
    },
    /// A failed ADD could not be undone entirely.
    #[error("{why}; and it could not be undone: {}", lines(.left))]
    NotUndone {
        /// Why the ADD failed.
        #[source]
        why: Box<RuntimeError>,
        /// What failed when it was undone.
        left: Vec<RuntimeError>,
    },
    /// Several things failed.
    #[error("{}", lines(.0))]
    Several(Vec<RuntimeError>),
}

impl RuntimeError {
    /// What the plugin said, if it was one plugin that failed; its code tells a runtime whether to try again.
    pub fn answer(&self) -> Option<&CniError> {
        match self {
            Self::Plugin { source, .. } | Self::Unusable(source) => Some(source),
            Self::Stale { source, .. } => source.answer(),
            Self::NotUndone { why, .. } => why.answer(),
            _ => None,
        }
    }

    /// Nothing, the only failure, or all of them.
    pub(super) fn all(mut failures: Vec<Self>) -> Result<(), Self> {
        match failures.len() {
            0 => Ok(()),
            1 => failures.pop().map_or(Ok(()), Err),
            _ => Err(Self::Several(failures)),
        }
    }
}

fn lines(failures: &[RuntimeError]) -> String {
    failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
