//! One blocking netlink socket: a request and its answer, a dump, or a batch of requests.
//!
//! It stays in the network namespace of the thread that opened it.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, sockopt,
};

use super::{Attributes, NetlinkError, Outbox, Received, messages};
use crate::Urgent;
use crate::abi::{
    NETLINK_CAP_ACK, NETLINK_EXT_ACK, NETLINK_GET_STRICT_CHK, NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_CAPPED,
    NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_ECHO, NLMSG_DONE, NLMSG_ERROR, NLMSGERR_ATTR_MSG, SOL_NETLINK,
};

/// More requests than this in one send could fill the receive buffer with errors.
pub(crate) const MOST_IN_A_CHUNK: usize = 200;

/// The kernel fills at most 32 KiB of a dump at once, however large our buffer is.
pub(super) const INBOX: usize = 64 * 1024;
/// Enough for the notices of a thousand objects that come at once; beyond it we look at everything.
const RECEIVE_BUFFER: usize = 1024 * 1024;
/// A change waits for those of others, which may be large.
const PATIENCE: Duration = Duration::from_secs(30);
/// A table that changes all the time gives interrupted dumps all the time; fifty pods that come at once change
/// one for seconds.
const MOST_DUMPS: usize = 500;

/// A request of a batch that failed.
pub(crate) struct FailedRequest {
    pub(crate) place: usize,
    pub(crate) why: NetlinkError,
    /// Whether it was made for the second time; the first may have been granted.
    pub(crate) repeated: bool,
}

/// A socket for requests to one part of the kernel.
pub(crate) struct Socket {
    fd: OwnedFd,
    port: u32,
    sequence: u32,
    inbox: Box<[u8]>,
    /// What a dump gives way to.
    urgent: Option<Urgent>,
    /// Closed after `fd`, as fields are in their order: see `close_in_background`.
    parting: Option<OwnedFd>,
}

impl Socket {
    /// Opens one to the part that routes, in the namespace of this thread.
    pub(crate) fn open() -> Result<Self, NetlinkError> {
        Self::open_to(None) // NETLINK_ROUTE is protocol 0
    }

    /// Opens one to a part of the kernel, in the namespace of this thread.
    pub(crate) fn open_to(part: Option<Protocol>) -> Result<Self, NetlinkError> {
        let fd = open_netlink(part)?;
        // Any process may write to a netlink socket; to one that is connected to port 0 only the kernel may.
        rustix::net::connect(&fd, &SocketAddrNetlink::new(0, 0))?;
        let port = SocketAddrNetlink::try_from(rustix::net::getsockname(&fd)?)?.pid();
        // An old kernel lacks some of these; then answers are larger or say less, but are still right.
        for option in [NETLINK_EXT_ACK, NETLINK_CAP_ACK, NETLINK_GET_STRICT_CHK] {
            let _ = set_option(&fd, option, 1);
        }
        sockopt::set_socket_timeout(&fd, sockopt::Timeout::Recv, Some(PATIENCE))?;
        Ok(Self { fd, port, sequence: 0, inbox: vec![0; INBOX].into(), urgent: None, parting: None })
    }

    /// The port ID of the socket, which notices carry.
    pub(crate) fn port_id(&self) -> u32 {
        self.port
    }

    /// Lets dumps end with ECANCELED as soon as something is more urgent. The kernel goes on with such a dump whenever
    /// the socket is read, and takes no other: the socket is of no more use.
    pub(crate) fn give_way_to(&mut self, urgent: Urgent) {
        self.urgent = Some(urgent);
    }

    /// Sends one request and waits for its end.
    pub(crate) fn request(&mut self, mut request: Outbox) -> Result<(), NetlinkError> {
        match self.send_chunk(&mut request)?.pop() {
            Some(failed) => Err(failed.why),
            None => Ok(()),
        }
    }

    /// Sends one request that is answered by one message.
    pub(crate) fn ask<T>(
        &mut self,
        mut request: Outbox,
        read: impl Fn(&Received) -> Option<T>,
    ) -> Result<Option<T>, NetlinkError> {
        let sequence = self.send(&mut request)?;
        loop {
            let received = self.receive()?;
            if let Some(answer) = messages(received).find(|message| message.sequence == sequence) {
                return error_of(&answer).map_or_else(|| Ok(read(&answer)), Err);
            }
        }
    }

    /// Sends one request that makes something, waits for its end, and gives what the kernel tells about it; an
    /// old kernel tells nothing.
    pub(crate) fn make<T>(
        &mut self,
        mut request: Outbox,
        read: impl Fn(&Received) -> Option<T>,
    ) -> Result<Option<T>, NetlinkError> {
        request.flag_last(NLM_F_ACK | NLM_F_ECHO);
        let sequence = self.send(&mut request)?;
        let mut made = None;
        loop {
            for message in messages(self.receive()?).filter(|message| message.sequence == sequence) {
                if message.kind == NLMSG_ERROR {
                    return error_of(&message).map_or(Ok(made), Err);
                }
                made = read(&message).or(made);
            }
        }
    }

