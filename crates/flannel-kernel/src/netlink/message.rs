//! Netlink messages as bytes: [`Outbox`] writes them one after the other, [`messages`] reads them back.
//!
//! Reading never fails: a message or an attribute that is cut off ends the walk, as in the kernel's own parser.

use std::net::IpAddr;

use crate::abi::{NLA_F_NESTED, NLA_TYPE_MASK, NLM_F_REQUEST};

const HEADER: usize = 16;
const ATTRIBUTE: usize = 4;

/// Requests to the kernel, one after the other in one buffer.
#[derive(Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    starts: Vec<usize>,
}

impl Outbox {
    /// A single request.
    pub(crate) fn of(kind: u16, flags: u16, write: impl FnOnce(&mut Writer)) -> Self {
        let mut outbox = Self::default();
        outbox.add(kind, flags, write);
        outbox
    }

    pub(crate) fn add(&mut self, kind: u16, flags: u16, write: impl FnOnce(&mut Writer)) {
        let start = self.bytes.len();
        self.starts.push(start);
        self.bytes.extend_from_slice(&[0; 4]); // the length, known at the end
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&(flags | NLM_F_REQUEST).to_ne_bytes());
        self.bytes.extend_from_slice(&[0; 8]); // the sequence number, set by the socket, and the port id
        write(&mut Writer { bytes: &mut self.bytes });
        let length = u32::try_from(self.bytes.len() - start).unwrap_or(u32::MAX);
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
    }

    pub(crate) fn len(&self) -> usize {
        self.starts.len()
    }

    /// Forgets all requests and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.starts.clear();
    }

    /// Numbers the requests upwards from `first`.
    pub(crate) fn number_from(&mut self, first: u32) {
        let mut sequence = first;
        for start in &self.starts {
            self.bytes[start + 8..start + 12].copy_from_slice(&sequence.to_ne_bytes());
            sequence = sequence.wrapping_add(1);
        }
    }

    pub(crate) fn flag_last(&mut self, flag: u16) {
        if let Some(start) = self.starts.last() {
            let at = start + 6;
            let flags = u16::from_ne_bytes([self.bytes[at], self.bytes[at + 1]]) | flag;
            self.bytes[at..at + 2].copy_from_slice(&flags.to_ne_bytes());
        }
    }

    /// One request alone.
    pub(crate) fn nth(&self, n: usize) -> Option<Self> {
        let start = *self.starts.get(n)?;
        let end = self.starts.get(n + 1).copied().unwrap_or(self.bytes.len());
        Some(Self { bytes: self.bytes[start..end].to_vec(), starts: vec![0] })
    }

    /// All requests as the kernel takes them.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Writes the inside of one request.
pub(crate) struct Writer<'a> {
    bytes: &'a mut Vec<u8>,
}

impl Writer<'_> {
    /// Writes the fixed part that opens the message; its length is a multiple of four.
    pub(crate) fn header(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn attribute(&mut self, kind: u16, value: &[u8]) {
        let length = u16::try_from(ATTRIBUTE + value.len()).unwrap_or(u16::MAX);
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    pub(crate) fn number(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_ne_bytes());
    }

    pub(crate) fn text(&mut self, kind: u16, value: &str) {
        let start = self.bytes.len();
        self.attribute(kind, value.as_bytes());
        // The kernel takes texts with and without a final zero, but copies a device name by the zero.
        let length = u16::try_from(ATTRIBUTE + value.len() + 1).unwrap_or(u16::MAX);
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.bytes.resize(start + usize::from(length).next_multiple_of(4), 0);
    }

    pub(crate) fn ip(&mut self, kind: u16, value: IpAddr) {
        match value {
            IpAddr::V4(ip) => self.attribute(kind, &ip.octets()),
            IpAddr::V6(ip) => self.attribute(kind, &ip.octets()),
        }
    }

    /// Writes an attribute that holds attributes.
    pub(crate) fn nest(&mut self, kind: u16, write: impl FnOnce(&mut Writer)) {
        let start = self.bytes.len();
        self.attribute(kind | NLA_F_NESTED, &[]);
        write(&mut Writer { bytes: self.bytes });
        let length = u16::try_from(self.bytes.len() - start).unwrap_or(u16::MAX);
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
    }
}

/// One message of the kernel.
#[derive(Clone, Copy)]
pub(crate) struct Received<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    /// Who asked for what this message tells; 0 if nobody did.
    pub(crate) port: u32,
    pub(crate) payload: &'a [u8],
}

impl<'a> Received<'a> {
    /// The fixed part that opens the message, and the attributes behind it.
    pub(crate) fn split<const N: usize>(&self) -> Option<(&'a [u8; N], Attributes<'a>)> {
        let (header, rest) = self.payload.split_first_chunk::<N>()?;
        Some((header, Attributes(rest)))
    }
}

/// The messages in a buffer.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Received<'_>> {
    std::iter::from_fn(move || {
        let header = bytes.first_chunk::<HEADER>()?;
        let length = usize::try_from(super::number(header)?).ok()?;
        let payload = bytes.get(HEADER..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Received {
            kind: u16::from_ne_bytes([header[4], header[5]]),
            flags: u16::from_ne_bytes([header[6], header[7]]),
            sequence: super::number(&header[8..])?,
            port: super::number(&header[12..])?,
            payload,
        })
    })
}

/// The attributes in a buffer, each with its kind.
#[derive(Clone, Copy)]
pub(crate) struct Attributes<'a>(pub(crate) &'a [u8]);

impl<'a> Attributes<'a> {
    /// The value of the first attribute of a kind.
    pub(crate) fn get(mut self, wanted: u16) -> Option<&'a [u8]> {
        self.find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let header = self.0.first_chunk::<ATTRIBUTE>()?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let value = self.0.get(ATTRIBUTE..length)?;
        let kind = u16::from_ne_bytes([header[2], header[3]]) & NLA_TYPE_MASK;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let mut outbox = Outbox::of(16, 0x400, |message| {
            message.header(&[7; 4]);
            message.text(3, "lo");
            message.nest(18, |inner| inner.number(1, 9));
        });
        outbox.add(17, 0, |message| message.attribute(1, &[1, 2, 3, 4, 5]));
        outbox.number_from(40);
        outbox.flag_last(4);

        let read: Vec<_> = messages(outbox.as_bytes()).collect();
        let heads: Vec<_> =
            read.iter().map(|message| (message.kind, message.flags, message.sequence)).collect();
        assert_eq!(heads, [(16, 0x401, 40), (17, 5, 41)]);
        let (header, attributes) = read[0].split::<4>().unwrap();
        assert_eq!(header, &[7; 4]);
        let nine = 9u32.to_ne_bytes();
        let nested = [&8u16.to_ne_bytes()[..], &1u16.to_ne_bytes(), &nine].concat();
        assert_eq!(attributes.collect::<Vec<_>>(), [(3, &b"lo\0"[..]), (18, &nested)]);
        assert_eq!(Attributes(read[1].payload).collect::<Vec<_>>(), [(1, &[1, 2, 3, 4, 5][..])]);
    }

    #[test]
    fn a_message_that_is_cut_off_ends_the_walk() {
        let outbox = Outbox::of(16, 0, |message| message.number(1, 1));
        for cut in 0..outbox.as_bytes().len() {
            assert_eq!(messages(&outbox.as_bytes()[..cut]).count(), 0, "{cut}");
        }
        assert_eq!(Attributes(&[8, 0, 1, 0, 1, 2, 3]).count(), 0);
        assert_eq!(Attributes(&[3, 0, 1, 0]).count(), 0);
    }
}
