//! The objects of a lab's Kubernetes: flannel's rights, and its nodes.

use std::net::IpAddr;

use flannel_plan::config::NetworkConfig;
use flannel_plan::family::Family;
use serde_json::{Value, json};

use super::Kubernetes;
use crate::node::Node;
use crate::{LabError, Result};

/// Where kube-flannel lives.
pub(super) const NAMESPACE: &str = "kube-flannel";
/// Whose rights its daemons have.
pub(super) const ACCOUNT: &str = "flannel";

/// What tells the controller which pod subnets to give out, so that flanneld's net-conf agrees.
pub(super) fn pod_subnet_flags(net_conf: &str) -> Result<String> {
    let config = NetworkConfig::parse(net_conf).map_err(|why| LabError::failed("net-conf.json", why))?;
    let networks: Vec<_> = config.networks.iter().collect();
    let cidrs: Vec<_> = networks.iter().map(|(_, pods)| pods.network.to_string()).collect();
    let mut flags = format!("--cluster-cidr={}", cidrs.join(","));
    for (family, pods) in &networks {
        // With one family the flag has another name.
        let suffix = match (networks.len(), family) {
            (1, _) => "",
            (_, Family::V4) => "-ipv4",
            (_, Family::V6) => "-ipv6",
        };
        flags += &format!(" --node-cidr-mask-size{suffix}={}", pods.subnet_len);
    }
    Ok(flags)
}

impl Kubernetes<'_> {
    /// What kube-flannel.yml makes before its daemons: a namespace, an account, a role and their binding.
    pub(super) fn make_rights(&self) -> Result<()> {
        let named = |name: &str| json!({"metadata": {"name": name}});
        self.create("/api/v1/namespaces", &named(NAMESPACE))?;
        self.create(&format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts"), &named(ACCOUNT))?;
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        let rule = |resource: &str, verbs: &[&str]| json!({"apiGroups": [""], "resources": [resource], "verbs": verbs});
        let mut role = named("flannel");
        role["rules"] = json!([
            rule("pods", &["get"]),
            rule("nodes", &["get", "list", "watch"]),
            rule("nodes/status", &["patch"]),
        ]);
        self.create(&format!("{rbac}/clusterroles"), &role)?;
        let mut binding = named("flannel");
        binding["roleRef"] =
            json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "flannel"});
        binding["subjects"] = json!([{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}]);
        self.create(&format!("{rbac}/clusterrolebindings"), &binding).map(drop)
    }

    /// Makes the object of a node as its kubelet would; the controller gives it pod subnets.
    pub fn make_node(&self, node: &Node) -> Result<()> {
        self.create("/api/v1/nodes", &node_object(node.name(), &[node.v4(), node.v6()])).map(drop)
    }

    /// Deletes the object of a node.
    pub fn delete_node(&self, name: &str) -> Result<()> {
        self.delete(&format!("/api/v1/nodes/{name}")).map(drop)
    }

    /// Changes annotations of a node; null removes one.
    pub fn annotate(&self, name: &str, annotations: &Value) -> Result<()> {
        let change = json!({"metadata": {"annotations": annotations}});
        self.patch(&format!("/api/v1/nodes/{name}"), &change).map(drop)
    }
}

/// Every real node has an annotation; Go flanneld counts on one.
fn node_object(name: &str, addresses: &[IpAddr]) -> Value {
    let addresses: Vec<_> = addresses
        .iter()
        .map(|address| json!({"type": "InternalIP", "address": address.to_string()}))
        .collect();
    json!({
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"},
            "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
        },
        "status": {"addresses": addresses},
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Backend, Families};

    #[test]
    fn pod_subnets_are_cut_as_the_net_conf_says() {
        assert_eq!(
            pod_subnet_flags(&Backend::Vxlan.net_conf(Families::V4)).unwrap(),
            "--cluster-cidr=10.244.0.0/16 --node-cidr-mask-size=24"
        );
        assert_eq!(
            pod_subnet_flags(
                r#"{"Network":"10.9.0.0/16","SubnetLen":26,"EnableIPv6":true,"IPv6Network":"fd00:244::/48"}"#
            )
            .unwrap(),
            "--cluster-cidr=10.9.0.0/16,fd00:244::/48 --node-cidr-mask-size-ipv4=26 --node-cidr-mask-size-ipv6=64"
        );
        assert!(pod_subnet_flags("{}").is_err() && pod_subnet_flags("").is_err());
    }
}
