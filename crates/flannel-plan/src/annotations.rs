//! The annotations of a Kubernetes node in which flannel keeps what the node says of itself.
//!
//! Takes an [`Announcement`] and gives annotations, and the reverse; byte-compatible with Go flannel.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::backend::is_annotated;
use crate::family::{ByFamily, Family};
use crate::lease::{Announcement, BackendData, BackendDataError};
use crate::quoted::{is_name, quoted};

/// What the names of all flannel annotations begin with: `flannel.alpha.coreos.com/` or `example.com/blue-`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnotationPrefix(String);

/// A prefix under which Kubernetes keeps no annotations.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "annotation prefix {0:?} cannot be used: expected a domain in lower case such as \
     flannel.alpha.coreos.com, and perhaps one slash and a name such as example.com/blue"
)]
pub struct AnnotationPrefixError(String);

impl AnnotationPrefix {
    /// The name of the annotation that ends so.
    pub fn key(&self, suffix: &str) -> String {
        format!("{}{suffix}", self.0)
    }
}

impl Default for AnnotationPrefix {
    fn default() -> Self {
        Self("flannel.alpha.coreos.com/".to_owned())
    }
}

impl FromStr for AnnotationPrefix {
    type Err = AnnotationPrefixError;

    // Go also takes any text before the domain, which the API server then refuses at the first write.
    fn from_str(text: &str) -> Result<Self, AnnotationPrefixError> {
        let is_word = |word: &str| {
            !word.is_empty()
                && word
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-')
        };
        let (domain, name) = text.split_once('/').unwrap_or((text, ""));
        let name_is_fine = name.is_empty() || (is_word(name) && name != "-");
        if !domain.contains('.') || !domain.split('.').all(is_word) || !name_is_fine {
            return Err(AnnotationPrefixError(text.to_owned()));
        }
        let end = if name.is_empty() || name.ends_with('-') { "" } else { "-" };
        Ok(Self(format!("{domain}/{name}{end}")))
    }
}

impl fmt::Display for AnnotationPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An annotation of a node that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum AnnotationError {
    #[error("annotation {key} is \"{}\", expected an {family} address", quoted(.value))]
    Address { key: String, value: String, family: Family },
    #[error("annotation {key} is \"{}\", expected the name of a backend", quoted(.value))]
    Backend { key: String, value: String },
    #[error("annotation {key} is \"{}\", expected what a backend says of itself in JSON: {source}", quoted(.value))]
    Data { key: String, value: String, source: BackendDataError },
}

const MANAGED: &str = "kube-subnet-manager";
const BACKEND: &str = "backend-type";

fn public_suffix(family: Family) -> &'static str {
    match family {
        Family::V4 => "public-ip",
        Family::V6 => "public-ipv6",
    }
}

fn detail_suffix(family: Family) -> &'static str {
    match family {
        Family::V4 => "backend-data",
        Family::V6 => "backend-v6-data",
    }
}

/// The annotations that a node should have for what it says of itself.
///
/// `overwrite` holds the addresses of [`overwritten_addresses`]: they are published instead of the node's own.
pub fn to_annotations(
    announcement: &Announcement,
    prefix: &AnnotationPrefix,
    overwrite: &ByFamily<IpAddr>,
) -> BTreeMap<String, String> {
    let mut annotations = BTreeMap::from([
        (prefix.key(MANAGED), "true".to_owned()),
        (prefix.key(BACKEND), announcement.backend.clone()),
    ]);
    for family in Family::BOTH {
        let detail = announcement.detail.get(family);
        let public = overwrite.get(family).or(announcement.public.get(family)).copied();
        let address = match family {
            Family::V4 => Some(public.unwrap_or(family.unspecified())),
            Family::V6 => public,
        };
        if let Some(public) = address.filter(|_| is_annotated(&announcement.backend, family, detail)) {
            let detail = detail.map_or("null", BackendData::as_str);
            annotations.insert(prefix.key(detail_suffix(family)), detail.to_owned());
            annotations.insert(prefix.key(public_suffix(family)), public.to_string());
        }
    }
    annotations
}

/// Whether flannel runs on the node, and keeps its lease there.
pub fn is_managed(annotations: &BTreeMap<String, String>, prefix: &AnnotationPrefix) -> bool {
    annotations.get(&prefix.key(MANAGED)).is_some_and(|managed| managed == "true")
}

/// What a node says of itself; nothing if flannel does not run there.
pub fn from_annotations(
    annotations: &BTreeMap<String, String>,
    prefix: &AnnotationPrefix,
) -> Result<Option<Announcement>, AnnotationError> {
    if !is_managed(annotations, prefix) {
        return Ok(None);
    }
    let mut detail = ByFamily::default();
    for family in Family::BOTH {
        *detail.slot(family) = read_detail(annotations, prefix.key(detail_suffix(family)))?;
    }
    Ok(Some(Announcement {
        public: read_addresses(annotations, |family| prefix.key(public_suffix(family)))?,
        backend: read_backend(annotations, prefix.key(BACKEND))?,
        detail,
    }))
}

/// The addresses that the operator wants published instead of the node's own (`public-ip-overwrite`).
pub fn overwritten_addresses(
    annotations: &BTreeMap<String, String>,
    prefix: &AnnotationPrefix,
) -> Result<ByFamily<IpAddr>, AnnotationError> {
    read_addresses(annotations, |family| prefix.key(&format!("{}-overwrite", public_suffix(family))))
}

/// The addresses that stand for `--public-ip` and `--public-ipv6` on this node (`node-public-ip`).
pub fn node_addresses(
    annotations: &BTreeMap<String, String>,
    prefix: &AnnotationPrefix,
) -> Result<ByFamily<IpAddr>, AnnotationError> {
    read_addresses(annotations, |family| prefix.key(&format!("node-{}", public_suffix(family))))
}

/// Empty is as good as absent, and so is the address that means "none".
fn read_addresses(
    annotations: &BTreeMap<String, String>,
    key: impl Fn(Family) -> String,
) -> Result<ByFamily<IpAddr>, AnnotationError> {
    let mut addresses = ByFamily::default();
    for family in Family::BOTH {
        let key = key(family);
        let Some(value) = annotations.get(&key).filter(|value| !value.is_empty()) else { continue };
        match value.parse() {
            Ok(address) if Family::of(address) == family => {
                *addresses.slot(family) = Some(address).filter(|address| !address.is_unspecified());
            }
            _ => return Err(AnnotationError::Address { key, value: value.clone(), family }),
        }
    }
    Ok(addresses)
}

fn read_backend(annotations: &BTreeMap<String, String>, key: String) -> Result<String, AnnotationError> {
    let value = annotations.get(&key).cloned().unwrap_or_default();
    if is_name(&value) { Ok(value) } else { Err(AnnotationError::Backend { key, value }) }
}

fn read_detail(
    annotations: &BTreeMap<String, String>,
    key: String,
) -> Result<Option<BackendData>, AnnotationError> {
    let Some(value) = annotations.get(&key).filter(|value| !value.is_empty()) else { return Ok(None) };
    BackendData::from_json(value).map_err(|source| AnnotationError::Data {
        key,
        value: value.clone(),
        source,
    })
}
