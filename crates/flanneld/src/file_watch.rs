//! Rings when somebody touches the subnet file: pods cannot start without it, so its loss must not wait for
//! the safety look.

use std::convert::Infallible;
use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::metrics::Failures;
use crate::wake::{Bell, Wake};
use crate::watching::{self, Named};

/// Starts watching.
pub fn start(file: &Path, bell: Bell, failures: Failures) {
    let (Some(folder), Some(name)) = (file.parent(), file.file_name()) else { return };
    let watch = FileWatch { folder: folder.to_owned(), name: name.to_owned(), bell };
    let named =
        Named { name: "file-watch", without: "the loss of the subnet file is seen once a minute only" };
    watching::keep(named, failures, move || watch.listen());
}

struct FileWatch {
    folder: PathBuf,
    name: OsString,
    bell: Bell,
}

impl FileWatch {
    fn listen(&self) -> io::Result<Infallible> {
        loop {
            let watch = self.begin()?;
            self.bell.ring(Wake::Observation);
            self.ring_until_gone(&watch)?;
        }
    }

    /// Watches the folder, which is made here rather than with the first file: the file may get lost right after.
    fn begin(&self) -> io::Result<OwnedFd> {
        fs::create_dir_all(&self.folder)?;
        let watch = inotify::init(CreateFlags::CLOEXEC)?;
        let flags = WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ATTRIB
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        inotify::add_watch(&watch, &self.folder, flags)?;
        Ok(watch)
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
                self.bell.ring(Wake::Observation);
            }
            if event.events().intersects(ReadFlags::IGNORED | ReadFlags::MOVE_SELF) {
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
    use std::thread;
    use std::time::{Duration, Instant};

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
        assert_eq!(Alarm::new(bell).wait(Instant::now()), Some(Wake::Observation));
    }
}
