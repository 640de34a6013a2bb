//! Whether packets between pods of one bridge meet the rules of the host: without it, answers through a Service come
//! from an address that nobody asked, and are dropped. Takes a look at the node, gives what to tell the operator.

use std::fs;
use std::process::{Command, Stdio};

use flannel_plan::family::{ByFamily, Family};
use flannel_plan::look::Look;
use flannel_plan::state::LinkKind;
use ipnet::IpNet;
use tracing::{debug, info};

const MODULE: &str = "br_netfilter";

/// Makes bridges ask netfilter, as far as it may, and says where they do not.
#[derive(Debug, Default)]
pub struct BridgeNetfilter {
    /// Loading a module is tried once: what keeps it from being loaded does not go away by itself.
    tried: bool,
}

impl BridgeNetfilter {
    /// What is to be told about a node with these subnets; nothing while no bridge holds its pods.
    pub fn notes(&mut self, look: &Look, subnets: &ByFamily<IpNet>) -> Vec<String> {
        let bridged = subnets.iter().filter(|(_, subnet)| has_bridge(look, subnet));
        bridged.filter_map(|(family, _)| self.note(family)).collect()
    }

    fn note(&mut self, family: Family) -> Option<String> {
        let name = setting(family);
        let read = || fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/"))).ok();
        let mut value = read();
        if value.is_none() && !std::mem::replace(&mut self.tried, true) {
            load();
            value = read();
        }
        match value {
            Some(value) if value.trim() == "0" => Some(format!(
                "{name} is 0: Services do not answer pods of this node that run on the same node as what is behind \
                 them; set it with `sysctl -w {name}=1`, and in /etc/sysctl.d"
            )),
            Some(_) => None,
            None => Some(format!(
                "the kernel module {MODULE} is not loaded, and could not be: Services do not answer pods of this node \
                 that run on the same node as what is behind them; `modprobe {MODULE}`, and name it in \
                 /etc/modules-load.d"
            )),
        }
    }
}

/// Whether the pods of a subnet hang on a bridge: it has their gateway's address.
fn has_bridge(look: &Look, subnet: &IpNet) -> bool {
    let is_bridge = |kind: &LinkKind| matches!(kind, LinkKind::Other(kind) if &**kind == "bridge");
    let bridges = look.links.iter().filter(|fact| is_bridge(&fact.link.kind)).map(|fact| fact.link.name);
    bridges.into_iter().any(|bridge| {
        look.addresses.iter().any(|fact| fact.link == bridge && subnet.contains(&fact.address.addr()))
    })
}

fn setting(family: Family) -> &'static str {
    match family {
        Family::V4 => "net.bridge.bridge-nf-call-iptables",
        Family::V6 => "net.bridge.bridge-nf-call-ip6tables",
    }
}

fn load() {
    let mut command = Command::new("modprobe");
    command.arg(MODULE).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    match command.output().map(|output| output.status) {
        Ok(status) if status.success() => info!(module = MODULE, "kernel module loaded"),
        Ok(status) => debug!(module = MODULE, %status, "kernel module not loaded"),
        Err(error) => debug!(module = MODULE, %error, "no modprobe"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flannel_plan::look::{AddressFact, LinkFact};
    use flannel_plan::state::Link;

    fn look(kind: &str, address: &str) -> Look {
        let name = "cni0".parse().unwrap();
        let (mac, kind) = ("02:00:00:00:00:01".parse().unwrap(), LinkKind::Other(kind.into()));
        let link = Link { name, mac, mtu: 1450, up: true, alias: "".into(), kind };
        let address = AddressFact {
            link: name,
            address: address.parse().unwrap(),
            permanent: true,
            temporary: false,
            deprecated: false,
            unusable: false,
        };
        let fact = LinkFact { index: 7, link, running: true, loopback: false };
        Look { links: vec![fact], addresses: vec![address], ..Look::default() }
    }

    #[test]
    fn only_a_bridge_with_the_gateway_of_the_pods_counts() {
        let subnet = "10.244.3.0/24".parse().unwrap();
        assert!(has_bridge(&look("bridge", "10.244.3.1/24"), &subnet));
        assert!(!has_bridge(&look("bridge", "172.17.0.1/16"), &subnet));
        assert!(!has_bridge(&look("veth", "10.244.3.1/24"), &subnet));
    }
}
