//! Changes to the firewall that are made all at once or not at all.
//!
//! A [`Transaction`] is a list of edits of tables; `write` spells it as one batch for the kernel.

use flannel_plan::rules::chain::{BaseChain, Chain};
use flannel_plan::rules::edit::Edit;
use flannel_plan::rules::found::RuleName;
use flannel_plan::rules::{Rule, RuleSet};

use super::compile::compile;
use super::object::{hook_number, type_name};
use super::{Table, TableFamily, set, userdata};
use crate::abi::{NLM_F_ACK, NLM_F_CREATE};
use crate::firewall::abi::*;
use crate::firewall::netfilter::header;
use crate::netlink::{Outbox, Writer};

/// Changes that are made together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    edits: Vec<(Table, Edit)>,
}

impl Transaction {
    /// Adds a change of a table.
    pub fn push(&mut self, table: Table, edit: Edit) {
        self.edits.push((table, edit));
    }

    /// Adds changes of a table.
    pub fn extend(&mut self, table: Table, edits: impl IntoIterator<Item = Edit>) {
        self.edits.extend(edits.into_iter().map(|edit| (table, edit)));
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// Whether something is gone afterwards.
    pub(super) fn removes(&self) -> bool {
        self.edits.iter().any(|(_, edit)| match edit {
            Edit::AddTable(_) | Edit::AddChain(_) | Edit::AppendRule(..) | Edit::InsertRules(..) => false,
            Edit::WakeTable => false,
            Edit::PutSet(_) | Edit::RenewChain(_) | Edit::FlushChain(_) | Edit::DeleteRule(..) => true,
            Edit::DeleteChain(_) | Edit::DeleteSet(_) | Edit::DeleteTable => true,
        })
    }

    /// What the message at a place of the batch was to do, and to what.
    pub(super) fn at(&self, place: usize) -> Option<(&'static str, String)> {
        let mut outbox = Outbox::default();
        let (table, edit) = self.edits.iter().find(|(table, edit)| {
            write(&mut outbox, *table, edit);
            outbox.len() > place
        })?;
        Some(words(*table, edit))
    }

    /// The batch for the kernel, but for its end; refused if the firewall is not in this generation any more.
    pub(super) fn write(&self, generation: Option<u32>) -> Outbox {
        let mut outbox = Outbox::default();
        outbox.add(NFNL_MSG_BATCH_BEGIN, 0, |message| {
            message.header(&header(0, NFNL_SUBSYS_NFTABLES));
            if let Some(generation) = generation {
                message.attribute(NFNL_BATCH_GENID, &generation.to_be_bytes());
            }
        });
        self.edits.iter().for_each(|(table, edit)| write(&mut outbox, *table, edit));
        // Older kernels do not acknowledge the end of a batch; the last change in it they do, after the commit.
        outbox.flag_last(NLM_F_ACK);
        outbox
    }
}

/// Adds a message to a batch: its kind, its flags, and what is in it.
type Send<'a> = dyn FnMut(u16, u16, &dyn Fn(&mut Writer)) + 'a;

/// Writes an edit of a table: one message, or a few.
fn write(outbox: &mut Outbox, table: Table, edit: &Edit) {
    let mut send = |kind: u16, flags: u16, inside: &dyn Fn(&mut Writer)| {
        outbox.add(NFNL_SUBSYS_NFTABLES << 8 | kind, flags, |message| {
            message.header(&header(table.family.number(), 0));
            message.text(NFTA_TABLE_NAME, table.name); // the first attribute of chains and rules, too
            inside(message);
        });
    };
    match edit {
        Edit::AddTable(comment) => send(NFT_MSG_NEWTABLE, NLM_F_CREATE, &|message| {
            if let Some(comment) = comment {
                message.attribute(NFTA_TABLE_USERDATA, &userdata::write(Some(comment), None));
            }
        }),
        Edit::WakeTable => send(NFT_MSG_NEWTABLE, 0, &|message| {
            message.attribute(NFTA_TABLE_FLAGS, &0_u32.to_be_bytes());
        }),
        Edit::AddChain(chain) => send(NFT_MSG_NEWCHAIN, NLM_F_CREATE, &|it| write_chain(it, chain)),
        Edit::RenewChain(chain) => {
            send(NFT_MSG_NEWCHAIN, NLM_F_CREATE, &|it| write_chain(it, chain));
            send(NFT_MSG_DELRULE, 0, &named(NFTA_RULE_CHAIN, &chain.name));
        }
        Edit::FlushChain(chain) => send(NFT_MSG_DELRULE, 0, &named(NFTA_RULE_CHAIN, chain)),
        Edit::AppendRule(chain, rule) => send(NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, &|message| {
            write_rule(message, table.family, chain, rule);
        }),
        // Each goes to the very front, so the first is put last.
        Edit::InsertRules(chain, rules) => rules.iter().rev().for_each(|rule| {
            send(NFT_MSG_NEWRULE, NLM_F_CREATE, &|it| write_rule(it, table.family, chain, rule));
        }),
        Edit::DeleteRule(chain, RuleName::Handle(handle)) => send(NFT_MSG_DELRULE, 0, &|message| {
            message.text(NFTA_RULE_CHAIN, chain);
            message.attribute(NFTA_RULE_HANDLE, &handle.to_be_bytes());
        }),
        Edit::PutSet(it) => write_set(&mut send, table.family, it),
        Edit::DeleteChain(name) => send(NFT_MSG_DELCHAIN, 0, &named(NFTA_CHAIN_NAME, name)),
        Edit::DeleteSet(name) => send(NFT_MSG_DELSET, 0, &named(NFTA_SET_NAME, name)),
        Edit::DeleteTable => send(NFT_MSG_DELTABLE, 0, &|_| {}),
        // What iptables names by its words is deleted by its programs.
        Edit::DeleteRule(_, RuleName::Text(_)) => {}
    }
}

/// Makes a set, or empties it, and fills it.
fn write_set(send: &mut Send<'_>, family: TableFamily, it: &RuleSet) {
    send(NFT_MSG_NEWSET, NLM_F_CREATE, &|message| set::write(message, family, &it.name));
    send(NFT_MSG_DELSETELEM, 0, &named(NFTA_SET_ELEM_LIST_SET, &it.name));
    for part in it.networks.chunks(set::MOST_NETWORKS) {
        send(NFT_MSG_NEWSETELEM, NLM_F_CREATE, &|message| {
            message.text(NFTA_SET_ELEM_LIST_SET, &it.name);
            set::write_elements(message, part);
        });
    }
}

/// What a message says that only has to name an object.
fn named(attribute: u16, name: &str) -> impl Fn(&mut Writer) {
    move |message| message.text(attribute, name)
}

/// What an edit is to do, and to what.
fn words(table: Table, edit: &Edit) -> (&'static str, String) {
    let chain = |name: &str| format!("chain {table} {name}");
    let rule = |chain: &str, rule: Option<&Rule>| {
        let comment = rule.and_then(|rule| rule.comment.as_ref()).map(|comment| format!(" for {comment:?}"));
        format!("a rule in chain {table} {chain}{}", comment.unwrap_or_default())
    };
    match edit {
        Edit::AddTable(_) => ("add", format!("table {table}")),
        Edit::WakeTable => ("wake", format!("table {table}")),
        Edit::DeleteTable => ("delete", format!("table {table}")),
        Edit::PutSet(set) => ("add", format!("set {table} {}", set.name)),
        Edit::DeleteSet(name) => ("delete", format!("set {table} {name}")),
        Edit::AddChain(it) => ("add", chain(&it.name)),
        Edit::RenewChain(it) => ("flush", chain(&it.name)),
        Edit::FlushChain(name) => ("flush", chain(name)),
        Edit::DeleteChain(name) => ("delete", chain(name)),
        Edit::AppendRule(chain, it) => ("add", rule(chain, Some(it))),
        Edit::InsertRules(chain, rules) => ("add", rule(chain, rules.first())),
        Edit::DeleteRule(chain, RuleName::Handle(handle)) => {
            ("delete", format!("rule {handle} in chain {table} {chain}"))
        }
        Edit::DeleteRule(chain, RuleName::Text(_)) => ("delete", rule(chain, None)),
    }
}

fn write_chain(message: &mut Writer, chain: &Chain) {
    message.text(NFTA_CHAIN_NAME, &chain.name);
    if let Some(BaseChain { kind, hook, priority, accepts }) = chain.base {
        let policy = if accepts { NF_ACCEPT } else { NF_DROP };
        message.nest(NFTA_CHAIN_HOOK, |inner| {
            inner.attribute(NFTA_HOOK_HOOKNUM, &hook_number(hook).to_be_bytes());
            inner.attribute(NFTA_HOOK_PRIORITY, &priority.to_be_bytes());
        });
        message.attribute(NFTA_CHAIN_POLICY, &policy.to_be_bytes());
        message.text(NFTA_CHAIN_TYPE, type_name(kind));
    }
    if let Some(comment) = &chain.comment {
        message.attribute(NFTA_CHAIN_USERDATA, &userdata::write(Some(comment), None));
    }
}

fn write_rule(message: &mut Writer, family: TableFamily, chain: &str, rule: &Rule) {
    message.text(NFTA_RULE_CHAIN, chain);
    message.nest(NFTA_RULE_EXPRESSIONS, |list| {
        for instruction in compile(family, rule) {
            instruction.write(list);
        }
    });
    let userdata = userdata::write(rule.comment.as_deref(), rule.tag.as_deref());
    if !userdata.is_empty() {
        message.attribute(NFTA_RULE_USERDATA, &userdata);
    }
}
