//! Rings when the file of ip-masq-agent may have changed: when anything happens in its folder, or to the file itself.
//!
//! Kubernetes changes a ConfigMap by renaming a link beside the file, a person by an editor, and a file that is mounted
//! by itself changes where its folder does not show it. Where the folder is missing, the one above it is watched.

use std::convert::Infallible;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tracing::warn;

use crate::wake::{Bell, Wake};

/// How often the file is looked at where the kernel tells nothing: many hosts have too few inotify instances.
const PAUSE: Duration = Duration::from_secs(1);

/// Starts watching; where that is not possible, the file is looked at every second until it is.
pub fn start(file: &Path, bell: Bell) {
    let file = file.to_owned();
    let work = move || {
        let mut told = false;
        loop {
            let Err(error) = watch(&file, &bell);
            if !std::mem::replace(&mut told, true) {
                let way_out = "raise fs.inotify.max_user_instances and max_user_watches";
                warn!(file = %file.display(), %error, way_out, "the file cannot be watched: it is read every second");
            }
            thread::sleep(PAUSE);
            bell.ring(Wake::Observation);
        }
    };
    if let Err(error) = thread::Builder::new().name("file-watch".into()).spawn(work) {
        warn!(%error, "no thread to watch the file: it is read every resyncInterval only");
    }
}

/// Watches until that fails.
fn watch(file: &Path, bell: &Bell) -> Result<Infallible, Errno> {
    loop {
        let (watch, reach) = begin(file)?;
        // What happened before the watch began is seen now.
        bell.ring(Wake::Observation);
        ring_until_gone(&watch, reach, bell)?;
    }
}

/// What is watched.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// The folder and the file.
    Whole,
    /// Only what is there of the way to the file: whatever happens, it has to be looked for again.
    Part,
}

/// Watches the folder and the file; or, if there is no folder, the nearest one above, until something happens there.
fn begin(file: &Path) -> Result<(OwnedFd, Reach), Errno> {
    let watch = inotify::init(CreateFlags::CLOEXEC)?;
    let in_folder = WatchFlags::CREATE
        | WatchFlags::DELETE
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVED_TO
        | WatchFlags::CLOSE_WRITE
        | WatchFlags::ATTRIB
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVE_SELF
        | WatchFlags::ONLYDIR;
    let folders: Vec<PathBuf> = file.ancestors().skip(1).map(or_here).collect();
    for (height, folder) in folders.iter().enumerate() {
        match inotify::add_watch(&watch, folder, in_folder) {
            Ok(_) if height > 0 => return Ok((watch, Reach::Part)),
            Ok(_) => {
                let to_file = WatchFlags::CLOSE_WRITE | WatchFlags::ATTRIB;
                // It may not be there yet, and is found by its folder then.
                let reach = if inotify::add_watch(&watch, file, to_file).is_ok() {
                    Reach::Whole
                } else {
                    Reach::Part
                };
                return Ok((watch, reach));
            }
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::NOENT)
}

fn or_here(folder: &Path) -> PathBuf {
    if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder.to_owned() }
}

/// Rings for everything that happens, until what is watched is gone or another one, and has to be looked for again.
fn ring_until_gone(watch: &OwnedFd, reach: Reach, bell: &Bell) -> Result<(), Errno> {
    let gone = ReadFlags::IGNORED | ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF;
    // A new file of the same name is another one to the kernel.
    let replaced = ReadFlags::MOVED_TO | ReadFlags::CREATE;
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(watch, &mut buffer);
    loop {
        let event = match events.next() {
            Err(Errno::INTR) => continue,
            event => event?,
        };
        if reach == Reach::Part || event.events().intersects(gone | replaced) {
            return Ok(());
        }
        bell.ring(Wake::Observation);
    }
}
