//! A `/run` of a test's own, empty at first: what plugins keep there must never be the host's.

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::UnshareFlags;

/// Gives this thread, those that it starts and their programs a `/run` of their own.
#[allow(deprecated, reason = "its successor is unsafe for the sake of FILES, which is not asked for here")]
pub fn hide_run() {
    rustix::thread::unshare(UnshareFlags::NEWNS).unwrap();
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
    mount("tests", "/run", "tmpfs", MountFlags::empty(), None).unwrap();
}
