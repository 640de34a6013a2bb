//! Speaks netlink: writes requests, reads answers, keeps the kernel's own words of a refusal.
//!
//! Knows nothing of links or routes; [`Socket`] takes an [`Outbox`] of messages and gives what was answered.

mod error;
mod message;
mod notices;
mod socket;

pub use error::NetlinkError;
pub(crate) use message::{Attributes, Outbox, Received, Writer, messages};
pub(crate) use notices::{Heard, NoticeSocket};
pub(crate) use socket::{MOST_IN_A_CHUNK, Refused, Socket, drain, refusal, set_option};

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
