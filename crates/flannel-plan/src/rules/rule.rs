//! A rule: what a packet must be, and what becomes of it. The one vocabulary of everybody who reads or writes rules,
//! in either language: the daemon, the CNI plugins, ip-masq-agent and explanations.

use std::hash::{Hash, Hasher};
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::multicast;
use super::ports::PortRange;
use crate::family::Family;
use crate::mac::Mac;

/// Whether a match wants the value or anything but it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Is {
    Equal,
    Different,
}

/// Which address of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    Source,
    Destination,
}

/// The number of TCP among the protocols above IP.
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const SCTP: u8 = 132;

/// What a packet must be for a rule to act on it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Match {
    Source(Is, IpNet),
    Destination(Is, IpNet),
    /// It comes from or goes to somewhere from the first to the last.
    Range(Side, Is, IpAddr, IpAddr),
    /// It comes from or goes to somewhere in a set.
    Set(Side, Is, Box<str>),
    EtherSource(Is, Mac),
    /// It came in through this device; a name that ends with `*` stands for all that begin so.
    InLink(Is, Box<str>),
    OutLink(Is, Box<str>),
    /// It is of this family, in a table of several.
    Family(Is, Family),
    /// It is of this protocol above IP.
    Protocol(Is, u8),
    /// It goes to this port; the protocol is a match of its own.
    DestinationPort(Is, u16),
    DestinationPorts(Is, Box<[PortRange]>),
    Mark {
        is: Is,
        value: u32,
        mask: u32,
    },
    /// It is for this host, for many or for another, by the number of the kernel.
    PacketType(Is, u8),
    DestinationLocal(Is),
    /// It is a UDP packet of this family that carries a vxlan packet of this network.
    Vxlan(Family, u32),
    /// It is one of so many of so many, by chance.
    Chance {
        part: u32,
        of: u32,
    },
    /// Anything: it is counted. What it counts is no part of what a rule says.
    Counter,
    /// Anything: here stands the comment, which is a match of its own in iptables; behind all others if nobody says.
    Comment,
    /// An expression of nftables that we do not judge.
    Expression(Expression),
    /// Words of iptables that we do not judge.
    Other(Box<str>),
}

/// An expression of nftables that we do not know, as the kernel told it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Expression {
    /// What people call it: the name of the match or target where iptables wrote it.
    pub label: Box<str>,
    pub name: Box<str>,
    pub data: Box<[u8]>,
}

/// How masquerade chooses the source port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourcePorts {
    Kept,
    /// Any port: two clients that choose the same one at once would lose packets otherwise.
    Randomised,
}

/// What a rule does with a packet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    Accept,
    Drop,
    Return,
    /// It gets an address of the device that it leaves by, and one of these ports if there are any.
    Masquerade(SourcePorts, Option<PortRange>),
    /// It gets another source in another way, in the words of whoever told us.
    OtherSource(Box<str>),
    /// It goes to that address, and to that port if there is one.
    Dnat(IpAddr, Option<u16>),
    Untrack,
    Jump(Box<str>),
    Goto(Box<str>),
    /// Nothing that ends its way, like counting.
    Nothing,
    /// An expression of nftables that we do not judge.
    Expression(Expression),
    /// Words of iptables that we do not judge.
    Other(Box<str>),
}

/// Bits of a packet's mark that are set anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct SetMark {
    pub value: u32,
    pub mask: u32,
}

/// A rule: the packets that it is about, and what becomes of them.
///
/// The order of matches is kept, as people see it; two rules are the same whatever it is, and whatever they count.
#[derive(Clone, Debug, Serialize)]
pub struct Rule {
    /// All of these must be so.
    pub matches: Vec<Match>,
    /// The mark that a packet gets before anything else is done.
    pub set_mark: Option<SetMark>,
    pub action: Action,
    /// What stands beside it for people.
    pub comment: Option<Box<str>>,
    /// What stands beside it for us: nftables keeps it and does not show it.
    pub tag: Option<Box<str>>,
}

