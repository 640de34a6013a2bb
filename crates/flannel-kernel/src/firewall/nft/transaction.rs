//! Changes to the firewall that are made all at once or not at all.
//!
//! A [`Transaction`] is a list of [`Step`]s in our words; `write` turns it into one batch for the kernel.

use std::fmt;

use ipnet::IpNet;

use super::compile::compile;
use super::statement::Rule;
use super::{BaseChain, Chain, Family, Table, set, userdata};
use crate::abi::{NLM_F_ACK, NLM_F_CREATE};
use crate::firewall::abi::*;
use crate::firewall::netfilter::header;
use crate::netlink::{Outbox, Writer};

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make a table, if there is none, with a comment.
    AddTable(Table, Option<&'static str>),
    /// Let a table act that was dormant.
    WakeTable(Table),
    /// Make a chain, if there is none.
    AddChain(Table, Chain),
    /// Take all rules out of a chain.
    FlushChain(Table, String),
    /// Add a rule at the end of a chain.
    AddRule(Table, String, Rule),
    /// Add a rule at the beginning of a chain.
    InsertRule(Table, String, Rule),
    /// Take one rule out of a chain by its handle.
    DeleteRule(Table, String, u64),
    /// Make a set of networks, if there is none.
    AddSet(Table, String),
    /// Put networks into a set; none of them may overlap another one in it.
    AddElements(Table, String, Vec<IpNet>),
    /// Take all networks out of a set.
    FlushSet(Table, String),
    /// Remove a set that no rule uses.
    DeleteSet(Table, String),
    /// Remove a chain that is empty and that nothing jumps to.
    DeleteChain(Table, String),
    /// Remove a table with all that is in it.
    DeleteTable(Table),
}

impl Step {
    /// What is done, in a word.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::AddTable(..) | Self::AddChain(..) | Self::AddRule(..) | Self::InsertRule(..) => "add",
            Self::AddSet(..) | Self::AddElements(..) => "add",
            Self::WakeTable(_) => "wake",
            Self::FlushChain(..) | Self::FlushSet(..) => "flush",
            Self::DeleteRule(..) | Self::DeleteChain(..) | Self::DeleteTable(..) | Self::DeleteSet(..) => {
                "delete"
            }
        }
    }

    /// Whether something is gone afterwards.
    pub(super) fn removes(&self) -> bool {
        !["add", "wake"].contains(&self.verb())
    }

    fn table(&self) -> Table {
        match self {
            Self::AddTable(table, _)
            | Self::WakeTable(table)
            | Self::AddSet(table, _)
            | Self::AddElements(table, ..)
            | Self::FlushSet(table, _)
            | Self::DeleteSet(table, _)
            | Self::AddChain(table, _)
            | Self::FlushChain(table, _)
            | Self::AddRule(table, ..)
            | Self::InsertRule(table, ..)
            | Self::DeleteRule(table, ..)
            | Self::DeleteChain(table, _)
            | Self::DeleteTable(table) => *table,
        }
    }

    fn kind(&self) -> (u16, u16) {
        match self {
            Self::AddTable(..) => (NFT_MSG_NEWTABLE, NLM_F_CREATE),
            Self::WakeTable(_) => (NFT_MSG_NEWTABLE, 0),
            Self::AddSet(..) => (NFT_MSG_NEWSET, NLM_F_CREATE),
            Self::AddElements(..) => (NFT_MSG_NEWSETELEM, NLM_F_CREATE),
            Self::FlushSet(..) => (NFT_MSG_DELSETELEM, 0),
            Self::DeleteSet(..) => (NFT_MSG_DELSET, 0),
            Self::AddChain(..) => (NFT_MSG_NEWCHAIN, NLM_F_CREATE),
            Self::AddRule(..) => (NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND),
            Self::InsertRule(..) => (NFT_MSG_NEWRULE, NLM_F_CREATE),
            Self::FlushChain(..) | Self::DeleteRule(..) => (NFT_MSG_DELRULE, 0),
            Self::DeleteChain(..) => (NFT_MSG_DELCHAIN, 0),
            Self::DeleteTable(..) => (NFT_MSG_DELTABLE, 0),
        }
    }

    fn write(&self, outbox: &mut Outbox) {
        let (kind, flags) = self.kind();
        let table = self.table();
        outbox.add(NFNL_SUBSYS_NFTABLES << 8 | kind, flags, |message| {
            message.header(&header(table.family.number(), 0));
            message.text(NFTA_TABLE_NAME, table.name); // the first attribute of chains and rules, too
            self.write_inside(table.family, message);
        });
    }

    fn write_inside(&self, family: Family, message: &mut Writer) {
        match self {
            Self::AddTable(_, Some(comment)) => {
                message.attribute(NFTA_TABLE_USERDATA, &userdata::write(Some(comment), None));
            }
            Self::AddTable(_, None) | Self::DeleteTable(_) => {}
            Self::WakeTable(_) => message.attribute(NFTA_TABLE_FLAGS, &0_u32.to_be_bytes()),
            Self::AddSet(_, name) => set::write(message, family, name),
            Self::AddElements(_, name, networks) => {
                message.text(NFTA_SET_ELEM_LIST_SET, name);
                set::write_elements(message, networks);
            }
            Self::FlushSet(_, name) => message.text(NFTA_SET_ELEM_LIST_SET, name),
            Self::DeleteSet(_, name) => message.text(NFTA_SET_NAME, name),
            Self::AddChain(_, chain) => write_chain(message, chain),
            Self::DeleteChain(_, name) => message.text(NFTA_CHAIN_NAME, name),
            Self::FlushChain(_, chain) => message.text(NFTA_RULE_CHAIN, chain),
            Self::AddRule(_, chain, rule) | Self::InsertRule(_, chain, rule) => {
                message.text(NFTA_RULE_CHAIN, chain);
                write_rule(message, family, rule);
            }
            Self::DeleteRule(_, chain, handle) => {
                message.text(NFTA_RULE_CHAIN, chain);
                message.attribute(NFTA_RULE_HANDLE, &handle.to_be_bytes());
            }
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.table();
        match self {
            Self::AddTable(..) | Self::DeleteTable(_) | Self::WakeTable(_) => write!(f, "table {table}"),
            Self::AddSet(_, name)
            | Self::AddElements(_, name, _)
            | Self::FlushSet(_, name)
            | Self::DeleteSet(_, name) => write!(f, "set {table} {name}"),
            Self::AddChain(_, Chain { name, .. })
            | Self::FlushChain(_, name)
            | Self::DeleteChain(_, name) => {
                write!(f, "chain {table} {name}")
            }
            Self::AddRule(_, chain, rule) | Self::InsertRule(_, chain, rule) => {
                write!(f, "a rule in chain {table} {chain}")?;
                rule.comment.as_ref().map_or(Ok(()), |comment| write!(f, " for {comment:?}"))
            }
            Self::DeleteRule(_, chain, handle) => write!(f, "rule {handle} in chain {table} {chain}"),
        }
    }
}

