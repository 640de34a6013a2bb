//! Waits on the async thread for what the kernel has to tell by a descriptor, as inotify does.

use std::io;
use std::os::fd::AsRawFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Something with a descriptor that can be waited for.
#[derive(Debug)]
pub(crate) struct Readable<T: AsRawFd>(AsyncFd<T>);

impl<T: AsRawFd> Readable<T> {
    /// Needs a tokio runtime.
    #[allow(
        deprecated,
        reason = "unsound only for values whose descriptor changes or closes early; what we wait for owns its \
                  descriptor, and the successor is an unsafe function"
    )]
    pub(crate) fn new(inner: T) -> io::Result<Self> {
        AsyncFd::with_interest(inner, Interest::READABLE).map(Self)
    }

    /// Waits until reading gives something else than `WouldBlock`. May be dropped without losing anything.
    pub(crate) async fn read<R>(&mut self, mut read: impl FnMut(&mut T) -> io::Result<R>) -> io::Result<R> {
        loop {
            let mut ready = self.0.readable_mut().await?;
            if let Ok(read) = ready.try_io(|inner| read(inner.get_mut())) {
                return read;
            }
        }
    }

    /// What is waited for.
    pub(crate) fn get_ref(&self) -> &T {
        self.0.get_ref()
    }
}
