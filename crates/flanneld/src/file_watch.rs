//! Rings when somebody touches the subnet file: pods cannot start without it, so its loss must not wait for
//! the safety look.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tracing::debug;

use crate::wake::{Bell, Wake};

/// How long to wait for a folder that was removed: the next pass makes it again when it writes the file.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// Starts watching. Where that is not possible, there is still the safety look.
pub fn start(file: &Path, bell: Bell) {
    let (Some(folder), Some(name)) = (file.parent(), file.file_name()) else { return };
    let watch = FileWatch { folder: folder.to_owned(), name: name.to_owned(), bell };
    let spawned = thread::Builder::new().name("file-watch".into()).spawn(move || watch.run());
    if let Err(error) = spawned {
        debug!(%error, "no thread to watch the subnet file: its loss is seen by the safety look");
    }
}

struct FileWatch {
    folder: PathBuf,
    name: OsString,
    bell: Bell,
}

impl FileWatch {
    fn run(&self) {
        // The folder is made here rather than with the first file: the file may get lost right after.
        let watched = fs::create_dir_all(&self.folder).and_then(|()| Ok(self.watch_while_it_lasts()?));
        let Err(error) = watched;
        debug!(folder = %self.folder.display(), %error, "the subnet file is seen by the safety look only");
    }

    fn watch_while_it_lasts(&self) -> Result<Infallible, Errno> {
        loop {
            let watch = self.begin()?;
            self.bell.ring(Wake::Look);
            self.ring_until_gone(&watch)?;
        }
    }

    /// Watches the folder, which may come back a moment later.
    fn begin(&self) -> Result<OwnedFd, Errno> {
        let watch = inotify::init(CreateFlags::CLOEXEC)?;
        let flags = WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ATTRIB
            | WatchFlags::ONLYDIR;
        let end = Instant::now() + PATIENCE;
        loop {
            match inotify::add_watch(&watch, &self.folder, flags) {
                Ok(_) => return Ok(watch),
                Err(Errno::NOENT) if Instant::now() < end => {
                    self.bell.ring(Wake::Look);
                    thread::sleep(PAUSE);
                }
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Rings when something happens to the file, until the folder is gone. One reader for all: it holds what came
    /// together with the event that it gave last.
    fn ring_until_gone(&self, watch: &OwnedFd) -> Result<(), Errno> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(watch, &mut buffer);
        loop {
            let event = match events.next() {
                Err(Errno::INTR) => continue,
                event => event?,
            };
            let ours = event.file_name().is_some_and(|name| name.to_bytes() == self.name.as_bytes());
            if ours || event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                self.bell.ring(Wake::Look);
            }
            if event.events().contains(ReadFlags::IGNORED) {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wake::Alarm;
    use std::sync::mpsc::channel;

    #[test]
    fn the_end_of_a_folder_is_heard_though_it_comes_with_that_of_the_file() {
        let folder = std::env::temp_dir().join(format!("flanneld-file-watch-{}", std::process::id()));
        let bell = Bell::default();
        let watch = FileWatch { folder: folder.clone(), name: "subnet.env".into(), bell: bell.clone() };
        fs::create_dir_all(&folder).unwrap();
        let begun = watch.begin().unwrap();
        fs::write(folder.join("subnet.env"), "x").unwrap();
        fs::remove_dir_all(&folder).unwrap();
        let (over, is_over) = channel();
        thread::spawn(move || over.send(watch.ring_until_gone(&begun)));
        assert_eq!(is_over.recv_timeout(Duration::from_secs(10)), Ok(Ok(())));
        assert_eq!(Alarm::new(bell).wait(Instant::now()), Some(Wake::Look));
    }
}