impl Rule {
    /// A rule without a comment.
    pub fn new(matches: impl Into<Vec<Match>>, action: Action) -> Self {
        Self { matches: matches.into(), set_mark: None, action, comment: None, tag: None }
    }

    /// The same with a comment.
    pub fn comment(mut self, comment: impl Into<Box<str>>) -> Self {
        self.comment = Some(comment.into());
        self
    }

    /// The same with a tag.
    pub fn tag(mut self, tag: impl Into<Box<str>>) -> Self {
        self.tag = Some(tag.into());
        self
    }

    /// The same that sets bits of the mark.
    pub fn set_mark(mut self, value: u32, mask: u32) -> Self {
        self.set_mark = Some(SetMark { value, mask });
        self
    }

    /// What a packet must be, in a fixed order, each once.
    pub fn sorted(&self) -> Vec<&Match> {
        let mut matches: Vec<_> = self.matches.iter().filter(|it| !it.is_silent()).collect();
        matches.sort();
        matches.dedup();
        matches
    }

    /// The networks that it names, except multicast.
    pub fn networks(&self) -> impl Iterator<Item = IpNet> + '_ {
        let networks = self.matches.iter().filter_map(Match::network);
        networks.filter(|net| *net != multicast(Family::of_net(*net)))
    }

    /// The protocol that a packet must have.
    pub fn protocol(&self) -> Option<u8> {
        self.matches.iter().find_map(|it| match it {
            Match::Protocol(Is::Equal, number) => Some(*number),
            _ => None,
        })
    }

    /// The chain that packets are sent to.
    pub fn target(&self) -> Option<&str> {
        match &self.action {
            Action::Jump(chain) | Action::Goto(chain) => Some(chain),
            _ => None,
        }
    }

    fn beside(&self) -> impl PartialEq + Hash {
        (self.set_mark, &self.action, &self.comment, &self.tag)
    }

    /// Whether another rule asks for everything that this one does.
    fn is_within(&self, other: &Self) -> bool {
        self.matches.iter().all(|it| it.is_silent() || other.matches.contains(it))
    }
}

/// Without sorting, which would make the CNI program larger.
impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.beside() == other.beside() && self.is_within(other) && other.is_within(self)
    }
}

impl Eq for Rule {}

impl Hash for Rule {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.sorted(), self.beside()).hash(state);
    }
}

impl Match {
    /// Whether it is true of every packet.
    fn is_silent(&self) -> bool {
        matches!(self, Self::Counter | Self::Comment)
    }

    /// The network that the packet comes from or goes to.
    pub(super) fn network(&self) -> Option<IpNet> {
        match self {
            Self::Source(_, net) | Self::Destination(_, net) => Some(*net),
            _ => None,
        }
    }

    /// The packet comes from this network or address.
    pub fn source(network: impl Into<IpNet>) -> Self {
        Self::Source(Is::Equal, network.into())
    }

    /// The packet goes to this network or address.
    pub fn destination(network: impl Into<IpNet>) -> Self {
        Self::Destination(Is::Equal, network.into())
    }

    /// So many packets of so many, as iptables keeps it: in parts of 2³¹.
    pub fn chance_of_iptables(part: u64, of: u64) -> Self {
        let parts = (u128::from(part) << 32) / u128::from(of.max(1));
        Self::Chance { part: u32::try_from(parts.div_ceil(2)).unwrap_or(1 << 31), of: 1 << 31 }
    }

    /// The packet goes to this port of a protocol.
    pub fn port(protocol: u8, port: u16) -> [Self; 2] {
        [Self::Protocol(Is::Equal, protocol), Self::DestinationPort(Is::Equal, port)]
    }
}

impl Action {
    /// The packet gets an address of the device that it leaves by.
    pub fn masquerade(ports: SourcePorts) -> Self {
        Self::Masquerade(ports, None)
    }

    /// The packet goes through that chain, and comes back.
    pub fn jump(chain: impl Into<Box<str>>) -> Self {
        Self::Jump(chain.into())
    }
}
