//! How packets get from node to node: for each backend what a node announces and what it should look like.

pub mod host_gw;
pub mod vxlan;

use crate::config::{Backend, NetworkConfig};
use crate::family::ByFamily;
use crate::finding::{Code, Finding};
use crate::inputs::NodeOptions;
use crate::lease::Announcement;
use crate::link_name::LinkName;
use crate::mac::Mac;
use crate::state::Link;
use crate::underlay::Underlay;

/// A backend without its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendKind {
    /// An Ethernet tunnel over UDP.
    Vxlan,
    /// Plain routes between nodes of one segment.
    HostGw,
    /// A lease and nothing else.
    Alloc,
    /// One that this version does not have.
    Missing,
}

impl BackendKind {
    /// The kind of a configured backend.
    pub fn of(backend: &Backend) -> Self {
        match backend {
            Backend::Vxlan(_) => Self::Vxlan,
            Backend::HostGw => Self::HostGw,
            Backend::Alloc => Self::Alloc,
            Backend::Missing(_) => Self::Missing,
        }
    }

    /// Its name in leases: Go writes none for backends that need no peers.
    pub fn lease_name(self) -> &'static str {
        match self {
            Self::Vxlan => "vxlan",
            Self::HostGw => "host-gw",
            Self::Alloc | Self::Missing => "",
        }
    }
}

/// Why a node cannot take part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    /// The configured backend does not exist here.
    #[error("backend {0} comes with a later version: {USE_ANOTHER}")]
    Missing(String),
    /// Routes cannot lead to an address behind a translation.
    #[error(
        "host-gw needs a public address that is the interface's own: {public} is not {own} of {link}; {USE_OWN_ADDRESS}"
    )]
    BehindNat {
        /// The announced address.
        public: std::net::IpAddr,
        /// The interface's address.
        own: std::net::IpAddr,
        /// The interface.
        link: LinkName,
    },
    /// The tunnel device would be too small to carry IP.
    #[error("{link} has an MTU of {mtu}: too small for a tunnel; {RAISE_MTU}")]
    TooSmall {
        /// The interface, or the net-conf.
        link: LinkName,
        /// Its MTU.
        mtu: u32,
    },
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

/// What this node says of itself to others; nothing if it cannot do what it says.
pub fn announce(
    config: &NetworkConfig,
    underlay: &Underlay,
    macs: &ByFamily<Mac>,
) -> Result<Announcement, BackendError> {
    let backend = BackendKind::of(&config.backend);
    let mut public = ByFamily::default();
    for (family, _) in config.networks.iter() {
        *public.slot(family) = underlay.public.get(family).copied();
    }
    let detail = match &config.backend {
        Backend::Vxlan(vxlan) => {
            vxlan::check(vxlan, config, underlay).map(|()| vxlan::announce(vxlan, config, macs))?
        }
        Backend::HostGw => host_gw::check(underlay).map(|()| ByFamily::default())?,
        Backend::Alloc => ByFamily::default(),
        Backend::Missing(name) => return Err(BackendError::Missing(name.clone())),
    };
    Ok(Announcement { public, backend: backend.lease_name().to_owned(), detail })
}

/// The hardware addresses that an announcement names, as far as they can be read.
pub fn macs(announcement: &Announcement) -> ByFamily<Mac> {
    let read = |family| announcement.detail.get(family).and_then(|detail| vxlan::peer_mac(detail).ok());
    ByFamily { v4: read(crate::family::Family::V4), v6: read(crate::family::Family::V6) }
}

/// The devices that a node should have under a net-conf.
pub fn tunnels(
    config: &NetworkConfig,
    node: &NodeOptions,
    underlay: &Underlay,
    macs: &ByFamily<Mac>,
) -> Result<Vec<Link>, BackendError> {
    let Backend::Vxlan(vxlan) = &config.backend else { return Ok(Vec::new()) };
    let (names, mark) = (vxlan::links(vxlan, config), node.mark(config));
    let devices = names.iter().filter_map(|(family, name)| Some((*name, *macs.get(family)?, family)));
    devices.map(|device| vxlan::tunnel(vxlan, &mark, underlay, device)).collect()
}

/// The devices that a backend has, by family.
pub fn links(config: &NetworkConfig) -> ByFamily<LinkName> {
    match &config.backend {
        Backend::Vxlan(vxlan) => vxlan::links(vxlan, config),
        Backend::HostGw | Backend::Alloc | Backend::Missing(_) => ByFamily::default(),
    }
}
