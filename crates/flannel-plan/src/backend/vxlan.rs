//! vxlan: an Ethernet tunnel over UDP, one device a family, one forwarding entry, neighbour and route a peer.
//!
//! With DirectRouting a peer on the same segment needs none of that: a plain route to it.

use crate::backend::BackendError;
use crate::config::{NetworkConfig, VxlanConfig};
use crate::desired::Draft;
use crate::family::{ByFamily, Family};
use crate::finding::{Code, Finding};
use crate::inputs::Inputs;
use crate::lease::BackendData;
use crate::link_name::LinkName;
use crate::mac::Mac;
use crate::peers::{Endpoint, Peer};
use crate::state::{
    Address, FdbEntry, Item, Link, LinkKind, Neighbour, PROTOCOL, Route, RouteKind, Sysctl, Vxlan,
};
use crate::underlay::{Underlay, on_link};
use ipnet::IpNet;

/// The smallest device that still carries any IP packet a host must accept, by family.
fn smallest_mtu(family: Family) -> u32 {
    match family {
        Family::V4 => 68,
        Family::V6 => 1280,
    }
}

/// What the outer headers take of a packet: Ethernet 14, IP 20 or 40, UDP 8, vxlan 8.
pub fn overhead(underlay: Family) -> u32 {
    match underlay {
        Family::V4 => 50,
        Family::V6 => 70,
    }
}

/// The names of the devices.
pub fn links(vxlan: &VxlanConfig, config: &NetworkConfig) -> ByFamily<LinkName> {
    let name = |family| match family {
        Family::V4 => format!("flannel.{}", vxlan.vni),
        Family::V6 => format!("flannel-v6.{}", vxlan.vni),
    };
    let mut links = ByFamily::default();
    for (family, _) in config.networks.iter() {
        // The config is checked for names that do not fit, so none is missing here.
        *links.slot(family) = name(family).parse().ok();
    }
    links
}

/// What this node says of itself, byte for byte as Go: it cuts the text by hand.
pub fn announce(vxlan: &VxlanConfig, config: &NetworkConfig, macs: &ByFamily<Mac>) -> ByFamily<BackendData> {
    let mut detail = ByFamily::default();
    for (family, _) in config.networks.iter() {
        let text = macs.get(family).map(|mac| format!(r#"{{"VNI":{},"VtepMAC":"{mac}"}}"#, vxlan.vni));
        *detail.slot(family) = text.and_then(|text| BackendData::from_json(&text).ok().flatten());
    }
    detail
}

/// The hardware address of a peer's device. Old flannels wrote no VNI, Windows nodes write their own: it is
/// not looked at, as in Go.
pub fn peer_mac(detail: &BackendData) -> Result<Mac, String> {
    let mac = match plain_mac(detail.as_str()) {
        Some(mac) => mac,
        None => any_mac(detail)?,
    };
    if mac.is_unicast() { Ok(mac) } else { Err(format!("VtepMAC {mac} cannot be a device's")) }
}

/// The hardware address in the very text that flannels of today write, without reading it as JSON: thousands of
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

/// The MTU of a device, and a warning where the wish was too large.
fn device_mtu(
    vxlan: &VxlanConfig,
    underlay: &Underlay,
    family: Family,
) -> Result<(u32, Option<Finding>), BackendError> {
    let (link, nic) = (underlay.link, underlay.mtu);
    let wish = vxlan.mtu.unwrap_or(nic);
    let mtu = wish.min(nic).saturating_sub(overhead(family));
    if mtu < smallest_mtu(family) {
        return Err(BackendError::TooSmall { link, mtu: wish.min(nic) });
    }
    let warning = || {
        let text = format!("Backend.MTU {wish} is larger than the {nic} of {link}: {nic} is used");
        Finding::new(Code::MtuTooLarge, link, text)
    };
    Ok((mtu, (wish > nic).then(warning)))
}

/// Whether every device would be large enough to carry IP.
pub fn check(vxlan: &VxlanConfig, config: &NetworkConfig, underlay: &Underlay) -> Result<(), BackendError> {
    config.networks.iter().try_for_each(|(family, _)| device_mtu(vxlan, underlay, family).map(drop))
}

/// The device of one family.
pub fn tunnel(
    vxlan: &VxlanConfig,
    mark: &str,
    underlay: &Underlay,
    (name, mac, family): (LinkName, Mac, Family),
) -> Result<Link, BackendError> {
    let (mtu, _) = device_mtu(vxlan, underlay, family)?;
    let kind = LinkKind::Vxlan(Vxlan {
        vni: vxlan.vni,
        port: vxlan.port,
        parent: Some(underlay.link),
        // The interface's own address: the kernel sends nothing from an address that is not the host's.
        local: underlay.addresses.get(family).copied(),
        learning: vxlan.learning,
        gbp: vxlan.gbp,
    });
    Ok(Link { name, mac, mtu, up: true, alias: mark.into(), kind })
}

/// Adds what the node itself needs; returns the MTU for pods.
pub fn node(vxlan: &VxlanConfig, inputs: &Inputs, plan: &mut Draft) -> Result<u32, BackendError> {
    let macs = super::macs(&inputs.own.announcement);
    let mark = inputs.node.mark(&inputs.config);
    let mut smallest = u32::MAX;
    for (family, name) in links(vxlan, &inputs.config).iter() {
        let (mtu, warning) = device_mtu(vxlan, &inputs.underlay, family)?;
        smallest = smallest.min(mtu);
        plan.warnings.extend(warning);
        let (Some(mac), Some(subnet)) = (macs.get(family), inputs.own.subnets.get(family)) else { continue };
        let link = tunnel(vxlan, &mark, &inputs.underlay, (*name, *mac, family))?;
        plan.put(Item::Link(Box::new(link)));
        let address = IpNet::from(subnet.network());
        plan.put(Item::Address(Address { link: *name, address }));
        plan.put(Item::Sysctl(Box::new(Sysctl { path: accept_ra(*name), value: "0".into() })));
    }
    Ok(smallest)
}

/// The setting that would let a router advertisement from the pod network change the host.
pub fn accept_ra(link: LinkName) -> Box<str> {
    format!("net/ipv6/conf/{link}/accept_ra").into()
}

/// Adds what the peers need.
pub fn peers(vxlan: &VxlanConfig, inputs: &Inputs, peers: &[Peer<'_>], plan: &mut Draft) {
    let tunnels = links(vxlan, &inputs.config);
    for (family, endpoint) in peers.iter().flat_map(|peer| peer.endpoints.iter()) {
        let direct = if vxlan.direct_routing { on_link(&inputs.routes, endpoint.public) } else { None };
        match (direct, tunnels.get(family), endpoint.mac) {
            (Some(link), _, _) => plan.put(Item::Route(direct_route(endpoint, link))),
            (None, Some(link), Some(mac)) => {
                through_tunnel(endpoint, *link, mac).into_iter().for_each(|item| plan.put(item))
            }
            _ => {}
        }
    }
}

/// A plain route to a peer on the same segment.
pub fn direct_route(endpoint: &Endpoint, link: LinkName) -> Route {
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
        Item::Route(Route {
            destination: endpoint.subnet,
            kind: RouteKind::Unicast,
            via: Some(gateway),
            link: Some(link),
            onlink: true,
            protocol: PROTOCOL,
        }),
    ]
}
