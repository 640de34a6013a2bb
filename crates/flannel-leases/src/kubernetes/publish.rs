//! Puts this node's announcement into the annotations of its Node object, and says why that cannot be.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use flannel_plan::config::NetworkConfig;
use flannel_plan::lease::{Announcement, Lease};
use flannel_plan::pod_cidrs::{self, Misfit};
use serde_json::json;
use tokio::time::timeout;
use tracing::info;

use super::client::Call;
use super::error::{KubernetesError, NoPodCidr};
use super::node::Node;
use super::own::Own;
use super::{Kubernetes, event};
use crate::StoreError;

/// The controller-manager needs a moment for a node that has just joined: that is nothing to complain about.
const MOMENT: Duration = Duration::from_secs(20);

/// How long a run that has said nothing yet waits whether another one answers.
const ANSWER: Duration = Duration::from_secs(2);

/// What was told to the operator about a missing subnet.
#[derive(Debug, Default)]
pub(super) struct Complaint {
    since: Option<Instant>,
    told: Option<String>,
}

impl Kubernetes {
    /// Writes what the node's annotations lack of an announcement. What another has written there is written over,
    /// and left if that one lives; a run that has said nothing yet waits for its answer.
    pub(super) async fn put(&mut self, wanted: &Announcement) -> Result<Lease, StoreError> {
        loop {
            let (lease, written_over) = self.put_once(wanted).await?;
            let is_new_here = written_over && self.published.is_none();
            if !is_new_here || !self.is_answered(wanted).await {
                return Ok(lease);
            }
        }
    }

    /// The same without waiting; says whether what another had written was written over.
    async fn put_once(&mut self, wanted: &Announcement) -> Result<(Lease, bool), StoreError> {
        let config = self.net_conf.in_force.config().map_err(StoreError::NoConfig)?.clone();
        let mut own = self.read_own().await?;
        if let Err(wrong) = self.check_subnets(&own, &config).await {
            self.complain(&own, &wrong).await;
            return Err(wrong.into());
        }
        self.complaint = Complaint::default();
        let missing = own.missing(wanted, &self.prefix);
        let another = own.says(&self.prefix).filter(|said| Some(said) != self.published.as_ref());
        let another = another.filter(|_| !missing.is_empty());
        if let Some(another) = &another {
            self.meet(&own, another)?;
        }
        if !missing.is_empty() {
            let patched = self.client.read(&patch(&own.name, &missing)).await?;
            own.update(Node::metadata(patched, &self.prefix), &self.prefix);
            info!(node = %own.name, keys = ?missing.keys().collect::<Vec<_>>(), "annotations written");
        }
        let lease = own.lease(Some(&config), Some(wanted), &self.prefix).lease;
        self.board.note_own(own);
        let lease = lease.ok_or(StoreError::Kubernetes(KubernetesError::NoName))?;
        Ok(((*lease).clone(), another.is_some()))
    }

    /// Decides whether what another has written may be written over, and notes that it is.
    fn meet(&mut self, own: &Own, another: &Announcement) -> Result<(), StoreError> {
        let now = Instant::now();
        if self.rivalry.must_yield(another, now) {
            let rival = self.rivalry.rival(&own.name, Some(another), now);
            self.board.note_own(own.clone());
            self.board.ring();
            return rival.map_or(Ok(()), |rival| Err(StoreError::Rival(Box::new(rival))));
        }
        self.rivalry.write_over(another.clone(), now);
        if self.published.is_some() {
            self.rivalry.put_right(another.clone(), now);
        }
        Ok(())
    }

    /// Waits a moment for somebody who puts back what was written over.
    async fn is_answered(&self, wanted: &Announcement) -> bool {
        let mut own = self.board.own.subscribe();
        let is_changed = || {
            let state = self.board.lock();
            let own = state.nodes.as_ref().and_then(|nodes| nodes.own.as_ref());
            own.is_some_and(|own| !own.missing(wanted, &self.prefix).is_empty())
        };
        timeout(ANSWER, own.wait_for(|_| is_changed())).await.is_ok()
    }

    /// This node's object as it is now.
    async fn read_own(&self) -> Result<Own, KubernetesError> {
        let name = self.identity.name(&self.client).await?;
        let found = self.client.read(&Call::get_node(name)).await.map_err(|error| match error.code() {
            Some(404) => KubernetesError::NoNode(name.to_owned()),
            _ => error,
        })?;
        let node = Node::whole(found, &self.prefix);
        let state = self.board.lock();
        let known = state.nodes.as_ref().and_then(|nodes| nodes.own.clone());
        Ok(match known.filter(|known| known.uid == node.uid) {
            Some(mut known) => {
                known.update(node, &self.prefix);
                known
            }
            None => Own::new(node, &self.prefix),
        })
    }

    async fn check_subnets(&self, own: &Own, config: &NetworkConfig) -> Result<(), KubernetesError> {
        let node = own.name.clone();
        let subnets = match &own.subnets {
            Ok(subnets) if subnets.is_empty() => {
                return Err(KubernetesError::NoPodCidr { cause: self.why_no_cidr(&node).await, node });
            }
            Ok(subnets) => subnets,
            Err(cause) => return Err(KubernetesError::BadPodCidr { node, cause: cause.clone() }),
        };
        match pod_cidrs::fitting(subnets, config) {
            Ok(_) => Ok(()),
            Err(Misfit::Missing(family)) => Err(KubernetesError::NoFamily { node, family }),
            Err(Misfit::Outside { subnet, network }) => {
                Err(KubernetesError::Outside { node, subnet, network })
            }
        }
    }

    async fn why_no_cidr(&self, node: &str) -> NoPodCidr {
        if let Some(words) = event::exhaustion(&self.client, node).await {
            return NoPodCidr::Exhausted(words);
        }
        let state = self.board.lock();
        if state.nodes.as_ref().is_some_and(super::nodes::Nodes::any_has_subnet) {
            NoPodCidr::OthersHave
        } else {
            NoPodCidr::NoneGiven
        }
    }

    /// Tells the operator on the node itself, once for each reason.
    async fn complain(&mut self, own: &Own, wrong: &KubernetesError) {
        let since = *self.complaint.since.get_or_insert_with(Instant::now);
        let may_pass = matches!(
            wrong,
            KubernetesError::NoPodCidr { cause: NoPodCidr::OthersHave | NoPodCidr::NoneGiven, .. }
        );
        let words = wrong.to_string();
        if (may_pass && since.elapsed() < MOMENT) || self.complaint.told.as_ref() == Some(&words) {
            return;
        }
        event::tell(&self.client, &own.name, &own.uid, &words).await;
        self.complaint.told = Some(words);
    }
}

/// The patch that Go flannel sends: only the annotations that differ.
fn patch(node: &str, missing: &BTreeMap<String, String>) -> Call {
    let patch = json!({ "metadata": { "annotations": missing } });
    Call::patch_node(format!("annotate node {node}"), node, &patch)
}
