//! One blocking socket to netfilter, the part of the kernel that filters packets: a question, a dump, or a
//! transaction.
//!
//! Knows nothing of tables or connections; it stays in the network namespace of the thread that opened it.

use rustix::net::netlink;

use crate::abi::NLMSG_ERROR;
use crate::netlink::{NetlinkError, Outbox, Received, Socket, error_of, messages};

/// Of a transaction with more bytes than this the kernel's default buffer may be too small.
const SMALL: usize = 128 * 1024;

/// A transaction that was refused, of which nothing was done.
pub(super) struct Refused {
    /// The place of the request that is at fault; none if it is the whole.
    pub(super) place: Option<usize>,
    pub(super) why: NetlinkError,
}

/// A socket for requests to netfilter.
pub(super) struct Netfilter {
    socket: Socket,
}

impl Netfilter {
    /// Opens one in the namespace of this thread.
    pub(super) fn open() -> Result<Self, NetlinkError> {
        Ok(Self { socket: Socket::open_to(Some(netlink::NETFILTER))? })
    }

    /// The port ID of the socket, which notices carry.
    pub(super) fn port_id(&self) -> u32 {
        self.socket.port_id()
    }

    /// Sends one request that is answered by one message.
    pub(super) fn ask<T>(
        &mut self,
        request: Outbox,
        read: impl Fn(&Received) -> Option<T>,
    ) -> Result<Option<T>, NetlinkError> {
        self.socket.ask(request, read)
    }

    /// Collects what a dump tells; an interrupted dump is thrown away and repeated.
    pub(super) fn dump<T>(
        &mut self,
        request: impl Fn() -> Outbox,
        read: impl Fn(&Received) -> Option<T>,
    ) -> Result<Vec<T>, NetlinkError> {
        let mut found = Vec::new();
        self.socket.dump(request, &mut found, read)?;
        Ok(found)
    }

    /// Sends one request and waits for its end.
    pub(super) fn request(&mut self, request: Outbox) -> Result<(), NetlinkError> {
        self.socket.request(request)
    }

    /// Lets the kernel close the socket, which takes a while after rules were deleted.
    pub(super) fn close_in_background(&mut self) {
        self.socket.close_in_background();
    }

    /// Sends requests that are done all or not at all: the first opens the transaction, the last closes it.
    pub(super) fn transact(&mut self, requests: &mut Outbox) -> Result<(), Refused> {
        // Older kernels do not answer the end.
        self.send_until(requests, requests.len() - 2)
    }

    /// Sends requests of a transaction that is left open at its end, so that the kernel takes it all back.
    pub(super) fn attempt(&mut self, requests: &mut Outbox) -> Result<(), Refused> {
        self.send_until(requests, requests.len() - 1)
    }

    /// Sends a transaction and waits for the answer to the request at place `last`.
    fn send_until(&mut self, requests: &mut Outbox, last: usize) -> Result<(), Refused> {
        let whole = |why: NetlinkError| Refused { place: None, why };
        if requests.as_bytes().len() > SMALL {
            self.socket.make_room_for(4 * requests.as_bytes().len());
        }
        let first = self.socket.send(requests).map_err(whole)?;
        let mut refused: Option<Refused> = None;
        loop {
            for message in messages(self.socket.receive().map_err(whole)?).filter(|it| it.kind == NLMSG_ERROR)
            {
                let place = usize::try_from(message.sequence.wrapping_sub(first)).unwrap_or(usize::MAX);
                if let Some(why) = error_of(&message) {
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
