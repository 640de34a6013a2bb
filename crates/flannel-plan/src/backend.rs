//! How packets get from node to node. Whatever depends on the backend is asked here, and answered in one file a backend;
//! no other file looks at which one it is. The compiler lists what a new one has to answer.

mod host_gw;
pub mod vxlan;

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::claim::{Identity, IdentitySource};
use crate::config::NetworkConfig;
use crate::config::fields::{Fields, Noted};
use crate::desired::Draft;
use crate::family::{ByFamily, Family};
use crate::finding::{Code, Finding};
use crate::inputs::{Inputs, NodeOptions};
use crate::lease::{Announcement, BackendData};
use crate::link_name::LinkName;
use crate::peers::{Endpoint, Peer};
use crate::rules::spec::Tunnel;
use crate::state::{Link, Route};
use crate::underlay::Underlay;
use vxlan::VxlanConfig;

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

/// Why a node cannot take part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    #[error("backend {0} comes with a later version: {USE_ANOTHER}")]
    Missing(String),
    /// Routes cannot lead to an address behind a translation.
    #[error(
        "host-gw needs a public address that is the interface's own: {public} is not {own} of {link}; {USE_OWN_ADDRESS}"
    )]
    BehindNat { public: IpAddr, own: IpAddr, link: LinkName },
    #[error("{link} has an MTU of {mtu}: too small for a tunnel; {RAISE_MTU}")]
    TooSmall { link: LinkName, mtu: u32 },
}

impl BackendError {
    /// The same to be told.
    pub fn finding(&self) -> Finding {
        let (code, object, remedy) = match self {
            Self::Missing(name) => (Code::BackendMissing, name.clone(), USE_ANOTHER),
            Self::BehindNat { link, .. } => (Code::BackendUnfit, link.to_string(), USE_OWN_ADDRESS),
            Self::TooSmall { link, .. } => (Code::MtuTooSmall, link.to_string(), RAISE_MTU),
        };
        Finding::new(code, object, self).with_parts(None, Some(remedy.to_owned()))
    }
}

const USE_ANOTHER: &str = "use vxlan, host-gw or alloc in the net-conf's Backend.Type";
const USE_OWN_ADDRESS: &str = "drop --public-ip or use vxlan";
const RAISE_MTU: &str = "raise it, or set MTU in the net-conf's Backend";

const EXPECTED: &str = "one of vxlan, host-gw, alloc (or, in Go flannel only: udp, ipip, wireguard, ipsec, extension, tencent-vpc)";

impl Backend {
    /// Reads the key `Backend` of a net-conf for the families that are on, or notes the faults.
    pub(crate) fn read(fields: &mut Fields<'_>, families: &[Family]) -> Result<Self, Noted> {
        if !fields.has("Backend") {
            return Ok(Self::Missing("udp".to_owned())); // what Go flannel takes, whatever its documents say
        }
        let Some(mut settings) = fields.of_object("Backend") else {
            return Err(fields.note("Backend", format!("an object with the key Type: {EXPECTED}")));
        };
        let backend = Self::of_type(&mut settings, families);
        fields.add_faults(settings.into_faults());
        backend
    }

    fn of_type(settings: &mut Fields<'_>, families: &[Family]) -> Result<Self, Noted> {
        let name = settings.text("Type", EXPECTED)?.unwrap_or_default().to_lowercase();
        match name.as_str() {
            "vxlan" => VxlanConfig::read(settings, families).map(Self::Vxlan),
            "host-gw" => Ok(Self::HostGw),
            "alloc" => Ok(Self::Alloc),
            "udp" | "ipip" | "wireguard" | "ipsec" | "extension" | "tencent-vpc" => Ok(Self::Missing(name)),
            _ => Err(settings.note("Type", EXPECTED)),
        }
    }

    /// Its name in the net-conf.
    pub fn name(&self) -> &str {
        match self {
            Self::Vxlan(_) => "vxlan",
            Self::HostGw => "host-gw",
            Self::Alloc => "alloc",
            Self::Missing(name) => name,
        }
    }

    /// Its name in leases: Go writes none for backends that need no peers.
    pub fn lease_name(&self) -> &str {
        match self {
            Self::Vxlan(_) | Self::HostGw => self.name(),
            Self::Alloc | Self::Missing(_) => "",
        }
    }

    /// What tells tunnel packets from all others, where connection tracking can be spared them.
    pub fn tunnel(&self) -> Option<Tunnel> {
        match self {
            Self::Vxlan(vxlan) => Some(Tunnel { port: vxlan.port, vni: vxlan.vni }),
            Self::HostGw | Self::Alloc | Self::Missing(_) => None,
        }
    }

    /// What a person should know before a net-conf with another backend, or other settings, is followed.
    pub fn consequences(&self, new: &Self) -> Vec<Finding> {
        match (self, new) {
            (Self::Vxlan(old), Self::Vxlan(new)) => old.consequences(new),
            (old, new) if old == new => Vec::new(),
            (Self::Vxlan(_) | Self::HostGw | Self::Alloc | Self::Missing(_), _) => {
                vec![out_of_reach("the backend")]
            }
        }
    }

    /// Whether the objects of a peer tell all that its lease claims.
    pub(crate) fn has_claims_in_objects(&self) -> bool {
        match self {
            // A peer on the same segment has no entry with its MAC.
            Self::Vxlan(vxlan) => !vxlan.direct_routing,
            Self::HostGw | Self::Alloc | Self::Missing(_) => true,
        }
    }

