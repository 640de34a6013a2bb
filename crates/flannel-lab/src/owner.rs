//! Who a lab lives for. A lab of a test must not outlive the test, even if that was killed: its program holds a
//! lock in the lab's folder, and the kernel lets go of it when the program ends.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::lab::tear_down;
use crate::{LabError, Result};

const FILE: &str = "owner.lock";

/// The lock of a lab's owner.
#[derive(Debug)]
pub(crate) struct Owner {
    path: PathBuf,
    _lock: File,
}

impl Owner {
    /// Takes the lock under another name first: nobody may find it unlocked.
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        let (path, early) = (folder.join(FILE), folder.join("owner.new"));
        let lock = File::create(&early).map_err(LabError::file("create", &early))?;
        lock.lock().map_err(LabError::file("lock", &early))?;
        fs::rename(&early, &path).map_err(LabError::file("rename", &early))?;
        Ok(Self { path, _lock: lock })
    }

    /// Lets the lab live on without an owner.
    pub(crate) fn release(self) {
        let _ = fs::remove_file(self.path);
    }
}

/// Takes down the labs whose owner has died without doing so.
pub(crate) fn sweep(labs: &Path) {
    for folder in fs::read_dir(labs).into_iter().flatten().flatten() {
        let Ok(lock) = File::open(folder.path().join(FILE)) else { continue };
        if let (Ok(()), Ok(name)) = (lock.try_lock(), folder.file_name().into_string()) {
            // Whoever needs that very name will hear why it is in use.
            let _ = tear_down(&name);
        }
    }
}
