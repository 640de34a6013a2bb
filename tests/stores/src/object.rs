//! Objects of Kubernetes nodes that nobody runs, annotated as Go's flanneld annotates them.

use serde_json::{Value, json};

use crate::fleet::PREFIX;

/// A node of vxlan that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeObject {
    /// Its name.
    pub name: String,
    /// Its pod subnets, IPv4 first.
    pub subnets: Vec<String>,
    /// Its public addresses, IPv4 first.
    pub public: Vec<String>,
    /// The MACs of its tunnels, IPv4 first.
    pub macs: Vec<String>,
}

impl NodeObject {
    /// One of IPv4; the number tells it from others.
    pub fn v4(number: u8) -> Self {
        Self {
            name: format!("stranger{number}"),
            subnets: vec![format!("10.244.{number}.0/24")],
            public: vec![format!("10.0.0.{number}")],
            macs: vec![format!("02:00:00:00:01:{number:02x}")],
        }
    }

    /// One of both families.
    pub fn dual(number: u8) -> Self {
        let mut node = Self::v4(number);
        node.subnets.push(format!("fd00:244:0:{number:x}::/64"));
        node.public.push(format!("fd00:10::{number:x}"));
        node.macs.push(format!("02:00:00:00:02:{number:02x}"));
        node
    }

    /// Flannel's annotations.
    pub fn annotations(&self) -> Value {
        let data = |mac: &String| format!(r#"{{"VNI":1,"VtepMAC":"{mac}"}}"#);
        let mut all = json!({
            format!("{PREFIX}/backend-type"): "vxlan",
            format!("{PREFIX}/kube-subnet-manager"): "true",
        });
        for (name, value) in ["public-ip", "public-ipv6"].iter().zip(&self.public) {
            all[format!("{PREFIX}/{name}")] = json!(value);
        }
        for (name, mac) in ["backend-data", "backend-v6-data"].iter().zip(&self.macs) {
            all[format!("{PREFIX}/{name}")] = json!(data(mac));
        }
        all
    }

    /// The whole object.
    pub fn object(&self) -> Value {
        json!({
            "metadata": {"name": self.name, "annotations": self.annotations()},
            "spec": {"podCIDR": self.subnets[0], "podCIDRs": self.subnets},
        })
    }

    /// The path of the object.
    pub fn path(&self) -> String {
        format!("/api/v1/nodes/{}", self.name)
    }
}
