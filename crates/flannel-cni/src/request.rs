//! One call of a plugin: environment and standard input, read and checked once.

use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::json::Object;
use crate::version::Version;

/// What a plugin is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Attach a container.
    Add,
    /// Detach it, and free everything.
    Del,
    /// Is it attached as it should be?
    Check,
    /// Free what belongs to no container.
    Gc,
    /// Can containers be attached?
    Status,
    /// Which versions are spoken?
    Version,
}

/// One call of a plugin.
#[derive(Clone, Debug)]
pub struct Request {
    /// What to do.
    pub command: Command,
    /// The container; empty for GC and STATUS.
    pub container_id: String,
    /// The container's network namespace; none if the runtime does not know it (any more).
    pub netns: Option<PathBuf>,
    /// The name of the interface inside the container; empty for GC and STATUS.
    pub ifname: String,
    /// `CNI_ARGS`, as it is.
    pub args: String,
    /// `CNI_PATH`, split.
    pub path: Vec<PathBuf>,
    /// The version of the configuration.
    pub version: Version,
    /// The network's name.
    pub network: String,
    /// The whole configuration.
    pub config: Map<String, Value>,
}

impl Request {
    /// The configuration, to be read as Go reads it.
    pub fn config(&self) -> Object<'_> {
        Object::new(&self.config)
    }
}
