//! Waits for the kernel to say that something may have changed: a reason to look again, nothing more.

use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::abi::NETLINK_ADD_MEMBERSHIP;
use crate::netlink::{NetlinkError, drain, set_option};

/// A socket that hears the notices of one group, in the namespace of the thread that opened it.
pub(crate) struct Listener {
    fd: OwnedFd,
}

impl Listener {
    /// Starts to listen.
    pub(crate) fn open(group: u32) -> Result<Self, NetlinkError> {
        let kind = (AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC);
        let fd = rustix::net::socket_with(kind.0, kind.1, kind.2, None)?; // NETLINK_ROUTE is protocol 0
        rustix::net::bind(&fd, &SocketAddrNetlink::new(0, 0))?;
        set_option(&fd, NETLINK_ADD_MEMBERSHIP, group)?;
        Ok(Self { fd })
    }

    /// Waits for a notice, or until a moment; what the notice says is thrown away.
    pub(crate) fn wait_until(&mut self, end: Instant) -> Result<(), NetlinkError> {
        let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).ok();
        match poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        drain(&self.fd, &mut [0; 64]);
        Ok(())
    }
}
