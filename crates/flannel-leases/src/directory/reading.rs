//! What the store's files say, kept so that the next reading reads only what changed.
//!
//! Takes the directory and gives leases, config and faults. Garbage is not absence: a file that cannot be
//! read any more says what it said last, for as long as it is there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use flannel_plan::finding::Code;
use flannel_plan::lease::Lease;
use flannel_plan::quoted::quoted;

use super::notice::Suspects;
use super::{CONFIG, lease_file, leases_of, read_file};
use crate::in_force::{self, NetConf};
use crate::{Fault, StoreError};

// Far above any real file: only there to keep a stray huge one out of memory.
const MOST_BYTES: usize = 256 * 1024;

/// What the store's files said when they were read last.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    /// Grows with every change that was found.
    pub version: u64,
    pub net_conf: NetConf,
    leases: BTreeMap<Box<str>, Entry>,
    faults: BTreeMap<Box<str>, String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    stamp: Stamp,
    lease: Arc<Lease>,
}

/// Tells whether a file is still the one that was read: its inode, its time and its size.
type Stamp = (u64, i64, i64, u64);

impl Reading {
    /// Reads again. What cannot be read is named; only a directory that cannot be listed is an error, and
    /// then nothing is forgotten.
    pub(super) fn refresh(&mut self, dir: &Path, suspects: &Suspects) -> Result<(), StoreError> {
        let listing = self.list(dir)?;
        let mut before = std::mem::take(&mut self.leases);
        let faults_before = std::mem::take(&mut self.faults);
        let mut changed = self.read_config(dir);
        let mut now = Vec::with_capacity(listing.len());
        for (name, stamp) in listing {
            let known = before.remove(&name);
            let trusted = known.as_ref().is_some_and(|known| known.stamp == stamp)
                && !suspects.include(&name)
                && !faults_before.contains_key(&name);
            let mut lease = known.map(|known| known.lease);
            if !trusted {
                let read = self.read_lease(dir, &name, lease.as_ref());
                changed |= read != lease;
                lease = read;
            }
            now.extend(lease.map(|lease| (name, Entry { stamp, lease })));
        }
        self.leases = now.into_iter().collect();
        changed |= !before.is_empty() || self.faults != faults_before || self.version == 0;
        self.version += u64::from(changed);
        Ok(())
    }

    fn list(&self, dir: &Path) -> Result<BTreeMap<Box<str>, Stamp>, StoreError> {
        let path = leases_of(dir);
        let entries = match fs::read_dir(&path) {
            Err(wrong) if wrong.kind() == io::ErrorKind::NotFound => {
                fs::metadata(dir).map_err(|cause| StoreError::NoStore { dir: dir.to_owned(), cause })?;
                let is_empty = self.leases.is_empty();
                return if is_empty { Ok(BTreeMap::new()) } else { Err(StoreError::Vanished(path)) };
            }
            entries => entries.map_err(StoreError::disk("list", &path))?,
        };
        // POSIX lets a list leave out a file that is replaced meanwhile: absence is proved by asking for it by name.
        let mut names: BTreeSet<Box<str>> = self.leases.keys().cloned().collect();
        for entry in entries {
            let name = entry.map_err(StoreError::disk("list", &path))?.file_name();
            names.extend(name.to_str().filter(|name| lease_file::key(name).is_some()).map(Box::from));
        }
        let mut listing = BTreeMap::new();
        for name in names {
            let file = path.join(&*name);
            match fs::symlink_metadata(&file) {
                Err(wrong) if wrong.kind() == io::ErrorKind::NotFound => {}
                found => {
                    let found = found.map_err(StoreError::disk("look at", file))?;
                    listing.insert(name, (found.ino(), found.mtime(), found.mtime_nsec(), found.size()));
                }
            }
        }
        Ok(listing)
    }

    /// What a lease's file says, or said last if it cannot be read; nothing if it is not there.
    fn read_lease(&mut self, dir: &Path, name: &str, before: Option<&Arc<Lease>>) -> Option<Arc<Lease>> {
        let text = match read_file(&leases_of(dir).join(name), MOST_BYTES) {
            Ok(text) => Ok(text?),
            Err(wrong) => Err(format!("cannot be read: {wrong}")),
        };
        let key = lease_file::key(name).unwrap_or_default();
        let (lease, fault) = in_force::lease(text.and_then(|text| lease_file::read(key, &text)), before);
        self.faults.extend(fault.map(|fault| (name.into(), fault)));
        lease
    }

    fn read_config(&mut self, dir: &Path) -> bool {
        let file = dir.join(CONFIG);
        let text = match read_file(&file, MOST_BYTES) {
            Ok(Some(text)) => Ok(text),
            Ok(None) => Err("is not there: write the net-conf into it".to_owned()),
            Err(wrong) => Err(format!("cannot be read: {wrong}")),
        };
        self.net_conf.take_text(&file, text)
    }

    /// All leases in force.
    pub(super) fn leases(&self) -> impl Iterator<Item = &Arc<Lease>> {
        self.leases.values().map(|entry| &entry.lease)
    }

    /// Whether the file of that name cannot be read at the moment.
    pub(super) fn is_unreadable(&self, file_name: &str) -> bool {
        self.faults.contains_key(file_name)
    }

    /// The files that cannot be read and never could be, by the keys in their names.
    pub(super) fn unknown_keys(&self) -> impl Iterator<Item = &str> {
        let unknown = self.faults.keys().filter(|name| !self.leases.contains_key(*name));
        unknown.filter_map(|name| lease_file::key(name))
    }

    /// Everything that cannot be read; the config only if an older one is in force.
    pub(super) fn faults(&self, dir: &Path) -> Vec<Fault> {
        let config = self.net_conf.fault().cloned();
        let leases = leases_of(dir);
        let shown = |name: &str| leases.join(quoted(name).to_string());
        let leases = self.faults.iter().map(|(name, reason)| (shown(name), reason.clone()));
        config
            .into_iter()
            .chain(leases.map(|(file, reason)| Fault::new(Code::LeaseUnreadable, file, reason)))
            .collect()
    }
}
