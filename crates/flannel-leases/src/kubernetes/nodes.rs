//! All nodes of the cluster as leases. Takes what the API server says of nodes, whole or metadata only, and gives
//! the leases of the others; what cannot be read is a fault, and what that node said before stays in force.

use std::collections::BTreeMap;
use std::sync::Arc;

use flannel_plan::annotations::{self, AnnotationPrefix};
use flannel_plan::family::ByFamily;
use flannel_plan::finding::Code;
use flannel_plan::lease::Lease;
use flannel_plan::pod_cidrs;
use flannel_plan::quoted::quoted;
use ipnet::IpNet;

use super::node::Node;
use super::own::Own;
use crate::in_force::replace;
use crate::sorted::Sorted;
use crate::{Fault, Snapshot};

/// What a Node object that arrived changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeChange {
    /// Nothing that anybody waits for.
    Nothing,
    /// A lease, or this node, has changed.
    Changed,
    /// Its subnets are not known: it has to be read whole.
    Incomplete,
}

/// All nodes of the cluster.
#[derive(Debug)]
pub(super) struct Nodes {
    prefix: AnnotationPrefix,
    own_name: String,
    /// What is remembered from before the daemon was started.
    remembered: Memory,
    /// This node, if there is an object of its name.
    pub own: Option<Own>,
    others: BTreeMap<Box<str>, Known>,
    peers: Sorted,
}

/// What is remembered from before the daemon was started.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// The UID that this node's object had.
    origin: Option<Arc<str>>,
    version: Option<Arc<str>>,
    /// The subnets of nodes, by their names and the times at which they were made.
    subnets: BTreeMap<(Box<str>, u64), ByFamily<IpNet>>,
}

impl Memory {
    /// What a snapshot of an earlier run says.
    pub(super) fn of(before: &Snapshot) -> Self {
        let leases = before.peers.iter().chain(&before.own);
        let known = |lease: &Arc<Lease>| ((lease.owner.as_str().into(), lease.since), lease.subnets);
        let (origin, version) = (before.origin.clone(), before.version.clone());
        Self { origin, version, subnets: leases.map(known).collect() }
    }
}

/// What is known of another node.
#[derive(Debug, Default)]
struct Known {
    uid: Box<str>,
    /// The version of what is known; 0 if anything is newer.
    version: u64,
    subnets: ByFamily<IpNet>,
    lease: Option<Arc<Lease>>,
    fault: Option<Box<str>>,
}

impl Nodes {
    pub(super) fn new(own_name: &str, prefix: AnnotationPrefix, remembered: Memory) -> Self {
        Self {
            prefix,
            own_name: own_name.to_owned(),
            remembered,
            own: None,
            others: BTreeMap::new(),
            peers: Sorted::default(),
        }
    }

    /// Who this node is: the UID of its object.
    pub(super) fn origin(&self) -> Option<Arc<str>> {
        self.own.as_ref().map(|own| own.uid.as_str().into())
    }

    /// Whether something is remembered of which nobody knows yet whether it is of this node.
    pub(super) fn must_be_recognized(&self) -> bool {
        self.own.is_none() && !self.remembered.subnets.is_empty()
    }

    /// Forgets what is remembered if it is of another node: of one that was made anew, or of another cluster, in
    /// which the same names mean others. Gives the version of what is left.
    pub(super) fn recognize(&mut self) -> Option<Arc<str>> {
        if self.remembered.origin != self.origin() {
            self.remembered = Memory::default();
        }
        self.remembered.version.clone()
    }

    /// Whether the subnets of some nodes are known, or remembered.
    pub(super) fn know_subnets(&self) -> bool {
        !self.remembered.subnets.is_empty() || self.any_has_subnet()
    }

    /// A list is believed even if its versions are lower than before: the store of the API server may have been
    /// restored from a backup.
    pub(super) fn begin_list(&mut self) {
        self.own.iter_mut().for_each(|own| own.version.clear());
        self.others.values_mut().for_each(|known| known.version = 0);
    }

    /// Whether any node has got a subnet of Kubernetes.
    pub(super) fn any_has_subnet(&self) -> bool {
        self.others.values().any(|known| !known.subnets.is_empty())
    }

    /// Takes what is said of one node now.
    pub(super) fn put(&mut self, node: Node) -> NodeChange {
        if node.name == self.own_name {
            return self.put_own(node);
        }
        let is_managed = annotations::is_managed(&node.annotations, &self.prefix);
        let known = self.others.get(node.name.as_str()).filter(|known| known.uid.as_ref() == node.uid);
        if known.is_some_and(|known| number(&node.version) < known.version) {
            return NodeChange::Nothing;
        }
        let subnets_are_known = known.is_some_and(|known| !known.subnets.is_empty());
        let subnets = match &node.spec {
            Some(spec) => {
                let read = pod_cidrs::subnets(&spec.pod_cidr, &spec.pod_cidrs);
                Some(read.map_err(|wrong| wrong.to_string()))
            }
            None if subnets_are_known || !is_managed => None,
            None => match self.remembered.subnets.remove(&(node.name.as_str().into(), node.since)) {
                Some(subnets) => Some(Ok(subnets)),
                None if node.may_have_subnets => return NodeChange::Incomplete,
                None => None,
            },
        };
        self.put_other(&node, subnets)
    }

