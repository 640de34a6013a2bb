//! A socket for the kernel's notices: opened for some groups, read one by one; what was lost is said, too.

use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{Protocol, RecvFlags, sockopt};

use super::NetlinkError;
use super::socket::{INBOX, drain, open_netlink, set_option};
use crate::abi::NETLINK_ADD_MEMBERSHIP;

/// A socket for the kernel's notices, in the namespace of the thread that opened it.
pub(crate) struct NoticeSocket {
    fd: OwnedFd,
    inbox: Box<[u8]>,
}

/// What was heard.
pub(crate) enum Receipt<'a> {
    Nothing,
    /// Something that was lost; what was still to be read is thrown away.
    Lost,
    /// Messages, one behind the other.
    Notices(&'a [u8]),
}

impl NoticeSocket {
    /// Starts to listen to groups of a protocol; none is that of routes.
    pub(crate) fn open(protocol: Option<Protocol>, groups: &[u32]) -> Result<Self, NetlinkError> {
        let fd = open_netlink(protocol)?;
        groups.iter().try_for_each(|group| set_option(&fd, NETLINK_ADD_MEMBERSHIP, *group))?;
        Ok(Self { fd, inbox: vec![0; INBOX].into() })
    }

    /// Keeps at most so many bytes of notices that were not read yet.
    pub(crate) fn keep_at_most(&self, bytes: usize) -> Result<(), NetlinkError> {
        Ok(sockopt::set_socket_recv_buffer_size(&self.fd, bytes)?)
    }

    /// Waits until there is something to hear, or until then; says whether there is.
    pub(crate) fn wait_until(&self, end: Instant) -> Result<bool, NetlinkError> {
        let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).ok();
        match poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], left.as_ref()) {
            Ok(count) => Ok(count > 0),
            Err(Errno::INTR) => Ok(true),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Throws away what was not read yet.
    pub(crate) fn discard(&mut self) {
        drain(&self.fd, &mut self.inbox);
    }

    /// Reads once; waits unless it is told not to.
    pub(crate) fn receive(&mut self, flags: RecvFlags) -> Result<Receipt<'_>, NetlinkError> {
        let length = match rustix::net::recv(&self.fd, &mut self.inbox[..], flags | RecvFlags::TRUNC) {
            Ok((_, length)) => length,
            Err(Errno::INTR | Errno::AGAIN) => return Ok(Receipt::Nothing),
            Err(Errno::NOBUFS) => usize::MAX,
            Err(errno) => return Err(errno.into()),
        };
        if length > self.inbox.len() {
            drain(&self.fd, &mut self.inbox);
            return Ok(Receipt::Lost);
        }
        Ok(Receipt::Notices(&self.inbox[..length]))
    }
}
