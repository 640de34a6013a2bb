//! The chains and rules of a container for one family, and the edits that make them.

use flannel_plan::family::Family;
use flannel_plan::rules::chain::Chain;
use flannel_plan::rules::edit::Edit;
use flannel_plan::rules::found::{FoundRule, FoundTable};
use flannel_plan::rules::ports::PortRange;
use flannel_plan::rules::{Action, Is, Match, Rule, SourcePorts, iptables};
use ipnet::IpNet;

use crate::error::CniError;
use crate::firewall::names;
use crate::plugins::portmap::config::{Config, Mapping, MarkedBy, Transport, localhost};
use crate::request::Request;

/// What every packet for this host goes through.
pub(super) const DNAT: &str = "CNI-HOSTPORT-DNAT";
/// What marks packets that are to be masqueraded.
pub(super) const SETMARK: &str = "CNI-HOSTPORT-SETMARK";
/// What masquerades the marked ones.
pub(super) const MASQ: &str = "CNI-HOSTPORT-MASQ";
/// The beginning of the name of a container's chain.
pub(super) const OWN: &str = "CNI-DN-";
/// The match `multiport` takes no more.
const MOST_PORTS: usize = 15;
/// What iptables keeps of a comment.
const LONGEST_COMMENT: usize = 255;

/// What should be there for one address of a container.
pub(super) struct Plan {
    pub(super) family: Family,
    pub(super) chain: Box<str>,
    /// The bit that marks packets, if we do that.
    pub(super) mark: Option<u32>,
    /// The rules of the container's chain.
    rules: Vec<Rule>,
    /// The rules that jump to it.
    jumps: Vec<Rule>,
}

impl Plan {
    pub(super) fn new(request: &Request, config: &Config, address: IpNet) -> Result<Self, CniError> {
        let chain: Box<str> = names::own_chain(OWN, request).into();
        let mut rules = Vec::new();
        let family = Family::of_net(address);
        for mapping in config.mappings.iter().filter(|mapping| mapping.host_ip.concerns(family)) {
            rules.extend(mapping_rules(config, mapping, address)?);
        }
        let mark = match config.mark {
            MarkedBy::Bit(bit) if config.snat => Some(bit),
            MarkedBy::Bit(_) | MarkedBy::Chain(_) => None,
        };
        let jumps = jumps(request, config, family, &chain);
        Ok(Self { family, chain, mark, rules, jumps })
    }

    /// The container's rules, each with its chain.
    pub(super) fn own_rules(&self) -> impl Iterator<Item = (&str, &Rule)> {
        let rules = self.rules.iter().map(|rule| (&*self.chain, rule));
        rules.chain(self.jumps.iter().map(|rule| (DNAT, rule)))
    }

    /// The edits that make only the container's rules.
    pub(super) fn own_edits(&self) -> Vec<Edit> {
        let rules = self.own_rules().map(|(chain, rule)| Edit::AppendRule(chain.into(), rule.clone()));
        [Edit::RenewChain(Chain::plain(self.chain.clone()))].into_iter().chain(rules).collect()
    }

    /// The edits that make everything that is not there, and the container's own chain anew.
    pub(super) fn edits(&self, found: &FoundTable) -> Vec<Edit> {
        let mut edits = self.mark.map(|bit| masquerade(found, bit)).unwrap_or_default();
        edits.extend(missing_chain(found, DNAT));
        for chain in ["PREROUTING", "OUTPUT"] {
            let jump = Rule::new([Match::DestinationLocal(Is::Equal)], Action::jump(DNAT));
            edits.extend((!jumps_to(found, chain, DNAT)).then(|| Edit::AppendRule(chain.into(), jump)));
        }
        let is_ours = |found: &&FoundRule| found.rule.target() == Some(&*self.chain);
        let before: Vec<_> = rules(found, DNAT).iter().filter(is_ours).collect();
        let stands = before.iter().map(|found| found.rule.clone()).eq(self.jumps.iter().map(as_saved));
        if !stands {
            edits.extend(before.iter().map(|found| Edit::DeleteRule(DNAT.into(), found.name.clone())));
        }
        let is_jump = |edit: &Edit| matches!(edit, Edit::AppendRule(chain, _) if &**chain == DNAT);
        edits.extend(self.own_edits().into_iter().filter(|edit| !(stands && is_jump(edit))));
        // A script names chains before it has rules in them.
        let (mut chains, rules): (Vec<_>, Vec<_>) =
            edits.into_iter().partition(|edit| matches!(edit, Edit::AddChain(_) | Edit::RenewChain(_)));
        chains.extend(rules);
        chains
    }
}

/// A rule as `iptables-save` will tell it: conditions of a user become what we read of them.
pub(super) fn as_saved(rule: &Rule) -> Rule {
    iptables::rule(&iptables::text(rule))
}

