//! The folder of a network's reservations, as Go's host-local keeps it: lock, files, last address of each set.
//! Takes names and contents; what they mean is for others to say.

use std::ffi::{CStr, OsStr};
use std::fs::{DirBuilder, File};
use std::io::Read;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, XattrFlags, flock, fstat, openat, unlinkat,
};
use rustix::io::Errno;

const STAMP: &str = "user.flannel.boot";
const FILE: Mode = Mode::RUSR.union(Mode::WUSR);
const LOCK: Mode = Mode::RWXU.union(Mode::RGRP).union(Mode::XGRP);
/// An owner is an id and an interface name; anything longer is none of ours.
const LONGEST: usize = 4096;
const MOST_TRIES: usize = 100;
const PAUSE: Duration = Duration::from_millis(10);
/// What says that there is no folder, and for a name that is too long or leads through a file, that none can be.
const ABSENT: [Errno; 3] = [Errno::NOENT, Errno::NAMETOOLONG, Errno::NOTDIR];

/// A folder that is locked until it is dropped.
pub struct Folder {
    path: PathBuf,
    folder: OwnedFd,
    _lock: OwnedFd,
}

/// What a folder that does not exist means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    Make,
    /// There is nothing.
    Leave,
}

/// What a reservation's file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// The owner, without space around it.
    pub owner: Vec<u8>,
    /// The boot that it is stamped with.
    pub stamp: Option<Vec<u8>>,
    /// When it was written, in seconds and nanoseconds.
    pub modified: (i64, i64),
}

impl Folder {
    /// Opens and locks a folder; waits for whoever has the lock.
    pub fn lock(path: &Path, missing: Missing) -> Result<Option<Self>, Errno> {
        for _ in 0..MOST_TRIES {
            match Self::lock_once(path, missing) {
                Err(errno) if missing == Missing::Leave && ABSENT.contains(&errno) => return Ok(None),
                Err(Errno::NOENT) => make(path)?,
                Ok(None) => {}
                outcome => return outcome,
            }
        }
        Err(Errno::BUSY)
    }

    /// None if the lock was replaced while we waited for it: then others do not see that we have it.
    fn lock_once(path: &Path, missing: Missing) -> Result<Option<Self>, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(path, flags | OFlags::DIRECTORY, Mode::empty())?;
        let lock = match openat(&folder, "lock", flags | OFlags::CREATE, LOCK) {
            // A full disk must not keep addresses from being freed. Nobody else gets a new lock on it either.
            Err(Errno::NOSPC | Errno::DQUOT | Errno::ROFS) if missing == Missing::Leave => {
                let itself = openat(&folder, ".", flags | OFlags::DIRECTORY, Mode::empty())?;
                wait_a_while(&itself);
                itself
            }
            opened => {
                let lock = opened?;
                rustix::io::retry_on_intr(|| flock(&lock, FlockOperation::LockExclusive))?;
                lock
            }
        };
        let is_gone = fstat(&lock)?.st_nlink == 0;
        Ok(if is_gone { None } else { Some(Self { path: path.to_owned(), folder, _lock: lock }) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the index that version 0.1 kept of this folder under /run, by the folder's device and inode.
    pub fn remove_index(&self, run: &Path) {
        let Ok(stat) = fstat(&self.folder) else { return };
        let network = self.path.file_name().unwrap_or_default().to_string_lossy();
        let index = run.join(format!("{network}-{:x}-{:x}", stat.st_dev, stat.st_ino));
        if rustix::fs::unlink(index).is_ok() {
            let _ = rustix::fs::rmdir(run); // others may have theirs in it
        }
    }

    /// The addresses that have a file here, and what it says; none if it is no file or cannot be read.
    pub fn list(&self) -> Result<Vec<(IpAddr, Option<Content>)>, Errno> {
        let mut found = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.folder)? {
            let entry = entry?;
            let Some(address) = address_of(entry.file_name()) else { continue };
            match self.read(entry.file_name()) {
                Err(Errno::NOENT) => {} // somebody without the lock
                content => found.push((address, content.ok().flatten())),
            }
        }
        Ok(found)
    }

    fn read(&self, name: &CStr) -> Result<Option<Content>, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = openat(&self.folder, name, flags, Mode::empty())?;
        let stat = fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        let mut room = [MaybeUninit::uninit(); LONGEST];
        let (owner, _) = rustix::io::read(&file, &mut room)?;
        let owner = owner.trim_ascii().to_vec();
        let modified = (stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap_or_default());
        Ok(Some(Content { owner, stamp: stamp_of(&file), modified }))
    }

