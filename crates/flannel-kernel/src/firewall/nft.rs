//! nftables over netlink: tables, chains and rules, changed in transactions and read back.
//!
//! [`Nft`] is one socket in the namespace of the thread that opened it. A [`Transaction`] is done whole or not at
//! all. A table or chain that does not exist is not an error when it is looked at: nothing is in it.

pub(crate) mod compile;
pub(crate) mod decompile;
mod extension;
pub(crate) mod instruction;
pub(crate) mod listing;
mod object;
pub(crate) mod set;
mod transaction;
pub(crate) mod userdata;

use std::fmt;

use flannel_plan::family::Family;
use flannel_plan::rules::edit::Edit;
use flannel_plan::rules::found::{FoundRule, RuleName};
use flannel_plan::rules::{Action, Is, Match, Rule};
use rustix::io::Errno;

use super::abi::*;
use super::netfilter::{self, Refused, be32, header, text};
use crate::netlink::{NetlinkError, Outbox, Received, Socket};

pub use object::{Table, TableFamily};
pub use transaction::Transaction;

/// A rule that is there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Listed {
    pub chain: String,
    /// The number by which it is deleted; only a rule that replaces this one has it, too.
    pub handle: u64,
    pub rule: Rule,
}

impl Listed {
    /// The edit that takes it out.
    pub fn deletion(&self) -> Edit {
        Edit::DeleteRule(self.chain.as_str().into(), RuleName::Handle(self.handle))
    }

    /// What it says, and how it is named; none if it is not about packets of a family. In tables of several families
    /// rules may say which.
    pub(super) fn found_about(mut self, family: Family) -> Option<FoundRule> {
        let mut about = true;
        self.rule.matches.retain(|it| match it {
            Match::Family(is, of) => {
                about &= (*of == family) == (*is == Is::Equal);
                false
            }
            _ => true,
        });
        about.then_some(FoundRule { rule: self.rule, name: RuleName::Handle(self.handle) })
    }
}

/// What cannot be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NftError {
    /// There is no way to nftables.
    #[error("cannot reach nftables: {0}")]
    Unreachable(NetlinkError),
    /// Something cannot be read.
    #[error("cannot list {what}: {why}")]
    List { what: String, why: NetlinkError },
    /// The kernel refused a change, and with it the whole transaction.
    #[error("cannot {verb} {object}: {why}")]
    Refused { verb: &'static str, object: String, why: NetlinkError },
}

impl NftError {
    /// Whether somebody else changed the same objects meanwhile: look again, and try again.
    pub fn is_a_race(&self) -> bool {
        let raced = [Errno::NOENT, Errno::BUSY, Errno::EXIST, Errno::RESTART, Errno::INTR, Errno::AGAIN];
        matches!(self, Self::Refused { why, .. } if raced.contains(&why.errno))
    }

    /// Whether the kernel has no nftables at all: then nothing of anybody is there.
    pub fn says_there_is_none(&self) -> bool {
        let none = [Errno::PROTONOSUPPORT, Errno::AFNOSUPPORT, Errno::OPNOTSUPP, Errno::INVAL];
        matches!(self, Self::Unreachable(why) | Self::List { why, .. } if none.contains(&why.errno))
    }

    /// What an operator can do about it, where we know.
    pub fn hint(&self) -> Option<&'static str> {
        let (Self::Unreachable(why) | Self::List { why, .. } | Self::Refused { why, .. }) = self;
        match why.errno {
            Errno::PERM => Some("the capability CAP_NET_ADMIN is needed: run as root, or privileged"),
            Errno::PROTONOSUPPORT | Errno::OPNOTSUPP | Errno::INVAL | Errno::AFNOSUPPORT => {
                Some("the kernel has no nftables, or not all of it: `modprobe nf_tables nft_chain_nat`")
            }
            _ => None,
        }
    }
}

/// A socket to nftables.
pub struct Nft {
    socket: Socket,
}

impl Nft {
    /// Opens one in the namespace of this thread.
    pub fn open() -> Result<Self, NftError> {
        netfilter::open().map(|socket| Self { socket }).map_err(NftError::Unreachable)
    }

    /// The number of the last change to any rule; an error if the kernel has no nftables.
    pub fn generation(&mut self) -> Result<u32, NftError> {
        let read = |message: &Received| be32(message.split::<4>()?.1.get(NFTA_GEN_ID)?);
        let answer = self.socket.ask(request(NFT_MSG_GETGEN, 0, &[]), read).map_err(NftError::Unreachable)?;
        answer.ok_or_else(|| NftError::Unreachable(Errno::PROTO.into()))
    }

    /// Whether a chain exists.
    pub fn has_chain(&mut self, table: Table, chain: &str) -> Result<bool, NftError> {
        let names = [(NFTA_CHAIN_TABLE, table.name), (NFTA_CHAIN_NAME, chain)];
        let request = request(NFT_MSG_GETCHAIN, table.family.number(), &names);
        Ok(self.ask(format_args!("chain {table} {chain}"), request, |_| Some(()))?.is_some())
    }