    /// Sends the requests, of which only the last is acknowledged, and returns those that failed.
    pub(crate) fn send_batch(&mut self, requests: &mut Outbox) -> Result<Vec<FailedRequest>, NetlinkError> {
        if requests.len() == 0 {
            return Ok(Vec::new());
        }
        match self.send_chunk(requests) {
            // Some answers are lost. Every request of ours can be repeated, so ask again, one at a time; what the
            // first time did fails then.
            Err(why) if why.is(Errno::NOBUFS) => self.send_one_by_one(requests),
            outcome => outcome,
        }
    }

    /// Collects what a dump tells; an interrupted dump is thrown away and repeated.
    pub(crate) fn dump<T>(
        &mut self,
        request: impl Fn() -> Outbox,
        into: &mut Vec<T>,
        read: impl Fn(&Received) -> Option<T>,
    ) -> Result<(), NetlinkError> {
        let before = into.len();
        for _ in 0..MOST_DUMPS {
            match self.dump_once(request(), &mut |message| into.extend(read(message))) {
                Ok(Consistency::Whole) => return Ok(()),
                Ok(Consistency::Interrupted) => {}
                Err(why) if why.is(Errno::NOBUFS) => self.drain(),
                Err(why) if why.is(Errno::INTR) => {}
                Err(why) => return Err(why),
            }
            into.truncate(before);
        }
        let message = "the table changed during every attempt to read it";
        Err(NetlinkError { errno: Errno::INTR, message: Some(message.into()) })
    }

    /// One code for all that can be dumped: the CNI plugin is read from disk for every pod.
    fn dump_once(
        &mut self,
        mut request: Outbox,
        take: &mut dyn FnMut(&Received),
    ) -> Result<Consistency, NetlinkError> {
        request.flag_last(NLM_F_DUMP);
        let sequence = self.send(&mut request)?;
        let mut consistency = Consistency::Whole;
        loop {
            for message in messages(self.receive()?).filter(|message| message.sequence == sequence) {
                if message.flags & NLM_F_DUMP_INTR != 0 {
                    consistency = Consistency::Interrupted;
                }
                if let Some(why) = error_of(&message) {
                    return Err(why);
                }
                if message.kind == NLMSG_DONE {
                    return Ok(consistency);
                }
                take(&message);
            }
        }
    }

    fn send_chunk(&mut self, requests: &mut Outbox) -> Result<Vec<FailedRequest>, NetlinkError> {
        requests.flag_last(NLM_F_ACK);
        let first = self.send(requests)?;
        let last = requests.len() - 1;
        let mut failed = Vec::new();
        loop {
            for message in messages(self.receive()?).filter(|message| message.kind == NLMSG_ERROR) {
                let place = usize::try_from(message.sequence.wrapping_sub(first)).unwrap_or(usize::MAX);
                if place > last {
                    continue; // the answer to a request of before, lost then
                }
                failed.extend(error_of(&message).map(|why| FailedRequest { place, why, repeated: false }));
                if place == last {
                    return Ok(failed);
                }
            }
        }
    }

    fn send_one_by_one(&mut self, requests: &Outbox) -> Result<Vec<FailedRequest>, NetlinkError> {
        self.drain();
        let mut failed = Vec::new();
        for place in 0..requests.len() {
            if let Some(Err(why)) = requests.nth(place).map(|request| self.request(request)) {
                failed.push(FailedRequest { place, why, repeated: true });
            }
        }
        Ok(failed)
    }

    /// Makes room for a send of so many bytes, beyond what the system grants by itself.
    pub(crate) fn make_room_for(&self, bytes: usize) {
        let _ = sockopt::set_socket_send_buffer_size_force(&self.fd, bytes);
    }

    /// Sends and returns the sequence number of the first request.
    pub(crate) fn send(&mut self, requests: &mut Outbox) -> Result<u32, NetlinkError> {
        let first = self.sequence.wrapping_add(1);
        requests.number_from(first);
        self.sequence = self.sequence.wrapping_add(u32::try_from(requests.len()).unwrap_or(u32::MAX));
        rustix::net::sendto(
            &self.fd,
            requests.as_bytes(),
            SendFlags::empty(),
            &SocketAddrNetlink::new(0, 0),
        )?;
        Ok(first)
    }

