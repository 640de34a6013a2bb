//! Whole tables as they are: chains with what leads to them, rules and sets of networks.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use flannel_plan::family::Family;
use flannel_plan::rules::chain::{BaseChain, ChainType, Hook};

use flannel_plan::rules::found::{FoundChain, FoundRule, FoundTable};
use flannel_plan::rules::{RuleSet, System, TableId};

use super::object::{hook_of, type_of};
use super::{Listed, Nft, NftError, TableFamily, read_rule, request, says_absent, set};
use crate::firewall::abi::*;
use crate::firewall::netfilter::{be32, text};
use crate::netlink::{Attributes, Outbox, Received};

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
        let head = match self.socket.ask(wanted, read_table) {
            Ok(Some(head)) => head,
            Ok(None) => return Ok(None),
            Err(why) if says_absent(&why) => return Ok(None),
            Err(why) => return Err(NftError::List { what: format!("table {}", id.in_nft()), why }),
        };
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
        let failed = |why| NftError::List { what: "the tables".to_owned(), why };
        let heads = self.socket.dump(|| request(NFT_MSG_GETTABLE, family.number(), &[]), read_table);
        let heads = heads.map_err(failed)?;
        let mut chains: HashMap<String, Vec<FoundChain>> = HashMap::new();
        let dumped = self.dumped(|| request(NFT_MSG_GETCHAIN, family.number(), &[]), read_chain);
        for (table, chain) in dumped.map_err(failed)? {
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
        let found = self.dumped(of_table, |it| read_rule(it, family, table));
        found.map_err(|why| NftError::List { what: format!("the rules of table {table}"), why })
    }

    /// The chains of a family where the kernel translates addresses, by their tables.
    pub fn nat_chains(&mut self, family: TableFamily) -> Result<BTreeMap<String, Vec<Box<str>>>, NftError> {
        let found = self.dumped(|| request(NFT_MSG_GETCHAIN, family.number(), &[]), read_nat_chain);
        let mut chains: BTreeMap<String, Vec<Box<str>>> = BTreeMap::new();
        for (table, chain) in
            found.map_err(|why| NftError::List { what: "the chains that translate".to_owned(), why })?
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
        let found = self.dumped(of_chain, |it| read_rule(it, family, table)?.found_about(of));
        found.map_err(|why| NftError::List { what: format!("the rules of chain {table} {chain}"), why })
    }

    /// One chain; none if it is not there.
    fn chain(&mut self, table: &TableId, name: &str) -> Result<Option<FoundChain>, NftError> {
        let names = [(NFTA_CHAIN_TABLE, &*table.name), (NFTA_CHAIN_NAME, name)];
        let family = TableFamily::from(table.family).number();
        match self.socket.ask(request(NFT_MSG_GETCHAIN, family, &names), read_chain) {
            Ok(found) => Ok(found.map(|(_, chain)| chain)),
            Err(why) if says_absent(&why) => Ok(None),
            Err(why) => Err(NftError::List { what: format!("chain {} {name}", table.in_nft()), why }),
        }
    }

    /// Adds the rules and the sets of a table.
    fn fill(
        &mut self,
        (family, id): (TableFamily, TableId),
        head: Head,
        chains: Vec<FoundChain>,
        rules: Vec<Listed>,
    ) -> Result<FoundTable, NftError> {
        let failed = |why| NftError::List { what: format!("table {}", head.name), why };
        let of_table = || request(NFT_MSG_GETSET, family.number(), &[(NFTA_SET_TABLE, &head.name)]);
        let mut table = FoundTable { dormant: head.dormant, chains, ..FoundTable::empty(id) };
        for (set, kind) in self.dumped(of_table, |it| read_set(it, &head.name)).map_err(failed)? {
            if kind == SetKind::Other {
                table.other_sets.push(set.into());
                continue;
            }
            let names = [(NFTA_SET_ELEM_LIST_TABLE, head.name.as_str()), (NFTA_SET_ELEM_LIST_SET, &set)];
            let edges = self.dumped(|| request(NFT_MSG_GETSETELEM, family.number(), &names), read_elements);
            let networks = set::networks(edges.map_err(failed)?.concat());
            table.sets.push(RuleSet { name: set.into(), networks });
        }
        let known = table.chains.len() + table.sets.len() + table.other_sets.len();
        table.others = head.objects.saturating_sub(known);
        put_rules(&mut table, rules);
        Ok(table)
    }

    /// A dump in which what is gone meanwhile is empty.
    fn dumped<T>(
        &mut self,
        request: impl Fn() -> Outbox,
        read: impl Fn(&Received) -> Option<T>,
    ) -> Result<Vec<T>, crate::netlink::NetlinkError> {
        match self.socket.dump(request, read) {
            Err(why) if says_absent(&why) => Ok(Vec::new()),
            found => found,
        }
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
    let (mut name, mut flags, mut objects) = (None, 0, 0);
    for (attribute, value) in attributes {
        match attribute {
            NFTA_TABLE_NAME => name = Some(text(value)),
            NFTA_TABLE_FLAGS => flags = be32(value)?,
            NFTA_TABLE_USE => objects = usize::try_from(be32(value)?).ok()?,
            _ => {}
        }
    }
    Some(Head { name: name?, dormant: flags & NFT_TABLE_F_DORMANT != 0, objects })
}

