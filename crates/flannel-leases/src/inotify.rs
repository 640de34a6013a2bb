//! The kernel's notices about directories, for the async thread: which files were touched, never how.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, Event, ReadFlags, Reader, WatchFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// What says that a directory that was watched is not there any more.
pub(crate) const GONE: ReadFlags =
    ReadFlags::DELETE_SELF.union(ReadFlags::MOVE_SELF).union(ReadFlags::UNMOUNT).union(ReadFlags::IGNORED);

/// A queue of notices.
#[derive(Debug)]
pub(crate) struct Inotify(AsyncFd<OwnedFd>);

impl Inotify {
    /// An empty queue; needs a tokio runtime.
    pub(crate) fn new() -> io::Result<Self> {
        let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        readable(events).map(Self)
    }

    /// Watches a directory, too, and gives the number that its notices carry. Twice is as good as once.
    pub(crate) fn watch(&self, directory: &Path) -> io::Result<i32> {
        // Not `MODIFY`: a file that is being written is looked at when the writer closes it.
        let flags = WatchFlags::CREATE
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ATTRIB
            | WatchFlags::ONLYDIR;
        Ok(inotify::add_watch(self.0.get_ref(), directory, flags)?)
    }

    /// Waits for notices, and gives all that are there. May be dropped without losing one.
    pub(crate) async fn wait(&self, mut note: impl FnMut(&Event<'_>)) -> io::Result<()> {
        let mut ready = self.0.readable().await?;
        match ready.try_io(|events| drain(events.get_ref(), &mut note)) {
            Ok(Err(cause)) => Err(cause),
            _ => Ok(()),
        }
    }

    /// Gives all notices that are there.
    #[cfg(test)]
    pub(crate) fn take(&self, mut note: impl FnMut(&Event<'_>)) {
        let end = drain(self.0.get_ref(), &mut note).unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::WouldBlock);
    }
}

/// Takes every event that is there; gives `WouldBlock` in the end, which is how tokio learns of it.
fn drain(events: &OwnedFd, note: &mut impl FnMut(&Event<'_>)) -> io::Result<()> {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = Reader::new(events, &mut buffer);
    loop {
        note(&reader.next()?);
    }
}

#[allow(
    deprecated,
    reason = "unsound only for values whose descriptor changes or closes early; an `OwnedFd` does neither, \
              and the successor is an unsafe function"
)]
fn readable(events: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(events, Interest::READABLE)
}
