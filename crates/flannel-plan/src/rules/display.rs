//! How tables, rules and faults read: in logs, in errors, in golden files.

use std::fmt;

use super::found::Unreadable;
use super::{Fault, Rule, RuleChange, RuleTable, System, TableId, iptables};
use crate::family::Family;

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
        for (at, fault) in self.faults.iter().enumerate() {
            write!(f, "{}{}", if at == 0 { " (" } else { ", " }, FaultIn(fault, self.id.system))?;
        }
        if self.faults.is_empty() { Ok(()) } else { f.write_str(")") }
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

struct FaultIn<'a>(&'a Fault, System);

impl fmt::Display for FaultIn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(fault, system) = self;
        match fault {
            Fault::NoJump(role) => {
                write!(f, "nothing in {} leads to {}", role.base_chain(), role.chain(*system))
            }
            Fault::ManyJumps(role, count) => {
                write!(f, "{count} rules of {} lead to {}", role.base_chain(), role.chain(*system))
            }
            Fault::ForeignFirst(role, rule) => {
                write!(f, "a rule of somebody else is first in {}: {rule}", role.chain(*system))
            }
            Fault::Scattered(role) => {
                write!(f, "rules of somebody else are among ours in {}", role.chain(*system))
            }
            Fault::OldRules(role, count) => {
                write!(f, "{count} rules of an old flannel are in {}", role.base_chain())
            }
            Fault::WrongHook(role) => write!(f, "{} has another hook or priority", role.chain(*system)),
            Fault::WrongPolicy(role) => write!(f, "{} drops packets at its end", role.chain(*system)),
            Fault::Dormant => f.write_str("the table is dormant"),
        }
    }
}

impl fmt::Display for RuleChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.from, &self.to) {
            (None, Some(to)) => write!(f, "+ {to}"),
            (Some(from), Some(to)) => write!(f, "~ {from} -> {to}"),
            (Some(from), None) => write!(f, "- {from}"),
            (None, None) => Ok(()),
        }
    }
}
