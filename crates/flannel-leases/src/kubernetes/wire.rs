//! The few fields that we read of what the API server sends, in its protobuf form: a quarter less to carry than
//! JSON, and what we do not name here is skipped unread. Field numbers are those of Kubernetes' generated.proto.

use std::collections::BTreeMap;

use hyper::body::{Buf, Bytes};
use prost::{DecodeError, Message};

pub(super) const MAGIC: &[u8] = b"k8s\0";

/// What every answer is wrapped in.
#[derive(Clone, PartialEq, Message)]
struct Unknown {
    #[prost(bytes = "bytes", tag = "2")]
    raw: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ListMeta {
    #[prost(string, tag = "2")]
    pub resource_version: String,
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
    #[prost(message, repeated, tag = "17")]
    pub managed_fields: Vec<ManagedFields>,
}

/// Which fields of an object somebody has set.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ManagedFields {
    #[prost(message, optional, tag = "7")]
    pub fields: Option<Fields>,
}

/// Their names, as JSON.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Fields {
    #[prost(bytes = "bytes", tag = "1")]
    pub raw: Bytes,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Time {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
}

/// The two fields in which a Node says its subnets.
#[derive(Clone, PartialEq, Eq, Message)]
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
    Error(Status),
}

/// Reads one object in its wrapping.
pub(super) fn decode<T: Message + Default>(mut bytes: Bytes) -> Result<T, DecodeError> {
    check_magic(&bytes)?;
    bytes.advance(MAGIC.len());
    T::decode(Unknown::decode(bytes)?.raw)
}

/// Whether it is the form that we asked for.
pub(super) fn check_magic(bytes: &[u8]) -> Result<(), DecodeError> {
    if bytes.starts_with(MAGIC) {
        return Ok(());
    }
    let start = String::from_utf8_lossy(&bytes[..bytes.len().min(16)]).into_owned();
    Err(not_ours(format!("it begins with {start:?}, expected Kubernetes' protobuf")))
}

/// Reads one event of a watch: only the object in it is wrapped.
pub(super) fn decode_event(frame: Bytes) -> Result<Event, DecodeError> {
    let event = WatchEvent::decode(frame)?;
    let object = event.object.unwrap_or_default().raw;
    match event.kind.as_str() {
        "ADDED" | "MODIFIED" => decode(object).map(Event::Put),
        "DELETED" => decode(object).map(Event::Deleted),
        "BOOKMARK" => decode(object).map(Event::Bookmark),
        "ERROR" => decode(object).map(Event::Error),
        kind => Err(not_ours(format!("a watch has no event {kind:?}"))),
    }
}

/// An error in our words: the library has no other constructor for it.
pub(super) fn not_ours(words: String) -> DecodeError {
    #[allow(deprecated, reason = "the only way to make one")]
    DecodeError::new(words)
}
