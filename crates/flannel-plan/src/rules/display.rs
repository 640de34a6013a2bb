//! How tables, rules and faults read: in logs, in errors, in golden files.

use std::fmt;

use super::found::Unreadable;
use super::{Fault, Rule, RuleTable, System, TableId, iptables};
use crate::diff::Change;
use crate::family::Family;
use crate::state::Item;

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nftables => "nftables",
            Self::IptablesNft => "iptables (nf_tables)",
            Self::IptablesLegacy => "iptables (legacy)",
        })
    }
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.system, self.family) {
            (System::Nftables, _) => write!(f, "nftables {}", self.in_nft()),
            (System::IptablesNft, Family::V4) => write!(f, "iptables {}", self.name),
            (System::IptablesNft, Family::V6) => write!(f, "ip6tables {}", self.name),
            (System::IptablesLegacy, Family::V4) => write!(f, "iptables-legacy {}", self.name),
            (System::IptablesLegacy, Family::V6) => write!(f, "ip6tables-legacy {}", self.name),
        }
    }
}

/// The words of iptables, which most people read.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&iptables::text(self))
    }
}

impl fmt::Display for RuleTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rules {}", self.id)?;
        for chain in &self.chains {
            write!(f, " {} {}", chain.role.chain(self.id.system), chain.rules.len())?;
        }
        for set in &self.sets {
            write!(f, " @{} {}", set.name, set.networks.len())?;
        }
        let faults: Vec<_> = self.faults.iter().map(|fault| fault.text(self.id.system)).collect();
        if faults.is_empty() { Ok(()) } else { write!(f, " ({})", faults.join(", ")) }
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { system, family, table, why } = self;
        write!(f, "rules of {family} in {system}")?;
        if let Some(table) = table {
            write!(f, ", table {table},")?;
        }
        write!(f, " cannot be looked at: {why}")
    }
}

impl Fault {
    fn text(&self, system: System) -> String {
        match self {
            Self::NoJump(role) => {
                format!("nothing in {} leads to {}", role.base_chain(), role.chain(system))
            }
            Self::ManyJumps(role, count) => {
                format!("{count} rules of {} lead to {}", role.base_chain(), role.chain(system))
            }
            Self::ForeignFirst(role, rule) => {
                format!("a rule of somebody else is first in {}: {rule}", role.chain(system))
            }
            Self::Scattered(role) => {
                format!("rules of somebody else are among ours in {}", role.chain(system))
            }
            Self::OldRules(role, count) => {
                format!("{count} rules of an old flannel are in {}", role.base_chain())
            }
            Self::WrongHook(role) => format!("{} has another hook or priority", role.chain(system)),
            Self::WrongPolicy(role) => format!("{} drops packets at its end", role.chain(system)),
            Self::OtherSet(name) => format!("a set of another kind is called {name}"),
            Self::Dormant => "the table is dormant".to_owned(),
        }
    }
}

/// What is not as it should be in a table: of one that changes, or is not there, or should not be.
pub fn differences(change: &Change) -> Vec<String> {
    match change {
        Change::Create(Item::Rules(to)) if to.id.system == System::Nftables => {
            vec![format!("there is no table {}", to.id.in_nft())]
        }
        Change::Create(Item::Rules(to)) => between(&RuleTable { chains: vec![], ..(**to).clone() }, to),
        Change::Replace { from: Item::Rules(from), to: Item::Rules(to) } => between(from, to),
        Change::Remove(Item::Rules(from)) => {
            let chains = from.chains.iter().map(|chain| chain.role.chain(from.id.system));
            let chains: Vec<_> = chains.collect();
            let names = if chains.is_empty() { from.id.name.to_string() } else { chains.join(", ") };
            vec![format!("rules of {names} are left over")]
        }
        _ => vec![],
    }
}

fn between(from: &RuleTable, to: &RuleTable) -> Vec<String> {
    let system = to.id.system;
    let mut told = Vec::new();
    for chain in &to.chains {
        let name = chain.role.chain(system);
        match from.chains.iter().find(|have| have.role == chain.role) {
            None => {
                told.push(format!("there is no chain {name}"));
                told.extend(system.is_iptables().then(|| Fault::NoJump(chain.role).text(system)));
            }
            Some(have) if have.rules != chain.rules => {
                let (have, want) = (have.rules.len(), chain.rules.len());
                let whose = if chain.role.owns_its_chain() { "the agent's" } else { "flannel's" };
                told.push(match have == want {
                    true => format!("chain {name} has {have} rules that are not {whose}"),
                    false => format!("chain {name} has {have} rules, not {want}"),
                });
            }
            Some(_) => {}
        }
    }
    for set in to.sets.iter().filter(|set| !from.sets.contains(set)) {
        told.push(format!("set {} does not hold what the configuration says", set.name));
    }
    told.extend(from.faults.iter().map(|fault| fault.text(system)));
    told
}
