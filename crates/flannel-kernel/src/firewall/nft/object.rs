//! Tables of nftables: what they are called, and the kernel's numbers of what a chain is.

use std::fmt;

use flannel_plan::family::Family;
use flannel_plan::rules::chain::{ChainType, Hook};

use crate::firewall::abi::{NFPROTO_BRIDGE, NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6};

/// The packets that a table of nftables is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TableFamily {
    /// IPv4.
    Ip = NFPROTO_IPV4,
    /// IPv6.
    Ip6 = NFPROTO_IPV6,
    /// Both.
    Inet = NFPROTO_INET,
    /// Frames that pass through a bridge.
    Bridge = NFPROTO_BRIDGE,
}

impl TableFamily {
    pub(super) fn number(self) -> u8 {
        self as u8
    }
}

impl From<Family> for TableFamily {
    fn from(family: Family) -> Self {
        match family {
            Family::V4 => Self::Ip,
            Family::V6 => Self::Ip6,
        }
    }
}

/// A table: its family and its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    pub family: TableFamily,
    pub name: &'static str,
}

impl Table {
    /// A table with packets of one family.
    pub fn of(family: Family, name: &'static str) -> Self {
        Self { family: family.into(), name }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = match self.family {
            TableFamily::Ip => "ip",
            TableFamily::Ip6 => "ip6",
            TableFamily::Inet => "inet",
            TableFamily::Bridge => "bridge",
        };
        write!(f, "{family} {}", self.name)
    }
}

/// The number of a family of packets.
pub(super) fn nfproto(family: Family) -> u8 {
    TableFamily::from(family).number()
}

/// The family of packets of a number.
pub(super) fn family_of(number: u8) -> Option<Family> {
    Family::BOTH.into_iter().find(|family| nfproto(*family) == number)
}

const TYPES: [(ChainType, &str); 3] =
    [(ChainType::Filter, "filter"), (ChainType::Nat, "nat"), (ChainType::Route, "route")];

pub(super) fn type_name(wanted: ChainType) -> &'static str {
    TYPES.iter().find(|(kind, _)| *kind == wanted).map_or("", |(_, name)| name)
}

pub(super) fn type_of(wanted: &str) -> Option<ChainType> {
    TYPES.iter().find(|(_, name)| *name == wanted).map(|(kind, _)| *kind)
}

/// In the order of their numbers.
const HOOKS: [Hook; 5] = [Hook::Prerouting, Hook::Input, Hook::Forward, Hook::Output, Hook::Postrouting];

pub(super) fn hook_number(hook: Hook) -> u32 {
    (0..).zip(HOOKS).find(|(_, it)| *it == hook).map_or(u32::MAX, |(number, _)| number)
}

pub(super) fn hook_of(number: u32) -> Option<Hook> {
    HOOKS.get(usize::try_from(number).ok()?).copied()
}