    /// The rules of a chain in their order.
    pub fn rules(&mut self, table: Table, chain: &str) -> Result<Vec<Listed>, NftError> {
        self.dump_rules(table, &[(NFTA_RULE_TABLE, table.name), (NFTA_RULE_CHAIN, chain)])
    }

    /// The rules of all chains of a table; within a chain in their order.
    pub fn all_rules(&mut self, table: Table) -> Result<Vec<Listed>, NftError> {
        self.dump_rules(table, &[(NFTA_RULE_TABLE, table.name)])
    }

    fn dump_rules(&mut self, table: Table, names: &[(u16, &str)]) -> Result<Vec<Listed>, NftError> {
        let filtered = || request(NFT_MSG_GETRULE, table.family.number(), names);
        let read = |message: &Received| read_rule(message, table.family, table.name);
        self.dump(format_args!("the rules of table {table}"), filtered, read)
    }

    /// What the kernel answers about one object; none if it is not there.
    fn ask<T>(
        &mut self,
        what: fmt::Arguments<'_>,
        request: Outbox,
        read: impl Fn(&Received) -> Option<T>,
    ) -> Result<Option<T>, NftError> {
        match self.socket.ask(request, read) {
            Err(why) if says_absent(&why) => Ok(None),
            answer => answer.map_err(|why| NftError::List { what: what.to_string(), why }),
        }
    }

    /// What the kernel tells of many objects; of what is not there it tells nothing.
    fn dump<T>(
        &mut self,
        what: fmt::Arguments<'_>,
        request: impl Fn() -> Outbox,
        read: impl Fn(&Received) -> Option<T>,
    ) -> Result<Vec<T>, NftError> {
        let mut found = Vec::new();
        match self.socket.dump(request, &mut found, read) {
            Ok(()) => Ok(found),
            Err(why) if says_absent(&why) => Ok(Vec::new()),
            Err(why) => Err(NftError::List { what: what.to_string(), why }),
        }
    }

    /// The port ID of the socket, which notices carry.
    pub fn port_id(&self) -> u32 {
        self.socket.port_id()
    }

    /// Whether the kernel would make these changes; none of them is made.
    pub fn would_commit(&mut self, transaction: &Transaction) -> Result<(), NftError> {
        // Without its end the kernel tries a batch, and takes it all back.
        let mut trial = transaction.write(None);
        let last = trial.len() - 1;
        self.send(transaction, &mut trial, last)
    }

    /// Makes all changes or none.
    pub fn commit(&mut self, transaction: &Transaction) -> Result<(), NftError> {
        self.commit_at(transaction, None)
    }

    /// The same, but none either if any rule was changed since this generation.
    pub fn commit_at(&mut self, transaction: &Transaction, generation: Option<u32>) -> Result<(), NftError> {
        if transaction.is_empty() {
            return Ok(());
        }
        let mut batch = transaction.write(generation);
        let last = batch.len() - 1; // older kernels do not answer the end
        batch.add(NFNL_MSG_BATCH_END, 0, |message| message.header(&header(0, NFNL_SUBSYS_NFTABLES)));
        self.send(transaction, &mut batch, last)?;
        if transaction.removes() {
            self.socket.close_in_background();
        }
        Ok(())
    }

    /// Names the change that the kernel refused, if it did.
    fn send(&mut self, transaction: &Transaction, batch: &mut Outbox, last: usize) -> Result<(), NftError> {
        netfilter::transact(&mut self.socket, batch, last).map_err(|Refused { place, why }| {
            let named = place.and_then(|place| transaction.at(place));
            let (verb, object) = named.unwrap_or_else(|| ("change", "the firewall".to_owned()));
            NftError::Refused { verb, object, why }
        })
    }
}

/// Whether there is no such object; one whose name is longer than the kernel takes cannot be there either.
fn says_absent(why: &NetlinkError) -> bool {
    why.is(Errno::NOENT) || why.is(Errno::RANGE)
}

fn request(kind: u16, family: u8, names: &[(u16, &str)]) -> Outbox {
    Outbox::of(NFNL_SUBSYS_NFTABLES << 8 | kind, 0, |message| {
        message.header(&header(family, 0));
        for (attribute, name) in names {
            message.text(*attribute, name);
        }
    })
}

pub(crate) fn read_rule(message: &Received, family: TableFamily, table: &str) -> Option<Listed> {
    let (_, attributes) = message.split::<4>()?;
    let mut listed = Listed { chain: String::new(), handle: 0, rule: Rule::new([], Action::Nothing) };
    let mut beside = (None, None);
    for (kind, value) in attributes {
        match kind {
            NFTA_RULE_TABLE if text(value) != table => return None,
            NFTA_RULE_CHAIN => listed.chain = text(value),
            NFTA_RULE_HANDLE => listed.handle = u64::from_be_bytes(*value.first_chunk()?),
            NFTA_RULE_EXPRESSIONS => listed.rule = decompile::decompile(family, value),
            NFTA_RULE_USERDATA => beside = userdata::read(value),
            _ => {}
        }
    }
    let (comment, tag) = beside;
    listed.rule.comment = comment.or(listed.rule.comment);
    listed.rule.tag = tag;
    Some(listed)
}
