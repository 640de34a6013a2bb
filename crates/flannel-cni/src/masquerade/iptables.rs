//! Masquerade by iptables: a chain a container, to which its addresses lead. The names and comments are Go's.
//!
//! Go makes a chain address by address, so that of two addresses of one family the second is masqueraded inside
//! its own network; ours has all networks that are not to be masqueraded first.

use std::collections::BTreeSet;

use flannel_kernel::firewall::iptables::{
    Flavour, Iptables, IptablesError, Saved, SavedRule, legacy_table, nat, quoted,
};
use flannel_kernel::firewall::nft::{Listed, Nft, NftError, Transaction};
use flannel_plan::family::Family;
use flannel_plan::rules::edit::Edit;
use flannel_plan::rules::{Is, Match, multicast};
use ipnet::IpNet;

use super::Meant;
use crate::error::CniError;
use crate::firewall::{again, names};
use crate::request::Request;

const NAT: &str = "nat";
const POSTROUTING: &str = "POSTROUTING";
const OWN: &str = "CNI-";

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
        let made = again(|| {
            let is_new = is_new(&iptables, &own_chain(request));
            let saved = if is_new { Saved::default() } else { iptables.save(NAT)? };
            iptables.restore(&script(request, family, &addresses, &saved))
        });
        made.map_err(|why| CniError::internal(format!("cannot set up masquerading: {why}")))?;
    }
    Ok(())
}

fn own_chain(request: &Request) -> String {
    names::chain(OWN, &request.network, &request.container_id)
}

/// Whether a chain is certainly not there; then nothing has to be saved first.
fn is_new(iptables: &Iptables, chain: &str) -> bool {
    let family = iptables.family();
    match iptables.flavour() {
        Flavour::Nftables => Nft::open().and_then(|mut nft| nft.has_chain(nat(family), chain)) == Ok(false),
        Flavour::Legacy => match legacy_table(family, NAT) {
            Ok(table) => !table.is_some_and(|table| holds(&table, chain)),
            Err(_) => false,
        },
    }
}

/// Names and comments stand in the bytes of a legacy table as they are.
fn holds(table: &[u8], text: &str) -> bool {
    table.windows(text.len()).any(|window| window == text.as_bytes())
}

/// A script that makes the chain with all its networks, old and new, and leads the addresses to it.
fn script(request: &Request, family: Family, addresses: &[IpNet], saved: &Saved) -> String {
    let chain = own_chain(request);
    let comment = format!("name: {:?} id: {:?}", request.network, request.container_id);
    let comment = format!("-m comment --comment {}", quoted(&comment));
    let multicast = multicast(family);
    // Another interface of the container may be in the same network: then the chain is there already.
    let accepted =
        |rule: &SavedRule| rule.target().filter(|it| it == "ACCEPT").and_then(|_| rule.value("-d"));
    let mut networks: Vec<String> = saved.of_chain(&chain).filter_map(accepted).collect();
    networks.extend(addresses.iter().map(|address| address.trunc().to_string()));
    let mut seen = BTreeSet::new();
    networks.retain(|network| seen.insert(network.clone()));

    let mut script = format!("*{NAT}\n:{chain} - [0:0]\n");
    for network in networks {
        script += &format!("-A {chain} -d {network} {comment} -j ACCEPT\n");
    }
    script += &format!("-A {chain} ! -d {multicast} {comment} -j MASQUERADE\n");
    for address in addresses {
        let source = IpNet::from(address.addr()).to_string();
        let leads = |rule: &SavedRule| {
            rule.target().as_deref() == Some(&chain) && rule.value("-s").as_deref() == Some(&source)
        };
        if !saved.of_chain(POSTROUTING).any(leads) {
            script += &format!("-A {POSTROUTING} -s {source} {comment} -j {chain}\n");
        }
    }
    script + "COMMIT\n"
}

/// A rule that leads the packets of an address to a container's chain.
struct Entry {
    chain: String,
    comment: String,
    source: Option<IpNet>,
}

/// Which of the entries are to be deleted, by their places, and which chains.
fn decide(meant: Meant<'_>, family: Family, entries: &[Option<Entry>]) -> (Vec<usize>, BTreeSet<String>) {
    let (mut places, mut leaving, mut staying) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for (place, entry) in entries.iter().enumerate() {
        let Some(entry) = entry else { continue };
        if is_meant(meant, family, entry) {
            places.push(place);
            leaving.insert(entry.chain.clone());
        } else {
            staying.insert(entry.chain.clone());
        }
    }
    // A plugin that was killed leaves a chain that nothing leads to.
    if let Meant::Attachment(request, _) = meant {
        leaving.insert(own_chain(request));
    }
    (places, &leaving - &staying)
}

