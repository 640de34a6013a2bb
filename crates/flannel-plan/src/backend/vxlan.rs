//! vxlan: an Ethernet tunnel over UDP, one device a family, one FDB entry, neighbour and route a peer.
//!
//! With DirectRouting a peer on the same segment needs none of that: a plain route to it.

mod settings;

use crate::backend::BackendError;
use crate::claim::Identity;
use crate::config::NetworkConfig;
use crate::desired::Draft;
use crate::family::{ByFamily, Family};
use crate::finding::{Code, Finding};
use crate::inputs::{Inputs, NodeOptions};
use crate::lease::BackendData;
use crate::link_name::LinkName;
use crate::mac::Mac;
use crate::peers::{Endpoint, Peer};
use crate::state::{
    Address, FdbEntry, Item, Link, LinkKind, Neighbour, PROTOCOL, PROTOCOL_BOOT, Route, RouteKind, Sysctl,
    Vxlan,
};
use crate::underlay::{Underlay, on_link};
pub use settings::{DEFAULT_VXLAN_PORT, VxlanConfig};

/// The smallest device that still carries any IP packet a host must accept, by family.
fn smallest_mtu(family: Family) -> u32 {
    match family {
        Family::V4 => 68,
        Family::V6 => 1280,
    }
}

/// What the outer headers take of a packet: Ethernet 14, IP 20 or 40, UDP 8, vxlan 8.
fn overhead(underlay: Family) -> u32 {
    match underlay {
        Family::V4 => 50,
        Family::V6 => 70,
    }
}

pub(super) fn links(vxlan: &VxlanConfig, config: &NetworkConfig) -> ByFamily<LinkName> {
    let name = |family| match family {
        Family::V4 => format!("flannel.{}", vxlan.vni),
        Family::V6 => format!("flannel-v6.{}", vxlan.vni),
    };
    // The config is checked for names that do not fit, so none is missing here.
    let link = |(family, _)| Some((family, name(family).parse().ok()?));
    config.networks.iter().filter_map(link).collect()
}

