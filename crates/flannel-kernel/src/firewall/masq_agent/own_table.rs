//! The rules of ip-masq-agent in nftables: a table of their own, and one set for all networks, so that a packet costs the
//! same whether there are three of them or thousands.
//!
//! The chain and the set have the name of `--masq-chain`: two agents of a host share the table and nothing in it.

use flannel_plan::family::Family;
use flannel_plan::masq_agent::iptables::unlike;
use flannel_plan::masq_agent::spec::{AgentRules, AgentSpec, KEPT, MASQUERADED, MasqueradeRule};
use flannel_plan::rules;
use flannel_plan::rules::role::{Base, Hook as PlanHook, Kind as PlanKind};

use super::left_over;
use crate::firewall::nft::{
    Chain, Hook, Is, Kind, ListedTable, Nft, NftError, Protocol, Rule, Side, SourcePorts, Statement, Step,
    Table, Transaction, Verdict, fill_set,
};

/// The name of the table.
pub(super) const NAME: &str = "ip-masq-agent";
const COMMENT: &str = "rules of ip-masq-agent";
/// Behind the chains of everybody else who translates sources: the original's rule is the last of POSTROUTING.
const PRIORITY: i32 = 110;

/// The table as it is.
pub(super) struct OwnTable {
    table: Table,
    chain: String,
    found: Option<ListedTable>,
}

impl OwnTable {
    pub(super) fn observe(nft: &mut Nft, spec: &AgentSpec, family: Family) -> Result<Self, NftError> {
        let family = match family {
            Family::V4 => crate::firewall::nft::Family::Ipv4,
            Family::V6 => crate::firewall::nft::Family::Ipv6,
        };
        let table = Table { family, name: NAME };
        let found = match nft.table(table, &[&spec.chain]) {
            Err(why) if why.says_there_is_none() => None, // a kernel without this family
            found => found?,
        };
        Ok(Self { table, chain: spec.chain.to_string(), found })
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
        steps.push(Step::AddTable(table, Some(COMMENT)));
        if self.found.as_ref().is_some_and(|found| found.dormant) {
            steps.push(Step::WakeTable(table));
        }
        let base = self.base();
        if base.is_some() {
            steps.push(Step::FlushChain(table, chain.clone()));
        }
        if base.is_some_and(|base| base != Some(wanted_base())) {
            steps.push(Step::DeleteChain(table, chain.clone()));
        }
        steps.push(Step::AddChain(table, Chain::base(chain, Kind::Nat, Hook::Postrouting, PRIORITY)));
        // A set of our name and of another kind cannot be altered; no rule of ours uses it any more.
        if self.has_other_set() {
            steps.push(Step::DeleteSet(table, chain.clone()));
        }
        if !self.has_set(want) {
            steps.extend(fill_set(table, chain, &want.set()));
        }
        steps.extend(rules(chain, want).into_iter().map(|rule| Step::AddRule(table, chain.clone(), rule)));
    }

    /// The table goes if nobody else has anything in it.
    fn remove(&self, steps: &mut Transaction) {
        let (table, chain) = (self.table, &self.chain);
        let Some(found) = self.found.as_ref().filter(|_| self.has_something()) else { return };
        if !self.has_others(found) {
            steps.push(Step::DeleteTable(table));
            return;
        }
        if self.base().is_some() {
            steps.push(Step::FlushChain(table, chain.clone()));
            steps.push(Step::DeleteChain(table, chain.clone()));
        }
        if self.has_other_set() || found.sets.iter().any(|set| set.name == *chain) {
            steps.push(Step::DeleteSet(table, chain.clone()));
        }
    }

    /// Whether the table has anything that is not this agent's.
    fn has_others(&self, found: &ListedTable) -> bool {
        let of_others = |name: &String| *name != self.chain;
        found.others > 0
            || found.chains.iter().any(|chain| of_others(&chain.name))
            || found.sets.iter().any(|set| of_others(&set.name))
            || found.other_sets.iter().any(of_others)
    }

    /// Whether anything of this agent is there, or an empty table of nobody.
    fn has_something(&self) -> bool {
        self.found.as_ref().is_some_and(|found| {
            let has_set = found.sets.iter().any(|set| set.name == self.chain);
            self.base().is_some() || has_set || self.has_other_set() || !self.has_others(found)
        })
    }

    /// Whether a set has our name that is not one of networks.
    fn has_other_set(&self) -> bool {
        self.found.as_ref().is_some_and(|found| found.other_sets.contains(&self.chain))
    }

    /// Where packets come to the chain; none if there is no chain.
    fn base(&self) -> Option<Option<Base>> {
        let chains = &self.found.as_ref()?.chains;
        chains.iter().find(|chain| chain.name == self.chain).map(|chain| chain.base)
    }

    fn rules(&self) -> Vec<Rule> {
        let listed = self.found.iter().flat_map(|found| &found.rules);
        listed.filter(|listed| listed.chain == self.chain).map(|listed| listed.rule.clone()).collect()
    }

    fn has_set(&self, want: &AgentRules) -> bool {
        let mut sets = self.found.iter().flat_map(|found| &found.sets);
        sets.any(|set| set.name == self.chain && set.networks == want.set())
    }
}

fn wanted_base() -> Base {
    Base { kind: PlanKind::Nat, hook: PlanHook::Postrouting, priority: PRIORITY, accepts: true }
}

/// The rules of the chain. What goes to this host never comes to the chain of the original, which asks before it.
fn rules(chain: &str, want: &AgentRules) -> Vec<Rule> {
    let back = || Statement::Verdict(Verdict::Return);
    let mut rules = vec![
        Rule::new([Statement::to_this_host(), back()]),
        Rule::new([Statement::AddressIn(Side::Destination, Is::Equal, chain.to_owned()), back()])
            .comment(KEPT),
    ];
    rules.extend(want.masquerade.iter().map(masquerade));
    rules
}

fn masquerade(rule: &MasqueradeRule) -> Rule {
    let mut statements = Vec::new();
    statements.extend(rule.protocol.map(|number| Statement::Protocol(Is::Equal, Protocol(number))));
    statements.extend(rule.chance.map(|chance| Statement::Chance(chance.part, chance.of)));
    let ports = match rule.source_ports {
        rules::SourcePorts::Kept => SourcePorts::Kept,
        rules::SourcePorts::Randomised => SourcePorts::Randomised,
    };
    statements.push(match rule.to_ports {
        Some(range) => Statement::MasqueradeTo(ports, range.first, range.last),
        None => Statement::Masquerade(ports),
    });
    Rule::new(statements).comment(MASQUERADED)
}
