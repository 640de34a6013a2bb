//! One blocking socket to netfilter, the part of the kernel that filters packets: a question, a dump, or a
//! transaction.
//!
//! Knows nothing of tables or connections; it stays in the network namespace of the thread that opened it.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use crate::abi::{
    NETLINK_CAP_ACK, NETLINK_EXT_ACK, NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_DUMP, NLM_F_DUMP_INTR,
    NLMSG_DONE, NLMSG_ERROR, NLMSGERR_ATTR_MSG,
};
use crate::netlink::{Attributes, Outbox, Received, Refusal, drain, messages, number, set_option};

const INBOX: usize = 64 * 1024;
/// Of a transaction with more bytes than this the kernel's default buffer may be too small.
const SMALL: usize = 128 * 1024;
/// A change waits for those of others, which may be large.
const PATIENCE: Duration = Duration::from_secs(30);
/// A table that changes all the time gives interrupted dumps all the time.
const MOST_DUMPS: usize = 20;

/// A transaction that was refused, of which nothing was done.
pub(super) struct Refused {
    /// The place of the request that is at fault; none if it is the whole.
    pub(super) place: Option<usize>,
    pub(super) why: Refusal,
}

/// A socket for requests to netfilter.
pub(super) struct Netfilter {
    fd: OwnedFd,
    sequence: u32,
    inbox: Box<[u8]>,
}

impl Netfilter {
    /// Opens one in the namespace of this thread.
    pub(super) fn open() -> Result<Self, Refusal> {
        let fd = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(netlink::NETFILTER),
        )?;
        rustix::net::bind(&fd, &SocketAddrNetlink::new(0, 0))?;
        // Any process may write to a netlink socket; to one that is connected to port 0 only the kernel may.
        rustix::net::connect(&fd, &SocketAddrNetlink::new(0, 0))?;
        // An old kernel lacks some of these; then answers are larger or say less, but are still right.
        for option in [NETLINK_EXT_ACK, NETLINK_CAP_ACK] {
            let _ = set_option(&fd, option, 1);
        }
        sockopt::set_socket_timeout(&fd, sockopt::Timeout::Recv, Some(PATIENCE))?;
        Ok(Self { fd, sequence: 0, inbox: vec![0; INBOX].into() })
    }

    /// Sends one request that is answered by one message.
    pub(super) fn ask<T>(
        &mut self,
        mut request: Outbox,
        read: impl Fn(&Received) -> Option<T>,
    ) -> Result<Option<T>, Refusal> {
        let sequence = self.send(&mut request)?;
        loop {
            let received = self.receive()?;
            if let Some(answer) = messages(received).find(|message| message.sequence == sequence) {
                return refusal(&answer).map_or_else(|| Ok(read(&answer)), Err);
            }
        }
    }

    /// Collects what a dump tells; an interrupted dump is thrown away and repeated.
    pub(super) fn dump<T>(
        &mut self,
        request: impl Fn() -> Outbox,
        read: impl Fn(&Received) -> Option<T>,
    ) -> Result<Vec<T>, Refusal> {
        for _ in 0..MOST_DUMPS {
            match self.dump_once(request(), &read) {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => {}
                Err(why) if why.is(Errno::NOBUFS) => drain(&self.fd, &mut self.inbox),
                Err(why) if why.is(Errno::INTR) => {}
                Err(why) => return Err(why),
            }
        }
        let message = "the table changed during every attempt to read it";
        Err(Refusal { errno: Errno::INTR, message: Some(message.into()) })
    }

    /// Sends requests that are done all or not at all: the first opens the transaction, the last closes it.
    pub(super) fn transact(&mut self, requests: &mut Outbox) -> Result<(), Refused> {
        let whole = |why: Refusal| Refused { place: None, why };
        if requests.as_bytes().len() > SMALL {
            let _ = sockopt::set_socket_send_buffer_size_force(&self.fd, 4 * requests.as_bytes().len());
        }
        let first = self.send(requests).map_err(whole)?;
        let last = requests.len() - 2;
        let mut refused: Option<Refused> = None;
        loop {
            for message in messages(self.receive().map_err(whole)?).filter(|it| it.kind == NLMSG_ERROR) {
                let place = usize::try_from(message.sequence.wrapping_sub(first)).unwrap_or(usize::MAX);
                if let Some(why) = refusal(&message) {
                    match place {
                        // The frame is refused: nothing else is answered.
                        0 => return Err(whole(why)),
                        place if place <= last => {
                            refused.get_or_insert(Refused { place: Some(place - 1), why });
                        }
                        _ => {}
                    }
                }
                if place == last {
                    return refused.map_or(Ok(()), Err);
                }
            }
        }
    }

    /// Sends one request and waits for its end.
    pub(super) fn request(&mut self, mut request: Outbox) -> Result<(), Refusal> {
        request.flag_last(NLM_F_ACK);
        self.ask(request, |_| Some(())).map(|_| ())
    }

    fn dump_once<T>(
        &mut self,
        mut request: Outbox,
        read: &impl Fn(&Received) -> Option<T>,
    ) -> Result<Option<Vec<T>>, Refusal> {
        request.flag_last(NLM_F_DUMP);
        let sequence = self.send(&mut request)?;
        let mut found = Vec::new();
        let mut interrupted = false;
        loop {
            for message in messages(self.receive()?).filter(|message| message.sequence == sequence) {
                interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
                if let Some(why) = refusal(&message) {
                    return Err(why);
                }
                if message.kind == NLMSG_DONE {
                    return Ok((!interrupted).then_some(found));
                }
                found.extend(read(&message));
            }
        }
    }

    /// Sends and returns the sequence number of the first request.
    fn send(&mut self, requests: &mut Outbox) -> Result<u32, Refusal> {
        let first = self.sequence.wrapping_add(1);
        requests.number_from(first);
        self.sequence = self.sequence.wrapping_add(u32::try_from(requests.len()).unwrap_or(u32::MAX));
        let kernel = SocketAddrNetlink::new(0, 0);
        rustix::net::sendto(&self.fd, requests.as_bytes(), SendFlags::empty(), &kernel)?;
        Ok(first)
    }

    fn receive(&mut self) -> Result<&[u8], Refusal> {
        let length = loop {
            match rustix::net::recv(&self.fd, &mut self.inbox[..], RecvFlags::TRUNC) {
                Ok((_, length)) => break length,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let message = Some("the kernel did not answer within 30 s".into());
                    return Err(Refusal { errno: Errno::TIMEDOUT, message });
                }
                Err(errno) => return Err(errno.into()),
            }
        };
        self.inbox.get(..length).ok_or_else(|| Errno::MSGSIZE.into())
    }
}

