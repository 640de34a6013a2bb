//! The chains that we keep: what each is for, and what it is called in either language.
//!
//! The names and comments are those of Go flannel, so that either program continues what the other made. The
//! chains that keep tunnel packets out of connection tracking are ours alone.

use serde::Serialize;

use super::System;
use super::chain::{BaseChain, Chain, ChainName, ChainType, Hook};
use super::{Action, Is, Match, Rule};
use crate::family::Family;

/// What a chain of ours is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
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
    /// ip-masq-agent: packets that leave the node get its address. The chain is the agent's as a whole.
    MasqAgent(ChainName),
}

impl Role {
    /// All of flanneld, in the order in which they are made.
    pub const ALL: [Self; 4] = [Self::Masquerade, Self::Forward, Self::UntrackedIn, Self::UntrackedOut];

    /// The table of iptables that it is in.
    pub fn table_of_iptables(self) -> &'static str {
        match self {
            Self::Masquerade | Self::MasqAgent(_) => "nat",
            Self::Forward => "filter",
            Self::UntrackedIn | Self::UntrackedOut => "raw",
        }
    }

    /// The chain of iptables itself that sends packets to ours.
    pub fn base_chain(self) -> &'static str {
        match self {
            Self::Masquerade | Self::MasqAgent(_) => "POSTROUTING",
            Self::Forward => "FORWARD",
            Self::UntrackedIn => "PREROUTING",
            Self::UntrackedOut => "OUTPUT",
        }
    }

    /// The name of our chain.
    pub fn chain(&self, system: System) -> &str {
        match (self, system) {
            (Self::Masquerade, System::Nftables) => "postrtg",
            (Self::Masquerade, _) => "FLANNEL-POSTRTG",
            (Self::Forward, System::Nftables) => "forward",
            (Self::Forward, _) => "FLANNEL-FWD",
            (Self::UntrackedIn, System::Nftables) => "notrack-in",
            (Self::UntrackedIn, _) => "FLANNEL-NOTRACK-IN",
            (Self::UntrackedOut, System::Nftables) => "notrack-out",
            (Self::UntrackedOut, _) => "FLANNEL-NOTRACK-OUT",
            (Self::MasqAgent(chain), _) => chain.as_str(),
        }
    }

    /// What `iptables` shows as the comment of our rules, or in it.
    pub fn comment_of_rules(&self) -> &str {
        match self {
            Self::MasqAgent(chain) => chain.as_str(),
            Self::Masquerade => "flanneld masq",
            Self::Forward => "flanneld forward",
            Self::UntrackedIn | Self::UntrackedOut => "flanneld notrack",
        }
    }

    /// What `nft` shows as the comment of our chain.
    fn comment_of_chain(self) -> Option<&'static str> {
        match self {
            Self::Masquerade => Some("chain to manage traffic masquerading by flannel"),
            Self::Forward => Some("chain to accept flannel traffic"),
            Self::UntrackedIn => Some("chain to keep arriving tunnel packets of flannel untracked"),
            Self::UntrackedOut => Some("chain to keep sent tunnel packets of flannel untracked"),
            Self::MasqAgent(_) => None,
        }
    }

    /// Whether all that stands in the chain is ours, whoever put it there.
    pub fn owns_its_chain(self) -> bool {
        matches!(self, Self::MasqAgent(_))
    }

    /// Where packets meet our chain in nftables.
    pub fn base(self) -> BaseChain {
        let (kind, hook, priority) = match self {
            Self::Masquerade => (ChainType::Nat, Hook::Postrouting, 100),
            Self::Forward => (ChainType::Filter, Hook::Forward, 0),
            Self::UntrackedIn => (ChainType::Filter, Hook::Prerouting, -300),
            Self::UntrackedOut => (ChainType::Filter, Hook::Output, -300),
            // Behind the chains of everybody else who translates sources: the original's rule is the last one.
            Self::MasqAgent(_) => (ChainType::Nat, Hook::Postrouting, 110),
        };
        BaseChain { kind, hook, priority, accepts: true }
    }

    /// Our chain as it is made: in iptables another chain leads to it.
    pub fn to_chain(self, system: System) -> Chain {
        let in_nftables = system == System::Nftables;
        Chain {
            name: self.chain(system).into(),
            comment: self.comment_of_chain().filter(|_| in_nftables).map(Into::into),
            base: in_nftables.then(|| self.base()),
        }
    }

    /// The rule of iptables that sends packets to our chain.
    pub fn jump(self, system: System) -> Rule {
        let chain = self.chain(system);
        let rule = |matches: &[Match]| Rule::new(matches, Action::jump(chain));
        match self {
            // The comment stands first, where the original has it: to iptables the same matches in another order are
            // another rule.
            Self::MasqAgent(_) => rule(&[Match::Comment, Match::DestinationLocal(Is::Different)]).comment(format!(
                "ip-masq-agent: ensure nat POSTROUTING directs all non-LOCAL destination traffic to our custom {chain} \
                 chain"
            )),
            _ => rule(&[]).comment(self.comment_of_rules()),
        }
    }

    /// The name of the table that it is in.
    pub fn table(self, system: System, family: Family) -> &'static str {
        match (self, system, family) {
            (_, System::IptablesNft | System::IptablesLegacy, _) => self.table_of_iptables(),
            (Self::MasqAgent(_), System::Nftables, _) => "ip-masq-agent",
            (_, System::Nftables, Family::V4) => "flannel-ipv4",
            (_, System::Nftables, Family::V6) => "flannel-ipv6",
        }
    }

    /// What `nft` shows as the comment of that table.
    pub fn comment_of_table(self, family: Family) -> &'static str {
        match (self, family) {
            (Self::MasqAgent(_), _) => "rules of ip-masq-agent",
            (_, Family::V4) => "rules for flannel-ipv4",
            (_, Family::V6) => "rules for flannel-ipv6",
        }
    }
}