    /// One family of a peer; none if its lease does not say what it takes to reach it.
    pub(crate) fn endpoint(
        &self,
        subnet: IpNet,
        public: IpAddr,
        detail: Option<&BackendData>,
    ) -> Result<Option<Endpoint>, String> {
        let identity = match (self, detail) {
            (Self::Vxlan(_), Some(detail)) => Some(vxlan::identity(detail)?),
            (Self::Vxlan(_), None) => return Ok(None),
            (Self::HostGw | Self::Alloc | Self::Missing(_), _) => None,
        };
        Ok(Some(Endpoint { subnet, public, identity }))
    }
}

/// What follows when nodes cannot speak to each other before all have followed.
fn out_of_reach(what: &str) -> Finding {
    let text = format!("{what} changed");
    let cause = "nodes that have not followed yet are out of reach until they do";
    Finding::new(Code::OtherBackend, "net-conf", text).because(cause)
}

/// Whether this node can do what the net-conf asks for.
pub fn check(config: &NetworkConfig, underlay: &Underlay) -> Result<(), BackendError> {
    match &config.backend {
        Backend::Vxlan(vxlan) => vxlan::check(vxlan, config, underlay),
        Backend::HostGw => host_gw::check(underlay),
        Backend::Alloc => Ok(()),
        Backend::Missing(name) => Err(BackendError::Missing(name.clone())),
    }
}

/// What this node says of itself to others; nothing if it cannot do what it says.
pub fn announce(
    config: &NetworkConfig,
    underlay: &Underlay,
    identity: &ByFamily<Identity>,
) -> Result<Announcement, BackendError> {
    check(config, underlay)?;
    let public = |(family, _)| Some((family, *underlay.public.get(family)?));
    let public = config.networks.iter().filter_map(public).collect();
    let detail = match &config.backend {
        Backend::Vxlan(vxlan) => vxlan::announce(vxlan, config, identity),
        Backend::HostGw | Backend::Alloc | Backend::Missing(_) => ByFamily::default(),
    };
    Ok(Announcement { public, backend: config.backend.lease_name().to_owned(), detail })
}

/// What an announcement says its node is known by, as far as that can be read: its data alone tell.
pub fn identity(announcement: &Announcement) -> ByFamily<Identity> {
    let read = |family| announcement.detail.get(family).and_then(|detail| vxlan::identity(detail).ok());
    ByFamily { v4: read(Family::V4), v6: read(Family::V6) }
}

/// Where the identity of a node comes from that has none yet, by family.
pub fn identity_sources(config: &NetworkConfig) -> ByFamily<IdentitySource> {
    match &config.backend {
        Backend::Vxlan(vxlan) => vxlan::links(vxlan, config).map(|_, name| IdentitySource::Device(*name)),
        Backend::HostGw | Backend::Alloc | Backend::Missing(_) => ByFamily::default(),
    }
}

/// The names of the devices that a backend has, by family.
pub fn links(config: &NetworkConfig) -> ByFamily<LinkName> {
    match &config.backend {
        Backend::Vxlan(vxlan) => vxlan::links(vxlan, config),
        Backend::HostGw | Backend::Alloc | Backend::Missing(_) => ByFamily::default(),
    }
}

/// The devices that a node should have under a net-conf that it [can follow](check).
pub fn devices(
    config: &NetworkConfig,
    node: &NodeOptions,
    underlay: &Underlay,
    identity: &ByFamily<Identity>,
) -> ByFamily<Link> {
    match &config.backend {
        Backend::Vxlan(vxlan) => vxlan::devices(vxlan, config, node, underlay, identity),
        Backend::HostGw | Backend::Alloc | Backend::Missing(_) => ByFamily::default(),
    }
}

/// The kernel settings of those devices, by path.
pub fn sysctls(config: &NetworkConfig) -> Vec<Box<str>> {
    match &config.backend {
        Backend::Vxlan(vxlan) => {
            vxlan::links(vxlan, config).iter().map(|(_, name)| vxlan::accept_ra(*name)).collect()
        }
        Backend::HostGw | Backend::Alloc | Backend::Missing(_) => Vec::new(),
    }
}

/// Adds what the node itself needs; returns the MTU for pods.
pub(crate) fn add_node(inputs: &Inputs, plan: &mut Draft) -> u32 {
    match &inputs.config.backend {
        Backend::Vxlan(vxlan) => vxlan::add_node(vxlan, inputs, plan),
        Backend::HostGw | Backend::Alloc | Backend::Missing(_) => inputs.underlay.mtu,
    }
}

pub(crate) fn add_peers(inputs: &Inputs, peers: &[Peer<'_>], plan: &mut Draft) {
    match &inputs.config.backend {
        Backend::Vxlan(vxlan) => vxlan::add_peers(vxlan, inputs, peers, plan),
        Backend::HostGw => host_gw::add_peers(inputs, peers, plan),
        Backend::Alloc | Backend::Missing(_) => {}
    }
}

/// Whether a route through a device of ours to a node's subnet is Go flannel's, by its shape.
pub(crate) fn is_route_of_go(route: &Route) -> bool {
    vxlan::is_route_of_go(route)
}

/// Whether Go flannel writes an announcement's address and data of a family as annotations: the v4 pair also where there
/// is no IPv4, unless the backend is vxlan; the v6 pair only of backends that know IPv6, of tunnels only with their data.
pub(crate) fn is_annotated(backend: &str, family: Family, detail: Option<&BackendData>) -> bool {
    match (family, backend) {
        (_, "vxlan") | (Family::V6, "wireguard") => detail.is_some(),
        (Family::V6, backend) => matches!(backend, "host-gw" | "extension"),
        (Family::V4, _) => true,
    }
}
