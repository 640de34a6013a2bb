//! Whole tables as they are: chains with what leads to them, rules and sets of networks.

use flannel_plan::rules::role::{Base, Hook, Kind};
use ipnet::IpNet;

use super::{Family, Listed, Nft, NftError, Table, read_rule_of_any, request, says_absent, set};
use crate::firewall::abi::*;
use crate::firewall::netfilter::{be32, text};
use crate::netlink::{Attributes, Outbox, Received};

/// A table that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedTable {
    /// Its name.
    pub name: String,
    /// Whether it does nothing for now.
    pub dormant: bool,
    /// Its chains.
    pub chains: Vec<ListedChain>,
    /// The rules of all its chains; within a chain in their order.
    pub rules: Vec<Listed>,
    /// Its sets of networks; others are left out.
    pub sets: Vec<ListedSet>,
}

/// A chain that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedChain {
    /// Its name.
    pub name: String,
    /// Where packets come from; none if only others jump to it.
    pub base: Option<Base>,
}

/// A set of networks that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedSet {
    /// Its name.
    pub name: String,
    /// Its networks, sorted.
    pub networks: Vec<IpNet>,
}

impl Nft {
    /// A table with all that is in it; none if it is not there.
    pub fn table(&mut self, table: Table) -> Result<Option<ListedTable>, NftError> {
        let failed = |why| NftError::Look { what: format!("table {table}"), why };
        let wanted = request(NFT_MSG_GETTABLE, table.family.number(), &[(NFTA_TABLE_NAME, table.name)]);
        match self.socket.ask(wanted, read_table) {
            Ok(Some((name, dormant))) => self.fill(table.family, name, dormant).map(Some),
            Ok(None) => Ok(None),
            Err(why) if says_absent(&why) => Ok(None),
            Err(why) => Err(failed(why)),
        }
    }

    /// All tables of a family, everybody's.
    pub fn tables(&mut self, family: Family) -> Result<Vec<ListedTable>, NftError> {
        let failed = |why| NftError::Look { what: "the tables".to_owned(), why };
        let tables = self.socket.dump(|| request(NFT_MSG_GETTABLE, family.number(), &[]), read_table);
        let tables = tables.map_err(failed)?;
        tables.into_iter().map(|(name, dormant)| self.fill(family, name, dormant)).collect()
    }

    fn fill(&mut self, family: Family, name: String, dormant: bool) -> Result<ListedTable, NftError> {
        let of = |kind: u16, attribute: u16| {
            let name = name.clone();
            move || request(kind, family.number(), &[(attribute, &name)])
        };
        let failed = |why| NftError::Look { what: format!("table {name}"), why };
        let chains = self.dumped(of(NFT_MSG_GETCHAIN, NFTA_CHAIN_TABLE), |it| read_chain(it, &name));
        let chains = chains.map_err(failed)?;
        let rules =
            self.dumped(of(NFT_MSG_GETRULE, NFTA_RULE_TABLE), |it| read_rule_of_any(it, family, &name));
        let rules = rules.map_err(failed)?;
        let names = self.dumped(of(NFT_MSG_GETSET, NFTA_SET_TABLE), |it| read_set(it, &name));
        let mut sets = Vec::new();
        for set in names.map_err(failed)? {
            let names = [(NFTA_SET_ELEM_LIST_TABLE, name.as_str()), (NFTA_SET_ELEM_LIST_SET, &set)];
            let edges = self.dumped(|| request(NFT_MSG_GETSETELEM, family.number(), &names), read_elements);
            let networks = set::networks(edges.map_err(failed)?.concat());
            sets.push(ListedSet { name: set, networks });
        }
        Ok(ListedTable { name, dormant, chains, rules, sets })
    }

    /// A dump in which what is gone meanwhile is empty.
    fn dumped<T>(
        &mut self,
        request: impl Fn() -> Outbox,
        read: impl Fn(&Received) -> Option<T>,
    ) -> Result<Vec<T>, crate::netlink::Refusal> {
        match self.socket.dump(request, read) {
            Err(why) if says_absent(&why) => Ok(Vec::new()),
            found => found,
        }
    }
}

fn read_table(message: &Received) -> Option<(String, bool)> {
    let (_, attributes) = message.split::<4>()?;
    let name = attributes.clone().find(|(kind, _)| *kind == NFTA_TABLE_NAME).map(|(_, value)| text(value))?;
    let flags = { attributes }.find(|(kind, _)| *kind == NFTA_TABLE_FLAGS).and_then(|(_, value)| be32(value));
    Some((name, flags.unwrap_or(0) & NFT_TABLE_F_DORMANT != 0))
}

/// The kernel tells the chains of all tables, whatever was asked.
fn read_chain(message: &Received, table: &str) -> Option<ListedChain> {
    let (_, attributes) = message.split::<4>()?;
    let (mut name, mut hook, mut kind, mut policy) = (None, None, None, NF_ACCEPT);
    for (attribute, value) in attributes {
        match attribute {
            NFTA_CHAIN_TABLE if text(value) != table => return None,
            NFTA_CHAIN_NAME => name = Some(text(value)),
            NFTA_CHAIN_HOOK => hook = read_hook(value),
            NFTA_CHAIN_TYPE => kind = read_kind(&text(value)),
            NFTA_CHAIN_POLICY => policy = value.first_chunk().map_or(NF_ACCEPT, |it| i32::from_be_bytes(*it)),
            _ => {}
        }
    }
    let base = hook.zip(kind).map(|((hook, priority), kind)| Base {
        kind,
        hook,
        priority,
        accepts: policy == NF_ACCEPT,
    });
    Some(ListedChain { name: name?, base })
}

fn read_hook(bytes: &[u8]) -> Option<(Hook, i32)> {
    let find = |wanted| Attributes(bytes).find(|(kind, _)| *kind == wanted).map(|(_, value)| value);
    let hook = match be32(find(NFTA_HOOK_HOOKNUM)?)? {
        0 => Hook::Prerouting,
        1 => Hook::Input,
        2 => Hook::Forward,
        3 => Hook::Output,
        4 => Hook::Postrouting,
        _ => return None,
    };
    Some((hook, i32::from_be_bytes(*find(NFTA_HOOK_PRIORITY)?.first_chunk()?)))
}

fn read_kind(name: &str) -> Option<Kind> {
    match name {
        "filter" => Some(Kind::Filter),
        "nat" => Some(Kind::Nat),
        "route" => Some(Kind::Route),
        _ => None,
    }
}

/// The name of a set, if it is one of networks.
fn read_set(message: &Received, table: &str) -> Option<String> {
    let (_, attributes) = message.split::<4>()?;
    let (mut name, mut flags, mut kind) = (None, 0, 0);
    for (attribute, value) in attributes {
        match attribute {
            NFTA_SET_TABLE if text(value) != table => return None,
            NFTA_SET_NAME => name = Some(text(value)),
            NFTA_SET_FLAGS => flags = be32(value)?,
            NFTA_SET_KEY_TYPE => kind = be32(value)?,
            _ => {}
        }
    }
    let of_networks = [TYPE_IPADDR, TYPE_IP6ADDR].contains(&kind) && flags & NFT_SET_INTERVAL != 0;
    name.filter(|_| of_networks && flags & NFT_SET_ANONYMOUS == 0)
}

fn read_elements(message: &Received) -> Option<Vec<set::Edge>> {
    let (_, mut attributes) = message.split::<4>()?;
    attributes
        .find(|(kind, _)| *kind == NFTA_SET_ELEM_LIST_ELEMENTS)
        .map(|(_, list)| set::read_elements(list))
}
