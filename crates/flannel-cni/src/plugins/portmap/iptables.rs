//! Port mappings by iptables: a chain a container, and chains that all share. The chains, rules and comments are
//! Go's.
//!
//! All rules of a family are made by one `iptables-restore`. What has to be known before is looked up in
//! nftables where iptables keeps its rules there; else one `iptables-save` tells.

mod leftovers;
mod rules;

use flannel_kernel::firewall::iptables::{Flavour, Iptables, nat};
use flannel_kernel::firewall::nft::{Nft, NftError};
use flannel_plan::family::Family;
use flannel_plan::rules::iptables::{text, words};
use flannel_plan::rules::{Is, Match, Rule, SetMark};
use ipnet::IpNet;

pub(super) use leftovers::{leftovers, may_hold};

use self::rules::{DNAT, MASQ, Plan, SETMARK, as_saved, rules};
use super::config::Config;
use crate::error::{CniError, OrInternal};
use crate::firewall::{NAT, again, observe, restore};
use crate::request::Request;

/// Makes the rules of a container; made again, they are the same.
pub(super) fn set_up(request: &Request, config: &Config, addresses: &[IpNet]) -> Result<(), CniError> {
    for address in addresses {
        let plan = Plan::new(request, config, *address)?;
        let iptables = find(plan.family)?;
        let made = again(|| {
            let is_quick = iptables.flavour() == Flavour::Nftables && is_prepared(&plan).unwrap_or(false);
            let edits = if is_quick { plan.own_edits() } else { plan.edits(&observe(&iptables)?) };
            restore(&iptables, &edits)
        });
        made.or_internal(format_args!("unable to setup DNAT"))?;
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
