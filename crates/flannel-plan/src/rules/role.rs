//! The chains that we keep: what each is for, and what it is called in either language.
//!
//! The names and comments are those of Go flannel, so that either program continues what the other made. The
//! chains that keep tunnel packets out of connection tracking are ours alone.

use serde::{Deserialize, Serialize};

use super::System;
use super::chain::{BaseChain, Chain, ChainType, Hook};
use crate::family::Family;

/// What a chain of ours is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Packets that leave the pod network get the node's address.
    Masquerade,
    /// Packets of the pod network are let through.
    Forward,
    /// Tunnel packets that arrive are not tracked.
    UntrackedIn,
    /// Tunnel packets that are sent are not tracked.
    UntrackedOut,
}

impl Role {
    /// All, in the order in which they are made.
    pub const ALL: [Self; 4] = [Self::Masquerade, Self::Forward, Self::UntrackedIn, Self::UntrackedOut];

    /// The table of iptables that it is in.
    pub fn table_of_iptables(self) -> &'static str {
        match self {
            Self::Masquerade => "nat",
            Self::Forward => "filter",
            Self::UntrackedIn | Self::UntrackedOut => "raw",
        }
    }

    /// The chain of iptables itself that sends packets to ours.
    pub fn base_chain(self) -> &'static str {
        match self {
            Self::Masquerade => "POSTROUTING",
            Self::Forward => "FORWARD",
            Self::UntrackedIn => "PREROUTING",
            Self::UntrackedOut => "OUTPUT",
        }
    }

    /// The name of our chain.
    pub fn chain(self, system: System) -> &'static str {
        match (self, system) {
            (Self::Masquerade, System::Nftables) => "postrtg",
            (Self::Masquerade, _) => "FLANNEL-POSTRTG",
            (Self::Forward, System::Nftables) => "forward",
            (Self::Forward, _) => "FLANNEL-FWD",
            (Self::UntrackedIn, System::Nftables) => "notrack-in",
            (Self::UntrackedIn, _) => "FLANNEL-NOTRACK-IN",
            (Self::UntrackedOut, System::Nftables) => "notrack-out",
            (Self::UntrackedOut, _) => "FLANNEL-NOTRACK-OUT",
        }
    }

    /// What `iptables` shows as the comment of our rules.
    pub fn comment_of_rules(self) -> &'static str {
        match self {
            Self::Masquerade => "flanneld masq",
            Self::Forward => "flanneld forward",
            Self::UntrackedIn | Self::UntrackedOut => "flanneld notrack",
        }
    }

    /// What `nft` shows as the comment of our chain.
    pub fn comment_of_chain(self) -> &'static str {
        match self {
            Self::Masquerade => "chain to manage traffic masquerading by flannel",
            Self::Forward => "chain to accept flannel traffic",
            Self::UntrackedIn => "chain to keep arriving tunnel packets of flannel untracked",
            Self::UntrackedOut => "chain to keep sent tunnel packets of flannel untracked",
        }
    }

    /// Where packets meet our chain in nftables.
    pub fn base(self) -> BaseChain {
        let (kind, hook, priority) = match self {
            Self::Masquerade => (ChainType::Nat, Hook::Postrouting, 100),
            Self::Forward => (ChainType::Filter, Hook::Forward, 0),
            Self::UntrackedIn => (ChainType::Filter, Hook::Prerouting, -300),
            Self::UntrackedOut => (ChainType::Filter, Hook::Output, -300),
        };
        BaseChain { kind, hook, priority, accepts: true }
    }

    /// Our chain as it is made: in iptables another chain leads to it.
    pub fn to_chain(self, system: System) -> Chain {
        let in_nftables = system == System::Nftables;
        Chain {
            name: self.chain(system).into(),
            comment: in_nftables.then(|| self.comment_of_chain().into()),
            base: in_nftables.then(|| self.base()),
        }
    }

    /// The name of the table that it is in.
    pub fn table(self, system: System, family: Family) -> &'static str {
        match system {
            System::Nftables => own_table(family),
            System::IptablesNft | System::IptablesLegacy => self.table_of_iptables(),
        }
    }
}

/// The table of nftables that is ours as a whole.
pub fn own_table(family: Family) -> &'static str {
    match family {
        Family::V4 => "flannel-ipv4",
        Family::V6 => "flannel-ipv6",
    }
}

/// What `nft` shows as the comment of that table.
pub fn comment_of_table(family: Family) -> &'static str {
    match family {
        Family::V4 => "rules for flannel-ipv4",
        Family::V6 => "rules for flannel-ipv6",
    }
}
