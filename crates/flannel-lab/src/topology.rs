//! Nodes, racks, routers and addresses of a lab, as plain data.
//!
//! Takes a number of racks and nodes, gives names and addresses; nothing here touches the system. One rack is
//! one Ethernet segment behind its leaf router; leaves meet at the spine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flannel_plan::mac::Mac;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

use crate::{LabError, Result};

/// The most racks: their networks are 10.0.0.0/24, 30.0.0.0/24 and so on up to 210.0.0.0/24.
const MOST_RACKS: usize = 11;
/// The most nodes of racks with a /24: from .20 to .250.
const MOST_NODES: usize = 231;
/// The most ports of a Linux bridge, less the leaf's.
const MOST_FLAT: usize = 1000;
/// The last part of the first node's address.
const FIRST_HOST: usize = 20;

/// What the last parts of the servers' addresses begin after.
const FIRST_SERVER: usize = 10;

/// A whole lab as data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// The racks; with more than one there is a spine between their leaves.
    pub racks: Vec<Rack>,
}

/// One Ethernet segment with its nodes, behind one router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rack {
    /// The switch that all its cables end in.
    pub name: String,
    /// The router that leads out of it.
    pub leaf: String,
    /// The leaf's addresses inside the rack, v4 first.
    pub gateways: Vec<IpNet>,
    /// The leaf's and the spine's addresses on the cable between them, for each family.
    pub uplinks: Vec<Uplink>,
    pub nodes: Vec<NodeSpec>,
}

/// The two ends of the cable between a leaf and the spine, in one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uplink {
    pub leaf: IpNet,
    pub spine: IpNet,
}

/// One node as data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSpec {
    /// Its name, which is also its host name.
    pub name: String,
    /// The addresses of its eth0, v4 first.
    pub addresses: Vec<IpNet>,
}

impl Default for Topology {
    /// Two racks: master1, worker1 and worker2 behind leaf01, worker3 behind leaf02.
    fn default() -> Self {
        Self::numbered(2, 4)
    }
}

impl Topology {
    pub const SPINE: &'static str = "spine";

    /// `nodes` nodes in `racks` racks: the master in the first, the workers spread evenly, in order.
    pub fn racks(racks: usize, nodes: usize) -> Result<Self> {
        let wrong = |why| Err(LabError::Topology { racks, nodes, why });
        match (racks, nodes) {
            (0, _) => wrong("there must be a rack"),
            (racks, _) if racks > MOST_RACKS => wrong("the address plan ends at 11 racks"),
            (racks, nodes) if nodes < racks => wrong("each rack needs a node"),
            (_, nodes) if nodes > MOST_NODES => wrong("the address plan ends at 231 nodes"),
            _ => Ok(Self::numbered(racks, nodes)),
        }
    }

    /// `nodes` nodes in one large segment: for tests of scale.
    pub fn flat(nodes: usize) -> Result<Self> {
        if nodes == 0 || nodes > MOST_FLAT {
            let why = "one segment holds 1 to 1000 nodes";
            return Err(LabError::Topology { racks: 1, nodes, why });
        }
        let mut rack = Rack::numbered(0, 16);
        rack.gateways = vec![v4([10, 0, 255, 254], 16), v6("fd00:10::fe", 64)];
        rack.nodes = (0..nodes).map(|index| NodeSpec::numbered(index, 0, 16)).collect();
        Ok(Self { racks: vec![rack] })
    }

    fn numbered(racks: usize, nodes: usize) -> Self {
        let workers = nodes.saturating_sub(1);
        let (share, rest) = (workers / racks, workers % racks);
        let mut next = 0;
        let filled = (0..racks).map(|number| {
            let master = usize::from(number == 0);
            // With one worker too few for all racks, the first rack has the master.
            let gets_more = if share == 0 { number >= racks - rest } else { number < rest };
            let size = master + share + usize::from(gets_more);
            let mut rack = Rack::numbered(number, 24);
            rack.nodes = (next..next + size).map(|index| NodeSpec::numbered(index, number, 24)).collect();
            next += size;
            rack
        });
        Self { racks: filled.collect() }
    }

    /// All nodes, rack by rack.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeSpec> {
        self.racks.iter().flat_map(|rack| &rack.nodes)
    }

    /// So many servers of the first rack, on which the lease store runs, beside the nodes: `store1` is the first.
    pub(crate) fn servers(&self, count: usize) -> Vec<NodeSpec> {
        let gateway = self.racks.first().and_then(|rack| rack.gateways.first());
        let prefix = gateway.map_or(24, IpNet::prefix_len);
        let server = |number| NodeSpec::at(0, FIRST_SERVER + number, prefix, format!("store{number}"));
        (1..=count).map(server).collect()
    }

    /// The spine's name, if there is more than one rack to join.
    pub fn spine(&self) -> Option<&'static str> {
        (self.racks.len() > 1).then_some(Self::SPINE)
    }
}

impl Rack {
    /// The leaf's IPv4 address inside the rack.
    pub fn gateway(&self) -> IpAddr {
        self.gateways.first().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpNet::addr)
    }

    /// The MAC of the leaf's port inside the rack.
    pub fn gateway_mac(&self) -> Mac {
        mac_of(self.gateway())
    }

    fn numbered(index: usize, prefix: u8) -> Self {
        let (number, net) = (index + 1, rack_octet(index));
        let far = |end: u8| v4([172, 31, small(index), end], 31);
        let far6 = |end: u8| v6(&format!("fd00:ff:{number}::{end}"), 127);
        Self {
            name: format!("rack{number:02}"),
            leaf: format!("leaf{number:02}"),
            gateways: vec![v4([net, 0, 0, 254], prefix), v6(&format!("fd00:{net}::fe"), 64)],
            uplinks: vec![Uplink { leaf: far(0), spine: far(1) }, Uplink { leaf: far6(0), spine: far6(1) }],
            nodes: Vec::new(),
        }
    }
}

