//! A node as we keep it: the few words of a Node object that matter to flannel.

use std::collections::BTreeMap;

use flannel_plan::annotations::AnnotationPrefix;

use super::wire::{self, ManagedFields, NodeSpec};

/// What a Node object says, or its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub name: String,
    /// Who it is: a node that is made anew under an old name has another one.
    pub uid: String,
    /// The version of the object; grows with every change, and is no number to reckon with.
    pub version: String,
    /// When it was made, in seconds since 1970.
    pub since: u64,
    pub annotations: BTreeMap<String, String>,
    /// Its subnets; none if only its metadata is known.
    pub spec: Option<NodeSpec>,
    /// Whether it may have subnets: its metadata tell which fields were ever set.
    pub may_have_subnets: bool,
}

impl Node {
    /// Keeps what matters of a whole Node object.
    pub(super) fn whole(message: wire::Node, prefix: &AnnotationPrefix) -> Self {
        let spec = Some(message.spec.clone().unwrap_or_default());
        Self { spec, ..Self::metadata(message, prefix) }
    }

    /// Keeps what matters of the metadata of a node.
    pub(super) fn metadata(message: wire::Node, prefix: &AnnotationPrefix) -> Self {
        let mut metadata = message.metadata.unwrap_or_default();
        let ours = prefix.key("");
        metadata.annotations.retain(|key, _| key.starts_with(&ours));
        let since = metadata.creation_timestamp.map_or(0, |time| time.seconds);
        Self {
            name: metadata.name,
            uid: metadata.uid,
            version: metadata.resource_version,
            since: u64::try_from(since).unwrap_or(0),
            annotations: metadata.annotations,
            spec: None,
            may_have_subnets: may_have_subnets(&metadata.managed_fields),
        }
    }
}

/// Whether somebody has set the subnets, or nobody keeps account of it.
fn may_have_subnets(managed: &[ManagedFields]) -> bool {
    const NAME: &[u8] = b"\"f:podCIDR\"";
    let mut fields = managed.iter().flat_map(|managed| &managed.fields);
    managed.is_empty() || fields.any(|fields| fields.raw.windows(NAME.len()).any(|name| name == NAME))
}
