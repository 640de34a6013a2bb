//! Whether the rules of a host translate packets to a port: then they have to be tracked.

use std::collections::{HashMap, HashSet, VecDeque};

use super::chain::ChainType;
use super::explain::PlacedRule;
use super::found::{FoundChain, FoundRule, FoundTable};
use super::{Action, Is, Match, Rule, UDP};

/// A rule that translates packets to a UDP port, or to somewhere with that port; none as far as we can read.
pub fn translation_of(tables: &[FoundTable], port: u16) -> Option<PlacedRule> {
    tables.iter().find_map(|table| {
        // By name, as kube-proxy may have made thousands.
        let chains: HashMap<_, _> = table.chains.iter().map(|chain| (&*chain.name, chain)).collect();
        let is_nat = |chain: &&FoundChain| chain.base.is_some_and(|base| base.kind == ChainType::Nat);
        let bases = table.chains.iter().filter(is_nat).map(|chain| chain.name.clone());
        let mut search = Search { other_ports: true, ..Search::new(port, bases) };
        while let Some(name) = search.next_chain() {
            let rules = chains.get(&*name).map_or(&[][..], |chain| &chain.rules);
            if let Some((place, rule)) = search.read(rules) {
                return Some(PlacedRule { table: table.id.clone(), chain: name, place, rule: rule.clone() });
            }
        }
        None
    })
}

/// A search through one table for a rule that translates packets to a UDP port: says which chain to read next, so
/// that nobody has to read those that such packets do not come to. Others' may be tens of thousands.
pub struct Search {
    port: u16,
    /// Whether packets to other ports are followed, too: they may be led to this one.
    other_ports: bool,
    next: VecDeque<Box<str>>,
    reached: HashSet<Box<str>>,
}

impl Search {
    /// Begins at the chains where the kernel translates addresses. Follows packets to this port alone: for rules that
    /// do not say which port they lead to.
    pub fn new(port: u16, bases: impl IntoIterator<Item = Box<str>>) -> Self {
        let next: VecDeque<Box<str>> = bases.into_iter().collect();
        Self { port, other_ports: false, reached: next.iter().cloned().collect(), next }
    }

    /// The chain whose rules have to be read now; none at the end.
    pub fn next_chain(&mut self) -> Option<Box<str>> {
        self.next.pop_front()
    }

    /// Reads the rules of a chain: the one that translates the packets, with its place from 1 on. If there is none, the
    /// chains that the packets are sent to come next.
    pub fn read<'a>(&mut self, rules: &'a [FoundRule]) -> Option<(usize, &'a Rule)> {
        for (at, FoundRule { rule, .. }) in rules.iter().enumerate() {
            if is_about(rule, self.port) {
                return Some((at + 1, rule));
            }
            let target = rule.target().filter(|target| !self.reached.contains(*target));
            if let Some(target) = target.filter(|_| self.follows(rule)) {
                self.reached.insert(target.into());
                self.next.push_back(target.into());
            }
        }
        None
    }

    /// Whether the packets may be what a rule asks for; whatever says nothing of protocol and port may be so.
    fn follows(&self, rule: &Rule) -> bool {
        rule.matches.iter().all(|it| match it {
            Match::Protocol(is, number) => (*number == UDP) == (*is == Is::Equal),
            Match::DestinationPort(is, number) => {
                self.other_ports || (*number == self.port) == (*is == Is::Equal)
            }
            Match::DestinationPorts(is, ports) => {
                let named = ports.iter().any(|range| range.contains(self.port));
                self.other_ports || named == (*is == Is::Equal)
            }
            _ => true,
        })
    }
}

fn is_about(rule: &Rule, port: u16) -> bool {
    let of_another = |it: &Match| matches!(it, Match::Protocol(Is::Equal, number) if *number != UDP);
    let goes_there = |it: &Match| match it {
        Match::DestinationPort(Is::Equal, number) => *number == port,
        Match::DestinationPorts(Is::Equal, ports) => ports.iter().any(|range| range.contains(port)),
        Match::Other(text) => lists(text, port),
        _ => false,
    };
    let leads_there = match &rule.action {
        Action::Dnat(_, to) => *to == Some(port),
        Action::Masquerade(_, Some(to)) => to.contains(port),
        Action::Other(text) | Action::OtherSource(text) => {
            text.ends_with(&format!(":{port}")) || lists(text, port)
        }
        _ => false,
    };
    !rule.matches.iter().any(of_another) && (leads_there || rule.matches.iter().any(goes_there))
}

