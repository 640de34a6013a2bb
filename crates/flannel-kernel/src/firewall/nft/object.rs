//! Tables and chains: what they are called, and where packets meet them.

use std::fmt;

use crate::firewall::abi::{NFPROTO_BRIDGE, NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6};

/// The packets that a table is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// Both.
    Inet,
    /// Frames that pass through a bridge.
    Bridge,
}

impl Family {
    pub(super) fn number(self) -> u8 {
        match self {
            Self::Ipv4 => NFPROTO_IPV4,
            Self::Ipv6 => NFPROTO_IPV6,
            Self::Inet => NFPROTO_INET,
            Self::Bridge => NFPROTO_BRIDGE,
        }
    }
}

/// A table: its family and its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Table {
    /// Its packets.
    pub family: Family,
    /// Its name.
    pub name: &'static str,
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = match self.family {
            Family::Ipv4 => "ip",
            Family::Ipv6 => "ip6",
            Family::Inet => "inet",
            Family::Bridge => "bridge",
        };
        write!(f, "{family} {}", self.name)
    }
}

/// What a base chain may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Let through or not.
    Filter,
    /// Translate addresses.
    Nat,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Nat => "nat",
        }
    }
}

/// Where on its way a packet meets a base chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl Hook {
    pub(super) fn number(self) -> u32 {
        match self {
            Self::Prerouting => 0,
            Self::Input => 1,
            Self::Forward => 2,
            Self::Output => 3,
            Self::Postrouting => 4,
        }
    }
}

/// What happens at the end of a base chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The packet goes on.
    Accept,
    /// It is thrown away.
    Drop,
}

impl Policy {
    pub(super) fn number(self) -> u32 {
        match self {
            Self::Accept => 1,
            Self::Drop => 0,
        }
    }
}

/// What makes a chain one that packets come to by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaseChain {
    /// What it may do.
    pub kind: Kind,
    /// Where.
    pub hook: Hook,
    /// Its place among the others there: lower is earlier.
    pub priority: i32,
    /// What happens at its end.
    pub policy: Policy,
}

/// A chain to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Its name.
    pub name: String,
    /// Its comment.
    pub comment: Option<&'static str>,
    /// Where packets come from; none if only others jump to it.
    pub base: Option<BaseChain>,
}

impl Chain {
    /// A chain that others jump to.
    pub fn plain(name: impl Into<String>) -> Self {
        Self { name: name.into(), comment: None, base: None }
    }

    /// A chain that packets come to by themselves, and leave at its end.
    pub fn base(name: impl Into<String>, kind: Kind, hook: Hook, priority: i32) -> Self {
        let base = BaseChain { kind, hook, priority, policy: Policy::Accept };
        Self { name: name.into(), comment: None, base: Some(base) }
    }

    /// The same with a comment.
    pub fn comment(mut self, comment: &'static str) -> Self {
        self.comment = Some(comment);
        self
    }
}
