//! The neighbours of this namespace that were heard of lately, asked of the kernel in one dump. Gives their
//! addresses.

use std::collections::BTreeSet;
use std::net::IpAddr;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

const RTM_GETNEIGH: u16 = 30;
const RTM_NEWNEIGH: u16 = 28;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const REQUEST_DUMP: u16 = 0x301;
const NDA_DST: u16 = 1;
/// REACHABLE, STALE, DELAY, PROBE and PERMANENT: not those that were only asked for and did not answer.
const KNOWN: u16 = 0x02 | 0x04 | 0x08 | 0x10 | 0x80;
const MESSAGE: usize = 16;
const NEIGHBOUR: usize = 12;

/// The addresses of the neighbours that are known to have been there.
pub fn reachable() -> Result<BTreeSet<IpAddr>, Errno> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None, // NETLINK_ROUTE is protocol 0
    )?;
    rustix::net::sendto(&socket, &request(), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut found = BTreeSet::new();
    let mut inbox = vec![0; 64 * 1024];
    loop {
        let receive = || rustix::net::recv(&socket, &mut inbox[..], RecvFlags::TRUNC);
        let (_, length) = rustix::io::retry_on_intr(receive)?;
        if collect(inbox.get(..length).ok_or(Errno::MSGSIZE)?, &mut found)? == Dump::Ended {
            return Ok(found);
        }
    }
}

#[derive(PartialEq, Eq)]
enum Dump {
    GoesOn,
    Ended,
}

/// `struct nlmsghdr` and `struct ndmsg`, for every family
fn request() -> [u8; MESSAGE + NEIGHBOUR] {
    let mut request = [0; MESSAGE + NEIGHBOUR];
    request[0] = 28;
    request[4..6].copy_from_slice(&RTM_GETNEIGH.to_ne_bytes());
    request[6..8].copy_from_slice(&REQUEST_DUMP.to_ne_bytes());
    request
}

fn collect(mut messages: &[u8], found: &mut BTreeSet<IpAddr>) -> Result<Dump, Errno> {
    while let Some((length, kind)) = message_head(messages) {
        let message = messages.get(MESSAGE..length).ok_or(Errno::BADMSG)?;
        match kind {
            NLMSG_DONE => return Ok(Dump::Ended),
            NLMSG_ERROR => {
                let code = message.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
                return Err(Errno::from_raw_os_error(-code));
            }
            RTM_NEWNEIGH => found.extend(read(message)),
            _ => {}
        }
        messages = messages.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(Dump::GoesOn)
}

fn message_head(bytes: &[u8]) -> Option<(usize, u16)> {
    let length = usize::try_from(u32::from_ne_bytes(*bytes.first_chunk()?)).ok()?;
    Some((length.max(MESSAGE), number(bytes.get(4..)?)?))
}

fn read(message: &[u8]) -> Option<IpAddr> {
    let (head, mut attributes) = message.split_at_checked(NEIGHBOUR)?;
    if number(head.get(8..)?)? & KNOWN == 0 {
        return None;
    }
    while let (Some(length), Some(kind)) = (number(attributes), attributes.get(2..).and_then(number)) {
        let length = usize::from(length).max(4);
        if kind == NDA_DST {
            return address(attributes.get(4..length)?);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
    None
}

fn number(bytes: &[u8]) -> Option<u16> {
    bytes.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}
