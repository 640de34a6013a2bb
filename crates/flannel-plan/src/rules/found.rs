//! What the kernel was found to hold: whole chains with everybody's rules, as plain data.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::role::Base;
use super::{Rule, TableId};

/// A table that is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundTable {
    /// The table.
    pub id: TableId,
    /// Whether it is there and does nothing.
    pub dormant: bool,
    /// Its chains.
    pub chains: Vec<FoundChain>,
    /// Its sets.
    pub sets: Vec<FoundSet>,
}

/// A chain that is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundChain {
    /// Its name.
    pub name: Box<str>,
    /// Where packets come from; none if only others jump to it.
    pub base: Option<Base>,
    /// Its rules in their order.
    pub rules: Vec<FoundRule>,
}

/// A rule that is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundRule {
    /// What it says.
    pub rule: Rule,
    /// The mark that only we read, which nftables keeps beside it.
    pub tag: Option<Box<str>>,
    /// How it is named when it is deleted.
    pub name: RuleName,
}

/// How a rule is named when it is deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleName {
    /// By the words that `iptables-save` printed behind its chain.
    Text(Box<str>),
    /// By the number that nftables gave it.
    Handle(u64),
}

/// A set that is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundSet {
    /// Its name.
    pub name: Box<str>,
    /// Its networks, sorted.
    pub networks: Vec<IpNet>,
}

impl FoundTable {
    /// A table with nothing in it.
    pub fn empty(id: TableId) -> Self {
        Self { id, dormant: false, chains: vec![], sets: vec![] }
    }

    /// A chain by its name.
    pub fn chain(&self, name: &str) -> Option<&FoundChain> {
        self.chains.iter().find(|chain| &*chain.name == name)
    }

    /// All rules with their chains.
    pub fn rules(&self) -> impl Iterator<Item = (&FoundChain, &FoundRule)> {
        self.chains.iter().flat_map(|chain| chain.rules.iter().map(move |rule| (chain, rule)))
    }
}
