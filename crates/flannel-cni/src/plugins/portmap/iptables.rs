//! Port mappings by iptables: a chain a container, and chains that all share. The chains, rules and comments are
//! Go's.
//!
//! All rules of a family are made by one `iptables-restore`. What has to be known before is looked up in
//! nftables where iptables keeps its rules there; else one `iptables-save` tells.

mod rules;

use flannel_kernel::firewall::iptables::{Iptables, nat};
use flannel_kernel::firewall::nft::{Nft, NftError};
use flannel_plan::family::Family;
use flannel_plan::rules::edit::Edit;
use flannel_plan::rules::iptables::{text, words};
use flannel_plan::rules::{Is, Match, Rule, SetMark, System};
use ipnet::IpNet;

use self::rules::{DNAT, MASQ, OWN, Plan, SETMARK, as_saved, rules};
use super::config::Config;
use super::owner::{Leads, may_own};
use crate::error::{CniError, OrInternal};
use crate::firewall::{self, Meant, NAT, NatTable, again, names, observe, restore, without_chains};
use crate::request::Request;

/// The chains whose rules jump to those of containers, and how the latter's names begin. The second is that of plugins
/// before 0.7.
pub(super) const SHARED: [(&str, &str); 2] = [(DNAT, OWN), ("CNI-HOSTPORT-SNAT", "CNI-SN-")];

/// Makes the rules of a container; made again, they are the same.
pub(super) fn set_up(request: &Request, config: &Config, addresses: &[IpNet]) -> Result<(), CniError> {
    for address in addresses {
        let plan = Plan::new(request, config, *address)?;
        let iptables = find(plan.family)?;
        again("unable to setup DNAT", || {
            let is_quick = iptables.system == System::IptablesNft && is_prepared(&plan).unwrap_or(false);
            let edits = if is_quick { plan.own_edits() } else { plan.edits(&observe(&iptables)?) };
            restore(&iptables, &edits)
        })?;
    }
    Ok(())
}

/// Are the rules of a container there?
pub(super) fn check(request: &Request, config: &Config, addresses: &[IpNet]) -> Result<(), CniError> {
    for address in addresses {
        let plan = Plan::new(request, config, *address)?;
        let iptables = find(plan.family)?;
        let what = match plan.family {
            Family::V4 => "could not check ipv4 dnat",
            Family::V6 => "could not check ipv6 dnat",
        };
        let found = observe(&iptables).or_internal(format_args!("{what}"))?;
        if found.chain(&plan.chain).is_none() {
            let text = format!("{what}: chain {} not found in iptables table {NAT}", plan.chain);
            return Err(CniError::internal(text));
        }
        let conditions = config.conditions(plan.family);
        for (chain, rule) in plan.own_rules() {
            // How iptables writes a condition of its user we do not know; it does.
            let by_program = chain == DNAT && !conditions.is_empty();
            let is_there = if by_program {
                iptables.has_rule(NAT, chain, &words(&text(rule))).or_internal(format_args!("{what}"))?
            } else {
                rules(&found, chain).iter().any(|found| found.rule == as_saved(rule))
            };
            if !is_there {
                let text = format!(
                    "{what}: rule {:?} in chain {chain} not found in table {NAT}",
                    words(&text(rule))
                );
                return Err(CniError::internal(text));
            }
        }
    }
    Ok(())
}

fn find(family: Family) -> Result<Iptables, CniError> {
    let missing = || {
        let program = match family {
            Family::V4 => "iptables-restore",
            Family::V6 => "ip6tables-restore",
        };
        CniError::internal(format!("failed to open iptables: {program} is not in PATH"))
            .details("install iptables, or choose the backend nftables")
    };
    Iptables::find(family).ok_or_else(missing)
}

/// Whether everything that containers share is there and the container has nothing: then only its own rules
/// have to be made, and nothing has to be saved first.
fn is_prepared(plan: &Plan) -> Result<bool, NftError> {
    let mut nft = Nft::open()?;
    let table = nat(plan.family);
    let mut has = |chain: &str, wanted: &dyn Fn(&Rule) -> bool| {
        nft.rules(table, chain).map(|rules| rules.iter().any(|listed| wanted(&listed.rule)))
    };
    let leads_to_dnat = |rule: &Rule| rule.target() == Some(DNAT);
    if !has("PREROUTING", &leads_to_dnat)? || !has("OUTPUT", &leads_to_dnat)? {
        return Ok(false);
    }
    if let Some(bit) = plan.mark {
        let mark = Match::Mark { is: Is::Equal, value: bit, mask: bit };
        let masquerades = has(MASQ, &|rule| rule.matches.contains(&mark))?
            && has(SETMARK, &|rule| rule.set_mark == Some(SetMark { value: bit, mask: bit }))?
            && has("POSTROUTING", &|rule| rule.target() == Some(MASQ))?;
        if !masquerades {
            return Ok(false);
        }
    }
    Ok(!nft.has_chain(table, &plan.chain)?)
}

/// What has to be deleted; the host's ports of UDP that are mapped there still are added to a list.
pub(super) fn leftovers(
    table: &mut NatTable<'_>,
    meant: Meant<'_>,
    udp: &mut Vec<u16>,
) -> Result<Vec<Edit>, NftError> {
    let mut edits = Vec::new();
    for (shared, prefix) in SHARED {
        let is_meant = |table: &mut NatTable<'_>, chain: &str, rule: &Rule| {
            let comment = rule.comment.as_deref().unwrap_or_default();
            let named = ["dnat ", "snat "].into_iter().find_map(|words| names::read_comment(words, comment));
            match meant {
                _ if !meant.takes_chain(prefix, chain, named) => Ok(false),
                // It names our container and another network: ours by an older name, or that of another interface.
                Meant::Attachment(owner) if names::own_chain(prefix, owner.request) != chain => {
                    Ok(may_own(owner, &leads(table, chain)?))
                }
                _ => Ok(true),
            }
        };
        let (deletions, chains) = firewall::leftovers(table, (shared, prefix), meant, &is_meant)?;
        for chain in &chains {
            udp.extend(leads(table, chain)?.udp);
        }
        edits.extend(deletions);
        edits.extend(without_chains(chains));
    }
    Ok(edits)
}

fn leads(table: &mut NatTable<'_>, chain: &str) -> Result<Leads, NftError> {
    Ok(Leads::of(table.rules(chain)?.iter().map(|found| &found.rule)))
}
