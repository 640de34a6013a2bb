//! One writer at a time: who holds the [`Lock`] may change leases, and only it can.
//!
//! Takes jobs and runs the newest when its turn comes. A file lock is released by the kernel when its holder
//! dies, so no crash leaves a store locked.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::leases_of;
use crate::StoreError;

// One name is enough: only the holder of the lock writes it. Hidden, so that nobody takes it for a lease.
const UNFINISHED: &str = ".unfinished";
/// The bits of a mode that speak of everybody.
const EVERYBODY: u32 = 0o007;

/// The right to change the leases of one store, for as long as it lives.
#[derive(Debug)]
pub(super) struct Lock {
    dir: PathBuf,
    leases: PathBuf,
    _held: File,
}

/// Whether a lease's file may already be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// It is new: another file of that name is somebody else's and is kept.
    New,
    /// It is ours and is replaced.
    Ours,
}

pub(super) fn lock_file(dir: &Path) -> PathBuf {
    dir.join("lock")
}

impl Lock {
    /// Waits until nobody else holds the lock.
    pub(super) fn take(dir: &Path) -> Result<Self, StoreError> {
        let path = lock_file(dir);
        let held = hold(&path).map_err(|cause| match cause.kind() {
            io::ErrorKind::NotFound => StoreError::NoStore { dir: dir.to_owned(), cause },
            _ => StoreError::disk("lock", path)(cause),
        })?;
        Ok(Self { dir: dir.to_owned(), leases: leases_of(dir), _held: held })
    }

    /// Writes a lease whole or not at all, and returns when it would survive a power failure.
    pub(super) fn write(&self, name: &str, text: &str, target: Target) -> Result<(), StoreError> {
        self.make_room()?;
        let unfinished = self.leases.join(UNFINISHED);
        let written = write_new(&unfinished, text).map_err(StoreError::disk("write", &unfinished));
        let put = written.and_then(|()| self.put(&unfinished, name, target));
        if put.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        put.and_then(|()| sync(&self.leases))
    }

    /// Makes the directory of the leases, at the first lease of all.
    fn make_room(&self) -> Result<(), StoreError> {
        match fs::create_dir(&self.leases) {
            Err(wrong) if wrong.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => {
                made.map_err(StoreError::disk("create", &self.leases))?;
                sync(&self.dir)
            }
        }
    }

    fn put(&self, unfinished: &Path, name: &str, target: Target) -> Result<(), StoreError> {
        let lease = self.leases.join(name);
        let flags = match target {
            Target::New => RenameFlags::NOREPLACE,
            Target::Ours => RenameFlags::empty(),
        };
        let renamed = renameat_with(CWD, unfinished, CWD, &lease, flags);
        renamed.map_err(|errno| StoreError::disk("create", lease)(errno.into()))
    }

    /// Removes a lease, and returns when it would stay removed after a power failure.
    pub(super) fn remove(&self, name: &str) -> Result<(), StoreError> {
        let lease = self.leases.join(name);
        match fs::remove_file(&lease) {
            Err(wrong) if wrong.kind() != io::ErrorKind::NotFound => {
                Err(StoreError::disk("remove", lease)(wrong))
            }
            _ => sync(&self.leases),
        }
    }
}

fn hold(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    loop {
        let file = options.open(path)?;
        close_to_others(&file)?;
        file.lock()?;
        // Somebody may have removed the file while we stood in line: then others lock a new one.
        if fs::metadata(path)
            .is_ok_and(|there| Some(there.ino()) == file.metadata().ok().map(|ours| ours.ino()))
        {
            return Ok(file);
        }
    }
}

/// Whoever can open a file can lock it, for ever, and so stop every claim. A lock that others can open is of an
/// earlier version; where it is not ours to change, it is another's to look after.
fn close_to_others(file: &File) -> io::Result<()> {
    let mode = file.metadata()?.mode();
    if mode & EVERYBODY != 0 {
        let _ = file.set_permissions(Permissions::from_mode(mode & !EVERYBODY));
    }
    Ok(())
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    // What a crash left behind may be linked to elsewhere: never write through it.
    match fs::remove_file(path) {
        Err(wrong) if wrong.kind() != io::ErrorKind::NotFound => return Err(wrong),
        _ => {}
    }
    let mut file = File::create_new(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn sync(dir: &Path) -> Result<(), StoreError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(StoreError::disk("sync", dir))
}

/// What is done when the lock is ours, or when it never will be.
pub(super) type Job = Box<dyn FnOnce(Result<Lock, StoreError>) + Send>;

/// This program's one place in the queue for the lock.
///
/// The one who waits does so in a thread of its own, because a file lock cannot be waited for in any other
/// way without polling. A job that nobody waits for any more is replaced by the next, so a store that stays
/// locked costs one thread, and an old announcement is never written after a newer one.
#[derive(Clone, Default)]
pub(super) struct LockQueue {
    next: Arc<Mutex<Option<Job>>>,
}

impl LockQueue {
    pub(super) fn join(&self, dir: &Path, job: Job) -> Result<(), StoreError> {
        if self.exchange(Some(job)).is_some() {
            return Ok(());
        }
        let (queue, store) = (self.clone(), dir.to_owned());
        let waits = move || {
            let lock = Lock::take(&store);
            if let Some(job) = queue.exchange(None) {
                job(lock);
            }
        };
        let started = thread::Builder::new().name("lease".to_owned()).spawn(waits);
        started.map(drop).map_err(|cause| {
            self.exchange(None);
            StoreError::disk("start a thread for", lock_file(dir))(cause)
        })
    }

    /// Whether the job still waits for the lock.
    pub(super) fn is_waiting(&self) -> bool {
        self.next.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn exchange(&self, job: Option<Job>) -> Option<Job> {
        std::mem::replace(&mut *self.next.lock().unwrap_or_else(PoisonError::into_inner), job)
    }
}
