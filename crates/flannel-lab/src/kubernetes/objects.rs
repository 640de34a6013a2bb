//! The objects of a lab's Kubernetes: flannel's rights, and its nodes.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Value, json};

use super::Kubernetes;
use crate::node::Node;
use crate::{LabError, Result};

/// Where kube-flannel lives.
pub(super) const NAMESPACE: &str = "kube-flannel";
/// Whose rights its daemons have.
pub(super) const ACCOUNT: &str = "flannel";

/// The parts of a net-conf that pod subnets are cut from.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PodNetworks(Vec<(IpNet, u8)>);

impl PodNetworks {
    /// Reads the keys that Kubernetes must agree with; flanneld judges the rest.
    pub(super) fn of(net_conf: &str) -> Result<Self> {
        let wrong = |why: String| LabError::failed("net-conf.json", why);
        let text: Value = serde_json::from_str(net_conf).map_err(|why| wrong(why.to_string()))?;
        let part = |network: &str, length: &str, usual: u8| {
            let network = text[network].as_str()?.parse().ok()?;
            let length = text[length].as_u64().and_then(|length| u8::try_from(length).ok());
            Some((network, length.unwrap_or(usual)))
        };
        let v6 = text["EnableIPv6"].as_bool().unwrap_or_default();
        let v6 = v6.then(|| part("IPv6Network", "IPv6SubnetLen", 64)).flatten();
        let networks: Vec<_> = part("Network", "SubnetLen", 24).into_iter().chain(v6).collect();
        if networks.is_empty() {
            return Err(wrong("neither Network nor IPv6Network".to_owned()));
        }
        Ok(Self(networks))
    }

    /// For `--cluster-cidr`.
    pub(super) fn networks(&self) -> String {
        self.0.iter().map(|(network, _)| network.to_string()).collect::<Vec<_>>().join(",")
    }

    /// The flags of the lengths: with one family it has another name.
    pub(super) fn lengths(&self) -> String {
        let flag = |(network, length): &(IpNet, u8)| match (self.0.len(), network) {
            (1, _) => format!("--node-cidr-mask-size={length}"),
            (_, IpNet::V4(_)) => format!("--node-cidr-mask-size-ipv4={length}"),
            (_, IpNet::V6(_)) => format!("--node-cidr-mask-size-ipv6={length}"),
        };
        self.0.iter().map(flag).collect::<Vec<_>>().join(" ")
    }
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
        let plan = |text: &str| PodNetworks::of(text).map(|plan| (plan.networks(), plan.lengths())).unwrap();
        assert_eq!(
            plan(&Backend::Vxlan.net_conf(Families::V4)),
            ("10.244.0.0/16".into(), "--node-cidr-mask-size=24".into())
        );
        assert_eq!(
            plan(
                r#"{"Network":"10.9.0.0/16","SubnetLen":26,"EnableIPv6":true,"IPv6Network":"fd00:244::/48"}"#
            ),
            (
                "10.9.0.0/16,fd00:244::/48".into(),
                "--node-cidr-mask-size-ipv4=26 --node-cidr-mask-size-ipv6=64".into()
            )
        );
        assert!(PodNetworks::of("{}").is_err() && PodNetworks::of("").is_err());
    }
}
