//! Whether a rule of this host translates a port, whoever made it: found out again only if rules changed.
//!
//! In nftables only the chains are asked for that packets to the port come to: the kernel takes half a second to tell
//! all rules of a big kube-proxy, and most of these are about TCP.

use flannel_plan::family::Family;
use flannel_plan::rules::explain::PlacedRule;
use flannel_plan::rules::translated::{Search, translation_of};
use flannel_plan::rules::{System, TableId};

use super::{RulesError, all_legacy, legacy};
use crate::firewall::nft::{Nft, NftError, TableFamily};

/// What was found out about one port, and what it was read from.
#[derive(Default)]
pub(super) struct Translation {
    /// nftables' count of changes, and the rule that was found there.
    generation: Option<u32>,
    native: Option<PlacedRule>,
    /// What the tables of legacy iptables were known by, and the rule that was found there.
    fingerprints: Vec<Option<u64>>,
    legacy: Option<PlacedRule>,
}

impl Translation {
    /// The rule that translates the port now; what is kept is about one port, so it is always asked for the same.
    pub(super) fn observe(
        &mut self,
        mut nft: Option<&mut Nft>,
        (family, port): (Family, u16),
    ) -> Result<Option<PlacedRule>, RulesError> {
        // What changes between the count and the reading is seen at the next look: the count is the older one.
        let generation = nft.as_mut().and_then(|nft| nft.generation().ok());
        if self.generation != generation || generation.is_none() {
            let found = nft.map(|nft| in_nftables(nft, family, port)).transpose()?;
            (self.generation, self.native) = (generation, found.flatten());
        }
        let fingerprints = legacy::fingerprints(family).map_err(RulesError::Legacy)?;
        if self.fingerprints != fingerprints {
            let found = translation_of(&all_legacy(family)?.tables, port);
            (self.fingerprints, self.legacy) = (fingerprints, found);
        }
        Ok(self.native.clone().or_else(|| self.legacy.clone()))
    }
}

fn in_nftables(nft: &mut Nft, family: Family, port: u16) -> Result<Option<PlacedRule>, NftError> {
    for kind in [family.into(), TableFamily::Inet] {
        for (table, bases) in nft.nat_chains(kind)? {
            let mut search = Search::new(port, bases);
            while let Some(chain) = search.next_chain() {
                let rules = nft.rules_about(kind, (&table, &chain), family)?;
                if let Some((place, rule)) = search.read(&rules) {
                    let table = TableId { system: System::Nftables, family, name: table.into() };
                    return Ok(Some(PlacedRule { table, chain, place, rule: rule.clone() }));
                }
            }
        }
    }
    Ok(None)
}
