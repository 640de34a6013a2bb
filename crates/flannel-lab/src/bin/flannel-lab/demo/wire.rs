//! Explains a captured packet, header by header, in the names of the lab. Layers and names in, lines out.

use std::collections::BTreeMap;
use std::net::IpAddr;

use flannel_lab::Lab;
use flannel_lab::packet::{Echo, Layer};
use flannel_plan::mac::Mac;

use crate::leases::LabLease;

/// Who is who in a lab.
#[derive(Clone, Debug, Default)]
pub struct Names {
    cards: BTreeMap<Mac, String>,
    hosts: BTreeMap<IpAddr, String>,
}

impl Names {
    /// The names of all that can be seen on the wires of a lab.
    pub fn of(lab: &Lab, leases: &[LabLease]) -> anyhow::Result<Self> {
        let mut names = Self::default();
        for rack in &lab.topology().racks {
            names.cards.insert(rack.gateway_mac(), format!("router {}", rack.leaf));
            for node in &rack.nodes {
                names.cards.insert(node.mac(), node.name.clone());
                names.hosts.insert(node.v4(), node.name.clone());
            }
        }
        for lease in leases {
            names.cards.extend(lease.vtep.map(|mac| (mac, format!("flannel.1 of {}", lease.node))));
        }
        for pod in lab.pods()? {
            names
                .hosts
                .extend(pod.addresses().map(|ip| (ip, format!("{} on {}", pod.name(), pod.node().name()))));
        }
        Ok(names)
    }

    fn card(&self, mac: Mac) -> String {
        self.cards.get(&mac).cloned().unwrap_or_else(|| "somebody".to_owned())
    }

    fn host(&self, address: IpAddr) -> String {
        self.hosts.get(&address).cloned().unwrap_or_else(|| "somebody".to_owned())
    }
}

/// One header in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderShown {
    /// Whether it belongs to the tunnel.
    pub is_outer: bool,
    pub kind: &'static str,
    pub fields: String,
    /// What they mean.
    pub words: String,
}

/// A packet in words, outermost header first.
pub fn explain(layers: &[Layer], names: &Names) -> Vec<HeaderShown> {
    let tunnel = layers.iter().position(|layer| matches!(layer, Layer::Vxlan { .. }));
    let outer = tunnel.map_or(0, |index| index + 1);
    layers.iter().enumerate().map(|(index, layer)| line(layer, index < outer, names)).collect()
}

/// The bytes that the tunnel adds to each packet.
pub fn overhead(layers: &[Layer]) -> usize {
    let tunnel = layers.iter().position(|layer| matches!(layer, Layer::Vxlan { .. }));
    tunnel.map_or(0, |index| layers.iter().take(index + 1).map(Layer::size).sum())
}

fn line(layer: &Layer, is_outer: bool, names: &Names) -> HeaderShown {
    let (kind, fields, words) = match layer {
        Layer::Ethernet { from, to } => {
            let words = format!("{} → {}", names.card(*from), names.card(*to));
            ("Ethernet", format!("{from} → {to}"), words)
        }
        Layer::Ip { from, to, hops, .. } => {
            let words = format!("{} → {}, for {hops} more hops", names.host(*from), names.host(*to));
            (if from.is_ipv4() { "IPv4" } else { "IPv6" }, format!("{from} → {to}"), words)
        }
        Layer::Udp { from, to } => {
            let words = "the source port tells flows apart, so that routers can spread them".to_owned();
            ("UDP", format!("{from} → {to}"), words)
        }
        Layer::Vxlan { vni } => {
            ("vxlan", format!("network {vni}"), "a whole Ethernet frame follows".to_owned())
        }
        Layer::Echo { direction, sequence } => {
            ("ICMP", format!("ping {sequence}"), asked(*direction).to_owned())
        }
        Layer::Other { bytes } => ("data", format!("{bytes} bytes"), String::new()),
    };
    HeaderShown { is_outer, kind, fields, words }
}

fn asked(direction: Echo) -> &'static str {
    match direction {
        Echo::Request => "\"are you there?\"",
        Echo::Reply => "\"yes\"",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(from: &str, to: &str) -> Layer {
        Layer::Ip { from: from.parse().unwrap(), to: to.parse().unwrap(), hops: 63, header: 20 }
    }

    fn packet() -> Vec<Layer> {
        let frame = |from: u8, to: u8| Layer::Ethernet {
            from: Mac([2, 0, 0, 0, 0, from]),
            to: Mac([2, 0, 0, 0, 0, to]),
        };
        vec![
            frame(1, 2),
            ip("10.0.0.21", "30.0.0.23"),
            Layer::Udp { from: 1000, to: 8472 },
            Layer::Vxlan { vni: 1 },
            frame(3, 4),
            ip("10.244.1.2", "10.244.2.2"),
            Layer::Echo { direction: Echo::Request, sequence: 1 },
        ]
    }

    #[test]
    fn a_tunnelled_packet_has_four_outer_headers_of_fifty_bytes() {
        let lines = explain(&packet(), &Names::default());
        assert_eq!(
            lines.iter().filter(|line| line.is_outer).map(|line| line.kind).collect::<Vec<_>>(),
            ["Ethernet", "IPv4", "UDP", "vxlan"]
        );
        assert_eq!([overhead(&packet()), overhead(&packet()[4..])], [50, 0]);
    }

    #[test]
    fn known_hosts_are_called_by_their_names() {
        let mut names = Names::default();
        names.hosts.insert("10.244.1.2".parse().unwrap(), "pod1 on worker1".to_owned());
        let expected = HeaderShown {
            is_outer: false,
            kind: "IPv4",
            fields: "10.244.1.2 → 10.244.2.2".to_owned(),
            words: "pod1 on worker1 → somebody, for 63 more hops".to_owned(),
        };
        assert_eq!(explain(&packet()[5..6], &names), [expected]);
    }
}
