//! One after the other: who changes rules holds a lock meanwhile, which root alone can take.

use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// What all of us on this machine lock. Whoever can open a file can lock it, for ever: a network namespace, which
/// would do otherwise, is open to every user.
const LOCK: &str = "/run/flannel-cni/rules.lock";

/// Does work while no other of us does such work on this machine.
///
/// Each change to the rules makes void what others have read meanwhile. Fifty pods that come at once would read
/// again and again, each for all the others; one after the other they are done in a tenth of the time.
///
/// A program that is run meanwhile inherits the lock. If we are killed, it goes on, and the DEL that follows must
/// not look before it is done. Where the lock cannot be had, the work is done without.
pub(crate) fn in_turn<T>(work: impl FnOnce() -> T) -> T {
    let lock = open(Path::new(LOCK));
    let _turn = lock.map(|lock| lock.lock().map(|()| lock));
    work()
}

/// Opens the lock, for root only.
fn open(path: &Path) -> std::io::Result<File> {
    let inherited = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW; // without CLOEXEC
    let open = || rustix::fs::open(path, inherited, Mode::RUSR | Mode::WUSR).map(File::from);
    match (open(), path.parent()) {
        (Err(Errno::NOENT), Some(folder)) => {
            DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
            Ok(open()?)
        }
        (opened, _) => Ok(opened?),
    }
}
