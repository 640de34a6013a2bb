//! The rules of ip-masq-agent in nftables: a table of their own, and one set for all networks, so that a packet costs the
//! same whether there are three of them or thousands.
//!
//! The chain and the set have the name of `--masq-chain`: two agents of a host share the table and nothing in it.

use flannel_plan::family::Family;
use flannel_plan::masq_agent::iptables::unlike;
use flannel_plan::masq_agent::spec::{AgentRules, AgentSpec, KEPT, MASQUERADED, MasqueradeRule};
use flannel_plan::rules::chain::{BaseChain, Chain, ChainType, Hook};
use flannel_plan::rules::edit::Edit;
use flannel_plan::rules::{Action, Is, Match, Rule, RuleSet, Side};

use super::left_over;
use crate::firewall::nft::{ListedTable, Nft, NftError, Table, Transaction};

/// The name of the table.
pub(super) const NAME: &str = "ip-masq-agent";
const COMMENT: &str = "rules of ip-masq-agent";
/// Behind the chains of everybody else who translates sources: the original's rule is the last of POSTROUTING.
const PRIORITY: i32 = 110;

/// The table as it is.
pub(super) struct OwnTable {
    table: Table,
    chain: Box<str>,
    found: Option<ListedTable>,
}

impl OwnTable {
    pub(super) fn observe(nft: &mut Nft, spec: &AgentSpec, family: Family) -> Result<Self, NftError> {
        let table = Table::of(family, NAME);
        let found = match nft.table(table, &[&spec.chain]) {
            Err(why) if why.says_there_is_none() => None, // a kernel without this family
            found => found?,
        };
        Ok(Self { table, chain: spec.chain.clone(), found })
    }

    /// What is not as wanted, in words.
    pub(super) fn differences(&self, want: Option<&AgentRules>) -> Vec<String> {
        let Self { chain, found, .. } = self;
        let Some(want) = want else {
            return if self.has_something() { vec![left_over(chain)] } else { vec![] };
        };
        let Some(found) = found else { return vec![format!("there is no table {}", self.table)] };
        let mut told = Vec::new();
        if found.dormant {
            told.push(format!("table {} is dormant", self.table));
        }
        match self.base() {
            None => told.push(format!("there is no chain {chain}")),
            Some(Some(base)) if base == wanted_base() => {}
            Some(_) => told.push(format!("chain {chain} has another hook, priority or policy")),
        }
        let (have, wanted) = (self.rules(), rules(chain, want));
        if self.base().is_some() && have != wanted {
            told.push(format!("chain {chain} has {}", unlike(have.len(), wanted.len())));
        }
        if !self.has_set(want) {
            told.push(format!("set {chain} does not hold what the configuration says"));
        }
        told
    }

    /// The steps that make it as wanted, all at once.
    pub(super) fn transaction(&self, want: Option<&AgentRules>) -> Transaction {
        let mut steps = Transaction::default();
        match want {
            Some(want) => self.make(want, &mut steps),
            None => self.remove(&mut steps),
        }
        steps
    }

    fn make(&self, want: &AgentRules, steps: &mut Transaction) {
        let (table, chain) = (self.table, &self.chain);
        if self.differences(Some(want)).is_empty() {
            return;
        }
        steps.push(table, Edit::AddTable(Some(COMMENT.into())));
        if self.found.as_ref().is_some_and(|found| found.dormant) {
            steps.push(table, Edit::WakeTable);
        }
        let base = self.base();
        if base.is_some() {
            steps.push(table, Edit::FlushChain(chain.clone()));
        }
        if base.is_some_and(|base| base != Some(wanted_base())) {
            steps.push(table, Edit::DeleteChain(chain.clone()));
        }
        let own = Chain::base(chain.clone(), ChainType::Nat, Hook::Postrouting, PRIORITY);
        steps.push(table, Edit::AddChain(own));
        // A set of our name and of another kind cannot be altered; no rule of ours uses it any more.
        if self.has_other_set() {
            steps.push(table, Edit::DeleteSet(chain.clone()));
        }
        if !self.has_set(want) {
            steps.push(table, Edit::PutSet(RuleSet { name: chain.clone(), networks: want.set() }));
        }
        let append = |rule| Edit::AppendRule(chain.clone(), rule);
        steps.extend(table, rules(chain, want).into_iter().map(append));
    }

