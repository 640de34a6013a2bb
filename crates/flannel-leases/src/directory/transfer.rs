//! Filling a store with a net-conf and leases from elsewhere, for tools that move a cluster from one store to another.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::mpsc;

use flannel_plan::lease::Lease;

use super::lock::{Line, Lock, Place};
use super::{CONFIG, Directory, PATIENCE, lease_file, leases_of, out_of_patience};
use crate::StoreError;

impl Directory {
    /// The net-conf as it is written in a store; none if it is not there.
    pub fn config_text(dir: &Path) -> Result<Option<String>, StoreError> {
        there(&dir.join(CONFIG))
    }

    /// Writes a net-conf and leases. What is there already and says the same is left; if anything says something
    /// else, that is an error, and nothing is written. Blocks until the store is free.
    pub fn fill(dir: &Path, config: Option<&str>, leases: &[Lease]) -> Result<(), StoreError> {
        let (answer, answered) = mpsc::channel();
        let (line, store) = (Line::default(), dir.to_owned());
        let (config, leases) = (config.map(str::to_owned), leases.to_vec());
        let job = move |lock: Result<Lock, StoreError>| {
            let _ = answer.send(lock.and_then(|lock| fill(&lock, &store, config.as_deref(), &leases)));
        };
        line.join(dir, Box::new(job))?;
        answered.recv_timeout(PATIENCE).unwrap_or_else(|_| Err(out_of_patience(&line, dir)))
    }
}

fn fill(lock: &Lock, dir: &Path, config: Option<&str>, leases: &[Lease]) -> Result<(), StoreError> {
    let mut missing = Vec::new();
    for lease in leases {
        let text = lease_file::text(lease)
            .map_err(|cause| StoreError::Unwritable { owner: lease.owner.clone(), cause })?;
        let name = lease_file::name(lease);
        if is_missing(&leases_of(dir).join(&name), &text)? {
            missing.push((name, text));
        }
    }
    if let Some(config) = config {
        let path = dir.join(CONFIG);
        if is_missing(&path, config)? {
            fs::write(&path, config).map_err(StoreError::disk("write", path))?;
        }
    }
    missing.iter().try_for_each(|(name, text)| lock.write(name, text, Place::New))
}

/// Whether a file has to be written; one that says something else is somebody's.
fn is_missing(path: &Path, text: &str) -> Result<bool, StoreError> {
    match there(path)? {
        None => Ok(true),
        Some(known) if known.trim() == text.trim() => Ok(false),
        Some(_) => Err(StoreError::Occupied(path.to_owned())),
    }
}

fn there(path: &Path) -> Result<Option<String>, StoreError> {
    match flannel_files::read_text(path, flannel_files::MOST_BY_HAND) {
        Err(wrong) if wrong.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some).map_err(StoreError::disk("read", path)),
    }
}