fn is_meant(meant: Meant<'_>, family: Family, entry: &Entry) -> bool {
    let named = names::read_comment("", &entry.comment);
    match meant {
        Meant::Attachment(request, addresses) => {
            let is_ours = entry.chain == own_chain(request)
                || named.is_some_and(|(_, container)| container == request.container_id);
            is_ours && leads_from(addresses, family, entry.source)
        }
        Meant::AllBut(request, valid) => named.is_some_and(|(network, container)| {
            network == request.network && !valid.iter().any(|(valid, _)| *valid == container)
        }),
    }
}

/// Whether a rule is about one of the addresses. The chain of a container is the same for all its interfaces in
/// a network, so only the addresses tell them apart; if none of a family is known, all rules are meant. Plugins
/// of long ago wrote the whole network as the source.
fn leads_from(addresses: &[IpNet], family: Family, source: Option<IpNet>) -> bool {
    let mut known = addresses.iter().filter(|address| Family::of_net(**address) == family).peekable();
    let Some(source) = source else { return true };
    known.peek().is_none()
        || known.any(|address| IpNet::from(address.addr()) == source || address.trunc() == source.trunc())
}

/// What has to be deleted from the tables of iptables that lie in nftables.
pub(super) fn leftovers(nft: &mut Nft, meant: Meant<'_>) -> Result<Transaction, NftError> {
    let mut steps = Transaction::default();
    for family in Family::BOTH {
        let table = nat(family);
        let listed = nft.rules(table, POSTROUTING)?;
        let entries: Vec<_> = listed.iter().map(listed_entry).collect();
        let (places, chains) = decide(meant, family, &entries);
        for place in places {
            steps.push(table, listed[place].deletion());
        }
        for chain in chains {
            if nft.has_chain(table, &chain)? {
                let chain: Box<str> = chain.into();
                steps.extend(table, [Edit::FlushChain(chain.clone()), Edit::DeleteChain(chain)]);
            }
        }
    }
    Ok(steps)
}

fn listed_entry(listed: &Listed) -> Option<Entry> {
    let chain = listed.rule.target().filter(|name| names::is_chain(OWN, name))?.to_owned();
    let source = listed.rule.matches.iter().find_map(|it| match it {
        Match::Source(Is::Equal, source) => Some(*source),
        _ => None,
    });
    Some(Entry { chain, comment: listed.rule.comment.as_deref().unwrap_or_default().to_owned(), source })
}

/// Deletes what is left in the tables of legacy iptables, if they hold anything that is meant.
pub(super) fn clean_legacy(meant: Meant<'_>) -> Result<(), CniError> {
    for family in Family::BOTH {
        // A table that cannot be read is one of a kernel or a host that has none of ours.
        let Ok(Some(table)) = legacy_table(family, NAT) else { continue };
        let may_hold = match meant {
            Meant::Attachment(request, _) => {
                holds(&table, &own_chain(request))
                    || holds(&table, &format!("id: {:?}", request.container_id))
            }
            Meant::AllBut(request, _) => holds(&table, &format!("name: {:?} id: ", request.network)),
        };
        if !may_hold {
            continue;
        }
        let missing =
            || CniError::internal("rules are left in legacy iptables, whose program is not in PATH");
        let iptables = Iptables::find_legacy(family).ok_or_else(missing)?;
        let failed = |why: IptablesError| CniError::internal(format!("cannot remove masquerading: {why}"));
        clean_by_script(&iptables, meant).map_err(failed)?;
    }
    Ok(())
}

fn clean_by_script(iptables: &Iptables, meant: Meant<'_>) -> Result<(), IptablesError> {
    again(|| match deletions(&iptables.save(NAT)?, iptables.family(), meant) {
        script if script.is_empty() => Ok(()),
        script => iptables.restore(&format!("*{NAT}\n{script}COMMIT\n")),
    })
}

fn deletions(saved: &Saved, family: Family, meant: Meant<'_>) -> String {
    let rules: Vec<_> = saved.of_chain(POSTROUTING).collect();
    let entries: Vec<_> = rules.iter().map(|rule| saved_entry(rule)).collect();
    let (places, chains) = decide(meant, family, &entries);
    let mut script = String::new();
    for place in places {
        script += &format!("-D {POSTROUTING} {}\n", rules[place].text);
    }
    for chain in chains.iter().filter(|chain| saved.has_chain(chain)) {
        script += &format!("-F {chain}\n-X {chain}\n");
    }
    script
}

fn saved_entry(rule: &SavedRule) -> Option<Entry> {
    let chain = rule.target().filter(|name| names::is_chain(OWN, name))?;
    let source = rule.value("-s").and_then(|text| text.parse().ok());
    Some(Entry { chain, comment: rule.comment().unwrap_or_default(), source })
}
