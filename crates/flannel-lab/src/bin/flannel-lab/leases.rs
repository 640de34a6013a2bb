//! The leases of a lab, from its store, in the few words that tables and the demo show.

use anyhow::Context;
use flannel_lab::{Entry, Lab, Node, Store};
use flannel_leases::Directory;
use flannel_plan::annotations::{AnnotationPrefix, from_annotations};
use flannel_plan::backend::identity;
use flannel_plan::claim::Identity;
use flannel_plan::lease::{Announcement, Lease, subnets_from_key};
use flannel_plan::mac::Mac;
use flannel_plan::pod_cidrs;
use serde_json::Value;

/// Its subnets in one line, v4 first.
pub fn subnets_shown(lease: &Lease) -> String {
    lease.subnets.iter().map(|(_, subnet)| subnet.to_string()).collect::<Vec<_>>().join(" ")
}

/// The address that its peers send to.
pub fn public_shown(lease: &Lease) -> String {
    lease.announcement.public.iter().map(|(_, ip)| ip.to_string()).next().unwrap_or_default()
}

/// The MAC of its tunnel device, if the backend has one.
pub fn vtep(lease: &Lease) -> Option<Mac> {
    identity(&lease.announcement).v4.map(|Identity::Mac(mac)| mac)
}

/// All leases of a lab, in the order of their subnets.
pub fn leases_of(lab: &Lab) -> anyhow::Result<Vec<Lease>> {
    let mut leases = match lab.store_kind() {
        Store::Directory => in_directory(lab)?,
        Store::Etcd { .. } => in_etcd(lab)?,
        Store::Kubernetes { .. } => in_kubernetes(lab)?,
    };
    leases.sort_by_key(|lease| (lease.subnets.v4, lease.subnets.v6));
    Ok(leases)
}

fn in_directory(lab: &Lab) -> anyhow::Result<Vec<Lease>> {
    let snapshot =
        Directory::list(&lab.store()).with_context(|| format!("no leases of lab {}", lab.name()))?;
    Ok(snapshot.peers.iter().map(|lease| Lease::clone(lease)).collect())
}

/// etcd knows no names; a lease is that of the node whose address it announces.
fn in_etcd(lab: &Lab) -> anyhow::Result<Vec<Lease>> {
    let entries = lab.etcd()?.leases()?;
    let lease = |entry: &Entry| {
        let announcement = Announcement::from_etcd(&entry.key, &entry.value)?;
        let is_at =
            |node: &&Node| announcement.public.iter().any(|(_, ip)| [node.v4(), node.v6()].contains(ip));
        let owner = lab.nodes().iter().find(is_at).map_or("-", |node| node.name()).to_owned();
        Ok(Lease { owner, subnets: subnets_from_key(&entry.key)?, announcement, since: 0 })
    };
    entries.iter().map(lease).collect()
}

/// The nodes that flannel has annotated, with the pod subnets that the controller gave them.
fn in_kubernetes(lab: &Lab) -> anyhow::Result<Vec<Lease>> {
    let nodes = lab.kubernetes()?.get("/api/v1/nodes")?;
    let nodes = nodes["items"].as_array().cloned().unwrap_or_default();
    let lease = |node: &Value| {
        let owner = node["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let annotations = serde_json::from_value(node["metadata"]["annotations"].clone()).unwrap_or_default();
        let announcement = from_annotations(&annotations, &AnnotationPrefix::default()).ok().flatten()?;
        let cidrs: Vec<_> = serde_json::from_value(node["spec"]["podCIDRs"].clone()).unwrap_or_default();
        Some(Lease { owner, subnets: pod_cidrs::subnets("", &cidrs).ok()?, announcement, since: 0 })
    };
    Ok(nodes.iter().filter_map(lease).collect())
}
