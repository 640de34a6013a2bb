//! The rules of ip-masq-agent in iptables: looked at by its programs, but only if something of the agent's changed; and
//! what is left of them in nftables, which goes without a program.

use flannel_plan::family::Family;
use flannel_plan::masq_agent::iptables::{AgentFound, BASE_CHAIN, found, is_jump_by_comment};
use flannel_plan::rules::System;
use flannel_plan::rules::edit::Edit;
use flannel_plan::rules::found::RuleName;

use super::{AgentError, left_over};
use crate::firewall::iptables::{Iptables, legacy_table, nat};
use crate::firewall::nft::{Listed, Nft, NftError, Table, Transaction};
use crate::firewall::rules::legacy;

/// Seconds to wait for the lock of legacy iptables.
const PATIENCE: u32 = 5;

/// The programs of one flavour and family, and what they said last.
pub(super) struct InIptables {
    system: System,
    family: Family,
    iptables: Iptables,
    last: Option<(Mark, AgentFound)>,
}

/// What stays the same as long as nothing of the agent's changes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Mark {
    /// What nftables has of the rules, in numbers; none for a chain that is not there.
    Numbers(Option<Vec<u64>>, Vec<u64>),
    /// The tables of the legacy flavour, without what they count.
    Bytes(Vec<Option<u64>>),
}

impl InIptables {
    pub(super) fn find(system: System, family: Family) -> Result<Self, AgentError> {
        let (iptables, name) = match (system, family) {
            (System::IptablesLegacy, Family::V4) => (Iptables::find_legacy(family), "iptables-legacy"),
            (System::IptablesLegacy, Family::V6) => (Iptables::find_legacy(family), "ip6tables-legacy"),
            (_, Family::V4) => (Iptables::find_nft(family), "iptables-nft"),
            (_, Family::V6) => (Iptables::find_nft(family), "ip6tables-nft"),
        };
        let iptables = iptables.ok_or(AgentError::NoProgram(name))?;
        Ok(Self { system, family, iptables, last: None })
    }

    pub(super) fn is_of(&self, system: System, family: Family) -> bool {
        (self.system, self.family) == (system, family)
    }

    /// What is there of the agent.
    pub(super) fn observe(&mut self, nft: Option<&mut Nft>, chain: &str) -> Result<AgentFound, AgentError> {
        // What changes between the mark and the reading is seen at the next look: the mark is the older one.
        let mark = self.mark(nft, chain)?;
        let found = match self.last.take() {
            Some((last, found)) if Some(&last) == mark.as_ref() => found,
            _ if mark.as_ref().is_some_and(Mark::is_empty) => AgentFound::default(),
            _ => found(chain, &self.iptables.save_text("nat")?),
        };
        self.last = mark.map(|mark| (mark, found.clone()));
        Ok(found)
    }

    /// None if there is none, and the program has to be asked every time.
    fn mark(&self, nft: Option<&mut Nft>, chain: &str) -> Result<Option<Mark>, AgentError> {
        match (self.system, nft) {
            (System::IptablesLegacy, _) => Ok(Some(Mark::Bytes(legacy::marks(self.family)?))),
            (_, None) => Ok(None),
            (_, Some(nft)) => {
                let left = LeftInNft::observe(nft, chain, self.family)?;
                let numbers = |rules: &[Listed]| rules.iter().map(Listed::fingerprint).collect();
                Ok(Some(Mark::Numbers(left.chain.as_deref().map(numbers), numbers(&left.leading))))
            }
        }
    }

    /// Makes all changes of a script.
    pub(super) fn restore(&mut self, script: &str) -> Result<(), AgentError> {
        self.last = None;
        Ok(self.iptables.restore_within(script, PATIENCE)?)
    }
}

impl Mark {
    /// Whether nothing of the agent's is there: then no program has to say so.
    fn is_empty(&self) -> bool {
        match self {
            Self::Numbers(chain, leading) => chain.is_none() && leading.is_empty(),
            Self::Bytes(tables) => tables.iter().all(Option::is_none),
        }
    }
}

/// Whether the table of legacy iptables names a chain; looking at one that nobody uses makes none.
pub(super) fn is_in_legacy(family: Family, chain: &str) -> bool {
    let table = legacy_table(family, "nat").ok().flatten().unwrap_or_default();
    table.windows(chain.len()).any(|window| window == chain.as_bytes())
}

/// What the table `nat` of iptables in nftables has of the agent, as nftables sees it.
pub(super) struct LeftInNft {
    table: Table,
    /// The rules of the chain; none if there is no chain.
    chain: Option<Vec<Listed>>,
    /// The rules of POSTROUTING that lead to it.
    leading: Vec<Listed>,
    /// Whether rules of other chains lead to it, too.
    lent: bool,
}

impl LeftInNft {
    /// The same for a chain that is to go: reads the whole table if there is one, as others may use it.
    pub(super) fn look_at_all(nft: &mut Nft, chain: &str, family: Family) -> Result<Self, NftError> {
        let mut left = Self::observe(nft, chain, family)?;
        if left.chain.is_some() {
            let leads = |listed: &Listed| listed.chain != BASE_CHAIN && listed.rule.target() == Some(chain);
            left.lent = nft.all_rules(left.table)?.iter().any(leads);
        }
        Ok(left)
    }

    pub(super) fn observe(nft: &mut Nft, chain: &str, family: Family) -> Result<Self, NftError> {
        let table = nat(family);
        let is_there = match nft.has_chain(table, chain) {
            Err(why) if why.says_there_is_none() => false, // a kernel without this family
            found => found?,
        };
        let mut leading = if is_there { nft.rules(table, BASE_CHAIN)? } else { vec![] };
        leading.retain(|listed| listed.rule.target() == Some(chain));
        let chain = if is_there { Some(nft.rules(table, chain)?) } else { None };
        Ok(Self { table, chain, leading, lent: false })
    }

    pub(super) fn differences(&self, chain: &str) -> Vec<String> {
        // A chain that others use stays, empty.
        let rests = self.chain.as_ref().is_none_or(|rules| rules.is_empty() && self.is_lent(chain));
        if rests { vec![] } else { vec![left_over(chain)] }
    }

    /// The steps that take everything of the agent's out; a chain that others lead to stays.
    pub(super) fn removal(&self, chain: &str) -> Transaction {
        let mut steps = Transaction::default();
        if self.differences(chain).is_empty() {
            return steps;
        }
        let own = self.leading.iter().filter(|listed| is_own(chain, listed));
        let gone = own.map(|listed| Edit::DeleteRule(BASE_CHAIN.into(), RuleName::Handle(listed.handle)));
        steps.extend(self.table, gone);
        steps.push(self.table, Edit::FlushChain(chain.into()));
        if !self.is_lent(chain) {
            steps.push(self.table, Edit::DeleteChain(chain.into()));
        }
        steps
    }

    fn is_lent(&self, chain: &str) -> bool {
        self.lent || self.leading.iter().any(|listed| !is_own(chain, listed))
    }
}

fn is_own(chain: &str, listed: &Listed) -> bool {
    is_jump_by_comment(chain, listed.rule.target(), listed.rule.comment.as_deref())
}
