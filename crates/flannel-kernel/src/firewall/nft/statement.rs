//! What a rule says, in words of the firewall: matches, and what is done with a packet that matches.
//!
//! A [`Statement`] is what `nft` writes as one part of a line; `compile` and `decompile` translate between it and
//! the instructions that the kernel runs.

use std::net::IpAddr;

use flannel_plan::mac::Mac;
use ipnet::IpNet;

use super::instruction::read_extension;
use crate::firewall::netfilter::text;

/// Whether a match wants the value or anything but it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Is {
    /// The value.
    Equal,
    /// Anything else.
    Different,
}

/// Which address of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Where it comes from.
    Source,
    /// Where it goes to.
    Destination,
}

/// Which device of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Through which it came in.
    In,
    /// Through which it goes out.
    Out,
}

/// The number of a protocol above IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Protocol(pub u8);

impl Protocol {
    /// TCP.
    pub const TCP: Self = Self(6);
    /// UDP.
    pub const UDP: Self = Self(17);
    /// SCTP.
    pub const SCTP: Self = Self(132);
}

/// How masquerade chooses the source port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SourcePorts {
    /// It keeps the port where it can.
    Kept,
    /// Any port, as two clients that choose one port at once would lose packets otherwise.
    Randomised,
}

/// What becomes of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It goes on.
    Accept,
    /// It is thrown away.
    Drop,
    /// It goes back to the chain that jumped here.
    Return,
    /// It goes through that chain, and comes back.
    Jump(String),
    /// It goes through that chain, and does not come back.
    Goto(String),
}

/// The type of an address as routing sees it; only one matters here.
pub const LOCAL: u32 = 2;

/// One part of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Statement {
    /// `ip saddr 10.0.0.0/8`.
    Address(Side, Is, IpNet),
    /// `ip daddr 10.0.0.1-10.0.0.9`.
    AddressRange(Side, Is, IpAddr, IpAddr),
    /// `ip daddr @name`: one of the networks of a set.
    AddressIn(Side, Is, String),
    /// `ether saddr 02:00:00:00:00:01`.
    EtherSource(Is, Mac),
    /// `iifname "eth0"`; a name that ends with `*` stands for all that begin so.
    Device(Direction, Is, String),
    /// `meta l4proto tcp`.
    Protocol(Is, Protocol),
    /// `meta nfproto ipv4`; the number is that of the address family.
    Family(Is, u8),
    /// `meta pkttype host`.
    PacketType(Is, u8),
    /// `meta mark & MASK == VALUE`: the value, then the mask.
    Mark(Is, u32, u32),
    /// `tcp dport 80`.
    DestinationPort(Protocol, Is, u16),
    /// `fib daddr type local`.
    DestinationType(Is, u32),
    /// `@th,64,64 & 0x08000000ffffffff == VNI`: what UDP carries is a vxlan packet of this network.
    Vxlan(u32),
    /// `counter`; what it has counted is not part of the rule.
    Counter,
    /// `meta mark set mark & ~MASK | VALUE`: the value, then the mask.
    SetMark(u32, u32),
    /// `numgen random mod OF < PART`: so many packets of so many, by chance.
    Chance(u32, u32),
    /// `masquerade`.
    Masquerade(SourcePorts),
    /// `masquerade to :1024-29999`: to one of the ports from the first to the last.
    MasqueradeTo(SourcePorts, u16, u16),
    /// `notrack`: connection tracking does not see the packet.
    NoTrack,
    /// `dnat to 10.0.0.1:80`.
    Dnat(IpAddr, Option<u16>),
    /// The end of the rule.
    Verdict(Verdict),
    /// Something that we do not know: its name, and its bytes. What iptables writes is among it.
    Unknown(String, Vec<u8>),
}

impl Statement {
    /// The packet comes from this network or address.
    pub fn source(network: impl Into<IpNet>) -> Self {
        Self::Address(Side::Source, Is::Equal, network.into())
    }

    /// The packet goes to this network or address.
    pub fn destination(network: impl Into<IpNet>) -> Self {
        Self::Address(Side::Destination, Is::Equal, network.into())
    }

    /// The packet goes to anywhere but this network or address.
    pub fn not_destination(network: impl Into<IpNet>) -> Self {
        Self::Address(Side::Destination, Is::Different, network.into())
    }

    /// The packet goes to this port.
    pub fn port(protocol: Protocol, port: u16) -> Self {
        Self::DestinationPort(protocol, Is::Equal, port)
    }

    /// The packet goes to an address of this host.
    pub fn to_this_host() -> Self {
        Self::DestinationType(Is::Equal, LOCAL)
    }

    /// The name and the bytes of a match or target of iptables, which nftables runs as they are.
    pub fn extension(&self) -> Option<(String, &[u8])> {
        match self {
            Self::Unknown(name, bytes) if name == "match" || name == "target" => read_extension(bytes),
            _ => None,
        }
    }

    /// The packet goes through that chain, and comes back.
    pub fn jump(chain: impl Into<String>) -> Self {
        Self::Verdict(Verdict::Jump(chain.into()))
    }
}

/// A rule: its parts from left to right, and what stands beside it for people and programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rule {
    /// What it says.
    pub statements: Vec<Statement>,
    /// What `nft list` shows as its comment; at most 128 bytes.
    pub comment: Option<String>,
    /// What only we read: `nft` keeps it and does not show it.
    pub tag: Option<String>,
}

impl Rule {
    /// A rule without a comment.
    pub fn new(statements: impl Into<Vec<Statement>>) -> Self {
        Self { statements: statements.into(), comment: None, tag: None }
    }

    /// The same with a comment.
    pub fn comment(mut self, comment: impl Into<String>) -> Self {
        self.comment = Some(comment.into());
        self
    }

    /// The same with a tag.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tag = Some(tag.into());
        self
    }

    /// The chain that it sends packets to.
    pub fn target(&self) -> Option<&str> {
        self.statements.iter().find_map(|statement| match statement {
            Statement::Verdict(Verdict::Jump(chain) | Verdict::Goto(chain)) => Some(chain.as_str()),
            _ => None,
        })
    }

    /// Its comment, or the one that iptables gave it, which is a match of its own.
    pub fn any_comment(&self) -> Option<String> {
        let comment_of_iptables = |statement: &Statement| match statement.extension() {
            Some((name, bytes)) if name == "comment" => Some(text(bytes)),
            _ => None,
        };
        self.comment.clone().or_else(|| self.statements.iter().find_map(comment_of_iptables))
    }
}
