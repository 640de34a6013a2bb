//! Speaks netlink: writes requests, reads answers, keeps the kernel's own words of an error.
//!
//! Knows nothing of links or routes; [`Socket`] takes an [`Outbox`] of messages and gives what was answered.

mod error;
mod message;
mod notices;
mod socket;

pub use error::NetlinkError;
pub(crate) use message::{Attributes, Outbox, Received, Writer, messages};
pub(crate) use notices::{NoticeSocket, Receipt};
pub(crate) use socket::{FailedRequest, MOST_IN_A_CHUNK, Socket, error_of};

use crate::abi::{AF_INET, AF_INET6};

/// An IP address by the length of its bytes: forwarding entries carry it in a message of no IP family.
pub(crate) fn ip(bytes: &[u8]) -> Option<std::net::IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(Into::into),
        16 => <[u8; 16]>::try_from(bytes).ok().map(Into::into),
        _ => None,
    }
}

/// A number in the byte order of this machine.
pub(crate) fn number(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// The address family of an IP address, as messages name it.
pub(crate) fn family_of(address: std::net::IpAddr) -> u8 {
    if address.is_ipv4() { AF_INET } else { AF_INET6 }
}
