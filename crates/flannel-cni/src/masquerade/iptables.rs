//! Masquerade by iptables: a chain a container, to which rules for its addresses jump. The names and comments are Go's.
//!
//! Go makes a chain address by address, so that of two addresses of one family the second is masqueraded inside
//! its own network; ours has all networks that are not to be masqueraded first.

use std::collections::BTreeSet;

use flannel_kernel::firewall::iptables::{Iptables, legacy_table, nat};
use flannel_kernel::firewall::nft::{Nft, NftError};
use flannel_plan::family::Family;
use flannel_plan::rules::chain::Chain;
use flannel_plan::rules::edit::Edit;
use flannel_plan::rules::found::{FoundRule, FoundTable};
use flannel_plan::rules::{Action, Is, Match, Rule, SourcePorts, System, multicast};
use ipnet::IpNet;

use crate::error::CniError;
use crate::firewall::{self, Meant, NAT, NatTable, again, holds, names, observe, restore, without_chains};
use crate::request::Request;

const POSTROUTING: &str = "POSTROUTING";
/// The beginning of the name of a container's chain.
pub(super) const OWN: &str = "CNI-";

/// Makes the rules of a container; made again, they are the same.
pub(super) fn set_up(request: &Request, addresses: &[IpNet]) -> Result<(), CniError> {
    for family in Family::BOTH {
        let addresses: Vec<_> =
            addresses.iter().copied().filter(|address| Family::of_net(*address) == family).collect();
        if addresses.is_empty() {
            continue;
        }
        let missing = || {
            CniError::internal("failed to locate iptables: its programs are not in PATH")
                .details("install iptables, or choose the ipMasqBackend nftables")
        };
        let iptables = Iptables::find(family).ok_or_else(missing)?;
        again("cannot set up masquerading", || {
            let is_new = is_new(&iptables, &names::own_chain(OWN, request));
            let found = if is_new { None } else { Some(observe(&iptables)?) };
            restore(&iptables, &additions(request, family, &addresses, found.as_ref()))
        })?;
    }
    Ok(())
}

/// Whether a chain is certainly not there; then nothing has to be saved first.
fn is_new(iptables: &Iptables, chain: &str) -> bool {
    let family = iptables.family;
    match iptables.system {
        System::IptablesNft | System::Nftables => {
            Nft::open().and_then(|mut nft| nft.has_chain(nat(family), chain)) == Ok(false)
        }
        System::IptablesLegacy => match legacy_table(family, NAT) {
            Ok(table) => !table.is_some_and(|table| holds(&table, chain)),
            Err(_) => false,
        },
    }
}

/// The edits that make the chain with all its networks, old and new, and the rules that jump to it.
fn additions(
    request: &Request,
    family: Family,
    addresses: &[IpNet],
    found: Option<&FoundTable>,
) -> Vec<Edit> {
    let chain: Box<str> = names::own_chain(OWN, request).into();
    let comment = format!("name: {:?} id: {:?}", request.network, request.container_id);
    let append = |chain: &str, it: Match, action: Action| {
        Edit::AppendRule(chain.into(), Rule::new([it], action).comment(comment.as_str()))
    };
    let rules =
        |chain: &str| found.and_then(|table| table.chain(chain)).map_or(&[][..], |chain| &chain.rules);
    // Another interface of the container may be in the same network: then the chain is there already.
    let accepted = rules(&chain).iter().filter(|found| found.rule.action == Action::Accept);
    let mut networks: Vec<IpNet> = accepted.flat_map(|found| found.rule.networks()).collect();
    networks.extend(addresses.iter().map(IpNet::trunc));
    let mut seen = BTreeSet::new();
    networks.retain(|network| seen.insert(*network));

    let mut edits = vec![Edit::RenewChain(Chain::plain(chain.clone()))];
    edits.extend(networks.into_iter().map(|net| append(&chain, Match::destination(net), Action::Accept)));
    let others = Match::Destination(Is::Different, multicast(family));
    edits.push(append(&chain, others, Action::masquerade(SourcePorts::Kept)));
    for source in addresses.iter().map(|address| IpNet::from(address.addr())) {
        let jumps = |found: &FoundRule| {
            found.rule.target() == Some(&*chain) && source_of(&found.rule) == Some(source)
        };
        if !rules(POSTROUTING).iter().any(jumps) {
            edits.push(append(POSTROUTING, Match::source(source), Action::jump(&*chain)));
        }
    }
    edits
}

fn source_of(rule: &Rule) -> Option<IpNet> {
    rule.matches.iter().find_map(|it| match it {
        Match::Source(Is::Equal, source) => Some(*source),
        _ => None,
    })
}

/// What has to be deleted.
pub(super) fn leftovers(
    table: &mut NatTable<'_>,
    family: Family,
    meant: Meant<'_>,
) -> Result<Vec<Edit>, NftError> {
    let is_meant = |_: &mut NatTable<'_>, chain: &str, rule: &Rule| {
        let named = names::read_comment("", rule.comment.as_deref().unwrap_or_default());
        let is_about = match meant {
            Meant::Attachment(owner) => is_about(&owner.addresses, family, source_of(rule)),
            Meant::AllBut(..) => true,
        };
        Ok(is_about && meant.takes_chain(OWN, chain, named))
    };
    let (mut edits, chains) = firewall::leftovers(table, (POSTROUTING, OWN), meant, &is_meant)?;
    edits.extend(without_chains(chains));
    Ok(edits)
}

/// Whether a rule is about one of the addresses. The chain of a container is the same for all its interfaces in
/// a network, so only the addresses tell them apart; if none of a family is known, all rules are meant. Plugins
/// of long ago wrote the whole network as the source.
fn is_about(addresses: &[IpNet], family: Family, source: Option<IpNet>) -> bool {
    let mut known = addresses.iter().filter(|address| Family::of_net(**address) == family).peekable();
    let Some(source) = source else { return true };
    known.peek().is_none()
        || known.any(|address| IpNet::from(address.addr()) == source || address.trunc() == source.trunc())
}
