//! What is left of containers in iptables, found by the names of chains and by comments, and deleted: in
//! nftables by netlink, in legacy tables by one `iptables-restore`.

use std::collections::BTreeSet;

use flannel_kernel::firewall::iptables::{Iptables, IptablesError, Saved, SavedRule, legacy_table, nat};
use flannel_kernel::firewall::nft::{Nft, NftError, Table};
use flannel_plan::family::Family;
use flannel_plan::rules::edit::Edit;

use super::rules::{DNAT, NAT, OWN, Script};
use crate::error::CniError;
use crate::firewall::{again, names};
use crate::plugins::portmap::owner::{Leads, Leftovers, Meant, Takes};

/// The chains that lead to those of containers, and how the latter's names begin. The second is that of plugins
/// before 0.7.
const ENTRIES: [(&str, &str); 2] = [(DNAT, OWN), ("CNI-HOSTPORT-SNAT", "CNI-SN-")];

/// What has to be deleted from the tables of iptables that lie in nftables.
pub(in super::super) fn leftovers(nft: &mut Nft, meant: Meant<'_>) -> Result<Leftovers, NftError> {
    let mut leftovers = Leftovers::default();
    for family in Family::BOTH {
        let table = nat(family);
        let mut chains = BTreeSet::new();
        for (entry, prefix) in ENTRIES {
            for listed in nft.rules(table, entry)? {
                let Some(chain) = listed.rule.target().filter(|name| names::is_chain(prefix, name)) else {
                    continue;
                };
                let comment = listed.rule.comment.as_deref().unwrap_or_default();
                let is_meant = match meant.takes_chain(prefix, chain, comment) {
                    Takes::Yes => true,
                    Takes::No => false,
                    Takes::IfItLeadsThere => meant.may_take(&chain_leads(nft, table, chain)?),
                };
                if is_meant {
                    leftovers.edits.push(table, listed.deletion());
                    chains.insert(chain.to_owned());
                }
            }
            // A plugin that was killed leaves a chain that nothing leads to.
            if let Some(chain) = own_chain(meant, prefix)
                && nft.has_chain(table, &chain)?
            {
                chains.insert(chain);
            }
        }
        for chain in chains {
            leftovers.udp.extend(chain_leads(nft, table, &chain)?.udp);
            let chain: Box<str> = chain.into();
            leftovers.edits.extend(table, [Edit::FlushChain(chain.clone()), Edit::DeleteChain(chain)]);
        }
    }
    Ok(leftovers)
}

fn chain_leads(nft: &mut Nft, table: Table, chain: &str) -> Result<Leads, NftError> {
    let mut leads = Leads::default();
    nft.rules(table, chain)?.iter().for_each(|listed| leads.add(&listed.rule));
    Ok(leads)
}

fn own_chain(meant: Meant<'_>, prefix: &str) -> Option<String> {
    match meant {
        Meant::Attachment(owner) => Some(names::chain(prefix, &owner.network, &owner.container)),
        Meant::AllBut(..) => None,
    }
}

/// Deletes what is left in the tables of legacy iptables, if they hold anything that is meant.
pub(in super::super) fn clean_legacy(meant: Meant<'_>) -> Result<(), CniError> {
    for family in Family::BOTH {
        // A table that cannot be read is one of a kernel or a host that has none of ours.
        let Ok(Some(table)) = legacy_table(family, NAT) else { continue };
        if !may_hold(&table, meant) {
            continue;
        }
        let missing =
            || CniError::internal("rules are left in legacy iptables, whose program is not in PATH");
        let iptables = Iptables::find_legacy(family).ok_or_else(missing)?;
        let failed = |why: IptablesError| CniError::internal(format!("could not teardown dnat: {why}"));
        clean_by_script(&iptables, meant).map_err(failed)?;
    }
    Ok(())
}

/// Names and comments stand in the bytes of the table as they are.
fn may_hold(table: &[u8], meant: Meant<'_>) -> bool {
    let holds = |text: &str| table.windows(text.len()).any(|window| window == text.as_bytes());
    match meant {
        Meant::Attachment(owner) => {
            ENTRIES.into_iter().any(|(_, prefix)| own_chain(meant, prefix).is_some_and(|name| holds(&name)))
                || holds(&format!("id: \"{}\"", owner.container))
        }
        Meant::AllBut(network, _) => holds(&format!("dnat name: \"{network}\" id: \"")),
    }
}

fn clean_by_script(iptables: &Iptables, meant: Meant<'_>) -> Result<(), IptablesError> {
    again(|| match script(&iptables.save(NAT)?, meant) {
        Some(script) => iptables.restore(&script),
        None => Ok(()),
    })
}

fn script(saved: &Saved, meant: Meant<'_>) -> Option<String> {
    let mut script = Script::default();
    let mut chains = BTreeSet::new();
    for (entry, prefix) in ENTRIES {
        for rule in saved.of_chain(entry) {
            let Some(chain) = rule.target().filter(|name| names::is_chain(prefix, name)) else { continue };
            let leads = || saved.of_chain(&chain).fold(Leads::default(), saved_leads);
            let is_meant = match meant.takes_chain(prefix, &chain, &rule.comment().unwrap_or_default()) {
                Takes::Yes => true,
                Takes::No => false,
                Takes::IfItLeadsThere => meant.may_take(&leads()),
            };
            if is_meant {
                script.line(&format!("-D {entry} {}", rule.text));
                chains.insert(chain);
            }
        }
        chains.extend(own_chain(meant, prefix).filter(|chain| saved.has_chain(chain)));
    }
    for chain in chains {
        script.line(&format!("-F {chain}"));
        script.line(&format!("-X {chain}"));
    }
    (!script.is_empty()).then(|| script.finish())
}

fn saved_leads(mut leads: Leads, rule: &SavedRule) -> Leads {
    let destination = rule.value("--to-destination").and_then(|text| text.parse().ok());
    leads.to.extend(destination.map(|address: std::net::SocketAddr| address.ip()));
    leads.ports.extend(rule.value("--dport").and_then(|text| text.parse::<u16>().ok()));
    leads
}
