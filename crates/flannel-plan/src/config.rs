//! net-conf.json: what the operator chose for the whole cluster, checked once, every fault named at once.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::family::ByFamily;

/// A net-conf that has been checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkConfig {
    /// The pod network of each family that is switched on.
    pub networks: ByFamily<PodNetwork>,
    /// Whether rules are written for nftables rather than iptables.
    pub nftables: bool,
    /// How packets get from node to node.
    pub backend: Backend,
}

/// The pod network of one family, and how nodes get their parts of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodNetwork {
    /// The addresses of all pods of the cluster.
    pub network: IpNet,
    /// The prefix length of a node's part.
    pub subnet_len: u8,
    /// The first part that is given out.
    pub subnet_min: IpAddr,
    /// The last part that is given out.
    pub subnet_max: IpAddr,
}

/// How packets get from node to node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// An Ethernet tunnel over UDP.
    Vxlan(VxlanConfig),
    /// Plain routes between nodes of one segment.
    HostGw,
    /// A lease and nothing else.
    Alloc,
    /// A backend of Go flannel that this version does not have; by its name.
    Missing(String),
}

/// The settings of the vxlan backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VxlanConfig {
    /// The network number in every packet.
    pub vni: u32,
    /// The UDP port of every node.
    pub port: u16,
    /// The MTU below the tunnel, where it is not the device's own.
    pub mtu: Option<u32>,
    /// Whether packets carry the group policy extension.
    pub gbp: bool,
    /// Whether devices learn forwarding entries from packets.
    pub learning: bool,
    /// Whether peers on the same segment are reached without the tunnel.
    pub direct_routing: bool,
}
