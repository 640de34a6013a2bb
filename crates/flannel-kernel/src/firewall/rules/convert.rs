//! Rules between the words of the plan and those of nftables.

use std::collections::HashMap;

use flannel_plan::family::Family as PlanFamily;
use flannel_plan::rules::found::{FoundChain, FoundRule, FoundSet, FoundTable, RuleName};
use flannel_plan::rules::role::{self, Role};
use flannel_plan::rules::{self, Action, Match, TableId};

use crate::firewall::abi::{NFPROTO_IPV4, NFPROTO_IPV6, XT_UDP_INV_DSTPT};
use crate::firewall::nft::{
    Chain, Direction, Family, Hook, Is, Kind, LOCAL, Listed, ListedTable, Protocol, Rule, Side, SourcePorts,
    Statement, Verdict,
};

/// The family of a table that holds packets of one family.
pub(super) fn family(family: PlanFamily) -> Family {
    match family {
        PlanFamily::V4 => Family::Ipv4,
        PlanFamily::V6 => Family::Ipv6,
    }
}

/// A table that was listed, as the plan reads it.
pub(super) fn found(id: TableId, listed: ListedTable) -> FoundTable {
    let mut chains: Vec<FoundChain> = listed
        .chains
        .into_iter()
        .map(|chain| FoundChain { name: chain.name.into(), base: chain.base, rules: vec![] })
        .collect();
    let places: HashMap<Box<str>, usize> =
        chains.iter().enumerate().map(|(at, chain)| (chain.name.clone(), at)).collect();
    for rule in listed.rules {
        if let Some(at) = places.get(rule.chain.as_str()) {
            chains[*at].rules.extend(found_rule_about(rule, id.family));
        }
    }
    let set =
        |set: crate::firewall::nft::ListedSet| FoundSet { name: set.name.into(), networks: set.networks };
    let others = listed.others + listed.other_sets.len();
    FoundTable {
        id,
        dormant: listed.dormant,
        chains,
        sets: listed.sets.into_iter().map(set).collect(),
        others,
    }
}

/// Whether a rule is about packets of a family; in tables of several families rules may say which.
fn is_about(listed: &mut Listed, family: PlanFamily) -> bool {
    let own = match family {
        PlanFamily::V4 => NFPROTO_IPV4,
        PlanFamily::V6 => NFPROTO_IPV6,
    };
    let mut about = true;
    listed.rule.statements.retain(|statement| match statement {
        Statement::Family(is, number) => {
            about &= (*number == own) == (*is == Is::Equal);
            false
        }
        _ => true,
    });
    about
}

/// A rule that was listed, as the plan reads it; none if it is not about packets of the family.
pub(super) fn found_rule_about(mut listed: Listed, family: PlanFamily) -> Option<FoundRule> {
    is_about(&mut listed, family).then(|| found_rule(listed, family))
}

/// A rule that was listed, as the plan reads it.
pub(super) fn found_rule(listed: Listed, family: PlanFamily) -> FoundRule {
    let comment = listed.rule.any_comment();
    let (mut matches, mut action) = (Vec::new(), Action::Nothing);
    for statement in &listed.rule.statements {
        match read(statement, family) {
            Part::Match(it) => matches.push(it),
            Part::Ports(protocol, port) => {
                matches.push(Match::Protocol(rules::Is::Equal, protocol));
                matches.push(port);
            }
            Part::Action(it) => action = it,
            Part::Nothing => {}
        }
    }
    matches.sort();
    matches.dedup();
    let mut rule = rules::Rule::new(matches, action);
    rule.comment = comment.map(Into::into);
    FoundRule { rule, tag: listed.rule.tag.map(Into::into), name: RuleName::Handle(listed.handle) }
}

/// What a statement is to the plan.
enum Part {
    Match(Match),
    Ports(u8, Match),
    Action(Action),
    Nothing,
}

