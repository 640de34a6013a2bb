//! A stand-in for Go's flanneld on a node, where there is none: what it tells its store, to the byte, and what it
//! makes of the kernel, by hand. IPv4 in vxlan.

use std::fs;

use flannel_lab::{Entry, Kubernetes, Node};
use serde_json::{Value, json};

use crate::fleet::{Fleet, PREFIX};
use crate::lease::{GoLease, is_at, subnet_of};

/// A node of vxlan as its store tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    subnet: String,
    public: String,
    mac: String,
}

/// Does on a node what Go's flanneld does: under this MAC, and with this subnet unless Kubernetes chooses.
pub fn stand_in(fleet: &Fleet, node: &Node, subnet: &str, mac: &str) {
    let public = node.v4().to_string();
    let subnet = match fleet.kubernetes() {
        Ok(kubernetes) => annotate(kubernetes, node, mac),
        Err(_) => {
            let (lease, etcd) =
                (GoLease::vxlan(&subnet.replace('/', "-"), &public, mac), fleet.etcd().unwrap());
            etcd.put_with_lease(&lease.path(), &lease.value, etcd.grant(86_400).unwrap()).unwrap();
            subnet.to_owned()
        }
    };
    let base = subnet.split('/').next().unwrap();
    node.ip(&format!(
        "link add flannel.1 address {mac} mtu 1450 type vxlan id 1 dev eth0 local {public} nolearning"
    ))
    .unwrap();
    node.ip(&format!("address add {base}/32 dev flannel.1")).unwrap();
    node.ip("link set flannel.1 up").unwrap();
    for peer in all_told(fleet).iter().filter(|peer| peer.public != public) {
        let base = peer.subnet.split('/').next().unwrap();
        node.ip(&format!("neigh replace {base} lladdr {} dev flannel.1 nud permanent", peer.mac)).unwrap();
        node.bridge(&format!("fdb replace {} dev flannel.1 dst {} self permanent", peer.mac, peer.public))
            .unwrap();
        node.ip(&format!("route replace {} via {base} dev flannel.1 onlink", peer.subnet)).unwrap();
    }
    let first = format!("{}.1/24", base.rsplit_once('.').unwrap().0);
    fs::create_dir_all(node.path("/run/flannel")).unwrap();
    let env = format!(
        "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET={first}\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n"
    );
    fs::write(node.path("/run/flannel/subnet.env"), env).unwrap();
}

/// Gives a node Go's annotations, and tells its subnet.
fn annotate(kubernetes: Kubernetes<'_>, node: &Node, mac: &str) -> String {
    kubernetes.annotate(node.name(), &go_annotations(&node.v4().to_string(), mac)).unwrap();
    kubernetes.node(node.name()).unwrap()["spec"]["podCIDR"].as_str().unwrap().to_owned()
}

/// The annotations that Go writes for a node of vxlan.
pub fn go_annotations(public: &str, mac: &str) -> Value {
    json!({
        format!("{PREFIX}/backend-data"): format!(r#"{{"VNI":1,"VtepMAC":"{mac}"}}"#),
        format!("{PREFIX}/backend-type"): "vxlan",
        format!("{PREFIX}/kube-subnet-manager"): "true",
        format!("{PREFIX}/public-ip"): public,
    })
}

/// All nodes that the store tells of.
fn all_told(fleet: &Fleet) -> Vec<Told> {
    let mac = |data: &str| {
        let data: Value = serde_json::from_str(data).unwrap();
        data["VtepMAC"].as_str().unwrap().to_owned()
    };
    if let Ok(kubernetes) = fleet.kubernetes() {
        let nodes = kubernetes.get("/api/v1/nodes").unwrap();
        let annotation = |node: &Value, name: &str| {
            node["metadata"]["annotations"][format!("{PREFIX}/{name}")].as_str().map(str::to_owned)
        };
        let told = |node: &Value| {
            let subnet = node["spec"]["podCIDR"].as_str()?.to_owned();
            Some(Told {
                subnet,
                public: annotation(node, "public-ip")?,
                mac: mac(&annotation(node, "backend-data")?),
            })
        };
        return nodes["items"].as_array().unwrap().iter().filter_map(told).collect();
    }
    let leases = fleet.etcd().unwrap().leases().unwrap();
    let public =
        |lease: &Entry| fleet.nodes().iter().map(Node::v4).find(|address| is_at(lease, *address)).unwrap();
    let told = |lease: &Entry| Told {
        subnet: subnet_of(&lease.key),
        public: public(lease).to_string(),
        mac: crate::vtep(lease),
    };
    leases.iter().map(told).collect()
}
