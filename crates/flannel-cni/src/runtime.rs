//! The other side of the protocol: what a container runtime does with plugins, as libcni does it.
//!
//! Takes a [`Network`] (a conflist) and a [`Container`], runs the plugins of the network one after the other as
//! programs, and gives the result of the last. What was attached is remembered in a cache that libcni reads too.

mod cache;
mod container;
mod error;
mod exec;
mod garbage;
mod list;
mod load;
mod network;
mod result;
mod task;

use std::path::PathBuf;

pub use cache::{CacheError, Record};
pub use container::Container;
pub use error::RuntimeError;
pub use exec::{Exec, RawExec};
pub use garbage::Valid;
pub use load::LoadError;
pub use network::{Network, NetworkError, Plugin};
pub use result::Answer;

use cache::Cache;

/// Where runtimes keep what they attached.
pub const CACHE: &str = "/var/lib/cni";

/// Calls the plugins of networks.
pub struct Runtime<'a> {
    path: Vec<PathBuf>,
    cache: Cache,
    exec: Box<dyn Exec + 'a>,
}

impl<'a> Runtime<'a> {
    /// A runtime that finds plugins in these folders, the first that has one wins.
    pub fn new(path: Vec<PathBuf>) -> Self {
        Self { path, cache: Cache::new(CACHE.into()), exec: Box::new(RawExec) }
    }

    /// The same with another folder for what it remembers.
    pub fn with_cache(self, folder: impl Into<PathBuf>) -> Self {
        Self { cache: Cache::new(folder.into()), ..self }
    }

    /// The same with plugins that are looked for and run elsewhere; the cache stays here.
    pub fn with_exec(self, exec: impl Exec + 'a) -> Self {
        Self { exec: Box::new(exec), ..self }
    }

    /// What is remembered of all networks, by the names of the files.
    pub fn records(&self) -> Result<Vec<Record>, RuntimeError> {
        Ok(self.cache.records()?)
    }
}