    fn put_own(&mut self, node: Node) -> NodeChange {
        let known = self.own.as_ref().filter(|own| own.uid == node.uid);
        if node.spec.is_none() && known.is_none_or(|own| !own.has_subnets() && node.may_have_subnets) {
            return NodeChange::Incomplete;
        }
        match &mut self.own {
            Some(own) if own.uid == node.uid && number(&node.version) < number(&own.version) => {
                NodeChange::Nothing
            }
            Some(own) if own.uid == node.uid => own.update(node, &self.prefix),
            own => {
                *own = Some(Own::new(node, &self.prefix));
                NodeChange::Changed
            }
        }
    }

    /// Takes what this node's object said when we had read or changed it, unless the watch has told of something
    /// newer: of a change that is passed over here nobody would tell again.
    pub(super) fn note_own(&mut self, own: Own) {
        if self.own.as_ref().is_none_or(|known| number(&known.version) <= number(&own.version)) {
            self.own = Some(own);
        }
    }

    fn put_other(&mut self, node: &Node, subnets: Option<Result<ByFamily<IpNet>, String>>) -> NodeChange {
        let known = self.others.entry(node.name.as_str().into()).or_default();
        let before = known.lease.clone();
        let mut changed = false;
        if known.uid.as_ref() != node.uid {
            // Another machine, perhaps: what the old one said is nothing to go on with.
            changed = known.lease.is_some() || known.fault.is_some();
            *known = Known { uid: node.uid.as_str().into(), ..Known::default() };
        }
        known.version = number(&node.version);
        let lease = subnets.unwrap_or(Ok(known.subnets)).and_then(|subnets| {
            known.subnets = subnets;
            let said = annotations::from_annotations(&node.annotations, &self.prefix);
            let said = said.map_err(|wrong| wrong.to_string())?.filter(|_| !subnets.is_empty());
            let (owner, since) = (node.name.clone(), node.since);
            Ok(said.map(|announcement| Lease { owner, subnets, announcement, since }))
        });
        changed |= match lease {
            Err(wrong) => replace(&mut known.fault, Some(wrong.into())),
            Ok(lease) => {
                let new_lease = known.lease.as_deref() != lease.as_ref();
                if new_lease {
                    known.lease = lease.map(Arc::new);
                }
                replace(&mut known.fault, None) | new_lease
            }
        };
        self.peers.replace(before.as_ref(), known.lease.as_ref());
        if changed { NodeChange::Changed } else { NodeChange::Nothing }
    }

    /// Takes that a node is gone. If another one of its name is known, it was read before this came.
    pub(super) fn remove(&mut self, node: &Node) -> NodeChange {
        let changed = if node.name == self.own_name {
            self.own.take_if(|own| own.uid == node.uid).is_some()
        } else if self.others.get(node.name.as_str()).is_some_and(|known| known.uid.as_ref() == node.uid) {
            let known = self.others.remove(node.name.as_str()).unwrap_or_default();
            self.peers.replace(known.lease.as_ref(), None);
            known.lease.is_some() || known.fault.is_some()
        } else {
            false
        };
        if changed { NodeChange::Changed } else { NodeChange::Nothing }
    }

    /// Takes that there are no other nodes than those: a whole list is the proof.
    pub(super) fn retain(&mut self, listed: impl Fn(&str) -> bool) {
        self.remembered.subnets.clear();
        self.others.retain(|name, _| listed(name));
        self.peers.retain(|lease| listed(&lease.owner));
        if !listed(&self.own_name) {
            self.own = None;
        }
    }

    /// The leases of the other nodes, in the order of their subnets.
    pub(super) fn peers(&self) -> Vec<Arc<Lease>> {
        self.peers.to_vec()
    }

    /// The fault that there is no object for this node.
    pub(super) fn no_own(&self) -> Fault {
        let reason = "does not exist: the kubelet makes it when it joins the cluster; pods of this node keep their \
                      network as it is";
        Fault::new(Code::NoNode, format!("node {}", self.own_name), reason)
    }

    /// What cannot be read of the other nodes.
    pub(super) fn faults(&self) -> impl Iterator<Item = Fault> {
        self.others.iter().filter_map(|(name, known)| Some(fault(name, known.fault.as_deref()?)))
    }
}

/// A version as a number, which all API servers give: what we read or wrote ourselves is known before the watch
/// tells of what was there. One that is none is taken for the newest.
pub(super) fn number(version: &str) -> u64 {
    if version.is_empty() { 0 } else { version.parse().unwrap_or(u64::MAX) }
}

pub(super) fn fault(node: &str, reason: &str) -> Fault {
    let (node, reason) = (format!("node {}", quoted(node)), format!("cannot be read: {reason}"));
    Fault::new(Code::LeaseUnreadable, node, reason)
}

#[cfg(test)]
mod tests;
