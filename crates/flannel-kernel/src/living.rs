//! Which daemons of this host live: each holds a socket whose name only its network namespace knows, whatever mounts and
//! processes it can see. The kernel takes the socket away with the daemon.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use flannel_plan::mark::{SIGN, sign_of_life};

/// The sign that a daemon lives, as long as it is kept.
#[derive(Debug)]
pub struct SignOfLife {
    _socket: UnixDatagram,
}

impl SignOfLife {
    /// Gives the sign of an instance, in the network namespace of this thread.
    pub fn give(instance: &str) -> io::Result<Self> {
        let name = SocketAddr::from_abstract_name(sign_of_life(instance))?;
        Ok(Self { _socket: UnixDatagram::bind_addr(&name)? })
    }
}

/// The signs of all daemons in the network namespace of this thread.
pub(crate) fn signs() -> Vec<Box<str>> {
    let sockets = std::fs::read_to_string("/proc/thread-self/net/unix").unwrap_or_default();
    // The last word of a line is the name, with `@` before one that is in no folder.
    let names = sockets.lines().filter_map(|line| line.rsplit(' ').next()?.strip_prefix('@'));
    names.filter(|name| name.starts_with(SIGN)).map(Into::into).collect()
}