/// The rules of a chain that was found.
pub(super) fn rules<'a>(found: &'a FoundTable, chain: &str) -> &'a [FoundRule] {
    found.chain(chain).map_or(&[], |chain| &chain.rules)
}

/// The chains that mark and masquerade. That of masquerade has to be first: those of containers end the walk.
fn masquerade(found: &FoundTable, bit: u32) -> Vec<Edit> {
    let set = Rule::new([], Action::Nothing).set_mark(bit, bit).comment("CNI portfwd masquerade mark");
    let marked = Match::Mark { is: Is::Equal, value: bit, mask: bit };
    let masquerade = Rule::new([marked], Action::masquerade(SourcePorts::Kept));
    let mut edits = ensure(found, SETMARK, set);
    edits.extend(ensure(found, MASQ, masquerade));
    if !jumps_to(found, "POSTROUTING", MASQ) {
        let jump = Rule::new([], Action::jump(MASQ)).comment("CNI portfwd requiring masquerade");
        edits.push(Edit::InsertRules("POSTROUTING".into(), vec![jump]));
    }
    edits
}

/// Makes a chain if there is none, and a rule in it if that is not there. A chain that somebody else makes
/// meanwhile is not emptied: then the whole script fails.
fn ensure(found: &FoundTable, chain: &str, rule: Rule) -> Vec<Edit> {
    let is_there = rules(found, chain).iter().any(|found| found.rule == rule);
    let rule = (!is_there).then(|| Edit::AppendRule(chain.into(), rule));
    missing_chain(found, chain).into_iter().chain(rule).collect()
}

fn missing_chain(found: &FoundTable, chain: &str) -> Option<Edit> {
    found.chain(chain).is_none().then(|| Edit::AddChain(Chain::plain(chain)))
}

fn jumps_to(found: &FoundTable, from: &str, to: &str) -> bool {
    rules(found, from).iter().any(|found| found.rule.target() == Some(to))
}

fn mapping_rules(config: &Config, mapping: &Mapping, address: IpNet) -> Result<Vec<Rule>, CniError> {
    let target = match &config.mark {
        MarkedBy::Bit(_) => SETMARK,
        MarkedBy::Chain(chain) => chain,
    };
    let host_ip = mapping.host_ip.one()?;
    let rule = |source: Option<IpNet>, action: Action| {
        let mut matches: Vec<_> = source.map(Match::source).into_iter().collect();
        matches.extend(host_ip.map(Match::destination));
        matches.extend(Match::port(mapping.transport.protocol, mapping.host_port));
        Rule::new(matches, action)
    };
    let mut rules = Vec::new();
    if config.snat {
        // Every container of the network, not only this one: its answer would not pass the host.
        rules.push(rule((!config.masquerade_all).then(|| address.trunc()), Action::jump(target)));
        let localhost = localhost(Family::of_net(address)).filter(|_| !config.masquerade_all);
        rules.extend(localhost.map(|localhost| rule(Some(localhost.into()), Action::jump(target))));
    }
    rules.push(rule(None, Action::Dnat(address.addr(), Some(mapping.container_port))));
    Ok(rules)
}

/// The rules that jump to the container's chain: a few ports of one protocol each.
fn jumps(request: &Request, config: &Config, family: Family, chain: &str) -> Vec<Rule> {
    let comment = comment(&request.network, &request.container_id);
    let conditions: Vec<_> = config.conditions(family).iter().map(|word| iptables::quoted(word)).collect();
    let conditions = (!conditions.is_empty()).then(|| Match::Other(conditions.join(" ").into()));
    let mut jumps = Vec::new();
    for transport in Transport::ALL {
        let of_transport = config.mappings.iter().filter(|mapping| mapping.transport == transport);
        let ports: Vec<_> = of_transport
            .map(|mapping| PortRange { first: mapping.host_port, last: mapping.host_port })
            .collect();
        for ports in ports.chunks(MOST_PORTS) {
            let mut matches = vec![Match::Protocol(Is::Equal, transport.protocol), Match::Comment];
            matches.push(Match::DestinationPorts(Is::Equal, ports.into()));
            matches.extend(conditions.clone());
            jumps.push(Rule::new(matches, Action::jump(chain)).comment(comment.as_str()));
        }
    }
    jumps
}

/// Go cuts a long comment to one byte more than iptables keeps.
fn comment(network: &str, container: &str) -> String {
    let mut comment = format!("dnat name: \"{network}\" id: \"{container}\"");
    if comment.len() > LONGEST_COMMENT {
        comment.truncate(comment.floor_char_boundary(LONGEST_COMMENT - 2));
        comment += "..";
    }
    comment
}
