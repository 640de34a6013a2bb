//! Whether the rules of a host translate packets to a port: then they have to be tracked.

use std::collections::HashSet;

use super::explain::Step;
use super::found::FoundTable;
use super::role::Kind;
use super::{Action, Is, Match, Rule};

const UDP: u8 = 17;

/// A rule that translates packets to a UDP port, or to somewhere with that port; none as far as we can read.
pub fn translation_of(tables: &[FoundTable], port: u16) -> Option<Step> {
    tables.iter().find_map(|table| {
        let chains = translating(table);
        let mut rules = table.chains.iter().filter(|chain| chains.contains(&*chain.name)).flat_map(|chain| {
            chain.rules.iter().enumerate().map(move |(at, found)| (chain, at + 1, &found.rule))
        });
        let (chain, place, rule) = rules.find(|(.., rule)| is_about(rule, port))?;
        Some(Step { table: table.id.clone(), chain: chain.name.clone(), place, rule: rule.clone() })
    })
}

/// The chains that packets come to where addresses are translated.
fn translating(table: &FoundTable) -> HashSet<&str> {
    let is_nat = |base: super::role::Base| base.kind == Kind::Nat;
    let bases = table.chains.iter().filter(|chain| chain.base.is_some_and(is_nat));
    let mut next: Vec<&str> = bases.map(|chain| &*chain.name).collect();
    let (chains, mut reached) = (table.chains_by_name(), HashSet::new());
    while let Some(name) = next.pop() {
        if reached.insert(name) {
            let rules = chains.get(name).into_iter().flat_map(|chain| &chain.rules);
            next.extend(rules.filter_map(|found| found.rule.target()));
        }
    }
    reached
}

fn is_about(rule: &Rule, port: u16) -> bool {
    let of_another = |it: &Match| matches!(it, Match::Protocol(Is::Equal, number) if *number != UDP);
    let goes_there = |it: &Match| match it {
        Match::DestinationPort(Is::Equal, number) => *number == port,
        Match::Other(text) => lists(text, port),
        _ => false,
    };
    let leads_there = match &rule.action {
        Action::Other(text) | Action::OtherSource(text) => {
            text.ends_with(&format!(":{port}")) || lists(text, port)
        }
        _ => false,
    };
    !rule.matches().iter().any(of_another) && (leads_there || rule.matches().iter().any(goes_there))
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
}
