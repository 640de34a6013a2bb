//! What flannel keeps in a node's kernel: the device, its address, and for each peer a route, a neighbour and a
//! forwarding entry. Asks `ip` and `bridge`, gives lines.

use flannel_lab::{LabError, Node};

/// All of one node, as labelled lines.
pub fn of(node: &Node) -> Result<Vec<(&'static str, String)>, LabError> {
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
    let part = |label: &str, key: &str| word_after(line, key).map(|value| format!("{label} {value}"));
    let parts = [
        part("vxlan network", "id"),
        part("from", "local"),
        part("by", "dev"),
        part("port", "dstport"),
        part("MTU", "mtu"),
        part("MAC", "link/ether"),
    ];
    format!("{device}: {}", parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
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
