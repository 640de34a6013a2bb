//! Says "rules of ours may have changed", and who did it: a reason to look, never work to do.
//!
//! Hears of every change to nftables, and so of those of the iptables that is kept there. Changes of legacy
//! iptables are told by nobody: look at them now and then.

use std::fmt;
use std::time::{Duration, Instant};

use flannel_plan::family::Family;
use flannel_plan::rules::System;
use flannel_plan::rules::observed::RuleScope;
use flannel_plan::rules::role::Role;
use rustix::net::RecvFlags;
use rustix::net::netlink;

use crate::firewall::abi::*;
use crate::firewall::netfilter::text;
use crate::netlink::{NoticeSocket, Receipt, Received, messages};
use crate::watch::WatchError;

/// Rules of ours may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleNotice {
    /// The program that changed something; none if the kernel does not say, or if notices were lost.
    pub by: Option<String>,
}

impl fmt::Display for RuleNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.by {
            Some(program) => write!(f, "rules, by {program}"),
            None => f.write_str("rules"),
        }
    }
}

/// A listener to the kernel's notices about rules, in one network namespace.
pub struct RuleWatch {
    socket: NoticeSocket,
    own_ports: Vec<u32>,
    roles: Vec<Role>,
    /// Whether a change that matters was told, of which the end is still to come.
    pending: bool,
}

impl RuleWatch {
    /// Starts to listen, in the namespace of this thread, for changes of the chains of a scope; those by these sockets
    /// are not told.
    pub fn open(own_ports: Vec<u32>, scope: &RuleScope) -> Result<Self, WatchError> {
        let socket = NoticeSocket::open(Some(netlink::NETFILTER), &[NFNLGRP_NFTABLES])?;
        Ok(Self { socket, own_ports, roles: scope.roles(), pending: false })
    }

    /// Waits until rules that matter may have changed.
    pub fn wait(&mut self) -> Result<RuleNotice, WatchError> {
        loop {
            if let Some(notice) = self.read_once(RecvFlags::empty())? {
                return Ok(notice);
            }
        }
    }

    /// The same with a limit; none if nothing happened.
    pub fn wait_at_most(&mut self, limit: Duration) -> Result<Option<RuleNotice>, WatchError> {
        let end = Instant::now() + limit;
        while self.socket.wait_until(end)? {
            if let Some(notice) = self.read_once(RecvFlags::DONTWAIT)? {
                return Ok(Some(notice));
            }
        }
        Ok(None)
    }

    fn read_once(&mut self, flags: RecvFlags) -> Result<Option<RuleNotice>, WatchError> {
        let bytes = match self.socket.receive(flags)? {
            Receipt::Nothing => return Ok(None),
            Receipt::Lost => {
                // Perhaps one that matters.
                self.pending = false;
                return Ok(Some(RuleNotice { by: None }));
            }
            Receipt::Notices(bytes) => bytes,
        };
        let mut notice = None;
        for message in messages(bytes).filter(|message| message.kind >> 8 == NFNL_SUBSYS_NFTABLES) {
            // The end of a transaction says whose it was.
            if message.kind & 0xff == NFT_MSG_NEWGEN {
                let by = program(&message);
                notice = notice.or(std::mem::take(&mut self.pending).then_some(RuleNotice { by }));
            } else {
                let by_others = !self.own_ports.contains(&message.port);
                self.pending |= by_others && matters(&message, &self.roles);
            }
        }
        Ok(notice)
    }
}

fn program(message: &Received) -> Option<String> {
    message.split::<4>()?.1.get(NFTA_GEN_PROC_NAME).map(text)
}

/// Whether a message is about a table or a chain that matters.
fn matters(message: &Received, roles: &[Role]) -> bool {
    let Some((_, attributes)) = message.split::<4>() else { return false };
    let table = attributes.get(NFTA_TABLE_NAME).map(text).unwrap_or_default(); // the first of everything
    let chain = match message.kind & 0xff {
        NFT_MSG_NEWTABLE | NFT_MSG_DELTABLE => return concerns(roles, &table, None),
        NFT_MSG_NEWCHAIN | NFT_MSG_DELCHAIN => attributes.get(NFTA_CHAIN_NAME),
        NFT_MSG_NEWRULE | NFT_MSG_DELRULE => attributes.get(NFTA_RULE_CHAIN),
        _ => None, // sets and elements name no chain
    };
    concerns(roles, &table, Some(&chain.map(text).unwrap_or_default()))
}

/// Whether a change of a table matters, and of which of its chains; all of them if none is named.
fn concerns(roles: &[Role], table: &str, chain: Option<&str>) -> bool {
    let own = |role: &Role| Family::BOTH.iter().any(|family| role.table(System::Nftables, *family) == table);
    if roles.iter().any(own) {
        return true;
    }
    let mut roles = roles.iter().filter(|role| role.table_of_iptables() == table);
    match chain {
        None => roles.next().is_some(),
        Some(chain) => {
            roles.any(|role| [role.base_chain(), role.chain(System::IptablesNft)].contains(&chain))
        }
    }
}
