//! What a plugin answers when it attached a container: interfaces, addresses, routes, name servers.
//!
//! One form for all versions; reading and writing a version's own form is in `result/`.

mod parse;
mod render;

use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;

/// What was attached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attachment {
    /// The interfaces that were made, on both sides.
    pub interfaces: Vec<Interface>,
    pub ips: Vec<Ip>,
    pub routes: Vec<Route>,
    pub dns: Dns,
}

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    /// Its hardware address; may be empty.
    pub mac: String,
    /// Its MTU; 0 is not said.
    pub mtu: u32,
    /// The namespace that it is in; none on the host.
    pub sandbox: Option<PathBuf>,
    /// A socket that belongs to it; may be empty.
    pub socket_path: String,
    /// The PCI device behind it; may be empty.
    pub pci_id: String,
}

/// An address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ip {
    /// Which of the interfaces has it.
    pub interface: Option<i64>,
    /// The address with the length of its network, host bits kept.
    pub address: IpNet,
    pub gateway: Option<IpAddr>,
}

/// A route inside the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub dst: IpNet,
    pub gw: Option<IpAddr>,
    /// The MTU of the way; 0 is not said.
    pub mtu: u32,
    /// The segment size of the way; 0 is not said.
    pub advmss: u32,
    /// The metric; 0 is not said.
    pub priority: u32,
    pub table: Option<u32>,
    pub scope: Option<u8>,
}

impl Route {
    /// A route that says no more than where it leads, and over which router.
    pub fn new(dst: IpNet, gw: Option<IpAddr>) -> Self {
        Self { dst, gw, mtu: 0, advmss: 0, priority: 0, table: None, scope: None }
    }
}

/// Name servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dns {
    /// Their addresses.
    pub nameservers: Vec<String>,
    /// The domain; may be empty.
    pub domain: String,
    pub search: Vec<String>,
    pub options: Vec<String>,
}
