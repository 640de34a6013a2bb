//! A `/run` of a test's own, empty at first: what plugins keep there must never be the host's.

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::UnshareFlags;

/// Gives this thread, those that it starts and their programs a `/run` of their own.
#[allow(unsafe_code, reason = "a thread of its own gets mounts of its own")]
pub fn hide_run() {
    // SAFETY: only FILES is dangerous, which takes the descriptors of other threads away; NEWNS leaves them.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.unwrap();
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
    mount("tests", "/run", "tmpfs", MountFlags::empty(), None).unwrap();
}
