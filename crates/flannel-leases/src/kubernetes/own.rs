//! This node's own Node object: its lease, what the operator wrote on it, and what is still to be written.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use flannel_plan::annotations::{self, AnnotationError, AnnotationPrefix};
use flannel_plan::config::NetworkConfig;
use flannel_plan::family::ByFamily;
use flannel_plan::lease::{Announcement, Lease};
use flannel_plan::pod_cidrs::{self, PodCidrError};
use ipnet::IpNet;

use super::node::Node;
use super::nodes::{NodeChange, fault};
use crate::Fault;

/// This node's own Node object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Own {
    pub name: String,
    pub uid: String,
    pub version: String,
    since: u64,
    pub subnets: Result<ByFamily<IpNet>, PodCidrError>,
    annotations: BTreeMap<String, String>,
    /// The addresses that the operator wants published in place of the node's own.
    overwrite: ByFamily<IpAddr>,
    /// The addresses that the operator wants this node to have.
    pub public: ByFamily<IpAddr>,
    /// The last announcement in its annotations that could be read.
    readable: Option<Announcement>,
    faults: Vec<String>,
}

/// What the store says of this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OwnLease {
    pub lease: Option<Arc<Lease>>,
    pub is_damaged: bool,
}

impl Own {
    /// A node that was not known; read whole.
    pub(super) fn new(node: Node, prefix: &AnnotationPrefix) -> Self {
        let mut own = Self {
            name: node.name.clone(),
            uid: node.uid.clone(),
            version: String::new(),
            since: node.since,
            subnets: Ok(ByFamily::default()),
            annotations: BTreeMap::new(),
            overwrite: ByFamily::default(),
            public: ByFamily::default(),
            readable: None,
            faults: Vec::new(),
        };
        own.update(node, prefix);
        own
    }

    /// Whether Kubernetes has given it subnets: it does so once.
    pub(super) fn has_subnets(&self) -> bool {
        self.subnets.as_ref().is_ok_and(|subnets| !subnets.is_empty())
    }

    /// Takes what is said of the same node now.
    pub(super) fn update(&mut self, node: Node, prefix: &AnnotationPrefix) -> NodeChange {
        let before = Self { version: node.version.clone(), ..self.clone() };
        self.version = node.version;
        if let Some(spec) = node.spec {
            self.subnets = pod_cidrs::subnets(&spec.pod_cidr, &spec.pod_cidrs);
        }
        self.annotations = node.annotations;
        self.faults.clear();
        let read = annotations::overwritten_addresses(&self.annotations, prefix);
        keep(&mut self.overwrite, read, &mut self.faults);
        keep(&mut self.public, annotations::node_addresses(&self.annotations, prefix), &mut self.faults);
        keep(&mut self.readable, annotations::from_annotations(&self.annotations, prefix), &mut self.faults);
        if *self == before { NodeChange::Nothing } else { NodeChange::Changed }
    }

    /// Where its annotations tell other nodes to send to.
    pub(super) fn announced(&self) -> ByFamily<IpAddr> {
        self.readable.as_ref().map(|announcement| announcement.public).unwrap_or_default()
    }

    /// The annotations that it should have, and has not.
    pub(super) fn missing(
        &self,
        wanted: &Announcement,
        prefix: &AnnotationPrefix,
    ) -> BTreeMap<String, String> {
        let mut missing = annotations::to_annotations(wanted, prefix, &self.overwrite);
        missing.retain(|key, value| self.annotations.get(key) != Some(value));
        missing
    }

    /// What its annotations say now; nothing if they say nothing, or nothing that can be read.
    pub(super) fn says(&self, prefix: &AnnotationPrefix) -> Option<Announcement> {
        annotations::from_annotations(&self.annotations, prefix).ok().flatten()
    }

    /// Its lease, if it has one that fits the config. `published` is the last announcement that we made: it
    /// stands for annotations that say the same, whatever addresses were overwritten in them.
    pub(super) fn lease(
        &self,
        config: Option<&NetworkConfig>,
        published: Option<&Announcement>,
        prefix: &AnnotationPrefix,
    ) -> OwnLease {
        let Some(subnets) = self.fitting(config) else { return OwnLease::default() };
        let is_as_published = published.is_some_and(|wanted| self.missing(wanted, prefix).is_empty());
        let is_withdrawn = !annotations::is_managed(&self.annotations, prefix);
        let is_unreadable = annotations::from_annotations(&self.annotations, prefix).is_err();
        let announcement = if is_as_published || is_withdrawn || is_unreadable {
            published.or(self.readable.as_ref())
        } else {
            self.readable.as_ref()
        };
        let lease = announcement.map(|announcement| Lease {
            owner: self.name.clone(),
            subnets,
            announcement: announcement.clone(),
            since: self.since,
        });
        let lacks = |lease: &Lease| !self.missing(&lease.announcement, prefix).is_empty();
        // An address that the operator overwrites while we run, or before we start.
        let is_not_overwritten = !self.overwrite.is_empty() && lease.as_ref().is_some_and(lacks);
        OwnLease {
            is_damaged: lease.is_some() && (is_withdrawn || is_unreadable || is_not_overwritten),
            lease: lease.map(Arc::new),
        }
    }

    /// Its subnets as far as they fit; without a config nobody can say that they do not.
    fn fitting(&self, config: Option<&NetworkConfig>) -> Option<ByFamily<IpNet>> {
        let subnets = self.subnets.as_ref().ok().filter(|subnets| !subnets.is_empty())?;
        match config {
            Some(config) => pod_cidrs::fitting(subnets, config).ok(),
            None => Some(*subnets),
        }
    }

    /// What cannot be read of it.
    pub(super) fn faults(&self) -> impl Iterator<Item = Fault> {
        self.faults.iter().map(|wrong| fault(&self.name, wrong))
    }
}

/// Takes what could be read; of what could not, what it said before stays.
fn keep<T>(slot: &mut T, read: Result<T, AnnotationError>, faults: &mut Vec<String>) {
    match read {
        Ok(value) => *slot = value,
        Err(wrong) => faults.push(wrong.to_string()),
    }
}
