//! What is left of containers in iptables, found by the names of chains and by comments.

use std::collections::BTreeSet;

use flannel_kernel::firewall::nft::NftError;
use flannel_plan::rules::edit::Edit;
use flannel_plan::rules::found::FoundRule;

use super::rules::{DNAT, OWN};
use crate::firewall::{NatTable, holds, names, without_chains};
use crate::plugins::portmap::owner::{Leads, Meant, Takes};

/// The chains whose rules jump to those of containers, and how the latter's names begin. The second is that of plugins
/// before 0.7.
const SHARED: [(&str, &str); 2] = [(DNAT, OWN), ("CNI-HOSTPORT-SNAT", "CNI-SN-")];

/// What has to be deleted; the host's ports of UDP that are mapped there still are added to a list.
pub(in super::super) fn leftovers(
    table: &mut NatTable<'_>,
    meant: Meant<'_>,
    udp: &mut Vec<u16>,
) -> Result<Vec<Edit>, NftError> {
    let (mut edits, mut chains) = (Vec::new(), BTreeSet::new());
    for (shared, prefix) in SHARED {
        for FoundRule { rule, name } in table.rules(shared)? {
            let Some(chain) = rule.target().filter(|name| names::is_chain(prefix, name)) else { continue };
            let comment = rule.comment.as_deref().unwrap_or_default();
            let is_meant = match meant.takes_chain(prefix, chain, comment) {
                Takes::Yes => true,
                Takes::No => false,
                Takes::IfItLeadsThere => meant.may_take(&leads(table, chain)?),
            };
            if is_meant {
                chains.insert(chain.to_owned());
                edits.push(Edit::DeleteRule(shared.into(), name));
            }
        }
        // A plugin that was killed leaves a chain that nothing jumps to.
        if let Some(chain) = own_chain(meant, prefix)
            && table.has_chain(&chain)?
        {
            chains.insert(chain);
        }
    }
    for chain in &chains {
        udp.extend(leads(table, chain)?.udp);
    }
    edits.extend(without_chains(chains));
    Ok(edits)
}

fn leads(table: &mut NatTable<'_>, chain: &str) -> Result<Leads, NftError> {
    let mut leads = Leads::default();
    table.rules(chain)?.iter().for_each(|found| leads.add(&found.rule));
    Ok(leads)
}

fn own_chain(meant: Meant<'_>, prefix: &str) -> Option<String> {
    match meant {
        Meant::Attachment(owner) => Some(names::chain(prefix, &owner.network, &owner.container)),
        Meant::AllBut(..) => None,
    }
}

/// Whether the bytes of a legacy table may hold what is meant.
pub(in super::super) fn may_hold(table: &[u8], meant: Meant<'_>) -> bool {
    match meant {
        Meant::Attachment(owner) => {
            SHARED
                .into_iter()
                .any(|(_, prefix)| own_chain(meant, prefix).is_some_and(|name| holds(table, &name)))
                || holds(table, &format!("id: \"{}\"", owner.container))
        }
        Meant::AllBut(network, _) => holds(table, &format!("dnat name: \"{network}\" id: \"")),
    }
}
