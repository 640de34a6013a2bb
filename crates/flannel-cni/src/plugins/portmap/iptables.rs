//! Port mappings by iptables: a chain a container, and chains that all share. The chains, rules and comments are
//! Go's.
//!
//! All rules of a family are made by one `iptables-restore`. What has to be known before is looked up in
//! nftables where iptables keeps its rules there; else one `iptables-save` tells.

mod leftovers;
mod rules;

use flannel_kernel::firewall::iptables::{Family, Flavour, Iptables, IptablesError, Saved};
use flannel_kernel::firewall::nft::{Is, Nft, NftError, Rule, Statement};
use ipnet::IpNet;

pub(super) use leftovers::{clean_legacy, leftovers};

use self::rules::{DNAT, MASQ, NAT, Plan, SETMARK, Words, normal};
use super::config::{self, Config};
use crate::error::CniError;
use crate::firewall::again;
use crate::request::Request;

/// Makes the rules of a container; made again, they are the same.
pub(super) fn set_up(request: &Request, config: &Config, addresses: &[IpNet]) -> Result<(), CniError> {
    for address in addresses {
        let plan = Plan::new(request, config, *address)?;
        let iptables = find(plan.family)?;
        let made = again(|| {
            let is_quick = iptables.flavour() == Flavour::Nftables && is_prepared(&plan).unwrap_or(false);
            let script = if is_quick { plan.own_script() } else { plan.script(&iptables.save(NAT)?) };
            iptables.restore(&script)
        });
        made.map_err(|why| CniError::internal(format!("unable to setup DNAT: {why}")))?;
    }
    Ok(())
}

/// Are the rules of a container there?
pub(super) fn check(request: &Request, config: &Config, addresses: &[IpNet]) -> Result<(), CniError> {
    for address in addresses {
        let plan = Plan::new(request, config, *address)?;
        let iptables = find(plan.family)?;
        let words = match plan.family {
            Family::Ipv4 => "could not check ipv4 dnat",
            Family::Ipv6 => "could not check ipv6 dnat",
        };
        let failed = |why: IptablesError| CniError::internal(format!("{words}: {why}"));
        let saved = iptables.save(NAT).map_err(failed)?;
        if !saved.has_chain(&plan.chain) {
            let text = format!("{words}: chain {} not found in iptables table {NAT}", plan.chain);
            return Err(CniError::internal(text));
        }
        let conditions = config.conditions(config::Family::of(address.addr()));
        for (chain, rule) in plan.own_rules() {
            // How iptables writes a condition of its user we do not know; it does.
            let by_program = chain == DNAT && !conditions.is_empty();
            let is_there = if by_program {
                iptables.has_rule(NAT, chain, rule).map_err(failed)?
            } else {
                has_rule(&saved, chain, rule)
            };
            if !is_there {
                let text = format!("{words}: rule {rule:?} in chain {chain} not found in table {NAT}");
                return Err(CniError::internal(text));
            }
        }
    }
    Ok(())
}

fn has_rule(saved: &Saved, chain: &str, rule: &Words) -> bool {
    saved.of_chain(chain).any(|found| normal(&found.words()) == normal(rule))
}

fn find(family: Family) -> Result<Iptables, CniError> {
    let missing = || {
        let program = match family {
            Family::Ipv4 => "iptables-restore",
            Family::Ipv6 => "ip6tables-restore",
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
    let table = plan.family.nat();
    let mut has = |chain: &str, wanted: &dyn Fn(&Rule) -> bool| {
        nft.rules(table, chain).map(|rules| rules.iter().any(|listed| wanted(&listed.rule)))
    };
    let leads_to_dnat = |rule: &Rule| rule.target() == Some(DNAT);
    if !has("PREROUTING", &leads_to_dnat)? || !has("OUTPUT", &leads_to_dnat)? {
        return Ok(false);
    }
    if let Some(bit) = plan.mark {
        let masquerades = has(MASQ, &|rule| tests_mark(rule, bit))?
            && has(SETMARK, &|rule| sets_mark(rule, bit))?
            && has("POSTROUTING", &|rule| rule.target() == Some(MASQ))?;
        if !masquerades {
            return Ok(false);
        }
    }
    Ok(!nft.has_chain(table, &plan.chain)?)
}

/// Old and new iptables write marks in different ways; the two numbers are always in that order.
fn has_numbers(bytes: &[u8], bit: u32) -> bool {
    bytes.get(..8) == Some(&[bit.to_ne_bytes(), bit.to_ne_bytes()].concat())
}

fn sets_mark(rule: &Rule, bit: u32) -> bool {
    rule.statements.iter().any(|statement| match statement {
        Statement::SetMark(value, mask) => (*value, *mask) == (bit, bit),
        other => other.extension().is_some_and(|(name, info)| name == "MARK" && has_numbers(info, bit)),
    })
}

fn tests_mark(rule: &Rule, bit: u32) -> bool {
    rule.statements.iter().any(|statement| match statement {
        Statement::Mark(Is::Equal, value, mask) => (*value, *mask) == (bit, bit),
        other => other.extension().is_some_and(|(name, info)| name == "mark" && has_numbers(info, bit)),
    })
}
