//! What is to be deleted: the rules of one attachment, or those of a network that belong to nobody any more.

use ipnet::IpNet;

use super::{holds, names};
use crate::request::{AttachmentId, Request};

/// The attachment that a call is about.
#[derive(Clone, Debug)]
pub(crate) struct Owner<'a> {
    pub(crate) request: &'a Request,
    /// Its addresses, if they are known.
    pub(crate) addresses: Vec<IpNet>,
    /// The host's ports that lead to it, if they are known.
    pub(crate) ports: Vec<u16>,
}

/// What is to be deleted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Meant<'a> {
    /// Everything of one attachment.
    Attachment(&'a Owner<'a>),
    /// Everything of a network but what belongs to these.
    AllBut(&'a str, &'a [AttachmentId]),
}

impl Meant<'_> {
    /// The attachment's own chain of iptables.
    pub(super) fn own_chain(self, prefix: &str) -> Option<String> {
        match self {
            Self::Attachment(owner) => Some(names::own_chain(prefix, owner.request)),
            Self::AllBut(..) => None,
        }
    }

    /// Whether a container's chain of iptables is meant: by its name, or by the network and container of a comment.
    pub(crate) fn takes_chain(self, prefix: &str, chain: &str, named: Option<(&str, &str)>) -> bool {
        match self {
            Self::Attachment(owner) => {
                names::own_chain(prefix, owner.request) == chain
                    || named.is_some_and(|(_, container)| container == owner.request.container_id)
            }
            Self::AllBut(network, valid) => named.is_some_and(|(of, container)| {
                of == network && !valid.iter().any(|id| id.container_id == container)
            }),
        }
    }

    /// Whether the bytes of a legacy table may hold what is meant: chains of such names, or comments that begin so.
    pub(crate) fn may_be_in(self, table: &[u8], prefixes: &[&str], words: &str) -> bool {
        match self {
            Self::Attachment(owner) => {
                prefixes.iter().any(|prefix| holds(table, &names::own_chain(prefix, owner.request)))
                    || holds(table, &format!("id: {:?}", owner.request.container_id))
            }
            Self::AllBut(network, _) => holds(table, &format!("{words}name: {network:?} id: ")),
        }
    }
}
