//! The first act: a cluster of the vxlan backend, from its leases to a ping between racks.

use std::time::Duration;

use flannel_lab::{Lab, LabError, Node, Pod};
use flannel_plan::lease::Lease;

use super::stage::Stage;
use crate::leases::{public_shown, subnets_shown};
use crate::tables;
use flannel_screen::Ink;

/// A ping takes a millisecond; on a busy machine the first may be lost.
pub const PING_LIMIT: Duration = Duration::from_secs(30);

/// Shows who got which subnet.
pub fn leases(stage: &mut Stage<'_>, leases: &[Lease]) -> anyhow::Result<()> {
    stage.scene("Leases: every node gets a piece of the pod network")?;
    stage.say(
        "The cluster's pods live in 10.244.0.0/16. Each flanneld takes a free /24 of it for its node, writes it\n\
         into the lease store together with the way to reach it, and reads those of all others.",
    )?;
    Ok(stage.say(&tables::leases(leases).to_string())?)
}

/// Shows what flannel made in each kernel, and how a packet uses it.
pub fn kernels(stage: &mut Stage<'_>, lab: &Lab, leases: &[Lease]) -> anyhow::Result<()> {
    stage.scene("Kernels: what flanneld made of the leases")?;
    let far = leases.iter().find(|lease| lease.owner == "worker3");
    let (subnet, public) =
        far.map_or_else(Default::default, |lease| (subnets_shown(lease), public_shown(lease)));
    stage.say(&format!(
        "How worker1 finds a pod of worker3 ({subnet}), in three look-ups:\n  \
           route      the subnet is behind a gateway on flannel.1, the node's end of the tunnel\n  \
           neighbour  that gateway has this MAC: nobody needs to ask by broadcast\n  \
           fdb        that MAC is at this node, {public}: wrap the frame in UDP and send it there"
    ))?;
    for node in lab.nodes() {
        stage.say(&format!("\n{}", stage.paint(Ink::Key, node.name())))?;
        for (label, line) in inventory(node)? {
            stage.say(&format!("  {label:9}  {line}"))?;
        }
    }
    Ok(())
}

/// Pings from a pod of worker1: on the same node, in the same rack, in another rack.
pub fn pings(stage: &mut Stage<'_>, lab: &Lab) -> anyhow::Result<()> {
    stage.scene("Pods reach each other")?;
    stage.say("A pod here is a network namespace behind the bridge cni0 of its node.")?;
    let worker1 = lab.node("worker1")?;
    let from = first_pod(worker1)?;
    let neighbour = worker1.pods()?.into_iter().next_back();
    let neighbour = neighbour.ok_or_else(|| anyhow::anyhow!("bug: worker1 has no pod"))?;
    let (near, far) = (first_pod(lab.node("worker2")?)?, first_pod(lab.node("worker3")?)?);
    let ways = [
        ("same node", &neighbour, "by the bridge cni0 alone"),
        ("same rack", &near, "by the tunnel, through the rack's switch"),
        ("other rack", &far, "by the tunnel, through leaf01, spine, leaf02"),
    ];
    for (place, to, way) in ways {
        let took = from.wait_ping(to.address(), PING_LIMIT)?.as_secs_f64() * 1000.0;
        let (source, target) = (from.address(), to.address());
        let answer = format!("  ✓ {place:10}  {source} → {target:12} {took:.2} ms  {way}");
        stage.good(&answer)?;
    }
    Ok(())
}

pub fn first_pod(node: &Node) -> anyhow::Result<Pod<'_>> {
    node.pods()?.into_iter().next().ok_or_else(|| anyhow::anyhow!("bug: {} has no pod", node.name()))
}

/// What flannel keeps in a node's kernel, as labelled lines: the device, its address, and for each peer a route, a
/// neighbour and a forwarding entry.
fn inventory(node: &Node) -> Result<Vec<(&'static str, String)>, LabError> {
    let mut lines = Vec::new();
    if let Some(device) = node.tunnel()? {
        lines.push(("device", device_shown(&device, &node.ip(&format!("-o -d link show dev {device}"))?)));
        let addresses = node.ip(&format!("-o -4 address show dev {device}"))?;
        lines.extend(
            addresses.lines().filter_map(|line| Some(("address", word_after(line, "inet")?.to_owned()))),
        );
    }
    let routes = node.ip("-4 route show")?;
    let is_pods = |line: &&str| line.starts_with("10.244.") && !line.contains("cni0");
    lines.extend(routes.lines().filter(is_pods).map(|line| ("route", line.trim().to_owned())));
    if let Some(device) = node.tunnel()? {
        let neighbours = node.ip(&format!("neighbour show dev {device}"))?;
        lines.extend(neighbours.lines().map(|line| ("neighbour", line.trim().to_owned())));
        let entries = node.bridge(&format!("fdb show dev {device}"))?;
        lines.extend(entries.lines().map(|line| ("fdb", line.trim().to_owned())));
    }
    Ok(lines)
}

/// The few words of a device that matter here.
fn device_shown(device: &str, line: &str) -> String {
    let labels = [
        ("vxlan network", "id"),
        ("from", "local"),
        ("by", "dev"),
        ("port", "dstport"),
        ("MTU", "mtu"),
        ("MAC", "link/ether"),
    ];
    let parts = labels.iter().filter_map(|(label, key)| Some(format!("{label} {}", word_after(line, key)?)));
    format!("{device}: {}", parts.collect::<Vec<_>>().join(", "))
}

fn word_after<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_whitespace().skip_while(|word| *word != key).nth(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_shown_by_what_matters() {
        let line = r"5: flannel.1: <UP> mtu 1450 qdisc noqueue \    link/ether 6e:cf:c3:0b:13:d0 brd ff:ff:ff:ff:ff:ff \    vxlan id 1 local 10.0.0.21 dev eth0 srcport 0 0 dstport 8472 nolearning";
        assert_eq!(
            device_shown("flannel.1", line),
            "flannel.1: vxlan network 1, from 10.0.0.21, by eth0, port 8472, MTU 1450, MAC 6e:cf:c3:0b:13:d0"
        );
    }
}
