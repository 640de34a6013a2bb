//! SIGTERM and SIGINT as something that a thread waits for.
//!
//! Process 1 of a container is not ended by a signal that it does not catch, and one that came before it did is lost.
//! So they are caught before anything else, without a runtime, and waited for when there is time.

use std::ffi::c_int;
use std::io;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, fcntl_dupfd_cloexec, read};

/// What the handler writes to; none before signals are caught.
static NOTICE: AtomicI32 = AtomicI32::new(-1);

/// What an eventfd is told to count up by.
static ONE: u64 = 1;

/// Signals that ask for the end, caught.
#[derive(Debug)]
pub struct StopSignals {
    notice: OwnedFd,
}

impl StopSignals {
    /// Catches them from now on, for the whole process.
    #[allow(unsafe_code, reason = "a signal handler is installed")]
    pub fn catch() -> io::Result<Self> {
        let notice = eventfd(0, EventfdFlags::CLOEXEC)?;
        // The handler's own, open for ever.
        NOTICE.store(fcntl_dupfd_cloexec(&notice, 0)?.into_raw_fd(), Ordering::SeqCst);
        for signal in [libc::SIGTERM, libc::SIGINT] {
            // SAFETY: `sigaction` is plain data, for which all zeros are an empty mask and no flags. The handler only
            // calls what POSIX allows in handlers, and `note` lives as long as the program. Calls of others are
            // restarted, as if nothing had come.
            let caught = unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = note as extern "C" fn(c_int) as libc::sighandler_t;
                action.sa_flags = libc::SA_RESTART;
                libc::sigaction(signal, &action, std::ptr::null_mut())
            };
            if caught != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(Self { notice })
    }

    /// Waits until one has come.
    pub fn wait(&self) -> io::Result<()> {
        loop {
            match read(&self.notice, &mut [0; 8]) {
                Err(Errno::INTR) => {}
                heard => return heard.map(drop).map_err(Into::into),
            }
        }
    }
}

/// Runs in whatever was interrupted: it may neither allocate nor lock, nor leave another `errno` behind.
#[allow(unsafe_code, reason = "what a signal handler may call, it calls by libc")]
extern "C" fn note(_signal: c_int) {
    // SAFETY: `write` may be called in a handler; the descriptor is never closed, and the number outlives the call.
    // `__errno_location` gives the place of this thread's own `errno`.
    unsafe {
        let errno = *libc::__errno_location();
        libc::write(NOTICE.load(Ordering::SeqCst), (&raw const ONE).cast(), size_of::<u64>());
        *libc::__errno_location() = errno;
    }
}
