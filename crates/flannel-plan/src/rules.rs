//! Masquerade and forwarding rules, written once for every system that can hold them.
//!
//! [`spec::desired`] says which rules there should be, `flannel-kernel` says which there are ([`found`]),
//! [`observed::observed`] tells whose they are, and [`edit::edits`] says what has to change. [`iptables`] is the
//! spelling of one of the two languages; the other is spoken by `flannel-kernel`.

pub mod chain;
mod display;
pub mod edit;
pub mod explain;
pub mod found;
pub mod iptables;
pub mod observed;
pub mod ports;
pub mod role;
mod rule;
pub mod spec;
pub mod tools;
pub mod translated;

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

use crate::diff::{Change, diff};
use crate::family::Family;
use crate::state::{Item, State};
pub use chain::ChainName;
pub use display::differences;
pub use rule::{Action, Expression, Is, Match, Rule, SCTP, SetMark, Side, SourcePorts, TCP, UDP};

use found::RuleObservation;
use observed::RuleScope;
use role::Role;

/// Where the kernel keeps rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum System {
    /// In nftables, in tables of our own.
    Nftables,
    /// In the tables that iptables has in nftables.
    IptablesNft,
    /// In the tables of iptables as it was before nftables.
    IptablesLegacy,
}

/// A table: a change of it is one transaction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct TableId {
    pub system: System,
    pub family: Family,
    pub name: Box<str>,
}

impl TableId {
    /// The words by which `nft` names it.
    pub fn in_nft(&self) -> String {
        match self.family {
            Family::V4 => format!("ip {}", self.name),
            Family::V6 => format!("ip6 {}", self.name),
        }
    }

    /// Whether it only says what is not tracked.
    pub fn is_raw(&self) -> bool {
        self.system.is_iptables() && &*self.name == "raw"
    }
}

/// The rules of ours in one chain, in their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleChain {
    pub role: Role,
    pub rules: Vec<Rule>,
}

/// A set of networks that rules look up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleSet {
    pub name: Box<str>,
    /// Its networks, sorted, none inside another.
    pub networks: Vec<IpNet>,
}

/// What is ours in one table: desired and observed are the same type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleTable {
    pub id: TableId,
    /// Our rules, in the order of [`Role`].
    pub chains: Vec<RuleChain>,
    pub sets: Vec<RuleSet>,
    /// What is wrong beyond the rules themselves; nothing is, in a desired table.
    pub faults: Vec<Fault>,
}

/// What is wrong with a table beyond the rules themselves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    NoJump(Role),
    ManyJumps(Role, usize),
    ForeignFirst(Role, Rule),
    /// Our rules do not stand together.
    Scattered(Role),
    /// Rules of an old flannel stand beside the jump to our chain.
    OldRules(Role, usize),
    /// Packets do not come to our chain, or at another moment.
    WrongHook(Role),
    /// The end of our chain drops packets.
    WrongPolicy(Role),
    Dormant,
    /// A set has the name of ours, and is of another kind.
    OtherSet(Box<str>),
}

/// The addresses that many listen to.
pub fn multicast(family: Family) -> IpNet {
    match family {
        Family::V4 => IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(224, 0, 0, 0), 4)),
        Family::V6 => IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8)),
    }
}

/// The changes that the look at the rules of an instance asks for; what could not be looked at stays as it is.
pub fn changes(scope: &RuleScope, desired: &[RuleTable], observation: &RuleObservation) -> Vec<Change> {
    let state = |tables: Vec<RuleTable>| -> State {
        tables.into_iter().map(|table| Item::Rules(Box::new(table))).collect()
    };
    let is_hidden = |table: &&RuleTable| observation.unreadable.iter().any(|it| it.hides(&table.id));
    let seen = desired.iter().filter(|table| !is_hidden(table));
    diff(&state(seen.cloned().collect()), &state(observed::observed(scope, &observation.tables)))
}
