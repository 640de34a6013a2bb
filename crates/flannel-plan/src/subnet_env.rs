//! subnet.env: what the CNI plugin and flanneld's next start read of a node's subnets.
//!
//! Takes and gives the text. It is written as Go flannel writes it, to the byte, and read by the rules of
//! dotenv: comments, `export`, quotes, CRLF, the last of several lines wins, what is not valid is left out.

use std::collections::HashMap;
use std::fmt;

use ipnet::IpNet;

use crate::family::{ByFamily, Family};
use crate::number::{address, number};

/// What subnet.env says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubnetEnv {
    /// The addresses of all pods of the cluster; the CNI plugin takes more than one network.
    pub networks: ByFamily<Vec<IpNet>>,
    /// The addresses of the pods of this node.
    pub subnets: ByFamily<IpNet>,
    /// The largest packet that a pod may send.
    pub mtu: u32,
    /// Whether flanneld masquerades, so that the CNI plugin must not.
    pub ip_masq: bool,
}

/// A subnet.env without all that a pod needs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("missing or not valid: {}", .missing.join(", "))]
pub struct SubnetEnvError {
    /// The keys that are missing, or have no valid value; of the two families' keys one is enough.
    pub missing: Vec<&'static str>,
}

const MTU: &str = "FLANNEL_MTU";
const IP_MASQ: &str = "FLANNEL_IPMASQ";

fn network_key(family: Family) -> &'static str {
    match family {
        Family::V4 => "FLANNEL_NETWORK",
        Family::V6 => "FLANNEL_IPV6_NETWORK",
    }
}

fn subnet_key(family: Family) -> &'static str {
    match family {
        Family::V4 => "FLANNEL_SUBNET",
        Family::V6 => "FLANNEL_IPV6_SUBNET",
    }
}

impl fmt::Display for SubnetEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for family in Family::BOTH {
            if let Some(networks) = self.networks.get(family).filter(|networks| !networks.is_empty()) {
                let networks: Vec<_> = networks.iter().map(IpNet::to_string).collect();
                writeln!(f, "{}={}", network_key(family), networks.join(","))?;
            }
            if let Some(subnet) = self.subnets.get(family) {
                // The bridge's address, because mk-docker-opts gives this to docker as its `--bip`.
                let bridge = address(family, number(subnet.network()).saturating_add(1));
                let bridge = bridge.unwrap_or(subnet.network());
                writeln!(f, "{}={bridge}/{}", subnet_key(family), subnet.prefix_len())?;
            }
        }
        writeln!(f, "{MTU}={}", self.mtu)?;
        writeln!(f, "{IP_MASQ}={}", self.ip_masq)
    }
}

impl SubnetEnv {
    /// Reads the file for a pod, which needs a network, a subnet, the MTU and the masquerade flag.
    pub fn parse(text: &str) -> Result<Self, SubnetEnvError> {
        let values = dotenv(text);
        let mut networks = ByFamily::default();
        for family in Family::BOTH {
            let listed = nets(&values, network_key(family), family);
            *networks.slot(family) = Some(listed).filter(|listed| !listed.is_empty());
        }
        let subnets = previous_subnets(text);
        let mtu = values.get(MTU).and_then(|mtu| mtu.parse().ok());
        let ip_masq = values.get(IP_MASQ).map(|flag| *flag == "true");

        let mut missing = Vec::new();
        missing.extend(Family::BOTH.map(network_key).into_iter().filter(|_| networks.is_empty()));
        missing.extend(Family::BOTH.map(subnet_key).into_iter().filter(|_| subnets.is_empty()));
        missing.extend(mtu.is_none().then_some(MTU));
        missing.extend(ip_masq.is_none().then_some(IP_MASQ));
        match (mtu, ip_masq) {
            (Some(mtu), Some(ip_masq)) if missing.is_empty() => Ok(Self { networks, subnets, mtu, ip_masq }),
            _ => Err(SubnetEnvError { missing }),
        }
    }
}

/// The subnets that a file names, whatever else it lacks: what a node had before it was restarted.
///
/// A family with no valid subnet, or with several, has none.
pub fn previous_subnets(text: &str) -> ByFamily<IpNet> {
    let values = dotenv(text);
    let mut subnets = ByFamily::default();
    for family in Family::BOTH {
        if let [subnet] = nets(&values, subnet_key(family), family)[..] {
            *subnets.slot(family) = Some(subnet);
        }
    }
    subnets
}

/// The pod networks that a file names, whatever else it lacks; all addresses are no network.
pub fn previous_networks(text: &str) -> Vec<IpNet> {
    let values = dotenv(text);
    let named = Family::BOTH.into_iter().flat_map(|family| nets(&values, network_key(family), family));
    named.filter(|network| network.prefix_len() > 0).collect()
}

/// The valid networks of a comma list, each once, their host part dropped.
fn nets(values: &HashMap<&str, &str>, key: &str, family: Family) -> Vec<IpNet> {
    let mut nets = Vec::new();
    for item in values.get(key).copied().unwrap_or_default().split(',') {
        let net = item.trim().parse().map(|net: IpNet| net.trunc());
        nets.extend(net.ok().filter(|net| Family::of_net(*net) == family && !nets.contains(net)));
    }
    nets
}

fn dotenv(text: &str) -> HashMap<&str, &str> {
    text.trim_start_matches('\u{feff}').lines().filter_map(assignment).collect()
}

fn assignment(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    let line = line.strip_prefix("export").filter(|rest| rest.starts_with([' ', '\t'])).unwrap_or(line);
    let (key, value) = line.split_once('=')?;
    let (key, value) = (key.trim(), value.trim());
    if key.starts_with('#') {
        return None;
    }
    for quote in ['"', '\''] {
        if let Some((value, _)) = value.strip_prefix(quote).and_then(|value| value.split_once(quote)) {
            return Some((key, value));
        }
    }
    let comment = value.find(" #").or_else(|| value.starts_with('#').then_some(0));
    Some((key, value[..comment.unwrap_or(value.len())].trim_end()))
}
