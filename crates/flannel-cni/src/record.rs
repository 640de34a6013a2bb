//! What flannel handed to its delegate at ADD, for DEL to hand over again: one file a container, as Go keeps
//! it, and one more for each further interface of the same container, which Go's would overwrite.
//!
//! A record is a help, not a condition: whoever finds none can make the delegate's configuration anew.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value};

use crate::error::{CniError, OrInternal};
use crate::json;
use crate::request::{AttachmentId, Request};

/// The interface that every runtime makes first, so that the file without an interface is its.
const FIRST_INTERFACE: &str = "eth0";

/// Nobody is still writing a file of this age.
const SETTLED: Duration = Duration::from_secs(600);

/// The records in a folder.
#[derive(Clone, Debug)]
pub struct Records {
    folder: PathBuf,
}

/// A record, as found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The delegate's configuration; none if the file does not hold one, as after a crash of the node.
    pub config: Option<Map<String, Value>>,
    path: PathBuf,
}

impl Record {
    /// Whether a file was written after this record, as far as their times tell; not if there is none.
    pub fn may_be_older_than(&self, file: &str) -> bool {
        let written = |path: &Path| fs::metadata(path).and_then(|found| found.modified());
        match (written(&self.path), written(Path::new(file))) {
            (Ok(record), Ok(file)) => record <= file,
            _ => false,
        }
    }
}

/// A record that was written, and what it replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "an ADD that fails takes its record back"]
pub struct WrittenRecord {
    path: PathBuf,
    before: Option<Vec<u8>>,
}

impl Records {
    /// The records in a folder, which need not exist.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Keeps the delegate's configuration for the attachment of a request.
    ///
    /// A reader sees the whole file or none. It is not forced to the disk: pods wait, and a record that a power
    /// failure took is made anew.
    pub fn save(&self, request: &Request, config: &Map<String, Value>) -> Result<WrittenRecord, CniError> {
        let written = self.target(request);
        self.put(&written.path, json::compact(config).as_bytes())?;
        Ok(written)
    }

    /// Undoes [`Records::save`]: what was there before is there again.
    pub fn take_back(&self, written: &WrittenRecord) -> Result<(), CniError> {
        match &written.before {
            Some(before) => self.put(&written.path, before),
            None => remove(&written.path),
        }
    }

    /// The record of the attachment of a request: its own, or the one that Go may have written for it.
    ///
    /// That of another network is of a time before this one was renamed, or another interface's; a further
    /// interface leaves it alone.
    pub fn find(&self, request: &Request) -> Option<Record> {
        let is_first = request.ifname == FIRST_INTERFACE;
        let is_ours = |config: &Map<String, Value>| is_first || name(config) == Some(&request.network);
        let shared =
            || read(self.shared_path(request)).filter(|found| found.config.as_ref().is_none_or(is_ours));
        read(self.own_path(request)).or_else(shared)
    }

    /// Forgets the record of a request, if there is one, and what an ADD that was killed left of another.
    pub fn forget(&self, request: &Request, record: Option<&Record>) -> Result<(), CniError> {
        let drafts = [self.own_path(request), self.shared_path(request)].map(|path| draft(&path));
        let paths = drafts.iter().chain(record.map(|record| &record.path));
        paths.map(|path| remove(path)).reduce(Result::and).unwrap_or(Ok(()))
    }