fn read(statement: &Statement, family: PlanFamily) -> Part {
    let other = || Part::Match(Match::Other(format!("{statement:?}").into()));
    match statement {
        Statement::Address(Side::Source, it, net) => Part::Match(Match::Source(is(*it), *net)),
        Statement::Address(Side::Destination, it, net) => Part::Match(Match::Destination(is(*it), *net)),
        Statement::AddressIn(Side::Destination, it, set) => {
            Part::Match(Match::DestinationSet(is(*it), set.as_str().into()))
        }
        Statement::Device(Direction::In, it, name) => {
            Part::Match(Match::InLink(is(*it), name.as_str().into()))
        }
        Statement::Device(Direction::Out, it, name) => {
            Part::Match(Match::OutLink(is(*it), name.as_str().into()))
        }
        Statement::Protocol(it, protocol) => Part::Match(Match::Protocol(is(*it), protocol.0)),
        Statement::Mark(it, value, mask) => {
            Part::Match(Match::Mark { is: is(*it), value: *value, mask: *mask })
        }
        Statement::DestinationPort(protocol, it, port) => {
            Part::Ports(protocol.0, Match::DestinationPort(is(*it), *port))
        }
        Statement::DestinationType(it, LOCAL) => Part::Match(Match::DestinationLocal(is(*it))),
        Statement::Vxlan(vni) => Part::Match(Match::Vxlan(family, *vni)),
        Statement::Counter | Statement::SetMark(..) => Part::Nothing,
        Statement::NoTrack => Part::Action(Action::Untrack),
        Statement::Masquerade(SourcePorts::Kept) => {
            Part::Action(Action::Masquerade(rules::SourcePorts::Kept))
        }
        Statement::Masquerade(SourcePorts::Randomised) => {
            Part::Action(Action::Masquerade(rules::SourcePorts::Randomised))
        }
        Statement::MasqueradeTo(_, first, last) => {
            Part::Action(Action::OtherSource(format!("masquerade to :{first}-{last}").into()))
        }
        Statement::Dnat(..) => Part::Action(Action::Other("dnat".into())),
        Statement::Verdict(verdict) => Part::Action(read_verdict(verdict)),
        Statement::Unknown(name, _) => read_unknown(name, statement),
        _ => other(),
    }
}

fn read_verdict(verdict: &Verdict) -> Action {
    match verdict {
        Verdict::Accept => Action::Accept,
        Verdict::Drop => Action::Drop,
        Verdict::Return => Action::Return,
        Verdict::Jump(chain) => Action::Jump(chain.as_str().into()),
        Verdict::Goto(chain) => Action::Goto(chain.as_str().into()),
    }
}

/// What iptables wrote, and what others wrote that we do not judge.
fn read_unknown(name: &str, statement: &Statement) -> Part {
    let extension = statement.extension();
    if let Some(("udp", ports)) = extension.as_ref().map(|(name, bytes)| (name.as_str(), *bytes)) {
        return read_udp(ports);
    }
    let extension = extension.map(|(name, _)| name);
    match (name, extension.as_deref()) {
        (_, Some("comment")) => Part::Nothing, // it is told as the comment of the rule
        ("target", Some("MASQUERADE")) => Part::Action(Action::OtherSource("MASQUERADE".into())),
        ("target", Some(target @ ("SNAT" | "NETMAP"))) => Part::Action(Action::OtherSource(target.into())),
        ("target", Some(target)) => Part::Action(Action::Other(target.into())),
        ("masq" | "nat", _) => Part::Action(Action::OtherSource(name.into())),
        ("log" | "limit" | "quota" | "last", _) => Part::Nothing,
        ("reject" | "redir" | "queue" | "fwd" | "dup" | "tproxy" | "ct" | "synproxy", _) => {
            Part::Action(Action::Other(name.into()))
        }
        (name, extension) => Part::Match(Match::Other(extension.unwrap_or(name).into())),
    }
}

/// `struct xt_udp`: the ports that packets come from, those that they go to, and which of both are turned round.
fn read_udp(ports: &[u8]) -> Part {
    let Some([_, _, _, _, a, b, c, d, turned]) = ports.first_chunk::<9>() else { return Part::Nothing };
    let (first, last) = (u16::from_ne_bytes([*a, *b]), u16::from_ne_bytes([*c, *d]));
    let is = if turned & XT_UDP_INV_DSTPT == 0 { rules::Is::Equal } else { rules::Is::Different };
    Part::Match(match (first, last) {
        (first, last) if first == last => Match::DestinationPort(is, first),
        (first, last) => Match::Other(format!("-m udp --dport {first}:{last}").into()),
    })
}

fn is(it: Is) -> rules::Is {
    match it {
        Is::Equal => rules::Is::Equal,
        Is::Different => rules::Is::Different,
    }
}

