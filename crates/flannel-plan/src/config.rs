//! net-conf.json: what the operator chose for the whole cluster, checked once, every fault named at once.
//!
//! Takes the text, gives a [`NetworkConfig`] that needs no further check or the list of [`ConfigFaults`].
//! The defaults and limits are those of Go flannel's etcd mode, written once for both families.

pub(crate) mod faults;
pub(crate) mod fields;
pub(crate) mod non_masquerade;
mod pod_network;

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

pub use crate::backend::Backend;
pub use crate::backend::vxlan::{DEFAULT_VXLAN_PORT, VxlanConfig};
use crate::family::{ByFamily, Family};
pub use faults::{ConfigFault, ConfigFaults};
use fields::{Fields, Noted};
use pod_network::Stated;

/// Nobody means more; in iptables mode each is a rule on every node.
const MOST_CIDRS: u64 = 4096;

/// A net-conf that has been checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkConfig {
    /// The pod network of each family that is switched on.
    pub networks: ByFamily<PodNetwork>,
    /// Whether rules are written for nftables rather than iptables.
    pub nftables: bool,
    /// Where pods keep their address although it is outside of the pod network.
    #[serde(default)]
    pub non_masquerade_cidrs: Vec<IpNet>,
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

impl PodNetwork {
    /// Whether an address may be a pod's: one of the subnets that nodes can be given.
    pub fn is_for_pods(&self, address: IpAddr) -> bool {
        let last = IpNet::new(self.subnet_max, self.subnet_len);
        let up_to_last = address <= self.subnet_max || last.is_ok_and(|last| last.contains(&address));
        self.network.contains(&address) && address >= self.subnet_min && up_to_last
    }

    /// Whether somebody else gives nodes their parts, of any size: then a "part" here is the whole.
    pub fn is_given_out_elsewhere(&self) -> bool {
        self.subnet_len == self.network.prefix_len()
    }
}

/// Turns what is said of one family into its pod network.
type Check = fn(&mut Fields<'_>, Stated) -> Result<PodNetwork, Noted>;

impl NetworkConfig {
    /// Reads and checks a net-conf; of a bad one every fault is told, not only the first.
    pub fn parse(text: &str) -> Result<Self, ConfigFaults> {
        Self::parse_with(text, pod_network::check)
    }

    /// The same where somebody else gives nodes their subnets: what is said of their size and place is not heeded.
    pub fn parse_without_subnets(text: &str) -> Result<Self, ConfigFaults> {
        Self::parse_with(text, pod_network::whole)
    }

    fn parse_with(text: &str, check: Check) -> Result<Self, ConfigFaults> {
        let mut fields = Fields::of_document(text).map_err(|fault| ConfigFaults(vec![fault]))?;
        let mut families = Vec::new();
        let mut networks = ByFamily::default();
        for family in Family::BOTH {
            let on = match family {
                Family::V4 => fields.flag("EnableIPv4", true),
                Family::V6 => fields.flag("EnableIPv6", false),
            };
            // Read also if the family is off: Go refuses a value of the wrong type either way.
            let stated = pod_network::read(&mut fields, family);
            if on {
                families.push(family);
                *networks.slot(family) = check(&mut fields, stated).ok();
            }
        }
        if families.is_empty() {
            fields.note("EnableIPv4", "true, or EnableIPv6 true: no address family is on");
        }
        let nftables = fields.flag("EnableNFTables", false);
        let most = (MOST_CIDRS, format!("at most {MOST_CIDRS} networks"));
        let expected = "a list of networks such as [\"10.0.0.0/8\"]";
        let cidrs = fields.networks("NonMasqueradeCIDRs", expected, most, non_masquerade::network);
        let backend = Backend::read(&mut fields, &families);
        match (backend, fields.into_faults()) {
            (Ok(backend), faults) if faults.is_empty() => {
                Ok(Self { networks, nftables, non_masquerade_cidrs: cidrs.unwrap_or_default(), backend })
            }
            (_, faults) => Err(ConfigFaults(faults)),
        }
    }

    /// The families that are switched on, v4 first.
    pub fn families(&self) -> Vec<Family> {
        self.networks.iter().map(|(family, _)| family).collect()
    }

    /// The addresses of all pods of the cluster in one family, if it is switched on.
    pub fn network(&self, family: Family) -> Option<IpNet> {
        self.networks.get(family).map(|network| network.network)
    }
}
