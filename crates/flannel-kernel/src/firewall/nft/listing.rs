//! Whole tables as they are: chains with what leads to them, rules and sets of networks.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use flannel_plan::family::Family;
use flannel_plan::rules::chain::{BaseChain, ChainType, Hook};

use flannel_plan::rules::found::{FoundChain, FoundRule, FoundTable};
use flannel_plan::rules::{RuleSet, System, TableId};

use super::object::{hook_of, type_of};
use super::{Listed, Nft, NftError, TableFamily, read_rule, request, set};
use crate::firewall::abi::*;
use crate::firewall::netfilter::{be32, text};
use crate::netlink::{Attributes, Received};

/// What the kernel tells of a table itself.
pub(crate) struct Head {
    name: String,
    dormant: bool,
    /// How many chains, sets and other objects it has.
    objects: usize,
}

impl Nft {
    /// A table with what is in it; none if it is not there. Of chains without rules that no rule leads to, only those
    /// are listed that are named here: the kernel has no list of the chains of one table, and all of them may be tens
    /// of thousands.
    pub fn table(&mut self, id: TableId, likely: &[&str]) -> Result<Option<FoundTable>, NftError> {
        let family = TableFamily::from(id.family);
        let wanted = request(NFT_MSG_GETTABLE, family.number(), &[(NFTA_TABLE_NAME, &id.name)]);
        let asked = self.ask(format_args!("table {}", id.in_nft()), wanted, read_table)?;
        let Some(head) = asked else { return Ok(None) };
        let rules = self.rules_of(family, &id.name)?;
        let used = rules.iter().flat_map(|it| [Some(it.chain.as_str()), it.rule.target()]).flatten();
        let names: BTreeSet<&str> = used.chain(likely.iter().copied()).collect();
        let mut chains = Vec::new();
        for name in names {
            chains.extend(self.chain(&id, name)?);
        }
        self.fill((family, id), head, chains, rules).map(Some)
    }

    /// All tables of a family, everybody's, with all that is in them for packets of one family of addresses.
    pub fn tables(&mut self, family: TableFamily, of: Family) -> Result<Vec<FoundTable>, NftError> {
        let request = |kind| move || request(kind, family.number(), &[]);
        let heads = self.dump(format_args!("the tables"), request(NFT_MSG_GETTABLE), read_table)?;
        let mut chains: HashMap<String, Vec<FoundChain>> = HashMap::new();
        for (table, chain) in self.dump(format_args!("the tables"), request(NFT_MSG_GETCHAIN), read_chain)? {
            chains.entry(table).or_default().push(chain);
        }
        let mut tables = Vec::new();
        for head in heads {
            let id = TableId { system: System::Nftables, family: of, name: head.name.as_str().into() };
            let rules = self.rules_of(family, &id.name)?;
            let chains = chains.remove(&head.name).unwrap_or_default();
            tables.push(self.fill((family, id), head, chains, rules)?);
        }
        Ok(tables)
    }

    fn rules_of(&mut self, family: TableFamily, table: &str) -> Result<Vec<Listed>, NftError> {
        let of_table = || request(NFT_MSG_GETRULE, family.number(), &[(NFTA_RULE_TABLE, table)]);
        self.dump(format_args!("the rules of table {table}"), of_table, |it| read_rule(it, family, table))
    }

    /// The chains of a family where the kernel translates addresses, by their tables.
    pub fn nat_chains(&mut self, family: TableFamily) -> Result<BTreeMap<String, Vec<Box<str>>>, NftError> {
        let of_family = || request(NFT_MSG_GETCHAIN, family.number(), &[]);
        let mut chains: BTreeMap<String, Vec<Box<str>>> = BTreeMap::new();
        for (table, chain) in
            self.dump(format_args!("the chains that translate"), of_family, read_nat_chain)?
        {
            chains.entry(table).or_default().push(chain);
        }
        Ok(chains)
    }

    /// The rules of a chain of anybody's table that are about packets of a family of addresses, in their order.
    pub fn rules_about(
        &mut self,
        family: TableFamily,
        (table, chain): (&str, &str),
        of: Family,
    ) -> Result<Vec<FoundRule>, NftError> {
        let names = [(NFTA_RULE_TABLE, table), (NFTA_RULE_CHAIN, chain)];
        let of_chain = || request(NFT_MSG_GETRULE, family.number(), &names);
        let read = |message: &Received| read_rule(message, family, table)?.found_about(of);
        self.dump(format_args!("the rules of chain {table} {chain}"), of_chain, read)
    }

    /// One chain; none if it is not there.
    fn chain(&mut self, table: &TableId, name: &str) -> Result<Option<FoundChain>, NftError> {
        let names = [(NFTA_CHAIN_TABLE, &*table.name), (NFTA_CHAIN_NAME, name)];
        let family = TableFamily::from(table.family).number();
        let wanted = request(NFT_MSG_GETCHAIN, family, &names);
        let found = self.ask(format_args!("chain {} {name}", table.in_nft()), wanted, read_chain)?;
        Ok(found.map(|(_, chain)| chain))
    }