/// A rule of ours for nftables, with the name of the instance beside it.
pub(super) fn rule(rule: &rules::Rule, tag: &str) -> Rule {
    let protocol = rule.matches().iter().find_map(|it| match it {
        Match::Protocol(rules::Is::Equal, number) => Some(Protocol(*number)),
        _ => None,
    });
    let has_port = rule.matches().iter().any(|it| matches!(it, Match::DestinationPort(..)));
    let mut statements: Vec<Statement> = rule
        .matches()
        .iter()
        // `udp dport 53` says the protocol, too.
        .filter(|it| !(has_port && matches!(it, Match::Protocol(..))))
        .map(|it| write(it, protocol.unwrap_or(Protocol::UDP)))
        .collect();
    statements.extend(write_action(&rule.action));
    Rule { comment: rule.comment.as_deref().map(str::to_owned), ..Rule::new(statements).tag(tag) }
}

fn write(it: &Match, protocol: Protocol) -> Statement {
    match it {
        Match::Source(is, net) => Statement::Address(Side::Source, back(*is), *net),
        Match::Destination(is, net) => Statement::Address(Side::Destination, back(*is), *net),
        Match::DestinationSet(is, name) => {
            Statement::AddressIn(Side::Destination, back(*is), name.to_string())
        }
        Match::InLink(is, name) => Statement::Device(Direction::In, back(*is), name.to_string()),
        Match::OutLink(is, name) => Statement::Device(Direction::Out, back(*is), name.to_string()),
        Match::Protocol(is, number) => Statement::Protocol(back(*is), Protocol(*number)),
        Match::DestinationPort(is, port) => Statement::DestinationPort(protocol, back(*is), *port),
        Match::Mark { is, value, mask } => Statement::Mark(back(*is), *value, *mask),
        Match::DestinationLocal(is) => Statement::DestinationType(back(*is), LOCAL),
        Match::Vxlan(_, vni) => Statement::Vxlan(*vni),
        // The kernel refuses it by name: a wish never has such a part.
        Match::Other(text) => Statement::Unknown(text.to_string(), vec![]),
    }
}

fn write_action(action: &Action) -> Option<Statement> {
    Some(match action {
        Action::Accept => Statement::Verdict(Verdict::Accept),
        Action::Drop => Statement::Verdict(Verdict::Drop),
        Action::Return => Statement::Verdict(Verdict::Return),
        Action::Jump(chain) => Statement::Verdict(Verdict::Jump(chain.to_string())),
        Action::Goto(chain) => Statement::Verdict(Verdict::Goto(chain.to_string())),
        Action::Masquerade(rules::SourcePorts::Kept) => Statement::Masquerade(SourcePorts::Kept),
        Action::Masquerade(rules::SourcePorts::Randomised) => Statement::Masquerade(SourcePorts::Randomised),
        Action::Untrack => Statement::NoTrack,
        Action::OtherSource(text) | Action::Other(text) => Statement::Unknown(text.to_string(), vec![]),
        Action::Nothing => return None,
    })
}

fn back(is: rules::Is) -> Is {
    match is {
        rules::Is::Equal => Is::Equal,
        rules::Is::Different => Is::Different,
    }
}

/// A chain of ours as nftables makes it.
pub(super) fn chain(role: Role) -> Chain {
    let base = role.base();
    let kind = match base.kind {
        role::Kind::Nat => Kind::Nat,
        role::Kind::Filter | role::Kind::Route => Kind::Filter,
    };
    let hook = match base.hook {
        role::Hook::Prerouting => Hook::Prerouting,
        role::Hook::Input => Hook::Input,
        role::Hook::Forward => Hook::Forward,
        role::Hook::Output => Hook::Output,
        role::Hook::Postrouting => Hook::Postrouting,
    };
    let name = role.chain(rules::System::Nftables);
    Chain::base(name, kind, hook, base.priority).comment(role.comment_of_chain())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_of_a_match_of_iptables_may_be_turned_round() {
        let ports = |turned| {
            let [low, high] = 8472_u16.to_ne_bytes();
            match read_udp(&[0, 0, 255, 255, low, high, low, high, turned, 0]) {
                Part::Match(it) => it,
                _ => Match::Other("none".into()),
            }
        };
        assert_eq!(ports(0), Match::DestinationPort(rules::Is::Equal, 8472));
        assert_eq!(ports(1), Match::DestinationPort(rules::Is::Equal, 8472), "the source port");
        assert_eq!(ports(2), Match::DestinationPort(rules::Is::Different, 8472));
    }
}
