//! The leases of a lab, from its store, in the few words that tables and the demo show.

use anyhow::Context;
use flannel_lab::{Entry, Lab, Node, Store};
use flannel_leases::Directory;
use flannel_plan::annotations::{AnnotationPrefix, from_annotations};
use flannel_plan::family::{ByFamily, Family};
use flannel_plan::lease::{Announcement, Lease, subnets_from_key};
use flannel_plan::mac::Mac;
use ipnet::IpNet;
use serde_json::Value;

/// One node's lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabLease {
    pub node: String,
    /// The address that its peers send to.
    pub public: String,
    /// Its pods' subnets, v4 first.
    pub subnets: Vec<IpNet>,
    /// The MAC of its tunnel device, if the backend has one.
    pub vtep: Option<Mac>,
}

impl LabLease {
    fn new(node: String, subnets: &ByFamily<IpNet>, announcement: &Announcement) -> Self {
        Self {
            node,
            public: announcement.public.iter().map(|(_, ip)| ip.to_string()).next().unwrap_or_default(),
            subnets: subnets.iter().map(|(_, subnet)| *subnet).collect(),
            vtep: announcement.detail.v4.as_ref().and_then(|detail| vtep(detail.as_str())),
        }
    }

    /// Its subnets in one line.
    pub fn subnets_shown(&self) -> String {
        self.subnets.iter().map(IpNet::to_string).collect::<Vec<_>>().join(" ")
    }
}

/// All leases of a lab, in the order of their subnets.
pub fn leases_of(lab: &Lab) -> anyhow::Result<Vec<LabLease>> {
    let mut leases = match lab.store_kind() {
        Store::Directory => in_directory(lab)?,
        Store::Etcd { .. } => in_etcd(lab)?,
        Store::Kubernetes { .. } => in_kubernetes(lab)?,
    };
    leases.sort_by(|one, other| one.subnets.cmp(&other.subnets));
    Ok(leases)
}

fn in_directory(lab: &Lab) -> anyhow::Result<Vec<LabLease>> {
    let snapshot =
        Directory::list(&lab.store()).with_context(|| format!("no leases of lab {}", lab.name()))?;
    let lease = |lease: &Lease| LabLease::new(lease.owner.clone(), &lease.subnets, &lease.announcement);
    Ok(snapshot.peers.iter().map(|found| lease(found)).collect())
}

/// etcd knows no names; a lease is that of the node whose address it announces.
fn in_etcd(lab: &Lab) -> anyhow::Result<Vec<LabLease>> {
    let entries = lab.etcd()?.leases()?;
    let lease = |entry: &Entry| {
        let announcement = Announcement::from_etcd(&entry.key, &entry.value)?;
        let is_at =
            |node: &&Node| announcement.public.iter().any(|(_, ip)| [node.v4(), node.v6()].contains(ip));
        let node = lab.nodes().iter().find(is_at).map_or("-", |node| node.name());
        Ok(LabLease::new(node.to_owned(), &subnets_from_key(&entry.key)?, &announcement))
    };
    entries.iter().map(lease).collect()
}

/// The nodes that flannel has annotated, with the pod subnets that the controller gave them.
fn in_kubernetes(lab: &Lab) -> anyhow::Result<Vec<LabLease>> {
    let nodes = lab.kubernetes()?.get("/api/v1/nodes")?;
    let nodes = nodes["items"].as_array().cloned().unwrap_or_default();
    let lease = |node: &Value| {
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        let annotations = serde_json::from_value(node["metadata"]["annotations"].clone()).unwrap_or_default();
        let announcement = from_annotations(&annotations, &AnnotationPrefix::default()).ok().flatten()?;
        let cidrs: Vec<IpNet> = serde_json::from_value(node["spec"]["podCIDRs"].clone()).unwrap_or_default();
        let of = |family: Family| cidrs.iter().copied().find(|cidr| Family::of_net(*cidr) == family);
        let subnets = ByFamily { v4: of(Family::V4), v6: of(Family::V6) };
        Some(LabLease::new(name.to_owned(), &subnets, &announcement))
    };
    Ok(nodes.iter().filter_map(lease).collect())
}

fn vtep(detail: &str) -> Option<Mac> {
    let detail: serde_json::Value = serde_json::from_str(detail).ok()?;
    detail.get("VtepMAC")?.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tunnels_mac_is_read_from_what_the_backend_says() {
        let mac = Mac([0xce, 0xdc, 0xbf, 0x10, 0x49, 0xa9]);
        assert_eq!(vtep(r#"{"VNI":1,"VtepMAC":"ce:dc:bf:10:49:a9"}"#), Some(mac));
        assert_eq!(vtep("{}"), None);
    }
}