    /// Adds the rules and the sets of a table.
    fn fill(
        &mut self,
        (family, id): (TableFamily, TableId),
        head: Head,
        chains: Vec<FoundChain>,
        rules: Vec<Listed>,
    ) -> Result<FoundTable, NftError> {
        let of_table = || request(NFT_MSG_GETSET, family.number(), &[(NFTA_SET_TABLE, &head.name)]);
        let mut table = FoundTable { dormant: head.dormant, chains, ..FoundTable::empty(id) };
        let what = format_args!("table {}", head.name);
        for (set, kind) in self.dump(what, of_table, |it| read_set(it, &head.name))? {
            if kind == SetKind::Other {
                table.other_sets.push(set.into());
                continue;
            }
            let names = [(NFTA_SET_ELEM_LIST_TABLE, head.name.as_str()), (NFTA_SET_ELEM_LIST_SET, &set)];
            let of_set = || request(NFT_MSG_GETSETELEM, family.number(), &names);
            let networks = set::networks(self.dump(what, of_set, read_elements)?.concat());
            table.sets.push(RuleSet { name: set.into(), networks });
        }
        let known = table.chains.len() + table.sets.len() + table.other_sets.len();
        table.others = head.objects.saturating_sub(known);
        put_rules(&mut table, rules);
        Ok(table)
    }
}

/// Puts rules into their chains, as far as they are about packets of the table's family.
fn put_rules(table: &mut FoundTable, rules: Vec<Listed>) {
    let places: HashMap<Box<str>, usize> =
        table.chains.iter().enumerate().map(|(at, chain)| (chain.name.clone(), at)).collect();
    for listed in rules {
        if let Some(at) = places.get(listed.chain.as_str()) {
            table.chains[*at].rules.extend(listed.found_about(table.id.family));
        }
    }
}

pub(crate) fn read_table(message: &Received) -> Option<Head> {
    let (_, attributes) = message.split::<4>()?;
    let flags = attributes.get(NFTA_TABLE_FLAGS).and_then(be32).unwrap_or(0);
    let objects = attributes.get(NFTA_TABLE_USE).and_then(be32).unwrap_or(0);
    Some(Head {
        name: text(attributes.get(NFTA_TABLE_NAME)?),
        dormant: flags & NFT_TABLE_F_DORMANT != 0,
        objects: usize::try_from(objects).ok()?,
    })
}

/// A chain with the name of its table: the kernel tells the chains of all tables, whatever was asked.
pub(crate) fn read_chain(message: &Received) -> Option<(String, FoundChain)> {
    let (_, attributes) = message.split::<4>()?;
    let kind = attributes.get(NFTA_CHAIN_TYPE).and_then(|name| type_of(&text(name)));
    let hook = attributes.get(NFTA_CHAIN_HOOK).and_then(read_hook);
    let policy = attributes.get(NFTA_CHAIN_POLICY).and_then(be32);
    let accepts = policy.is_none_or(|policy| policy == NF_ACCEPT.cast_unsigned());
    let base = hook.zip(kind).map(|((hook, priority), kind)| BaseChain { kind, hook, priority, accepts });
    let name = text(attributes.get(NFTA_CHAIN_NAME)?).into();
    Some((text(attributes.get(NFTA_CHAIN_TABLE)?), FoundChain { name, base, rules: vec![] }))
}

/// The names of the table and of a chain that translates; all others, perhaps tens of thousands, are not looked at.
pub(crate) fn read_nat_chain(message: &Received) -> Option<(String, Box<str>)> {
    message.split::<4>()?.1.get(NFTA_CHAIN_HOOK)?;
    let (table, chain) = read_chain(message)?;
    chain.base.filter(|base| base.kind == ChainType::Nat).map(|_| (table, chain.name))
}

fn read_hook(bytes: &[u8]) -> Option<(Hook, i32)> {
    let hook = hook_of(be32(Attributes(bytes).get(NFTA_HOOK_HOOKNUM)?)?)?;
    Some((hook, be32(Attributes(bytes).get(NFTA_HOOK_PRIORITY)?)?.cast_signed()))
}

#[derive(PartialEq, Eq)]
pub(crate) enum SetKind {
    Networks,
    Other,
}

/// The name of a set or map that has one, and whether it is a set of networks.
pub(crate) fn read_set(message: &Received, table: &str) -> Option<(String, SetKind)> {
    let (_, attributes) = message.split::<4>()?;
    if attributes.get(NFTA_SET_TABLE).is_some_and(|name| text(name) != table) {
        return None;
    }
    let number = |kind| attributes.get(kind).and_then(be32).unwrap_or(0);
    let (flags, key) = (number(NFTA_SET_FLAGS), number(NFTA_SET_KEY_TYPE));
    let of_networks = [TYPE_IPADDR, TYPE_IP6ADDR].contains(&key)
        && flags & NFT_SET_INTERVAL != 0
        && flags & NFT_SET_MAP == 0;
    let kind = if of_networks { SetKind::Networks } else { SetKind::Other };
    let name = attributes.get(NFTA_SET_NAME).filter(|_| flags & NFT_SET_ANONYMOUS == 0);
    name.map(|name| (text(name), kind))
}

pub(crate) fn read_elements(message: &Received) -> Option<Vec<set::Edge>> {
    message.split::<4>()?.1.get(NFTA_SET_ELEM_LIST_ELEMENTS).map(set::read_elements)
}
