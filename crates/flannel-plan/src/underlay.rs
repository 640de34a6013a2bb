//! The device below the pod network: chosen from what the kernel was found to be, with the reasons.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::family::ByFamily;
use crate::link_name::LinkName;

/// The device below the pod network, and this node's addresses on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Underlay {
    /// The device.
    pub link: LinkName,
    /// The largest packet that it takes.
    pub mtu: u32,
    /// Its address in each family in use.
    pub addresses: ByFamily<IpAddr>,
    /// The addresses that other nodes are told to send to.
    pub public: ByFamily<IpAddr>,
}
