//! The few fields that we read of what the API server sends, in its protobuf form: a quarter less to carry than
//! JSON, and what we do not name here is skipped unread. Field numbers are those of Kubernetes' generated.proto.

use std::collections::BTreeMap;

use hyper::body::{Buf, Bytes};
use prost::{DecodeError, Message};

const MAGIC: &[u8] = b"k8s\0";
/// No node is as large; more means that the stream is not what we take it for.
const LARGEST_FRAME: usize = 64 << 20;

/// What every answer is wrapped in.
#[derive(Clone, PartialEq, Message)]
struct Unknown {
    #[prost(bytes = "bytes", tag = "2")]
    raw: Bytes,
}

/// A page of a list.
#[derive(Clone, PartialEq, Message)]
pub(super) struct List {
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<ListMeta>,
    #[prost(message, repeated, tag = "2")]
    pub items: Vec<Node>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ListMeta {
    #[prost(string, tag = "2")]
    pub resource_version: String,
    #[prost(string, tag = "3")]
    pub continue_at: String,
}

/// A Node, or the metadata of one: then `spec` is not there.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Node {
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    pub spec: Option<NodeSpec>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ObjectMeta {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "5")]
    pub uid: String,
    #[prost(string, tag = "6")]
    pub resource_version: String,
    #[prost(message, optional, tag = "8")]
    pub creation_timestamp: Option<Time>,
    #[prost(btree_map = "string, string", tag = "12")]
    pub annotations: BTreeMap<String, String>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Time {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct NodeSpec {
    #[prost(string, tag = "1")]
    pub pod_cidr: String,
    #[prost(string, repeated, tag = "7")]
    pub pod_cidrs: Vec<String>,
}

/// The part of a Node that says how it is; read of this node only.
#[derive(Clone, PartialEq, Message)]
pub(super) struct NodeWithStatus {
    #[prost(message, optional, tag = "3")]
    pub status: Option<NodeStatus>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct NodeStatus {
    #[prost(message, repeated, tag = "4")]
    pub conditions: Vec<NodeCondition>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct NodeCondition {
    #[prost(string, tag = "1")]
    pub kind: String,
    #[prost(string, tag = "2")]
    pub status: String,
    #[prost(string, tag = "5")]
    pub reason: String,
    #[prost(string, tag = "6")]
    pub message: String,
}

/// A Pod, of which only the node matters.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Pod {
    #[prost(message, optional, tag = "2")]
    pub spec: Option<PodSpec>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PodSpec {
    #[prost(string, tag = "10")]
    pub node_name: String,
}

/// Why a request was refused, or a watch ended.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Status {
    #[prost(string, tag = "3")]
    pub message: String,
    #[prost(int32, tag = "6")]
    pub code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct WatchEvent {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(message, optional, tag = "2")]
    object: Option<RawExtension>,
}

#[derive(Clone, PartialEq, Message)]
struct RawExtension {
    #[prost(bytes = "bytes", tag = "1")]
    raw: Bytes,
}

/// Something that happened to a node.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Event {
    /// It was made or changed.
    Put(Node),
    /// It is gone.
    Deleted(Node),
    /// Nothing up to this version.
    Bookmark(Node),
    /// The watch cannot go on.
    Refused(Status),
}

/// Reads one object in its wrapping.
pub(super) fn decode<T: Message + Default>(mut bytes: Bytes) -> Result<T, DecodeError> {
    if !bytes.starts_with(MAGIC) {
        let start = String::from_utf8_lossy(&bytes[..bytes.len().min(16)]).into_owned();
        return Err(not_ours(format!("it begins with {start:?}, expected Kubernetes' protobuf")));
    }
    bytes.advance(MAGIC.len());
    T::decode(Unknown::decode(bytes)?.raw)
}

/// Reads one event of a watch: only the object in it is wrapped.
pub(super) fn decode_event(frame: Bytes) -> Result<Event, DecodeError> {
    let event = WatchEvent::decode(frame)?;
    let object = event.object.unwrap_or_default().raw;
    match event.kind.as_str() {
        "ADDED" | "MODIFIED" => decode(object).map(Event::Put),
        "DELETED" => decode(object).map(Event::Deleted),
        "BOOKMARK" => decode(object).map(Event::Bookmark),
        "ERROR" => decode(object).map(Event::Refused),
        kind => Err(not_ours(format!("a watch has no event {kind:?}"))),
    }
}

// The library has no public constructor that takes our words.
fn not_ours(words: String) -> DecodeError {
    #[allow(deprecated, reason = "the only way to make one")]
    DecodeError::new(words)
}

/// Cuts a stream into frames: four bytes of length, and then as many.
#[derive(Debug, Default)]
pub(super) struct Frames {
    rest: Vec<u8>,
}

impl Frames {
    /// Takes what has arrived.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
    }

    /// The next whole frame; an error if there will never be one.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, DecodeError> {
        let Some((length, body)) = self.rest.split_first_chunk::<4>() else { return Ok(None) };
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if length > LARGEST_FRAME {
            return Err(not_ours(format!("a frame of {length} bytes is too large to be true")));
        }
        let Some(frame) = body.get(..length) else { return Ok(None) };
        let frame = Bytes::copy_from_slice(frame);
        self.rest.drain(..4 + length);
        Ok(Some(frame))
    }
}
