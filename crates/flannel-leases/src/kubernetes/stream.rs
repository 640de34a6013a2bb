//! Cuts what the API server sends for long into its parts, while it arrives: the events of a watch, the nodes of
//! a list, which is unpacked before: gzip makes a tenth of it. Takes bytes as the network brings them, gives one part at
//! a time, and keeps no more than that.

use std::io::Write;

use flate2::write::GzDecoder;
use http::Response;
use http::header::CONTENT_ENCODING;
use hyper::body::{Buf, Bytes, Incoming};
use prost::bytes::BytesMut;
use prost::{DecodeError, Message};

use super::client::Client;
use super::error::KubernetesError;
use super::wire::{ListMeta, MAGIC, Node, check_magic, not_ours};

/// No node is as large; more means that the stream is not what we take it for.
const LARGEST: usize = 64 << 20;
/// So much is unpacked at a time: a thousand times as much may come of it.
const PIECE: usize = 1 << 10;
/// A hundred thousand nodes of 12 KB; more is not what we take it for.
const LARGEST_LIST: u64 = 1200 << 20;
/// The numbers of the fields that we read, which are all messages: of what an answer is wrapped in, and of a list.
const RAW: u64 = 2;
const LIST_METADATA: u64 = 1;
const LIST_ITEMS: u64 = 2;

/// Cuts a stream into frames: four bytes of length, and then as many.
#[derive(Debug, Default)]
pub(super) struct Frames {
    arrived: BytesMut,
}

impl Frames {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.arrived.extend_from_slice(bytes);
    }

    /// The next whole frame; an error if there will never be one.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, DecodeError> {
        let Some((length, body)) = self.arrived.split_first_chunk::<4>() else { return Ok(None) };
        let length = size(u64::from(u32::from_be_bytes(*length)))?;
        if body.len() < length {
            return Ok(None);
        }
        self.arrived.advance(4);
        Ok(Some(self.arrived.split_to(length).freeze()))
    }
}

/// Cuts a list into its nodes while it arrives: a list of 5,000 is 50 MB, and no more than a node of it is kept.
#[derive(Debug, Default)]
pub(super) struct ListReader {
    arrived: BytesMut,
    has_begun: bool,
    /// How much of the list itself is still to come.
    inside: usize,
    version: String,
}

impl ListReader {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.arrived.extend_from_slice(bytes);
    }

    /// The next node, as soon as it is whole.
    pub(super) fn next(&mut self) -> Result<Option<Node>, DecodeError> {
        loop {
            if !self.has_begun {
                if self.arrived.len() < MAGIC.len() {
                    return Ok(None);
                }
                check_magic(&self.arrived)?;
                self.has_begun = true;
                self.arrived.advance(MAGIC.len());
                continue;
            }
            let Some((number, header, length)) = field(&self.arrived)? else { return Ok(None) };
            if self.inside == 0 && number == RAW {
                self.arrived.advance(header);
                self.inside = usize::try_from(length).unwrap_or(usize::MAX);
                continue;
            }
            let length = size(length)?;
            let Some(payload) = self.arrived.get(header..header + length) else { return Ok(None) };
            let mut node = None;
            match number {
                _ if self.inside == 0 => {}
                LIST_METADATA => self.version = ListMeta::decode(payload)?.resource_version,
                LIST_ITEMS => node = Some(Node::decode(payload)?),
                _ => {}
            }
            self.arrived.advance(header + length);
            self.inside = self.inside.saturating_sub(header + length);
            if node.is_some() {
                return Ok(node);
            }
        }
    }

    /// The version of the list, if all of it has arrived.
    pub(super) fn finish(self) -> Result<String, DecodeError> {
        if self.has_begun && self.inside == 0 && self.arrived.is_empty() && !self.version.is_empty() {
            Ok(self.version)
        } else {
            Err(not_ours("it ends too early".to_owned()))
        }
    }
}

/// The number, the length of the header, and the length of the content of a field; none if it has not arrived.
fn field(bytes: &[u8]) -> Result<Option<(u64, usize, u64)>, DecodeError> {
    let mut rest = bytes;
    let (Ok(key), Ok(length)) = (varint(&mut rest), varint(&mut rest)) else {
        return if bytes.len() < 20 {
            Ok(None)
        } else {
            Err(not_ours("it has a number without an end".to_owned()))
        };
    };
    if key & 7 != 2 {
        return Err(not_ours(format!("field {} is no message", key >> 3)));
    }
    Ok(Some((key >> 3, bytes.len() - rest.len(), length)))
}