    /// The table goes if nobody else has anything in it.
    fn remove(&self, steps: &mut Transaction) {
        let (table, chain) = (self.table, &self.chain);
        let Some(found) = self.found.as_ref().filter(|_| self.has_something()) else { return };
        if !self.has_others(found) {
            steps.push(table, Edit::DeleteTable);
            return;
        }
        if self.base().is_some() {
            steps.push(table, Edit::FlushChain(chain.clone()));
            steps.push(table, Edit::DeleteChain(chain.clone()));
        }
        if self.has_other_set() || found.sets.iter().any(|set| *set.name == **chain) {
            steps.push(table, Edit::DeleteSet(chain.clone()));
        }
    }

    /// Whether the table has anything that is not this agent's.
    fn has_others(&self, found: &ListedTable) -> bool {
        let of_others = |name: &String| **name != *self.chain;
        found.others > 0
            || found.chains.iter().any(|chain| of_others(&chain.name))
            || found.sets.iter().any(|set| of_others(&set.name))
            || found.other_sets.iter().any(of_others)
    }

    /// Whether anything of this agent is there, or an empty table of nobody.
    fn has_something(&self) -> bool {
        self.found.as_ref().is_some_and(|found| {
            let has_set = found.sets.iter().any(|set| set.name == *self.chain);
            self.base().is_some() || has_set || self.has_other_set() || !self.has_others(found)
        })
    }

    /// Whether a set has our name that is not one of networks.
    fn has_other_set(&self) -> bool {
        self.found.as_ref().is_some_and(|found| found.other_sets.iter().any(|name| **name == *self.chain))
    }

    /// Where packets come to the chain; none if there is no chain.
    fn base(&self) -> Option<Option<BaseChain>> {
        let chains = &self.found.as_ref()?.chains;
        chains.iter().find(|chain| chain.name == *self.chain).map(|chain| chain.base)
    }

    fn rules(&self) -> Vec<Rule> {
        let listed = self.found.iter().flat_map(|found| &found.rules);
        listed.filter(|listed| listed.chain == *self.chain).map(|listed| listed.rule.clone()).collect()
    }

    fn has_set(&self, want: &AgentRules) -> bool {
        let mut sets = self.found.iter().flat_map(|found| &found.sets);
        sets.any(|set| *set.name == *self.chain && set.networks == want.set())
    }
}

fn wanted_base() -> BaseChain {
    BaseChain { kind: ChainType::Nat, hook: Hook::Postrouting, priority: PRIORITY, accepts: true }
}

/// The rules of the chain. What goes to this host never comes to the chain of the original, which asks before it.
fn rules(chain: &str, want: &AgentRules) -> Vec<Rule> {
    let in_set = Match::Set(Side::Destination, Is::Equal, chain.into());
    let mut rules = vec![
        Rule::new([Match::DestinationLocal(Is::Equal)], Action::Return),
        Rule::new([in_set], Action::Return).comment(KEPT),
    ];
    rules.extend(want.masquerade.iter().map(masquerade));
    rules
}

fn masquerade(rule: &MasqueradeRule) -> Rule {
    let mut matches = Vec::new();
    matches.extend(rule.protocol.map(|number| Match::Protocol(Is::Equal, number)));
    matches.extend(rule.chance.map(|chance| Match::Chance { part: chance.part, of: chance.of }));
    Rule::new(matches, Action::Masquerade(rule.source_ports, rule.to_ports)).comment(MASQUERADED)
}
