//! Scenes with a packet on the wire: one ping from worker1's pod, caught on worker1's cable and explained, header by
//! header, in the names of the lab.

use std::collections::BTreeMap;
use std::fmt;

use flannel_lab::packet::{Echo, Layer, decode};
use flannel_lab::{Capture, Lab, PING};
use flannel_screen::Ink;

use super::overlay::{PING_LIMIT, first_pod};
use super::stage::Stage;
use crate::leases::{leases_of, vtep};

/// Lets worker1's pod ping a pod of another node and shows the packet between them.
pub fn show_ping(stage: &mut Stage<'_>, lab: &Lab, to: &str) -> anyhow::Result<()> {
    let worker1 = lab.node("worker1")?;
    let (from, target) = (first_pod(worker1)?, first_pod(lab.node(to)?)?);
    let capture = Capture::start(worker1.switch(), "worker1", PING, PING_LIMIT)?;
    from.wait_ping(target.address(), PING_LIMIT)?;
    let frame = capture.frame()?;
    let layers = decode(&frame)?;
    stage.say(&format!("\nworker1 → {to}, caught on worker1's cable, {} bytes:", frame.len()))?;
    let names = Names::all(lab)?;
    for line in explain(&layers, &names) {
        let edge = if line.is_outer { stage.paint(Ink::Key, "┃ outer") } else { "│ pod's".to_owned() };
        stage.say(&format!("  {edge}  {:8}  {:41}  {}", line.kind, line.fields, line.words))?;
    }
    conclude(stage, &layers, worker1.rack() == lab.node(to)?.rack())
}

fn conclude(stage: &mut Stage<'_>, layers: &[Layer], is_same_rack: bool) -> anyhow::Result<()> {
    let tunnel = overhead(layers);
    if tunnel == 0 {
        let told =
            "  No outer header: the pods' own addresses are on the wire, and nothing is added to the packet.";
        return Ok(stage.good(told)?);
    }
    stage.good(&format!(
        "  The outer header costs {tunnel} bytes: of 1500, {} are left for pods (FLANNEL_MTU).",
        1500 - tunnel
    ))?;
    let told = if is_same_rack {
        "  The network between the nodes sees only nodes that send UDP to each other."
    } else {
        "  Routers on the way see only nodes that send UDP to each other: they need not know any pod."
    };
    Ok(stage.good(told)?)
}

/// Who is who in a lab, by MAC or address.
#[derive(Clone, Debug, Default)]
struct Names(BTreeMap<String, String>);

impl Names {
    /// The names of all that can be seen on the wires of a lab.
    fn all(lab: &Lab) -> anyhow::Result<Self> {
        let mut names = BTreeMap::new();
        for rack in &lab.topology().racks {
            names.insert(rack.gateway_mac().to_string(), format!("router {}", rack.leaf));
            for node in &rack.nodes {
                names.insert(node.mac().to_string(), node.name.clone());
                names.insert(node.v4().to_string(), node.name.clone());
            }
        }
        for lease in leases_of(lab)? {
            names.extend(vtep(&lease).map(|mac| (mac.to_string(), format!("flannel.1 of {}", lease.owner))));
        }
        for pod in lab.pods()? {
            let name = format!("{} on {}", pod.name(), pod.node().name());
            names.extend(pod.addresses().map(|ip| (ip.to_string(), name.clone())));
        }
        Ok(Self(names))
    }

    fn of(&self, end: &dyn fmt::Display) -> &str {
        self.0.get(&end.to_string()).map_or("somebody", |name| name)
    }
}

/// One header in words.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HeaderShown {
    /// Whether it belongs to the tunnel.
    is_outer: bool,
    kind: &'static str,
    fields: String,
    /// What they mean.
    words: String,
}

/// A packet in words, outermost header first.
fn explain(layers: &[Layer], names: &Names) -> Vec<HeaderShown> {
    let outer = outer(layers).len();
    layers.iter().enumerate().map(|(index, layer)| line(layer, index < outer, names)).collect()
}

/// The bytes that the tunnel adds to each packet.
fn overhead(layers: &[Layer]) -> usize {
    outer(layers).iter().map(Layer::size).sum()
}

/// The headers of the tunnel.
fn outer(layers: &[Layer]) -> &[Layer] {
    let tunnel = layers.iter().position(|layer| matches!(layer, Layer::Vxlan { .. }));
    tunnel.map_or(&[], |index| &layers[..=index])
}

fn line(layer: &Layer, is_outer: bool, names: &Names) -> HeaderShown {
    let (kind, fields, words) = match layer {
        Layer::Ethernet { from, to } => {
            let words = format!("{} → {}", names.of(from), names.of(to));
            ("Ethernet", format!("{from} → {to}"), words)
        }
        Layer::Ip { from, to, hops, .. } => {
            let words = format!("{} → {}, for {hops} more hops", names.of(from), names.of(to));
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
            let words = match direction {
                Echo::Request => "\"are you there?\"",
                Echo::Reply => "\"yes\"",
            };
            ("ICMP", format!("ping {sequence}"), words.to_owned())
        }
        Layer::Other { bytes } => ("data", format!("{bytes} bytes"), String::new()),
    };
    HeaderShown { is_outer, kind, fields, words }
}

#[cfg(test)]
mod tests {
    use flannel_plan::mac::Mac;

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
        let names = Names([("10.244.1.2".to_owned(), "pod1 on worker1".to_owned())].into());
        let expected = HeaderShown {
            is_outer: false,
            kind: "IPv4",
            fields: "10.244.1.2 → 10.244.2.2".to_owned(),
            words: "pod1 on worker1 → somebody, for 63 more hops".to_owned(),
        };
        assert_eq!(explain(&packet()[5..6], &names), [expected]);
    }
}