/// What this node says of itself, byte for byte as Go: it cuts the text by hand.
pub(super) fn announce(
    vxlan: &VxlanConfig,
    config: &NetworkConfig,
    identity: &ByFamily<Identity>,
) -> ByFamily<BackendData> {
    let detail = |(family, _)| {
        let Identity::Mac(mac) = identity.get(family)?;
        let text = format!(r#"{{"VNI":{},"VtepMAC":"{mac}"}}"#, vxlan.vni);
        Some((family, BackendData::from_json(&text).ok().flatten()?))
    };
    config.networks.iter().filter_map(detail).collect()
}

/// The MAC of a peer's device. Old flannels wrote no VNI, Windows nodes write their own: it is not looked at, as in Go.
pub fn identity(detail: &BackendData) -> Result<Identity, String> {
    let mac = match plain_mac(detail.as_str()) {
        Some(mac) => mac,
        None => any_mac(detail)?,
    };
    if mac.is_unicast() { Ok(Identity::Mac(mac)) } else { Err(format!("VtepMAC {mac} cannot be a device's")) }
}

/// The MAC in the very text that flannels of today write, without reading it as JSON: thousands of
/// leases are read whenever one changes.
fn plain_mac(text: &str) -> Option<Mac> {
    let (rest, mac) = text.strip_suffix(r#""}"#)?.split_at_checked(text.len().checked_sub(19)?)?;
    let vni = rest.strip_prefix(r#"{"VNI":"#)?.strip_suffix(r#","VtepMAC":""#)?;
    let is_plain = vni.bytes().all(|digit| digit.is_ascii_digit());
    mac.parse().ok().filter(|_| is_plain)
}

fn any_mac(detail: &BackendData) -> Result<Mac, String> {
    let value: serde_json::Value =
        serde_json::from_str(detail.as_str()).map_err(|error| error.to_string())?;
    let object = value.as_object().ok_or("it is no JSON object")?;
    let (_, mac) = object
        .iter()
        .rev()
        .find(|(key, _)| key.eq_ignore_ascii_case("VtepMAC"))
        .ok_or("it has no VtepMAC")?;
    mac.as_str().ok_or("VtepMAC is no text")?.parse().map_err(|error| format!("VtepMAC: {error}"))
}

fn device_mtu(vxlan: &VxlanConfig, underlay: &Underlay, family: Family) -> u32 {
    vxlan.mtu.unwrap_or(underlay.mtu).min(underlay.mtu).saturating_sub(overhead(family))
}

/// Whether every device would be large enough to carry IP.
pub(super) fn check(
    vxlan: &VxlanConfig,
    config: &NetworkConfig,
    underlay: &Underlay,
) -> Result<(), BackendError> {
    let is_too_small = |family| device_mtu(vxlan, underlay, family) < smallest_mtu(family);
    if config.networks.iter().any(|(family, _)| is_too_small(family)) {
        let mtu = vxlan.mtu.unwrap_or(underlay.mtu).min(underlay.mtu);
        return Err(BackendError::TooSmall { link: underlay.link, mtu });
    }
    Ok(())
}

/// The devices of the families that have an identity.
pub(super) fn devices(
    vxlan: &VxlanConfig,
    config: &NetworkConfig,
    node: &NodeOptions,
    underlay: &Underlay,
    identity: &ByFamily<Identity>,
) -> ByFamily<Link> {
    let names = links(vxlan, config);
    let device = |family| {
        let (name, Identity::Mac(mac)) = (*names.get(family)?, *identity.get(family)?);
        let kind = LinkKind::Vxlan(Vxlan {
            vni: vxlan.vni,
            port: vxlan.port,
            lower: Some(underlay.link),
            // The interface's own address: the kernel sends nothing from an address that is not the host's.
            local: underlay.addresses.get(family).copied(),
            learning: vxlan.learning,
            gbp: vxlan.gbp,
        });
        let (mtu, alias) = (device_mtu(vxlan, underlay, family), node.mark(config).into());
        Some(Link { name, mac: Some(mac), mtu, up: true, alias, kind })
    };
    ByFamily { v4: device(Family::V4), v6: device(Family::V6) }
}

/// Adds the devices with what they need; returns the MTU for pods, which is the smallest.
pub(super) fn add_node(vxlan: &VxlanConfig, inputs: &Inputs, plan: &mut Draft) -> u32 {
    let Inputs { node, config, underlay, own, .. } = inputs;
    let devices = devices(vxlan, config, node, underlay, &super::identity(&own.announcement));
    let mut smallest = u32::MAX;
    for (family, _) in config.networks.iter() {
        smallest = smallest.min(device_mtu(vxlan, underlay, family));
        plan.warnings.extend(mtu_warning(vxlan, underlay));
        let (Some(link), Some(subnet)) = (devices.get(family), own.subnets.get(family)) else { continue };
        plan.put(Item::Link(Box::new(link.clone())));
        plan.put(Item::Address(Address { link: link.name, address: subnet.network().into() }));
        // The kernel takes IPv6, with its settings, from a device whose MTU cannot carry it.
        if link.mtu >= smallest_mtu(Family::V6) {
            plan.put(Item::Sysctl(Box::new(Sysctl { path: accept_ra(link.name), value: "0".into() })));
        }
    }
    smallest
}

fn mtu_warning(vxlan: &VxlanConfig, underlay: &Underlay) -> Option<Finding> {
    let (link, nic) = (underlay.link, underlay.mtu);
    let asked = vxlan.mtu.filter(|asked| *asked > nic)?;
    let text = format!("Backend.MTU {asked} is larger than the {nic} of {link}: {nic} is used");
    Some(Finding::new(Code::MtuTooLarge, link, text))
}

/// The setting that would let a router advertisement from the pod network change the host.
pub(super) fn accept_ra(link: LinkName) -> Box<str> {
    format!("net/ipv6/conf/{link}/accept_ra").into()
}

pub(super) fn add_peers(vxlan: &VxlanConfig, inputs: &Inputs, peers: &[Peer<'_>], plan: &mut Draft) {
    let tunnels = links(vxlan, &inputs.config);
    for (family, endpoint) in peers.iter().flat_map(|peer| peer.endpoints.iter()) {
        let direct = if vxlan.direct_routing { on_link(&inputs.routes, endpoint.public) } else { None };
        match (direct, tunnels.get(family), endpoint.identity) {
            (Some(link), _, _) => plan.put(Item::Route(direct_route(endpoint, link))),
            (None, Some(link), Some(Identity::Mac(mac))) => {
                through_tunnel(endpoint, *link, mac).into_iter().for_each(|item| plan.put(item))
            }
            (None, _, None) | (None, None, _) => {}
        }
    }
}

/// A plain route to a peer on the same segment.
pub(super) fn direct_route(endpoint: &Endpoint, link: LinkName) -> Route {
    Route {
        destination: endpoint.subnet,
        kind: RouteKind::Unicast,
        via: Some(endpoint.public),
        link: Some(link),
        onlink: false,
        protocol: PROTOCOL,
    }
}

fn through_tunnel(endpoint: &Endpoint, link: LinkName, mac: Mac) -> [Item; 3] {
    let gateway = endpoint.subnet.network();
    [
        Item::Fdb(FdbEntry { link, mac, destination: Some(endpoint.public), marked: true }),
        Item::Neighbour(Neighbour { link, address: gateway, mac, protocol: PROTOCOL }),
        Item::Route(Route { via: Some(gateway), onlink: true, ..direct_route(endpoint, link) }),
    ]
}

/// Whether a route to a subnet is one of Go flannel's: the next hop is the subnet's own first address, onlink.
pub(super) fn is_route_of_go(route: &Route) -> bool {
    route.protocol == PROTOCOL_BOOT && route.onlink && route.via == Some(route.destination.network())
}