    /// Lets the kernel close the socket when we have dropped it, instead of us.
    ///
    /// Whoever closes a socket that deleted rules waits until no processor can see them any more: 5 to 20 ms, for
    /// which a pod's removal would stand still. So the socket travels in a letter to a mailbox that is in the same
    /// letter: nobody can ever open either, and the kernel's collector of such letters closes the socket, waiting in
    /// our place. Older kernels collect while we drop the mailbox's other end, and we wait as we always did.
    pub(crate) fn close_in_background(&mut self) {
        if self.parting.is_none() {
            self.parting = post(&self.fd).ok();
        }
    }

    fn drain(&mut self) {
        drain(&self.fd, &mut self.inbox);
    }

    /// Waits for the next answers.
    pub(crate) fn receive(&mut self) -> Result<&[u8], NetlinkError> {
        if self.urgent.as_ref().is_some_and(|is_urgent| is_urgent()) {
            return Err(Errno::CANCELED.into());
        }
        let length = loop {
            match rustix::net::recv(&self.fd, &mut self.inbox[..], RecvFlags::TRUNC) {
                Ok((_, length)) => break length,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let message = Some("the kernel did not answer within 30 s".into());
                    return Err(NetlinkError { errno: Errno::TIMEDOUT, message });
                }
                Err(errno) => return Err(errno.into()),
            }
        };
        self.inbox.get(..length).ok_or_else(|| Errno::MSGSIZE.into())
    }
}

/// Opens a socket to a part of the kernel, with room for what it says; none is that of routes.
pub(super) fn open_netlink(part: Option<Protocol>) -> Result<OwnedFd, Errno> {
    let fd = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, part)?;
    rustix::net::bind(&fd, &SocketAddrNetlink::new(0, 0))?;
    if sockopt::set_socket_recv_buffer_size_force(&fd, RECEIVE_BUFFER).is_err() {
        sockopt::set_socket_recv_buffer_size(&fd, RECEIVE_BUFFER)?;
    }
    Ok(fd)
}

/// Sends a file into a mailbox that it shares with the mailbox itself; what is given back collects both when closed.
fn post(fd: &OwnedFd) -> Result<OwnedFd, Errno> {
    let (here, mailbox) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let files = [fd.as_fd(), mailbox.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut letter = SendAncillaryBuffer::new(&mut space);
    if !letter.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(Errno::MSGSIZE);
    }
    rustix::net::sendmsg(&here, &[IoSlice::new(b".")], &mut letter, SendFlags::empty())?;
    Ok(here)
}

enum Consistency {
    Whole,
    Interrupted,
}

/// The error that a message carries, if it carries one.
pub(crate) fn error_of(message: &Received) -> Option<NetlinkError> {
    if message.kind != NLMSG_ERROR && message.kind != NLMSG_DONE {
        return None;
    }
    let code = message.payload.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
    if code >= 0 {
        return None;
    }
    // The kernel has numbers up to 4095; the library takes no others.
    let errno = if code >= -4095 { Errno::from_raw_os_error(-code) } else { Errno::INVAL };
    Some(NetlinkError { errno, message: words(message) })
}

/// What the kernel said beside the error number.
fn words(message: &Received) -> Option<Box<str>> {
    if message.flags & NLM_F_ACK_TLVS == 0 {
        return None;
    }
    let mut start = 4;
    if message.kind == NLMSG_ERROR {
        let echoed = usize::try_from(super::number(message.payload.get(4..)?)?).ok()?;
        start += if message.flags & NLM_F_CAPPED != 0 { 16 } else { echoed.next_multiple_of(4) };
    }
    let text = Attributes(message.payload.get(start..)?).get(NLMSGERR_ATTR_MSG)?;
    Some(String::from_utf8_lossy(text).trim_end_matches('\0').into())
}

/// Throws away what was not read: the kernel adds nothing to a buffer that was full before it is empty, and does
/// not say again that something is lost.
pub(crate) fn drain(fd: &OwnedFd, inbox: &mut [u8]) {
    let mut read = || rustix::net::recv(fd, &mut *inbox, RecvFlags::DONTWAIT);
    while matches!(read(), Ok(_) | Err(Errno::NOBUFS | Errno::INTR)) {}
}

/// Sets a number-valued option of a netlink socket.
#[allow(unsafe_code, reason = "neither std nor rustix knows the options of netlink sockets")]
pub(crate) fn set_option(fd: &OwnedFd, option: i32, value: u32) -> Result<(), Errno> {
    let size = libc::socklen_t::try_from(size_of::<u32>()).map_err(|_| Errno::OVERFLOW)?;
    // SAFETY: the descriptor is open for the whole call, and `value` is a live u32 of the length that is given;
    // the kernel only reads it.
    let outcome =
        unsafe { libc::setsockopt(fd.as_raw_fd(), SOL_NETLINK, option, (&raw const value).cast(), size) };
    if outcome == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
    }
}

#[cfg(test)]
mod tests;
