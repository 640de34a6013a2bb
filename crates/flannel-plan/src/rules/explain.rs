//! What becomes of a packet's source address, and which rule decides: for people who ask why.
//!
//! Follows one packet through the chains that may change its source, as they were found, everybody's included.
//! Where a rule depends on something that is not known of the packet, the answer says so.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::Serialize;

use super::chain::{ChainType, Hook};
use super::found::{FoundChain, FoundTable};
use super::{Action, Is, Match, Rule, Side, TableId};
use crate::family::Family;

/// Chains that jump in a circle are refused by the kernel; this is for a look that was taken in between.
const DEEPEST: usize = 64;

const NON_MASQUERADE: &str = "It goes to a network of NonMasqueradeCIDRs, where pods keep their addresses.";

/// What is known of a packet that is about to leave the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    pub source: IpAddr,
    /// Where it goes, after any translation of a service.
    pub destination: IpAddr,
    pub protocol: Option<u8>,
    pub port: Option<u16>,
    pub mark: u32,
    pub out_link: Option<Box<str>>,
    /// Whether it goes to an address of this host, if that is known.
    pub to_host: Option<bool>,
}

/// What becomes of the source address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    Kept,
    Masqueraded,
    Replaced,
    Dropped,
}

/// A rule where it stands, such as one on a packet's way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedRule {
    pub table: TableId,
    pub chain: Box<str>,
    /// The place of the rule in it, from 1 on.
    pub place: usize,
    pub rule: Rule,
}

/// What becomes of a packet's source address, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    pub packet: Packet,
    pub fate: Fate,
    /// The rules that matched, in the packet's order.
    pub matched: Vec<PlacedRule>,
    /// The rules that would have decided otherwise, if something that is not known were so.
    pub perhaps: Vec<PlacedRule>,
}

/// Says what becomes of the source address of a packet, by the rules of these tables.
pub fn explain_snat(tables: &[FoundTable], packet: &Packet) -> Explanation {
    let packet = packet.clone();
    let mut walk = Explanation { packet, fate: Fate::Kept, matched: vec![], perhaps: vec![] };
    for (table, chain) in source_chains(tables, Family::of(walk.packet.source)) {
        // The end of one chain of the kernel leads to the next one.
        if let Verdict::Decided(fate) = walk.chain(table, chain, 0) {
            walk.fate = fate;
            break;
        }
    }
    walk
}

/// The chains where sources are changed, in the order in which packets meet them.
fn source_chains(tables: &[FoundTable], family: Family) -> Vec<(&FoundTable, &FoundChain)> {
    let mut chains: Vec<_> = tables
        .iter()
        .filter(|table| table.id.family == family && !table.dormant)
        .flat_map(|table| table.chains.iter().map(move |chain| (table, chain)))
        .filter_map(|(table, chain)| Some((chain.base?, table, chain)))
        .filter(|(base, ..)| (base.kind, base.hook) == (ChainType::Nat, Hook::Postrouting))
        .collect();
    chains.sort_by_key(|(base, ..)| base.priority);
    chains.into_iter().map(|(_, table, chain)| (table, chain)).collect()
}

enum Verdict {
    Decided(Fate),
    /// The chain of the kernel is done with the packet.
    Accepted,
    /// Back to the chain that jumped here.
    Returned,
    Ended,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    No,
    Perhaps,
    Yes,
}

impl Explanation {
    fn chain(&mut self, table: &FoundTable, chain: &FoundChain, depth: usize) -> Verdict {
        for (at, found) in chain.rules.iter().enumerate() {
            let rule = &found.rule;
            let answer = self.packet.fits(table, rule);
            if answer == Answer::No || rule.action == Action::Nothing {
                continue;
            }
            let step = PlacedRule {
                table: table.id.clone(),
                chain: chain.name.clone(),
                place: at + 1,
                rule: rule.clone(),
            };
            if answer == Answer::Perhaps {
                self.perhaps.push(step);
                continue;
            }
            self.matched.push(step);
            match self.act(table, &rule.action, depth) {
                Verdict::Ended => {}
                verdict => return verdict,
            }
        }
        Verdict::Ended
    }

    fn act(&mut self, table: &FoundTable, action: &Action, depth: usize) -> Verdict {
        match action {
            Action::Accept => Verdict::Accepted,
            Action::Return => Verdict::Returned,
            Action::Drop => Verdict::Decided(Fate::Dropped),
            Action::Masquerade(..) => Verdict::Decided(Fate::Masqueraded),
            Action::OtherSource(_) => Verdict::Decided(Fate::Replaced),
            Action::Jump(name) => match self.through(table, name, depth) {
                Verdict::Returned | Verdict::Ended => Verdict::Ended,
                verdict => verdict,
            },
            // From there the packet goes back to where this chain was jumped to from.
            Action::Goto(name) => match self.through(table, name, depth) {
                Verdict::Ended => Verdict::Returned,
                verdict => verdict,
            },
            Action::Untrack
            | Action::Nothing
            | Action::Dnat(..)
            | Action::Expression(_)
            | Action::Other(_) => Verdict::Ended,
        }
    }

    fn through(&mut self, table: &FoundTable, name: &str, depth: usize) -> Verdict {
        match table.chain(name) {
            Some(chain) if depth < DEEPEST => self.chain(table, chain, depth + 1),
            _ => Verdict::Ended,
        }
    }
}