impl NodeSpec {
    /// The MAC of its card, made from its IPv4 address: it stays over a reboot, as that of a real card.
    pub fn mac(&self) -> Mac {
        mac_of(self.v4())
    }

    /// The node's IPv4 address: what other nodes know it by.
    pub fn v4(&self) -> IpAddr {
        self.addresses.first().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpNet::addr)
    }

    /// The node's IPv6 address.
    pub fn v6(&self) -> IpAddr {
        self.addresses.get(1).map_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpNet::addr)
    }

    fn numbered(index: usize, rack: usize, prefix: u8) -> Self {
        let name = if index == 0 { "master1".to_owned() } else { format!("worker{index}") };
        Self::at(rack, FIRST_HOST + index, prefix, name)
    }

    /// The v6 host part shows the same digits as the v4 one: .21 and ::21.
    fn at(rack: usize, host: usize, prefix: u8, name: String) -> Self {
        let net = rack_octet(rack);
        let v4 = v4([net, 0, small(host / 256), small(host % 256)], prefix);
        Self { name, addresses: vec![v4, v6(&format!("fd00:{net}::{host}"), 64)] }
    }
}

fn mac_of(address: IpAddr) -> Mac {
    let [a, b, c, d] = match address {
        IpAddr::V4(v4) => v4.octets(),
        IpAddr::V6(_) => [0; 4],
    };
    Mac([2, 0, a, b, c, d])
}

fn rack_octet(index: usize) -> u8 {
    10 + 20 * small(index)
}

fn small(number: usize) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}

fn v4(octets: [u8; 4], prefix: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::from(octets), prefix))
}

/// The text is built from numbers by this file alone; the tests go through all of them.
fn v6(text: &str, prefix: u8) -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(text.parse().unwrap_or(Ipv6Addr::UNSPECIFIED), prefix))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn shape(topology: &Topology) -> Vec<(&str, Vec<String>)> {
        let line = |node: &NodeSpec| format!("{} {} {}", node.name, node.v4(), node.v6());
        topology.racks.iter().map(|rack| (&*rack.leaf, rack.nodes.iter().map(line).collect())).collect()
    }

    #[test]
    fn the_default_is_three_nodes_behind_leaf01_and_one_behind_leaf02() {
        let topology = Topology::default();
        let first = [
            "master1 10.0.0.20 fd00:10::20",
            "worker1 10.0.0.21 fd00:10::21",
            "worker2 10.0.0.22 fd00:10::22",
        ];
        let second = ["worker3 30.0.0.23 fd00:30::23"];
        assert_eq!(
            shape(&topology),
            [("leaf01", first.map(str::to_owned).to_vec()), ("leaf02", second.map(str::to_owned).to_vec())]
        );
        let gateways: Vec<_> =
            topology.racks.iter().flat_map(|rack| &rack.gateways).map(IpNet::to_string).collect();
        assert_eq!(gateways, ["10.0.0.254/24", "fd00:10::fe/64", "30.0.0.254/24", "fd00:30::fe/64"]);
    }

    #[test]
    fn every_rack_has_a_node_and_none_is_lost() {
        for (racks, nodes) in (1..=MOST_RACKS).flat_map(|racks| (racks..40).map(move |nodes| (racks, nodes)))
        {
            let topology = Topology::racks(racks, nodes).unwrap();
            assert!(topology.racks.iter().all(|rack| !rack.nodes.is_empty()), "{racks} {nodes}");
            assert_eq!((topology.racks.len(), topology.nodes().count()), (racks, nodes));
        }
    }

    #[test]
    fn every_address_of_every_shape_is_unique_and_inside_its_rack() {
        let shapes = (1..=MOST_RACKS).map(|racks| Topology::racks(racks, MOST_NODES).unwrap());
        for topology in shapes.chain([Topology::flat(MOST_FLAT).unwrap()]) {
            let mut seen = BTreeSet::new();
            for rack in &topology.racks {
                for node in &rack.nodes {
                    for (address, gateway) in node.addresses.iter().zip(&rack.gateways) {
                        assert!(gateway.contains(&address.addr()) && !address.addr().is_unspecified());
                        assert!(gateway.addr() != address.addr() && seen.insert(address.addr()), "{address}");
                        assert_ne!(address.addr(), gateway.broadcast());
                    }
                }
                assert!(
                    !rack.nodes.is_empty()
                        && rack.uplinks.iter().all(|up| up.leaf.trunc() == up.spine.trunc())
                );
            }
        }
    }

    #[test]
    fn servers_are_in_the_first_rack_below_the_nodes() {
        for topology in [Topology::default(), Topology::flat(1).unwrap()] {
            let server = &topology.servers(2)[1];
            assert_eq!(server.name, "store2");
            assert_eq!(
                (server.v4().to_string(), server.v6().to_string()),
                ("10.0.0.12".into(), "fd00:10::12".into())
            );
        }
    }

    #[test]
    fn shapes_without_addresses_are_refused() {
        for (racks, nodes) in [(0, 1), (2, 1), (12, 20), (1, 232)] {
            assert!(matches!(Topology::racks(racks, nodes), Err(LabError::Topology { .. })));
        }
        assert!(matches!(Topology::flat(0), Err(LabError::Topology { .. })));
    }
}
