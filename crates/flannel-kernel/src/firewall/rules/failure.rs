//! What goes wrong with the rules of a node, and what an operator can do about it.

use flannel_plan::rules::TableId;
use flannel_plan::rules::iptables::CutOff;

use crate::NetlinkError;
use crate::firewall::iptables::IptablesError;
use crate::firewall::nft::NftError;

/// Why rules cannot be looked at or changed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RulesError {
    /// nftables refuses.
    #[error(transparent)]
    Nft(#[from] NftError),
    /// A program of iptables fails.
    #[error(transparent)]
    Iptables(#[from] IptablesError),
    /// What a program of iptables prints is not all that is there.
    #[error(transparent)]
    CutOff(#[from] CutOff),
    /// A table holds rules that iptables cannot show, so what it shows is not what is there.
    #[error("iptables cannot read its table {}: another program wrote rules there by nftables", .0.in_nft())]
    Unreadable(TableId),
    /// The tables of legacy iptables cannot be read.
    #[error("cannot read the tables of legacy iptables: {0}")]
    Legacy(NetlinkError),
    /// There are rules, or there should be, and no program for them.
    #[error("there is no program {0}")]
    NoProgram(String),
}

impl RulesError {
    /// What an operator can do about it, where we know; `nftables` says how that is chosen.
    pub(super) fn hint(&self, nftables: &str) -> Option<String> {
        match self {
            Self::Nft(why) => why.hint().map(str::to_owned),
            Self::Unreadable(table) => Some(format!(
                "list it with `nft list table {}`, and move what is not from iptables to a table of its own; or \
                 {nftables}",
                table.in_nft()
            )),
            Self::Iptables(why) if why.is_of_the_lock() => {
                Some("another program holds /run/xtables.lock: is one hanging?".to_owned())
            }
            Self::NoProgram(_) => Some(format!("install it (package iptables), or {nftables}")),
            Self::Iptables(_) | Self::CutOff(_) | Self::Legacy(_) => None,
        }
    }
}

/// A table that could not be changed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot change the rules in {id}: {why}")]
pub struct RuleFailure {
    pub id: TableId,
    pub why: RulesError,
    /// What an operator can do about it, where we know.
    pub hint: Option<String>,
}