impl Packet {
    /// Whether a rule is about this packet.
    fn fits(&self, table: &FoundTable, rule: &Rule) -> Answer {
        rule.matches.iter().map(|it| self.fits_one(table, it)).min().unwrap_or(Answer::Yes)
    }

    fn fits_one(&self, table: &FoundTable, it: &Match) -> Answer {
        match it {
            // A rule about addresses of one family is never about a packet of the other.
            _ if it.network().is_some_and(|net| Family::of_net(net) != Family::of(self.source)) => Answer::No,
            Match::Source(is, net) => judge(*is, Some(net.contains(&self.source))),
            Match::Destination(is, net) => judge(*is, Some(net.contains(&self.destination))),
            Match::Range(side, is, first, last) => {
                judge(*is, Some((*first..=*last).contains(&self.address(*side))))
            }
            Match::Set(side, is, name) => {
                let set = table.sets.iter().find(|set| set.name == *name);
                let address = self.address(*side);
                judge(*is, set.map(|set| set.networks.iter().any(|net| net.contains(&address))))
            }
            Match::Family(is, family) => judge(*is, Some(Family::of(self.source) == *family)),
            Match::Mark { is, value, mask } => judge(*is, Some(self.mark & mask == *value)),
            Match::Protocol(is, number) => judge(*is, self.protocol.map(|protocol| protocol == *number)),
            Match::DestinationPort(is, number) => judge(*is, self.port.map(|port| port == *number)),
            Match::DestinationPorts(is, ports) => {
                judge(*is, self.port.map(|port| ports.iter().any(|range| range.contains(port))))
            }
            Match::OutLink(is, name) => judge(*is, self.out_link.as_ref().map(|link| is_named(link, name))),
            Match::DestinationLocal(is) if self.destination.is_loopback() => judge(*is, Some(true)),
            Match::DestinationLocal(is) => judge(*is, self.to_host),
            Match::Counter | Match::Comment => Answer::Yes,
            // Of these `limit` and `quota` end, sooner or later; whoever has them means the packets before.
            Match::Expression(it) if ["log", "limit", "quota", "last"].contains(&&*it.name) => Answer::Yes,
            Match::Vxlan(..)
            | Match::InLink(..)
            | Match::EtherSource(..)
            | Match::PacketType(..)
            | Match::Chance { .. }
            | Match::Expression(_)
            | Match::Other(_) => Answer::Perhaps,
        }
    }

    fn address(&self, side: Side) -> IpAddr {
        match side {
            Side::Source => self.source,
            Side::Destination => self.destination,
        }
    }
}

fn is_named(link: &str, pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => link.starts_with(beginning),
        None => link == pattern,
    }
}

fn judge(is: Is, so: Option<bool>) -> Answer {
    match so {
        None => Answer::Perhaps,
        Some(so) if so == (is == Is::Equal) => Answer::Yes,
        Some(_) => Answer::No,
    }
}

impl Explanation {
    /// The rule that decided; none if no rule is about the packet.
    pub fn decisive(&self) -> Option<&PlacedRule> {
        self.matched.iter().rfind(|step| step.rule.target().is_none())
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kept => "keeps its source address",
            Self::Masqueraded => "gets the node's address (masquerade)",
            Self::Replaced => "gets another source address",
            Self::Dropped => "is dropped",
        })
    }
}

impl fmt::Display for PlacedRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {} of {} in {}: {}", self.place, self.chain, self.table, self.rule)
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Packet { source, destination, .. } = &self.packet;
        writeln!(f, "A packet from {source} to {destination} {}.", self.fate)?;
        match self.decisive() {
            Some(step) => writeln!(f, "  Decided by {step}")?,
            None => writeln!(f, "  No rule is about it.")?,
        }
        if let Some(why) = self.decisive().and_then(|step| meaning(&step.rule)) {
            writeln!(f, "  {why}")?;
        }
        for step in &self.perhaps {
            writeln!(f, "  Unless it fits {step}")?;
        }
        Ok(())
    }
}

/// What a rule of flannel is for.
fn meaning(rule: &Rule) -> Option<&'static str> {
    Some(match (&rule.sorted()[..], &rule.action) {
        ([Match::Mark { .. }], Action::Return) => {
            "kube-proxy marked it, and kube-proxy's own rules translate it: flannel leaves it alone."
        }
        ([Match::Source(Is::Equal, from), Match::Destination(Is::Equal, to)], Action::Return) => {
            between(from, to)
        }
        ([Match::Source(Is::Different, _), Match::Destination(Is::Equal, _)], Action::Return) => {
            "It comes from outside to a pod of this node, which sees the client's address."
        }
        ([Match::Source(..), Match::Set(..)], Action::Return) => NON_MASQUERADE,
        ([Match::Source(Is::Equal, _), Match::Destination(Is::Different, _)], Action::Masquerade(..)) => {
            "It leaves the pod network, where nobody would know the way back to a pod."
        }
        ([Match::Source(Is::Different, _), Match::Destination(Is::Equal, _)], Action::Masquerade(..)) => {
            "It comes from outside to a pod of another node, whose answer has to come back through this one."
        }
        _ => return None,
    })
}

fn between(from: &IpNet, to: &IpNet) -> &'static str {
    if to.contains(from) {
        "It goes from a pod of this node to the pod network: pods see each other's addresses."
    } else if from.contains(to) {
        "It goes from the pod network to a pod of this node: pods see each other's addresses."
    } else {
        NON_MASQUERADE
    }
}
