//! The cables and addresses of a topology as lines for `ip -batch`; only text, so that it can be tested as such.
//!
//! A veth is created from one of its two namespaces with the other end directly in the other: nothing ever
//! appears in the host's network. Ports are named after what is at the other end.

use std::fmt::Write;
use std::net::{IpAddr, Ipv6Addr};

use flannel_plan::mac::Mac;
use ipnet::{IpNet, Ipv6Net};

use crate::topology::{NodeSpec, Rack, Topology};

/// A node's network card, everywhere.
pub(crate) const CARD: &str = "eth0";
/// A leaf's port into its rack.
const RACK_PORT: &str = "rack";
/// The switch in the rack's namespace.
const SWITCH: &str = "switch";

/// The switch of a rack, and the cable to its leaf. Without snooping: no querier keeps v6 neighbours alive.
pub(crate) fn rack_lines(rack: &Rack, leaf_pid: u32) -> String {
    let mac = rack.gateway_mac();
    format!(
        "link add {SWITCH} up type bridge mcast_snooping 0\n\
         link add {} master {SWITCH} up type veth peer name {RACK_PORT} address {mac} netns {leaf_pid}\n",
        rack.leaf
    )
}

/// The cable from the rack's switch to a node.
pub(crate) fn cable_lines(node: &NodeSpec, node_pid: u32) -> String {
    let mac = node.mac();
    format!(
        "link add {} master {SWITCH} up type veth peer name {CARD} address {mac} netns {node_pid}\n",
        node.name
    )
}

/// A node's own side: addresses, and the default routes to its leaf.
pub(crate) fn node_lines(node: &NodeSpec, rack: &Rack) -> String {
    let mut lines = format!("link set {CARD} addrgenmode none\n") + &up([CARD]);
    let addresses = node.addresses.iter().copied().chain([link_local_of(node.mac())]);
    addresses.for_each(|address| add_address(&mut lines, address, CARD));
    rack.gateways.iter().for_each(|gateway| add_route(&mut lines, "default", gateway.addr()));
    lines
}

/// A leaf's side: gateway of its rack and, where there is a spine, the cable to it and the way out.
pub(crate) fn leaf_lines(rack: &Rack, spine_pid: Option<u32>) -> String {
    let mut lines = up([RACK_PORT]);
    rack.gateways.iter().for_each(|address| add_address(&mut lines, *address, RACK_PORT));
    let Some(spine_pid) = spine_pid else { return lines };
    let port = Topology::SPINE;
    let _ = writeln!(lines, "link add {port} up type veth peer name {} netns {spine_pid}", rack.leaf);
    rack.uplinks.iter().for_each(|uplink| add_address(&mut lines, uplink.leaf, port));
    rack.uplinks.iter().for_each(|uplink| add_route(&mut lines, "default", uplink.spine.addr()));
    lines
}

/// The spine's side: the way into each rack.
pub(crate) fn spine_lines(topology: &Topology) -> String {
    let mut lines = up(topology.racks.iter().map(|rack| &*rack.leaf));
    for rack in &topology.racks {
        rack.uplinks.iter().for_each(|uplink| add_address(&mut lines, uplink.spine, &rack.leaf));
        for (gateway, uplink) in rack.gateways.iter().zip(&rack.uplinks) {
            add_route(&mut lines, &gateway.trunc().to_string(), uplink.leaf.addr());
        }
    }
    lines
}

fn up<'a>(ports: impl IntoIterator<Item = &'a str>) -> String {
    ["lo"].into_iter().chain(ports).map(|port| format!("link set {port} up\n")).collect()
}

fn add_route(lines: &mut String, to: &str, via: IpAddr) {
    let _ = writeln!(lines, "route add {to} via {via}");
}

/// Without duplicate address detection, which would keep a v6 address unusable for a second.
pub(crate) fn add_address(lines: &mut String, address: IpNet, device: &str) {
    let nodad = if matches!(address, IpNet::V6(_)) { " nodad" } else { "" };
    let _ = writeln!(lines, "address add {address} dev {device}{nodad}");
}

/// The address that the kernel would make from the card's MAC, but usable at once.
fn link_local_of(mac: Mac) -> IpNet {
    let [a, b, c, d, e, f] = mac.0.map(u16::from);
    let local = Ipv6Addr::new(0xfe80, 0, 0, 0, (a ^ 2) << 8 | b, c << 8 | 0xff, 0xfe00 | d, e << 8 | f);
    IpNet::V6(Ipv6Net::new_assert(local, 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_gets_its_addresses_and_its_leaf_as_default_route() {
        let topology = Topology::default();
        let rack = &topology.racks[1];
        let expected = "\
            link set eth0 addrgenmode none\n\
            link set lo up\n\
            link set eth0 up\n\
            address add 30.0.0.23/24 dev eth0\n\
            address add fd00:30::23/64 dev eth0 nodad\n\
            address add fe80::1eff:fe00:17/64 dev eth0 nodad\n\
            route add default via 30.0.0.254\n\
            route add default via fd00:30::fe\n";
        assert_eq!(node_lines(&rack.nodes[0], rack), expected);
        let cable =
            "link add worker3 master switch up type veth peer name eth0 address 02:00:1e:00:00:17 netns 42\n";
        assert_eq!(cable_lines(&rack.nodes[0], 42), cable);
    }

    #[test]
    fn the_spine_knows_the_way_into_each_rack() {
        let topology = Topology::default();
        let routes: Vec<_> = spine_lines(&topology)
            .lines()
            .filter(|line| line.starts_with("route"))
            .map(str::to_owned)
            .collect();
        assert_eq!(
            routes,
            [
                "route add 10.0.0.0/24 via 172.31.0.0",
                "route add fd00:10::/64 via fd00:ff:1::",
                "route add 30.0.0.0/24 via 172.31.1.0",
                "route add fd00:30::/64 via fd00:ff:2::",
            ]
        );
    }
}
