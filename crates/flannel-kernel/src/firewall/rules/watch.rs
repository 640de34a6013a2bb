//! Says "rules of ours may have changed", and who did it: a reason to look, never work to do.
//!
//! Hears of every change to nftables, and so of those of the iptables that is kept there. Changes of legacy
//! iptables are told by nobody: look at them now and then.

use std::fmt;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use flannel_plan::family::Family;
use flannel_plan::rules::System;
use flannel_plan::rules::role::{Role, own_table};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, sockopt};

use crate::abi::NETLINK_ADD_MEMBERSHIP;
use crate::firewall::abi::*;
use crate::firewall::netfilter::text;
use crate::netlink::{Received, Refusal, drain, messages, set_option};
use crate::watch::WatchError;

/// Enough for kube-proxy's changes of some thousand rules; beyond it we look anyway.
const RECEIVE_BUFFER: usize = 1024 * 1024;
const INBOX: usize = 64 * 1024;

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
    fd: OwnedFd,
    inbox: Box<[u8]>,
    own_ports: Vec<u32>,
    /// Whether a change that matters was told, of which the end is still to come.
    pending: bool,
}

impl RuleWatch {
    /// Starts to listen, in the namespace of this thread; changes by these sockets are not told.
    pub fn open(own_ports: Vec<u32>) -> Result<Self, WatchError> {
        let kind = (AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC);
        let fd = rustix::net::socket_with(kind.0, kind.1, kind.2, Some(netlink::NETFILTER))?;
        rustix::net::bind(&fd, &SocketAddrNetlink::new(0, 0))?;
        if sockopt::set_socket_recv_buffer_size_force(&fd, RECEIVE_BUFFER).is_err() {
            sockopt::set_socket_recv_buffer_size(&fd, RECEIVE_BUFFER)?;
        }
        set_option(&fd, NETLINK_ADD_MEMBERSHIP, NFNLGRP_NFTABLES).map_err(Refusal::from)?;
        Ok(Self { fd, inbox: vec![0; INBOX].into(), own_ports, pending: false })
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
        loop {
            let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).ok();
            match poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], left.as_ref()) {
                Ok(0) => return Ok(None),
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            if let Some(notice) = self.read_once(RecvFlags::DONTWAIT)? {
                return Ok(Some(notice));
            }
        }
    }

    fn read_once(&mut self, flags: RecvFlags) -> Result<Option<RuleNotice>, WatchError> {
        let length = match rustix::net::recv(&self.fd, &mut self.inbox[..], flags | RecvFlags::TRUNC) {
            Ok((_, length)) => length,
            Err(Errno::INTR | Errno::AGAIN) => return Ok(None),
            Err(Errno::NOBUFS) => return Ok(Some(self.start_over())),
            Err(errno) => return Err(errno.into()),
        };
        let Some(bytes) = self.inbox.get(..length) else { return Ok(Some(self.start_over())) };
        let mut notice = None;
        for message in messages(bytes).filter(|message| message.kind >> 8 == NFNL_SUBSYS_NFTABLES) {
            // The end of a transaction says whose it was.
            if message.kind & 0xff == NFT_MSG_NEWGEN {
                let by = program(&message);
                notice = notice.or(std::mem::take(&mut self.pending).then_some(RuleNotice { by }));
            } else {
                self.pending |= !self.own_ports.contains(&message.port) && matters(&message);
            }
        }
        Ok(notice)
    }

    /// Notices were lost, perhaps one that matters.
    fn start_over(&mut self) -> RuleNotice {
        drain(&self.fd, &mut self.inbox);
        self.pending = false;
        RuleNotice { by: None }
    }
}

fn program(message: &Received) -> Option<String> {
    let (_, mut attributes) = message.split::<4>()?;
    attributes.find(|(kind, _)| *kind == NFTA_GEN_PROC_NAME).map(|(_, name)| text(name))
}

/// Whether a message is about a table or a chain that we have rules in.
fn matters(message: &Received) -> bool {
    let Some((_, attributes)) = message.split::<4>() else { return false };
    let names_chain = match message.kind & 0xff {
        NFT_MSG_NEWTABLE | NFT_MSG_DELTABLE => None,
        NFT_MSG_NEWCHAIN | NFT_MSG_DELCHAIN => Some(NFTA_CHAIN_NAME),
        NFT_MSG_NEWRULE | NFT_MSG_DELRULE => Some(NFTA_RULE_CHAIN),
        _ => Some(0), // sets and elements: none of iptables' tables has any
    };
    let (mut table, mut chain) = (String::new(), None);
    for (kind, value) in attributes {
        match kind {
            NFTA_TABLE_NAME => table = text(value), // the first attribute of everything
            kind if Some(kind) == names_chain => chain = Some(text(value)),
            _ => {}
        }
    }
    if Family::BOTH.iter().any(|family| own_table(*family) == table) {
        return true;
    }
    let mut roles = Role::ALL.iter().filter(|role| role.table_of_iptables() == table);
    match (names_chain, chain) {
        (None, _) => roles.next().is_some(),
        (_, Some(chain)) => {
            roles.any(|role| [role.entrance(), role.chain(System::IptablesNft)].contains(&&*chain))
        }
        _ => false,
    }
}
