//! Runs work inside a network namespace, on a thread of its own: a namespace belongs to a thread, and a thread
//! that once left its own must never be given other work.
//!
//! A program that attaches one pod has no thread to spare, and visits instead: it leaves, and comes back.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use crate::netlink::NetlinkError;

/// Which network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Namespace {
    /// A new one, which goes when the work is done and nothing else holds it.
    Fresh,
    /// The one that `ip netns` knows by a name.
    Named(String),
    OfProcess(u32),
    /// The one that a path such as `/proc/1/ns/net` or a bind mount stands for.
    AtPath(PathBuf),
}

/// Why work could not be run inside a namespace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetnsError {
    #[error("cannot enter the network namespace {}: {why}", .path.display())]
    Enter { path: PathBuf, why: NetlinkError },
    #[error("cannot make a network namespace: {0}")]
    Make(NetlinkError),
    #[error("cannot start a thread: {0}")]
    Thread(NetlinkError),
    /// The namespace of this thread cannot be named, so that there would be no way back to it.
    #[error("cannot open the network namespace of this thread: {0}")]
    Own(NetlinkError),
    #[error("cannot enter a network namespace: {0}")]
    Visit(NetlinkError),
}

/// Runs `work` inside a namespace and gives what it gave; a panic in it goes on in the caller.
pub fn run_inside<T: Send>(namespace: &Namespace, work: impl FnOnce() -> T + Send) -> Result<T, NetnsError> {
    std::thread::scope(|scope| {
        let inside = std::thread::Builder::new()
            .name("netns".into())
            .spawn_scoped(scope, || enter(namespace).map(|()| work()))
            .map_err(|error| NetnsError::Thread(error.into()))?;
        inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Runs `work` inside a namespace on this very thread, and comes back: 10 µs, where a thread costs 60.
///
/// Not for a thread of a pool, since a panic in `work` would leave it there. A thread that cannot come back would
/// change the pod instead of the host from then on, so the program ends.
pub fn visit<T>(namespace: impl AsFd, work: impl FnOnce() -> T) -> Result<T, NetnsError> {
    let own = File::open("/proc/thread-self/ns/net").map_err(|error| NetnsError::Own(error.into()))?;
    let move_to = |namespace| move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network));
    move_to(namespace.as_fd()).map_err(|errno| NetnsError::Visit(errno.into()))?;
    let outcome = work();
    if move_to(own.as_fd()).is_err() {
        std::process::abort();
    }
    Ok(outcome)
}

/// Whether the kernel says that a namespace is not one of networks; before 4.11 it does not say.
#[allow(unsafe_code, reason = "rustix does not have this question")]
pub fn is_another_kind(namespace: impl AsFd) -> bool {
    // SAFETY: the question has no argument, so no memory is read or written; the descriptor is open meanwhile.
    let kind = unsafe { libc::ioctl(namespace.as_fd().as_raw_fd(), libc::NS_GET_NSTYPE) };
    kind >= 0 && kind != libc::CLONE_NEWNET
}

fn enter(namespace: &Namespace) -> Result<(), NetnsError> {
    match namespace {
        Namespace::Fresh => leave_for_a_fresh_one(),
        Namespace::Named(name) => enter_path(&Path::new("/run/netns").join(name)),
        Namespace::OfProcess(process) => enter_path(Path::new(&format!("/proc/{process}/ns/net"))),
        Namespace::AtPath(path) => enter_path(path),
    }
}

fn enter_path(path: &Path) -> Result<(), NetnsError> {
    let entered = File::open(path).map_err(NetlinkError::from).and_then(|namespace| {
        Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
    });
    entered.map_err(|why| NetnsError::Enter { path: path.to_owned(), why })
}

#[allow(unsafe_code, reason = "rustix has one function for all kinds of unsharing, some of which are unsafe")]
fn leave_for_a_fresh_one() -> Result<(), NetnsError> {
    // SAFETY: only FILES is dangerous, which takes the descriptors of other threads away; NEWNET leaves them.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
        .map_err(|errno| NetnsError::Make(errno.into()))
}