/// Whether words such as `--dports 53,8000:9000` name a port.
fn lists(text: &str, port: u16) -> bool {
    let words: Vec<&str> = text.split(' ').collect();
    let named = |pair: &[&str]| ["--dport", "--dports", "--ports", "--to-ports"].contains(&pair[0]);
    words.windows(2).filter(|pair| named(pair)).any(|pair| {
        pair[1].split(',').any(|range| {
            let (first, last) = range.split_once([':', '-']).unwrap_or((range, range));
            first.parse().is_ok_and(|first: u16| first <= port)
                && last.parse().is_ok_and(|last: u16| port <= last)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Family;
    use crate::rules::System;
    use crate::rules::iptables::saved;

    fn translation(rule: &str) -> Option<String> {
        let output = format!(
            "*nat\n:PREROUTING ACCEPT [0:0]\n:PORTS - [0:0]\n:UNUSED - [0:0]\n-A PREROUTING -j PORTS\n-A {rule}\nCOMMIT\n\
             *filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -p udp -m udp --dport 8472 -j ACCEPT\nCOMMIT\n"
        );
        let tables = saved(System::IptablesNft, Family::V4, &output).unwrap().tables;
        translation_of(&tables, 8472).map(|step| format!("{} {}", step.chain, step.place))
    }

    #[test]
    fn rules_that_translate_the_port_are_found_and_others_are_not() {
        for rule in [
            "PORTS -p udp -m udp --dport 8472 -j DNAT --to-destination 10.244.1.5:53",
            "PORTS -p udp -m udp --dport 8000:9000 -j MASQUERADE",
            "PORTS -p udp -m multiport --dports 1,8472 -j DNAT --to-destination 10.244.1.5",
            "PORTS -p udp -j DNAT --to-destination 10.244.1.5:8472",
            "PORTS -p udp -m udp --dport 53 -j REDIRECT --to-ports 8472",
        ] {
            assert_eq!(translation(rule).as_deref(), Some("PORTS 1"), "{rule}");
        }
        for rule in [
            "PORTS -p tcp -m tcp --dport 8472 -j DNAT --to-destination 10.244.1.5:53",
            "PORTS -p udp -m udp --dport 8473 -j DNAT --to-destination 10.244.1.5:53",
            "UNUSED -p udp -m udp --dport 8472 -j DNAT --to-destination 10.244.1.5:53",
            "PORTS -p udp -m udp ! --dport 8472 -j RETURN",
        ] {
            assert_eq!(translation(rule), None, "{rule}");
        }
    }
    /// The chains that are read until a rule is found, in the order of the reading.
    fn read(rules: &str) -> (Vec<String>, Option<usize>) {
        let table = saved(System::IptablesNft, Family::V4, &format!("*nat\n{rules}COMMIT\n"))
            .unwrap()
            .tables
            .remove(0);
        let (mut search, mut read) = (Search::new(8472, ["PREROUTING".into()]), vec![]);
        while let Some(chain) = search.next_chain() {
            read.push(chain.to_string());
            if let Some((place, _)) = search.read(&table.chain(&chain).unwrap().rules) {
                return (read, Some(place));
            }
        }
        (read, None)
    }

    #[test]
    fn a_rule_three_jumps_deep_is_found_and_no_chain_is_read_that_its_packets_do_not_come_to() {
        let mut rules = String::from(":PREROUTING ACCEPT [0:0]\n:A - [0:0]\n:B - [0:0]\n:C - [0:0]\n");
        for number in 0..1000 {
            rules += &format!(":TCP{number} - [0:0]\n:UDP{number} - [0:0]\n:NOT{number} - [0:0]\n");
        }
        for number in 0..1000 {
            let port = 10_000 + number;
            rules += &format!(
                "-A PREROUTING -p tcp -m tcp --dport {port} -j TCP{number}\n\
                 -A PREROUTING -p udp -m udp --dport {port} -j UDP{number}\n\
                 -A PREROUTING ! -p udp -g NOT{number}\n\
                 -A TCP{number} -j C\n"
            );
        }
        rules += "-A PREROUTING -m addrtype --dst-type LOCAL -j A\n-A A -p udp -j B\n-A B -j A\n\
                  -A B -p udp -m udp ! --dport 53 -g C\n-A C -j A\n";
        let found = "-A C -p udp -m udp --dport 8472 -j DNAT --to-destination 10.244.1.5:53\n";
        let way = ["PREROUTING", "A", "B", "C"].map(str::to_owned).to_vec();
        assert_eq!(read(&format!("{rules}{found}")), (way.clone(), Some(2)));
        assert_eq!(read(&rules), (way, None));
    }

    #[test]
    fn a_rule_that_leads_to_the_port_is_found_behind_another_port() {
        let rules = "*nat\n:PREROUTING ACCEPT [0:0]\n:DNS - [0:0]\n-A PREROUTING -p udp -m udp --dport 53 -j DNS\n\
                     -A DNS -p udp -m udp -j DNAT --to-destination 10.244.1.5:8472\nCOMMIT\n";
        let tables = saved(System::IptablesLegacy, Family::V4, rules).unwrap().tables;
        assert_eq!(translation_of(&tables, 8472).unwrap().chain.as_ref(), "DNS");
    }
}