    /// Makes the file of an address, whole or not at all; one that is there is an error.
    pub fn create(&self, address: IpAddr, owner: &[u8], boot: Option<&str>) -> Result<(), Errno> {
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        match openat(&self.folder, ".", flags, FILE) {
            // A file without a name goes with the process that dies before it gave it one.
            Ok(file) => {
                let file = File::from(file);
                fill(&file, owner, boot)?;
                // By its path, for only root may name a file by its descriptor alone.
                let path = format!("/proc/self/fd/{}", file.as_raw_fd());
                let follow = AtFlags::SYMLINK_FOLLOW;
                rustix::fs::linkat(rustix::fs::CWD, path, &self.folder, address.to_string(), follow)
            }
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => self.create_by_draft(address, owner, boot),
            Err(errno) => Err(errno),
        }
    }

    /// The same where files need a name from the start: one outside of the folder, since Go reads every file
    /// in it, and always the same one, so that a crash leaves at most one.
    pub(super) fn create_by_draft(
        &self,
        address: IpAddr,
        owner: &[u8],
        boot: Option<&str>,
    ) -> Result<(), Errno> {
        let mut name = OsStr::new(".").to_owned();
        name.push(self.path.file_name().unwrap_or_default());
        name.push(".draft");
        let draft = self.path.with_file_name(name);
        // What a crash left may be the second name of a reservation: it must not be written to.
        remove_if_there(rustix::fs::unlink(&draft))?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(&draft, flags, FILE)?);
        let outcome = fill(&file, owner, boot).and_then(|()| {
            let name = address.to_string();
            rustix::fs::linkat(rustix::fs::CWD, &draft, &self.folder, name, AtFlags::empty())
        });
        remove_if_there(rustix::fs::unlink(&draft))?;
        outcome
    }

    /// Removes the file of an address, if it is there.
    pub fn remove(&self, address: IpAddr) -> Result<(), Errno> {
        remove_if_there(unlinkat(&self.folder, address.to_string(), AtFlags::empty()))
    }

    /// The address that a set gave last; a hint only, so what cannot be read is none.
    pub fn last_reserved(&self, set: usize) -> Option<IpAddr> {
        let file = openat(&self.folder, last_name(set), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let mut text = String::new();
        File::from(file.ok()?).take(LONGEST as u64).read_to_string(&mut text).ok()?;
        text.parse().ok().map(|address: IpAddr| address.to_canonical())
    }

    /// Notes the address that a set gave last.
    ///
    /// Written over what was there and cut, for a file that is emptied first costs ext4 0.25 ms. Cut short by
    /// a crash it names another address or none, and the next round only starts elsewhere.
    pub fn set_last_reserved(&self, set: usize, address: IpAddr) -> Result<(), Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
        let file = File::from(openat(&self.folder, last_name(set), flags, FILE)?);
        let text = address.to_string();
        let length = text.len() as u64;
        file.write_all_at(text.as_bytes(), 0).map_err(errno)?;
        if u64::try_from(fstat(&file)?.st_size).is_ok_and(|size| size > length) {
            file.set_len(length).map_err(errno)?;
        }
        Ok(())
    }
}

/// Waits for others that lock the folder itself. Every user can, so it is not waited for without end: what is done
/// then is the removal of files of a container's own.
fn wait_a_while(folder: &OwnedFd) {
    for _ in 0..MOST_TRIES {
        if flock(folder, FlockOperation::NonBlockingLockExclusive).is_ok() {
            break;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Writes and stamps a file that has no name yet.
fn fill(file: &File, owner: &[u8], boot: Option<&str>) -> Result<(), Errno> {
    file.write_all_at(owner, 0).map_err(errno)?;
    if let Some(boot) = boot {
        // Where this does not work, the file is as Go's: it stays until DEL or GC, or until it is needed.
        let _ = rustix::fs::fsetxattr(file, STAMP, boot.as_bytes(), XattrFlags::empty());
    }
    Ok(())
}

fn stamp_of(file: impl AsFd) -> Option<Vec<u8>> {
    let mut stamp = [0; 64];
    let length = rustix::fs::fgetxattr(file, STAMP, &mut stamp).ok()?;
    stamp.get(..length).map(<[u8]>::to_vec)
}

fn make(path: &Path) -> Result<(), Errno> {
    DirBuilder::new().recursive(true).mode(0o755).create(path).map_err(errno)
}

fn remove_if_there(outcome: Result<(), Errno>) -> Result<(), Errno> {
    if outcome == Err(Errno::NOENT) { Ok(()) } else { outcome }
}

/// The address that a name stands for, if it is written as Go writes it.
fn address_of(name: &CStr) -> Option<IpAddr> {
    let name = name.to_str().ok()?;
    let address: IpAddr = name.parse().ok()?;
    // Of IPv4 there is one way to write an address.
    (address.is_ipv4() || address.to_canonical().to_string() == name).then_some(address)
}

fn last_name(set: usize) -> String {
    format!("last_reserved_ip.{set}")
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests;
