//! What the kernel was found to hold: whole chains with everybody's rules, as plain data.

use super::chain::BaseChain;
use super::role::Role;
use super::{Rule, RuleSet, System, TableId};
use crate::family::Family;
use crate::finding::{Code, Finding};
use crate::state::{Item, State};

/// What was found, and what could not be looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleObservation {
    /// The tables that hold something of interest.
    pub tables: Vec<FoundTable>,
    /// Where nothing could be seen: there is no telling what is there.
    pub unreadable: Vec<Unreadable>,
}

/// A place where nothing could be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    pub system: System,
    pub family: Family,
    /// The table; none if it is all of them.
    pub table: Option<Box<str>>,
    /// Why, with a way out where one is known.
    pub why: String,
}

impl Unreadable {
    /// Whether it is about this table.
    pub fn hides(&self, id: &TableId) -> bool {
        (self.system, self.family) == (id.system, id.family)
            && self.table.as_ref().is_none_or(|table| *table == id.name)
    }

    /// The same to be told.
    pub fn finding(&self) -> Finding {
        let object = format!("rules of {} in {}", self.family, self.system);
        Finding::new(Code::RulesUnreadable, object, self).with_parts(Some(self.why.clone()), None)
    }

    /// Whether it is about any table of a state.
    pub fn hides_any(&self, state: &State) -> bool {
        state.iter().any(|item| matches!(item, Item::Rules(table) if self.hides(&table.id)))
    }
}

/// A table that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundTable {
    pub id: TableId,
    pub dormant: bool,
    pub chains: Vec<FoundChain>,
    pub sets: Vec<RuleSet>,
    /// The names of its other sets and maps.
    pub other_sets: Vec<Box<str>>,
    /// How many other objects it has, which are not ours: it cannot go while there are any.
    pub others: usize,
}

/// A chain that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundChain {
    pub name: Box<str>,
    /// Where packets come from; none if only others jump to it.
    pub base: Option<BaseChain>,
    pub rules: Vec<FoundRule>,
}

/// A rule that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundRule {
    pub rule: Rule,
    pub name: RuleName,
}

/// How a rule is named when it is deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleName {
    /// By the words that `iptables-save` printed behind its chain.
    Text(Box<str>),
    /// By the number that nftables gave it.
    Handle(u64),
}

impl FoundTable {
    /// A table with nothing in it.
    pub fn empty(id: TableId) -> Self {
        Self { id, dormant: false, chains: vec![], sets: vec![], other_sets: vec![], others: 0 }
    }

    /// Whether nothing is in it.
    pub fn is_bare(&self) -> bool {
        self.chains.is_empty() && self.sets.is_empty() && self.other_sets.is_empty() && self.others == 0
    }

    /// A chain by its name.
    pub fn chain(&self, name: &str) -> Option<&FoundChain> {
        self.chains.iter().find(|chain| &*chain.name == name)
    }

    /// Forgets the chains that have nothing to do with ours: kube-proxy may have made thousands.
    pub fn keep_ours(&mut self, roles: &[Role]) {
        let system = self.id.system;
        let ours =
            |name: &str| roles.iter().any(|role| [role.base_chain(), role.chain(system)].contains(&name));
        self.chains.retain(|chain| {
            ours(&chain.name) || chain.rules.iter().any(|found| found.rule.target().is_some_and(ours))
        });
    }

    /// All rules with their chains.
    pub fn rules(&self) -> impl Iterator<Item = (&FoundChain, &FoundRule)> {
        self.chains.iter().flat_map(|chain| chain.rules.iter().map(move |rule| (chain, rule)))
    }
}
