//! What goes wrong with the rules of ip-masq-agent, and what an operator can do about it.

use std::sync::Arc;

use flannel_plan::rules::TableId;

use crate::NetlinkError;
use crate::firewall::iptables::IptablesError;
use crate::firewall::nft::NftError;

/// Why rules cannot be looked at or changed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AgentError {
    /// nftables refuses.
    #[error(transparent)]
    Nft(#[from] NftError),
    /// A program of iptables fails.
    #[error(transparent)]
    Iptables(Arc<IptablesError>),
    /// The tables of legacy iptables cannot be read.
    #[error("cannot read the tables of legacy iptables: {0}")]
    Legacy(#[from] NetlinkError),
    /// There are rules, or there should be, and no program for them.
    #[error("there is no program {0}")]
    NoProgram(&'static str),
}

impl From<IptablesError> for AgentError {
    fn from(why: IptablesError) -> Self {
        Self::Iptables(Arc::new(why))
    }
}

impl AgentError {
    /// What an operator can do about it, where we know.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Nft(why) => why.hint(),
            Self::Iptables(why) if why.is_of_the_lock() => {
                Some("another program holds /run/xtables.lock: is one hanging?")
            }
            Self::NoProgram(_) => Some("install it (package iptables), or choose nftables with --nftables"),
            Self::Iptables(_) | Self::Legacy(_) => None,
        }
    }

    /// The error with the way out.
    pub(super) fn in_words(&self) -> String {
        self.hint().map_or_else(|| self.to_string(), |hint| format!("{self}; {hint}"))
    }
}

/// A table that could not be changed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot change the rules in {id}: {}", why.in_words())]
pub struct AgentFailure {
    /// The table.
    pub id: TableId,
    /// Why.
    pub why: AgentError,
}