fn varint(bytes: &mut &[u8]) -> Result<u64, DecodeError> {
    prost::encoding::decode_varint(bytes)
}

/// A length, if it can be true.
fn size(length: u64) -> Result<usize, DecodeError> {
    match usize::try_from(length) {
        Ok(length) if length <= LARGEST => Ok(length),
        _ => Err(not_ours(format!("{length} bytes are too many to be true"))),
    }
}

/// The body of a list.
pub(super) struct Unpacked {
    body: Incoming,
    /// What has arrived and is still packed.
    packed: Bytes,
    /// What unpacks it; none if it is not packed.
    gzip: Option<GzDecoder<Vec<u8>>>,
    given: u64,
}

impl Unpacked {
    pub(super) fn of(answer: Response<Incoming>) -> Self {
        let is_packed = answer.headers().get(CONTENT_ENCODING).is_some_and(|form| form == "gzip");
        let gzip = is_packed.then(|| GzDecoder::new(Vec::new()));
        Self { body: answer.into_body(), packed: Bytes::new(), gzip, given: 0 }
    }

    /// The next part; none at its end.
    pub(super) async fn part(
        &mut self,
        client: &Client,
        act: &str,
    ) -> Result<Option<Bytes>, KubernetesError> {
        let arrived = if self.packed.is_empty() { client.part(act, &mut self.body).await? } else { None };
        let part = match &mut self.gzip {
            None => arrived,
            Some(gzip) => {
                let is_over = arrived.is_none() && self.packed.is_empty();
                self.packed = arrived.unwrap_or_else(|| std::mem::take(&mut self.packed));
                let piece = self.packed.split_to(PIECE.min(self.packed.len()));
                // At the end a sum is compared: a list that was cut short is an error here.
                let unpacked = if is_over { gzip.try_finish() } else { gzip.write_all(&piece) };
                unpacked.map_err(|cause| client.garbled(act, &format_args!("it is no gzip: {cause}")))?;
                let part = std::mem::take(gzip.get_mut());
                self.gzip.take_if(|_| is_over);
                Some(part.into())
            }
        };
        self.given += part.as_ref().map_or(0, |part| part.len() as u64);
        if self.given > LARGEST_LIST { Err(client.garbled(act, &"it has no end")) } else { Ok(part) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake;
    use super::*;

    fn read(bytes: &[u8], at_a_time: usize) -> Result<(Vec<Node>, String), DecodeError> {
        let (mut reader, mut nodes) = (ListReader::default(), Vec::new());
        for chunk in bytes.chunks(at_a_time) {
            reader.push(chunk);
            while let Some(node) = reader.next()? {
                nodes.push(node);
            }
        }
        Ok((nodes, reader.finish()?))
    }

    #[test]
    fn a_list_is_the_same_in_whatever_pieces_it_arrives() {
        let nodes = || (0..4).map(|n| fake::node(n, "7"));
        let bytes = fake::list(&fake::Asked::default(), nodes(), "9");
        for at_a_time in 1..=bytes.len() {
            assert_eq!(read(&bytes, at_a_time).unwrap(), (nodes().collect(), "9".to_owned()));
        }
        let empty = fake::list(&fake::Asked::default(), [], "9");
        assert_eq!(read(&empty, 3).unwrap(), (vec![], "9".to_owned()));
    }

    #[test]
    fn a_list_that_ends_early_or_is_none_is_an_error_and_never_a_panic() {
        let bytes = fake::list(&fake::Asked::default(), (0..2).map(|n| fake::node(n, "7")), "9");
        // What stands behind the list itself is two bytes.
        for length in 0..bytes.len() - 2 {
            assert!(read(&bytes[..length], 16).is_err(), "{length}");
        }
        for position in 0..bytes.len() {
            let mut spoilt = bytes.clone();
            spoilt[position] ^= 0xff;
            let _ = read(&spoilt, 64);
        }
    }

    #[test]
    fn events_are_cut_at_their_lengths() {
        let mut frames = Frames::default();
        frames.push(b"\0\0\0\x02ab\0\0\0");
        assert_eq!(frames.next().unwrap().as_deref(), Some(&b"ab"[..]));
        assert_eq!(frames.next().unwrap(), None);
        frames.push(b"\x01c\0\0\0\0\xff");
        assert_eq!(frames.next().unwrap().as_deref(), Some(&b"c"[..]));
        assert_eq!(frames.next().unwrap().as_deref(), Some(&b""[..]));
        frames.push(b"\xff\xff\xff");
        assert!(frames.next().is_err());
    }
}
