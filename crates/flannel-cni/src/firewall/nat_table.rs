//! The table `nat` of iptables, wherever its rules lie: read chain by chain in nftables or whole from `iptables-save`,
//! so that whoever decides what has to go decides it once.

use std::collections::BTreeSet;

use flannel_kernel::firewall::iptables::{Iptables, IptablesError, legacy_table, nat};
use flannel_kernel::firewall::nft::{Listed, Nft, NftError, Transaction};
use flannel_plan::family::Family;
use flannel_plan::rules::edit::Edit;
use flannel_plan::rules::found::{FoundRule, FoundTable, RuleName};
use flannel_plan::rules::iptables::{saved, script};
use flannel_plan::rules::{Rule, System, TableId};

use super::{Meant, again, names};
use crate::error::CniError;

pub(crate) const NAT: &str = "nat";

/// The table of one family.
pub(crate) enum NatTable<'a> {
    /// In nftables: each question is one to the kernel.
    InNftables(&'a mut Nft, Family),
    /// As `iptables-save` told it.
    Saved(&'a FoundTable),
}

impl NatTable<'_> {
    /// The rules of a chain, in their order.
    pub(crate) fn rules(&mut self, chain: &str) -> Result<Vec<FoundRule>, NftError> {
        let found = |Listed { rule, handle, .. }| FoundRule { rule, name: RuleName::Handle(handle) };
        match self {
            Self::InNftables(nft, family) => {
                nft.rules(nat(*family), chain).map(|rules| rules.into_iter().map(found).collect())
            }
            Self::Saved(table) => Ok(table.chain(chain).map(|chain| chain.rules.clone()).unwrap_or_default()),
        }
    }

    /// Whether a chain exists.
    pub(crate) fn has_chain(&mut self, chain: &str) -> Result<bool, NftError> {
        match self {
            Self::InNftables(nft, family) => nft.has_chain(nat(*family), chain),
            Self::Saved(table) => Ok(table.chain(chain).is_some()),
        }
    }
}

/// What has to be deleted of a chain that containers share: its rules that jump to chains of those that are meant, and
/// the names of these chains, unless something else jumps to them.
pub(crate) fn leftovers(
    table: &mut NatTable<'_>,
    (shared, prefix): (&str, &str),
    meant: Meant<'_>,
    is_meant: &dyn Fn(&mut NatTable<'_>, &str, &Rule) -> Result<bool, NftError>,
) -> Result<(Vec<Edit>, BTreeSet<String>), NftError> {
    let (mut edits, mut leaving, mut staying) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for FoundRule { rule, name } in table.rules(shared)? {
        let Some(chain) = rule.target().filter(|name| names::is_chain(prefix, name)) else { continue };
        if is_meant(table, chain, &rule)? {
            leaving.insert(chain.to_owned());
            edits.push(Edit::DeleteRule(shared.into(), name));
        } else {
            staying.insert(chain.to_owned());
        }
    }
    // A plugin that was killed leaves a chain that nothing jumps to.
    if let Some(chain) = meant.own_chain(prefix)
        && table.has_chain(&chain)?
    {
        leaving.insert(chain);
    }
    Ok((edits, &leaving - &staying))
}

/// The edits that remove chains with all their rules.
pub(crate) fn without_chains(chains: impl IntoIterator<Item = String>) -> Vec<Edit> {
    let remove = |chain: String| {
        let chain: Box<str> = chain.into();
        [Edit::FlushChain(chain.clone()), Edit::DeleteChain(chain)]
    };
    chains.into_iter().flat_map(remove).collect()
}

/// What `iptables-save` tells of the table.
pub(crate) fn observe(iptables: &Iptables) -> Result<FoundTable, IptablesError> {
    let (system, family) = (System::IptablesLegacy, iptables.family);
    let found = saved(system, family, &iptables.save(NAT)?);
    let found = found.map_err(|why| failed("iptables-save", why.to_string()))?.tables.pop();
    Ok(found.unwrap_or_else(|| FoundTable::empty(TableId { system, family, name: NAT.into() })))
}

/// Makes all edits of the table or none.
pub(crate) fn restore(iptables: &Iptables, edits: &[Edit]) -> Result<(), IptablesError> {
    if edits.is_empty() { Ok(()) } else { iptables.restore(&script(NAT, edits)) }
}

/// What has to be done to the tables of both families in nftables.
pub(crate) fn in_nft(
    nft: &mut Nft,
    transaction: &mut Transaction,
    mut edits: impl FnMut(&mut NatTable<'_>, Family) -> Result<Vec<Edit>, NftError>,
) -> Result<(), NftError> {
    for family in Family::BOTH {
        transaction.extend(nat(family), edits(&mut NatTable::InNftables(nft, family), family)?);
    }
    Ok(())
}

/// The same for those of legacy iptables, by its program, where their bytes may hold what is meant.
pub(crate) fn clean_legacy(
    what: &str,
    may_hold: impl Fn(&[u8]) -> bool,
    mut edits: impl FnMut(&mut NatTable<'_>, Family) -> Result<Vec<Edit>, NftError>,
) -> Result<(), CniError> {
    for family in Family::BOTH {
        // A table that cannot be read is one of a kernel or a host that has none of ours.
        if !legacy_table(family, NAT).ok().flatten().is_some_and(|table| may_hold(&table)) {
            continue;
        }
        let missing =
            || CniError::internal("rules are left in legacy iptables, whose program is not in PATH");
        let iptables = Iptables::find_of(System::IptablesLegacy, family).ok_or_else(missing)?;
        again(what, || {
            let found = observe(&iptables)?;
            let edits = edits(&mut NatTable::Saved(&found), family);
            restore(&iptables, &edits.map_err(|why| failed("nftables", why.to_string()))?)
        })?;
    }
    Ok(())
}

fn failed(program: &str, words: String) -> IptablesError {
    IptablesError::Failed { program: program.to_owned(), words }
}

/// Whether a text stands in the bytes of a legacy table: names and comments are there as they are.
pub(crate) fn holds(table: &[u8], text: &str) -> bool {
    table.windows(text.len()).any(|window| window == text.as_bytes())
}