/// A chain with the name of its table: the kernel tells the chains of all tables, whatever was asked.
pub(crate) fn read_chain(message: &Received) -> Option<(String, FoundChain)> {
    let (_, attributes) = message.split::<4>()?;
    let (mut table, mut name, mut hook, mut kind, mut policy) = (None, None, None, None, NF_ACCEPT);
    for (attribute, value) in attributes {
        match attribute {
            NFTA_CHAIN_TABLE => table = Some(text(value)),
            NFTA_CHAIN_NAME => name = Some(text(value).into()),
            NFTA_CHAIN_HOOK => hook = read_hook(value),
            NFTA_CHAIN_TYPE => kind = type_of(&text(value)),
            NFTA_CHAIN_POLICY => policy = value.first_chunk().map_or(NF_ACCEPT, |it| i32::from_be_bytes(*it)),
            _ => {}
        }
    }
    let base = hook.zip(kind).map(|((hook, priority), kind)| BaseChain {
        kind,
        hook,
        priority,
        accepts: policy == NF_ACCEPT,
    });
    Some((table?, FoundChain { name: name?, base, rules: vec![] }))
}

/// The names of the table and of a chain that translates; all others, perhaps tens of thousands, are not looked at.
pub(crate) fn read_nat_chain(message: &Received) -> Option<(String, Box<str>)> {
    let (_, mut attributes) = message.split::<4>()?;
    attributes.find(|(attribute, _)| *attribute == NFTA_CHAIN_HOOK)?;
    let (table, chain) = read_chain(message)?;
    chain.base.filter(|base| base.kind == ChainType::Nat).map(|_| (table, chain.name))
}

fn read_hook(bytes: &[u8]) -> Option<(Hook, i32)> {
    let find = |wanted| Attributes(bytes).find(|(kind, _)| *kind == wanted).map(|(_, value)| value);
    let hook = hook_of(be32(find(NFTA_HOOK_HOOKNUM)?)?)?;
    Some((hook, i32::from_be_bytes(*find(NFTA_HOOK_PRIORITY)?.first_chunk()?)))
}

#[derive(PartialEq, Eq)]
pub(crate) enum SetKind {
    Networks,
    Other,
}

/// The name of a set or map that has one, and whether it is a set of networks.
pub(crate) fn read_set(message: &Received, table: &str) -> Option<(String, SetKind)> {
    let (_, attributes) = message.split::<4>()?;
    let (mut name, mut flags, mut key) = (None, 0, 0);
    for (attribute, value) in attributes {
        match attribute {
            NFTA_SET_TABLE if text(value) != table => return None,
            NFTA_SET_NAME => name = Some(text(value)),
            NFTA_SET_FLAGS => flags = be32(value)?,
            NFTA_SET_KEY_TYPE => key = be32(value)?,
            _ => {}
        }
    }
    let of_networks = [TYPE_IPADDR, TYPE_IP6ADDR].contains(&key)
        && flags & NFT_SET_INTERVAL != 0
        && flags & NFT_SET_MAP == 0;
    let kind = if of_networks { SetKind::Networks } else { SetKind::Other };
    name.filter(|_| flags & NFT_SET_ANONYMOUS == 0).map(|name| (name, kind))
}

pub(crate) fn read_elements(message: &Received) -> Option<Vec<set::Edge>> {
    let (_, mut attributes) = message.split::<4>()?;
    attributes
        .find(|(kind, _)| *kind == NFTA_SET_ELEM_LIST_ELEMENTS)
        .map(|(_, list)| set::read_elements(list))
}
