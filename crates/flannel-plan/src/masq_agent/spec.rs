//! Which rules ip-masq-agent wants, from its flags and its file: a table a family, like any other of rules.
//!
//! In iptables they are the original's (v2.12.6), letter by letter, so that either program continues what the other made.
//! In nftables all networks are one set: a packet costs the same whether there are three of them or thousands.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::config::AgentConfig;
use crate::family::{ByFamily, Family};
use crate::rules::observed::RuleScope;
use crate::rules::ports::PortRange;
use crate::rules::role::Role;
use crate::rules::{
    Action, ChainName, Is, Match, Rule, RuleChain, RuleSet, RuleTable, SCTP, Side, SourcePorts, System, TCP,
    TableId, UDP,
};

/// The comment of rules for packets that keep their source.
const KEPT: &str = "ip-masq-agent: local traffic is not subject to MASQUERADE";
/// The comment of rules for packets that do not.
const MASQUERADED: &str = "ip-masq-agent: outbound traffic is subject to MASQUERADE (must be last in chain)";

/// The protocols that have ports, in the original's order.
const WITH_PORTS: [u8; 3] = [TCP, UDP, SCTP];

/// All that the rules depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentSpec {
    pub system: System,
    /// The name of the chain, which tells two agents of a host apart.
    pub chain: ChainName,
    /// How masquerade chooses ports, by family; a family without it has no rules.
    pub source_ports: ByFamily<SourcePorts>,
    /// The ports that it chooses from; none for any.
    pub to_ports: Vec<PortRange>,
    pub config: AgentConfig,
}

impl AgentSpec {
    /// Whose rules are looked for.
    pub fn scope(&self) -> RuleScope {
        RuleScope { masq_agent: Some(self.chain), ..RuleScope::default() }
    }

    /// The tables with the rules, sorted.
    pub fn desired(&self) -> Vec<RuleTable> {
        let tables = self.source_ports.iter().map(|(family, ports)| self.table(family, *ports));
        tables.collect()
    }

    fn table(&self, family: Family, ports: SourcePorts) -> RuleTable {
        let role = Role::MasqAgent(self.chain);
        let id = TableId { system: self.system, family, name: role.table(self.system, family).into() };
        let kept = self.kept(family);
        let (mut rules, sets) = match self.system {
            System::Nftables => (self.kept_by_set(), vec![self.set(&kept)]),
            _ => (kept.into_iter().map(keep).collect(), vec![]),
        };
        rules.extend(self.masquerade(ports));
        RuleTable { id, chains: vec![RuleChain { role, rules }], sets, faults: vec![] }
    }

    /// Where packets keep their source, in the order of the original's rules.
    fn kept(&self, family: Family) -> Vec<IpNet> {
        let masquerades_link = match family {
            Family::V4 => self.config.masq_link_local,
            Family::V6 => self.config.masq_link_local_v6,
        };
        let link = (!masquerades_link).then_some(link_local(family));
        let listed = self.config.non_masquerade.iter().copied();
        link.into_iter().chain(listed.filter(|net| Family::of_net(*net) == family)).collect()
    }

    /// What goes to this host never comes to the chain of the original, which asks before it.
    fn kept_by_set(&self) -> Vec<Rule> {
        let in_set = Match::Set(Side::Destination, Is::Equal, self.chain.as_str().into());
        vec![
            Rule::new([Match::DestinationLocal(Is::Equal)], Action::Return),
            Rule::new([in_set], Action::Return).comment(KEPT),
        ]
    }

    /// A set holds networks sorted, none inside another.
    fn set(&self, kept: &[IpNet]) -> RuleSet {
        let mut networks = IpNet::aggregate(&kept.to_vec());
        networks.sort();
        RuleSet { name: self.chain.as_str().into(), networks }
    }

    /// Each range takes its share of what the ranges before it left; what has no ports comes last.
    fn masquerade(&self, source_ports: SourcePorts) -> Vec<Rule> {
        let rule = |matches: Vec<Match>, to_ports| {
            Rule::new(matches, Action::Masquerade(source_ports, to_ports)).comment(MASQUERADED)
        };
        let mut rules = Vec::new();
        for protocol in WITH_PORTS {
            let mut left: u32 = self.to_ports.iter().map(|range| range.size()).sum();
            for range in &self.to_ports {
                let mut matches = vec![Match::Protocol(Is::Equal, protocol), Match::Comment];
                matches.extend((range.size() != left).then(|| self.chance(range.size(), left)));
                rules.push(rule(matches, Some(*range)));
                left -= range.size();
            }
        }
        rules.push(rule(vec![], None));
        rules
    }

    fn chance(&self, part: u32, of: u32) -> Match {
        match self.system {
            System::Nftables => Match::Chance { part, of },
            _ => Match::chance_of_iptables(part.into(), of.into()),
        }
    }
}

/// What is true of every packet is not part of a rule: `iptables-save` would not show it.
fn keep(network: IpNet) -> Rule {
    let to = (network.prefix_len() > 0).then_some(Match::destination(network));
    Rule::new(Vec::from_iter(to), Action::Return).comment(KEPT)
}

/// The addresses that hold on one link only.
pub fn link_local(family: Family) -> IpNet {
    match family {
        Family::V4 => IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 0, 0), 16)),
        Family::V6 => IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10)),
    }
}