/// Changes that are made together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    steps: Vec<Step>,
}

impl Transaction {
    /// Adds a change.
    pub fn push(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// The changes in their order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The batch for the kernel; refused if the firewall is not in this generation any more.
    pub(super) fn write(&self, generation: Option<u32>) -> Outbox {
        let mut outbox = self.write_trial(generation);
        outbox.add(NFNL_MSG_BATCH_END, 0, |message| message.header(&header(0, NFNL_SUBSYS_NFTABLES)));
        outbox
    }

    /// The same without its end: the kernel tries everything, and then takes it all back.
    pub(super) fn write_trial(&self, generation: Option<u32>) -> Outbox {
        let mut outbox = Outbox::default();
        let frame = header(0, NFNL_SUBSYS_NFTABLES);
        outbox.add(NFNL_MSG_BATCH_BEGIN, 0, |message| {
            message.header(&frame);
            if let Some(generation) = generation {
                message.attribute(NFNL_BATCH_GENID, &generation.to_be_bytes());
            }
        });
        for step in &self.steps {
            step.write(&mut outbox);
        }
        // Older kernels do not acknowledge the end of a batch; the last change in it they do, after the commit.
        outbox.flag_last(NLM_F_ACK);
        outbox
    }
}

impl Extend<Step> for Transaction {
    fn extend<T: IntoIterator<Item = Step>>(&mut self, steps: T) {
        self.steps.extend(steps);
    }
}

fn write_chain(message: &mut Writer, chain: &Chain) {
    message.text(NFTA_CHAIN_NAME, &chain.name);
    if let Some(BaseChain { kind, hook, priority, policy }) = chain.base {
        message.nest(NFTA_CHAIN_HOOK, |inner| {
            inner.attribute(NFTA_HOOK_HOOKNUM, &hook.number().to_be_bytes());
            inner.attribute(NFTA_HOOK_PRIORITY, &priority.to_be_bytes());
        });
        message.attribute(NFTA_CHAIN_POLICY, &policy.number().to_be_bytes());
        message.text(NFTA_CHAIN_TYPE, kind.name());
    }
    if let Some(comment) = &chain.comment {
        message.attribute(NFTA_CHAIN_USERDATA, &userdata::write(Some(comment), None));
    }
}

fn write_rule(message: &mut Writer, family: Family, rule: &Rule) {
    message.nest(NFTA_RULE_EXPRESSIONS, |list| {
        for instruction in compile(family, &rule.statements) {
            instruction.write(list);
        }
    });
    let userdata = userdata::write(rule.comment.as_deref(), rule.tag.as_deref());
    if !userdata.is_empty() {
        message.attribute(NFTA_RULE_USERDATA, &userdata);
    }
}
