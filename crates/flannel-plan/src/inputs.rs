//! All that a decision may depend on. Saved in `state.json`, it can be replayed on any machine.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::config::NetworkConfig;
use crate::firewall::Firewall;
use crate::lease::Lease;
use crate::lease_list;
use crate::link_name::LinkName;
use crate::peers::Newcomer;
use crate::state::RouteKind;
use crate::underlay::Underlay;

/// All that a decision may depend on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inputs {
    /// What the operator chose for this node.
    pub node: NodeOptions,
    /// What the operator chose for the cluster.
    pub config: NetworkConfig,
    /// The lower device of the pod network, and this node's addresses on it.
    pub underlay: Underlay,
    pub own: Lease,
    /// The leases of all other nodes, shared with the store that handed them out.
    #[serde(deserialize_with = "lease_list::readable")]
    pub peers: Vec<Arc<Lease>>,
    /// Those of them that rank behind the others, which were followed before they came.
    #[serde(default)]
    pub newcomers: Vec<Newcomer>,
    /// The routes of the host that are not ours: who is on-link, what is connected.
    pub routes: Vec<HostRoute>,
    #[serde(default)]
    pub firewall: Firewall,
}

/// What the operator chose for this node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeOptions {
    /// Where the CNI plugin looks for the node's subnet.
    pub subnet_file: Box<str>,
    /// The real folder of that file, in numbers: what tells instances on one host apart. Empty where nobody has found
    /// out; then the path does.
    #[serde(default)]
    pub folder: Box<str>,
    /// Marks of version 0.1 that this instance may have written: the file by every path that is known.
    #[serde(default)]
    pub former: Vec<Box<str>>,
    /// Whether packets that leave the pod network get the node's address.
    pub ip_masq: bool,
    /// Whether packets of the pod network are let through the host's firewall.
    #[serde(default)]
    pub forward_rules: bool,
    /// Whether packets for pods of this node that are gone are dropped.
    #[serde(default)]
    pub blackhole_route: bool,
}

/// A route of the host that is not ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRoute {
    pub destination: IpNet,
    pub kind: RouteKind,
    pub via: Option<IpAddr>,
    pub link: Option<LinkName>,
    pub protocol: u8,
    /// Its metric; 0 is none.
    pub metric: u32,
}
