//! What all of netfilter shares, the part of the kernel that filters packets: its socket, transactions, headers
//! and numbers. Knows nothing of tables or connections.

use rustix::net::netlink;

use crate::abi::NLMSG_ERROR;
use crate::netlink::{NetlinkError, Outbox, Socket, error_of, messages};

/// Of a transaction with more bytes than this the kernel's default buffer may be too small.
const SMALL: usize = 128 * 1024;

/// A transaction that was refused, of which nothing was done.
pub(super) struct Refused {
    /// The place of the request that is at fault; none if it is the whole.
    pub(super) place: Option<usize>,
    pub(super) why: NetlinkError,
}

/// Opens a socket for requests to netfilter, in the namespace of this thread.
pub(super) fn open() -> Result<Socket, NetlinkError> {
    Socket::open_to(Some(netlink::NETFILTER))
}

/// Sends requests that are done all or not at all, and waits for the answer to the one at place `last`.
pub(super) fn transact(socket: &mut Socket, requests: &mut Outbox, last: usize) -> Result<(), Refused> {
    let whole = |why: NetlinkError| Refused { place: None, why };
    if requests.as_bytes().len() > SMALL {
        socket.make_room_for(4 * requests.as_bytes().len());
    }
    let first = socket.send(requests).map_err(whole)?;
    let mut refused: Option<Refused> = None;
    loop {
        for message in messages(socket.receive().map_err(whole)?).filter(|it| it.kind == NLMSG_ERROR) {
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