    /// What the delegates of all attachments were told, but for one record.
    pub fn all_but(&self, record: Option<&Record>) -> Vec<Map<String, Value>> {
        let paths = fs::read_dir(&self.folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let others = paths.filter(|path| record.is_none_or(|record| record.path != *path));
        others.filter_map(|path| read(path)?.config).collect()
    }

    /// Forgets the records of a network that belong to none of the attachments.
    pub fn sweep(&self, network: &str, valid: &[AttachmentId]) -> Result<(), CniError> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if is_absent(&error) => return Ok(()),
            entries => entries.or_internal(format_args!("cannot list {:?}", self.folder))?,
        };
        let mut outcome = Ok(());
        for entry in entries.flatten() {
            if !is_of(&entry.file_name(), valid) && is_garbage(&entry.path(), network) {
                outcome = outcome.and(remove(&entry.path()));
            }
        }
        outcome
    }

    /// Where a new record goes: to the file that Go reads, unless another interface has it.
    fn target(&self, request: &Request) -> WrittenRecord {
        let (own, shared) = (self.own_path(request), self.shared_path(request));
        if let Ok(before) = fs::read(&own) {
            return WrittenRecord { path: own, before: Some(before) };
        }
        let Ok(found) = fs::read(&shared) else { return WrittenRecord { path: shared, before: None } };
        let is_ours = |config: Map<String, Value>| {
            request.ifname == FIRST_INTERFACE && name(&config) == Some(&request.network)
        };
        if usable(&found).is_none_or(is_ours) {
            WrittenRecord { path: shared, before: Some(found) }
        } else {
            WrittenRecord { path: own, before: None }
        }
    }

    fn shared_path(&self, request: &Request) -> PathBuf {
        self.folder.join(&request.container_id)
    }

    fn own_path(&self, request: &Request) -> PathBuf {
        self.folder.join(format!("{}-{}", request.container_id, request.ifname))
    }

    fn put(&self, path: &Path, content: &[u8]) -> Result<(), CniError> {
        self.write(path, content).or_internal(format_args!("failed to save netconf {path:?}"))
    }

    fn write(&self, path: &Path, content: &[u8]) -> std::io::Result<()> {
        let draft = draft(path);
        let open = || OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft);
        let mut out = match open() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
                open()?
            }
            opened => opened?,
        };
        let written = out.write_all(content).and_then(|()| fs::rename(&draft, path));
        if written.is_err() {
            let _ = fs::remove_file(&draft); // the first error is the one to tell
        }
        written
    }
}

/// Where a record is written before it gets its name: always the same place, so that DEL finds what an ADD left
/// that was killed meanwhile. No container's name begins with a dot.
fn draft(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    path.with_file_name(name)
}

/// A file that holds no configuration of a plugin is a record without one; no file is no record.
fn read(path: PathBuf) -> Option<Record> {
    let content = match fs::read(&path) {
        Ok(content) => content,
        Err(error) if is_absent(&error) => return None,
        Err(_) => Vec::new(),
    };
    Some(Record { config: usable(&content), path })
}

/// The configuration of a plugin that a file holds, if it does.
fn usable(content: &[u8]) -> Option<Map<String, Value>> {
    let config = serde_json::from_slice::<Map<String, Value>>(content).ok();
    config.filter(|config| config.get("type").and_then(Value::as_str).is_some_and(|kind| !kind.is_empty()))
}

/// What has a name that no file can have, or lies in what is no folder, is not there either.
fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidFilename | ErrorKind::NotADirectory)
}

/// The network of a delegate's configuration.
pub fn name(config: &Map<String, Value>) -> Option<&String> {
    match config.get("name") {
        Some(Value::String(name)) => Some(name),
        _ => None,
    }
}

fn is_of(file: &OsStr, valid: &[AttachmentId]) -> bool {
    let Some(file) = file.to_str() else { return true }; // no name that we would give
    valid.iter().any(|id| match file.strip_prefix(&*id.container_id) {
        Some("") => true,
        Some(rest) => rest.strip_prefix('-') == Some(&*id.ifname),
        None => false,
    })
}

/// Several networks may keep their records in one folder; only what says that it is of this one is judged by
/// the attachments of this one. A file that says nothing helps nobody, once it is not being written any more.
fn is_garbage(path: &Path, network: &str) -> bool {
    let Ok(found) = fs::symlink_metadata(path) else { return false };
    let is_settled = || found.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > SETTLED));
    match read(path.to_owned()).map(|record| record.config) {
        _ if !found.is_file() => false,
        Some(Some(config)) => name(&config).is_some_and(|name| name == network),
        Some(None) => is_settled(),
        None => false,
    }
}

fn remove(path: &Path) -> Result<(), CniError> {
    match fs::remove_file(path) {
        Err(error) if is_absent(&error) => Ok(()),
        removed => removed.or_internal(format_args!("cannot remove {path:?}")),
    }
}

#[cfg(test)]
mod tests;
