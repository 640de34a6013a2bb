//! The chains that we keep: what each is for, and what it is called in either language.
//!
//! The names and comments are those of Go flannel, so that either program continues what the other made. The
//! chains that keep tunnel packets out of connection tracking are ours alone.

use serde::{Deserialize, Serialize};

use super::System;
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

/// Where on its way a packet meets a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hook {
    /// It came in.
    Prerouting,
    /// It is for this host.
    Input,
    /// It is for another.
    Forward,
    /// It comes from this host.
    Output,
    /// It goes out.
    Postrouting,
}

/// What the rules of a chain may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Let through or not.
    Filter,
    /// Translate addresses.
    Nat,
    /// Choose another way.
    Route,
}

/// What makes a chain one that packets come to by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Base {
    /// What it may do.
    pub kind: Kind,
    /// Where.
    pub hook: Hook,
    /// Its place among the others there: lower is earlier.
    pub priority: i32,
    /// Whether its end lets packets through.
    pub accepts: bool,
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
    pub fn base(self) -> Base {
        let (kind, hook, priority) = match self {
            Self::Masquerade => (Kind::Nat, Hook::Postrouting, 100),
            Self::Forward => (Kind::Filter, Hook::Forward, 0),
            Self::UntrackedIn => (Kind::Filter, Hook::Prerouting, -300),
            Self::UntrackedOut => (Kind::Filter, Hook::Output, -300),
        };
        Base { kind, hook, priority, accepts: true }
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