/// The error that a message carries, if it carries one.
fn refusal(message: &Received) -> Option<Refusal> {
    if message.kind != NLMSG_ERROR && message.kind != NLMSG_DONE {
        return None;
    }
    let code = message.payload.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
    (code < 0).then(|| Refusal { errno: Errno::from_raw_os_error(-code), message: words(message) })
}

/// What the kernel said beside the error number.
fn words(message: &Received) -> Option<Box<str>> {
    if message.flags & NLM_F_ACK_TLVS == 0 {
        return None;
    }
    let mut start = 4;
    if message.kind == NLMSG_ERROR {
        let echoed = usize::try_from(number(message.payload.get(4..)?)?).ok()?;
        start += if message.flags & NLM_F_CAPPED != 0 { 16 } else { echoed.next_multiple_of(4) };
    }
    let (_, text) = Attributes(message.payload.get(start..)?).find(|(kind, _)| *kind == NLMSGERR_ATTR_MSG)?;
    Some(String::from_utf8_lossy(text).trim_end_matches('\0').into())
}

/// Begins a message: the family, and the number of the subsystem where a transaction begins and ends.
pub(super) fn header(family: u8, resource: u16) -> [u8; 4] {
    let [high, low] = resource.to_be_bytes();
    [family, 0, high, low]
}

/// A number of netfilter: big-endian.
pub(super) fn be32(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

/// A text that ends with a zero.
pub(super) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
