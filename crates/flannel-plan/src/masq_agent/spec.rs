//! Which rules ip-masq-agent wants, from its flags and its file: once, for every system that can hold them.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

use super::config::AgentConfig;
use crate::family::{ByFamily, Family};
use crate::rules::ports::PortRange;
use crate::rules::{SourcePorts, System};

/// The comment of rules for packets that keep their source.
pub const KEPT: &str = "ip-masq-agent: local traffic is not subject to MASQUERADE";
/// The comment of rules for packets that do not.
pub const MASQUERADED: &str =
    "ip-masq-agent: outbound traffic is subject to MASQUERADE (must be last in chain)";

/// The protocols that have ports: TCP, UDP and SCTP, in the original's order.
const WITH_PORTS: [u8; 3] = [6, 17, 132];

/// All that the rules depend on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSpec {
    /// Where the rules are kept.
    pub system: System,
    /// The name of the chain, which tells two agents of a host apart.
    pub chain: Box<str>,
    /// How masquerade chooses ports, by family; a family without it has no rules.
    pub source_ports: ByFamily<SourcePorts>,
    /// The ports that it chooses from; none for any.
    pub to_ports: Vec<PortRange>,
    /// What the file says.
    pub config: AgentConfig,
}

/// The rules of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentRules {
    /// Where packets keep their source, in the order of the rules.
    pub kept: Vec<IpNet>,
    /// What becomes of all others; the last is for every packet.
    pub masquerade: Vec<MasqueradeRule>,
}

/// One way to masquerade a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MasqueradeRule {
    /// Only packets of this protocol.
    pub protocol: Option<u8>,
    /// Only some of them, by chance.
    pub chance: Option<Chance>,
    /// To one of these ports.
    pub to_ports: Option<PortRange>,
    /// How it is chosen.
    pub source_ports: SourcePorts,
}

/// So many of so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chance {
    /// So many.
    pub part: u32,
    /// Of so many.
    pub of: u32,
}

impl AgentSpec {
    /// The rules of a family; none if it has no rules.
    pub fn rules(&self, family: Family) -> Option<AgentRules> {
        let source_ports = *self.source_ports.get(family)?;
        let masquerades_link = match family {
            Family::V4 => self.config.masq_link_local,
            Family::V6 => self.config.masq_link_local_v6,
        };
        let link = (!masquerades_link).then_some(link_local(family));
        let listed = self.config.non_masquerade.iter().copied();
        let kept = link.into_iter().chain(listed.filter(|net| Family::of_net(*net) == family)).collect();
        Some(AgentRules { kept, masquerade: self.masquerade(source_ports) })
    }

    /// Each range takes its share of what the ranges before it left.
    fn masquerade(&self, source_ports: SourcePorts) -> Vec<MasqueradeRule> {
        let mut rules = Vec::new();
        for protocol in WITH_PORTS {
            let mut left: u32 = self.to_ports.iter().map(|range| range.size()).sum();
            for range in &self.to_ports {
                let chance = (range.size() != left).then_some(Chance { part: range.size(), of: left });
                let (protocol, to_ports) = (Some(protocol), Some(*range));
                rules.push(MasqueradeRule { protocol, chance, to_ports, source_ports });
                left -= range.size();
            }
        }
        rules.push(MasqueradeRule { protocol: None, chance: None, to_ports: None, source_ports });
        rules
    }
}

impl AgentRules {
    /// The networks as a set holds them: sorted, none inside another.
    pub fn set(&self) -> Vec<IpNet> {
        let mut networks = IpNet::aggregate(&self.kept);
        networks.sort();
        networks
    }
}

/// The addresses that hold on one link only.
pub fn link_local(family: Family) -> IpNet {
    match family {
        Family::V4 => IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 0, 0), 16)),
        Family::V6 => IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10)),
    }
}
