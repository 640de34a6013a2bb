//! What goes wrong with the rules of a node, and what an operator can do about it.

use std::sync::Arc;

use flannel_plan::rules::TableId;
use flannel_plan::rules::iptables::SavedError;

use crate::Refusal;
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
    Iptables(Arc<IptablesError>),
    /// What a program of iptables prints is not what is there.
    #[error(transparent)]
    Saved(#[from] SavedError),
    /// The tables of legacy iptables cannot be read.
    #[error("cannot read the tables of legacy iptables: {0}")]
    Legacy(Refusal),
    /// There are rules, or there should be, and no program for them.
    #[error("there is no program {0}")]
    NoProgram(&'static str),
    /// The kernel has no nftables.
    #[error("this kernel has no nftables")]
    NoNftables,
}

impl From<IptablesError> for RulesError {
    fn from(why: IptablesError) -> Self {
        Self::Iptables(Arc::new(why))
    }
}

impl RulesError {
    /// What an operator can do about it, where we know.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Nft(why) => why.hint().map(str::to_owned),
            Self::Saved(SavedError::Incompatible(table)) => Some(format!(
                "list it with `nft list table ip {table}`, and move what is not from iptables to a table of its own; \
                 or set EnableNFTables in net-conf.json"
            )),
            Self::Iptables(why) if why.to_string().contains("xtables lock") => {
                Some("another program holds /run/xtables.lock: is one hanging?".to_owned())
            }
            Self::NoProgram(_) => {
                Some("install it (package iptables), or set EnableNFTables in net-conf.json".to_owned())
            }
            Self::NoNftables => Some("load it with `modprobe nf_tables nft_chain_nat`".to_owned()),
            Self::Iptables(_) | Self::Saved(_) | Self::Legacy(_) => None,
        }
    }
}

/// A table that could not be changed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot change the rules in {id}: {why}")]
pub struct RuleFailure {
    /// The table.
    pub id: TableId,
    /// Why.
    pub why: RulesError,
}
