//! What nftables lists, as the plan reads it: rules in their chains, of one family.

use std::collections::HashMap;

use flannel_plan::family::Family;
use flannel_plan::rules::found::{FoundChain, FoundRule, FoundSet, FoundTable, RuleName};
use flannel_plan::rules::{Is, Match, TableId};

use crate::firewall::nft::{Listed, ListedSet, ListedTable};

/// A table that was listed.
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
    let set = |set: ListedSet| FoundSet { name: set.name.into(), networks: set.networks };
    let others = listed.others + listed.other_sets.len();
    let sets = listed.sets.into_iter().map(set).collect();
    FoundTable { id, dormant: listed.dormant, chains, sets, others }
}

/// A rule that was listed; none if it is not about packets of the family. In tables of several, rules may say which.
pub(super) fn found_rule_about(mut listed: Listed, family: Family) -> Option<FoundRule> {
    let mut about = true;
    listed.rule.matches.retain(|it| match it {
        Match::Family(is, of) => {
            about &= (*of == family) == (*is == Is::Equal);
            false
        }
        _ => true,
    });
    about.then(|| found_rule(listed))
}

/// A rule that was listed.
pub(super) fn found_rule(listed: Listed) -> FoundRule {
    FoundRule { rule: listed.rule, name: RuleName::Handle(listed.handle) }
}
