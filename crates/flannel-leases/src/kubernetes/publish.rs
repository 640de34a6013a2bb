//! Puts this node's announcement into the annotations of its Node object, and says why that cannot be.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use flannel_plan::config::NetworkConfig;
use flannel_plan::lease::{Announcement, Lease};
use flannel_plan::pod_cidrs::{self, Misfit};
use http::Method;
use serde_json::json;
use tracing::info;

use super::client::{Call, METADATA, STRATEGIC_MERGE, WHOLE};
use super::error::{KubernetesError, NoPodCidr};
use super::node::Node;
use super::own::Own;
use super::{Kubernetes, notice};
use crate::StoreError;

/// The controller-manager needs a moment for a node that has just joined: that is nothing to complain about.
const MOMENT: Duration = Duration::from_secs(20);

/// What was told to the operator about a missing subnet.
#[derive(Debug, Default)]
pub(super) struct Complaint {
    since: Option<Instant>,
    told: Option<String>,
}

impl Kubernetes {
    /// Writes what the node's annotations lack of an announcement, in one patch.
    pub(super) async fn put(&mut self, wanted: &Announcement) -> Result<Lease, StoreError> {
        let config = self.net_conf.config().map_err(StoreError::NoConfig)?.clone();
        let mut own = self.read_own().await?;
        if let Err(wrong) = self.check_subnets(&own, &config).await {
            self.complain(&own, &wrong).await;
            return Err(wrong.into());
        }
        self.complaint = Complaint::default();
        let missing = own.missing(wanted, &self.prefix);
        if !missing.is_empty() {
            let patched = self.client.read(&patch(&own.name, &missing)).await?;
            own.update(Node::metadata(patched, &self.prefix), &self.prefix);
            info!(node = %own.name, keys = ?missing.keys().collect::<Vec<_>>(), "annotations written");
        }
        let lease = own.lease(Some(&config), Some(wanted), &self.prefix).lease;
        self.board.note_own(own);
        lease.map(|lease| (*lease).clone()).ok_or(StoreError::Kubernetes(KubernetesError::NoName))
    }

    /// This node's object as it is now.
    async fn read_own(&self) -> Result<Own, KubernetesError> {
        let name = self.identity.name(&self.client).await?;
        let call = Call::get(format!("read node {name}"), format!("/api/v1/nodes/{name}"), WHOLE);
        let found = self.client.read(&call).await.map_err(|error| match error.code() {
            Some(404) => KubernetesError::NoNode(name.to_owned()),
            _ => error,
        })?;
        let node = Node::whole(found, &self.prefix);
        let state = self.board.look();
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
        if let Some(words) = notice::exhaustion(&self.client, node).await {
            return NoPodCidr::Exhausted(words);
        }
        let state = self.board.look();
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
        notice::tell(&self.client, &own.name, &own.uid, &words).await;
        self.complaint.told = Some(words);
    }
}

/// The patch that Go flannel sends: only the annotations that differ.
fn patch(node: &str, missing: &BTreeMap<String, String>) -> Call {
    let body = json!({ "metadata": { "annotations": missing } });
    Call {
        act: format!("annotate node {node}"),
        method: Method::PATCH,
        path: format!("/api/v1/nodes/{node}/status"),
        accept: METADATA,
        body: Some((STRATEGIC_MERGE, body.to_string())),
    }
}
