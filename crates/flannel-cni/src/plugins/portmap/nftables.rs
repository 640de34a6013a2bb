//! Port mappings by nftables: one table a family, a rule a mapping, the container's name as the comment.
//!
//! The tables, chains and rules are Go's, so that either plugin finds what the other made. Go rewrites the base
//! chains at every ADD; we look first, for deleting makes the kernel wait.

use std::net::IpAddr;

use flannel_kernel::firewall::nft::{Listed, Nft, NftError, Table, Transaction};
use flannel_plan::family::Family;
use flannel_plan::rules::chain::{Chain, ChainType, Hook};
use flannel_plan::rules::edit::Edit;
use flannel_plan::rules::{Action, Is, Match, Rule, SourcePorts};
use ipnet::IpNet;

use super::conditions::{self, Conditions};
use super::config::{Config, Mapping, MarkedBy, localhost};
use super::owner::{self, Leads, comment_of};
use crate::error::CniError;
use crate::firewall::{Meant, Owner, change, failure, in_turn, names};
use crate::request::Request;

const TABLE: &str = "cni_hostport";
const TABLE_COMMENT: &str = "CNI portmap plugin";
const HOSTPORTS: &str = "hostports";
/// Older plugins had the mappings with an address of the host here; it is kept for theirs.
const HOSTIP_HOSTPORTS: &str = "hostip_hostports";
const HOSTPORTS_ALL: &str = "hostports_all";
const MASQUERADING: &str = "masquerading";
const PREROUTING: &str = "prerouting";
const OUTPUT: &str = "output";
const CONTAINERS: [&str; 3] = [HOSTPORTS, HOSTIP_HOSTPORTS, MASQUERADING];

/// Makes the rules of a container; made again, they are the same.
pub(super) fn set_up(request: &Request, config: &Config, addresses: &[IpNet]) -> Result<(), CniError> {
    let owner = owner::of(request);
    let mut plans = Vec::new();
    for address in addresses {
        plans.push(Plan::new(request, config, address.addr())?);
    }
    change("unable to set up nftables rules for port mappings", |nft, transaction| {
        plans.iter().try_for_each(|plan| plan.add_to(transaction, nft, &owner))
    })
}

/// What should be in the table of one family.
struct Plan {
    table: Table,
    /// The rules of the base chains; none if a program has written them just now.
    base: Option<Vec<(&'static str, Rule)>>,
    snat: bool,
    own: Vec<(&'static str, Rule)>,
}

impl Plan {
    fn new(request: &Request, config: &Config, address: IpAddr) -> Result<Self, CniError> {
        let family = Family::of(address);
        let table = Table::of(family, TABLE);
        let base = match conditions::read(family, config.conditions(family)) {
            Conditions::Known(conditions) => Some(base_rules(&conditions)),
            Conditions::Foreign(text) => {
                in_turn(|| conditions::run_nft(&script(table, &text)))?;
                None
            }
        };
        Ok(Self { table, base, snat: config.snat, own: own_rules(request, config, address)? })
    }

    fn add_to(
        &self,
        transaction: &mut Transaction,
        nft: &mut Nft,
        owner: &Owner<'_>,
    ) -> Result<(), NftError> {
        let listed = nft.all_rules(self.table)?;
        if let Some(base) = &self.base
            && !stands(&[HOSTPORTS_ALL, PREROUTING, OUTPUT], base, &listed)
        {
            transaction.push(self.table, Edit::AddTable(Some(TABLE_COMMENT.into())));
            transaction.extend(self.table, chains());
            transaction.extend(self.table, base.iter().map(addition));
        }
        if self.snat && !nft.has_chain(self.table, MASQUERADING)? {
            let chain = Chain::base(MASQUERADING, ChainType::Nat, Hook::Postrouting, 100);
            transaction.push(self.table, Edit::AddChain(chain));
        }
        let ours: Vec<_> =
            listed.into_iter().filter(|listed| is_meant(Meant::Attachment(owner), listed)).collect();
        if !stands(&CONTAINERS, &self.own, &ours) {
            transaction.extend(self.table, ours.iter().map(Listed::deletion));
            transaction.extend(self.table, self.own.iter().map(addition));
        }
        Ok(())
    }
}

fn addition((chain, rule): &(&'static str, Rule)) -> Edit {
    Edit::AppendRule((*chain).into(), rule.clone())
}

/// The chains of everybody, those that rules of ours alone stand in without what was there.
fn chains() -> [Edit; 5] {
    [
        Edit::AddChain(Chain::plain(HOSTPORTS)),
        Edit::AddChain(Chain::plain(HOSTIP_HOSTPORTS)),
        Edit::RenewChain(Chain::plain(HOSTPORTS_ALL)),
        Edit::RenewChain(Chain::base(PREROUTING, ChainType::Nat, Hook::Prerouting, -100)),
        Edit::RenewChain(Chain::base(OUTPUT, ChainType::Nat, Hook::Output, -100)),
    ]
}

fn base_rules(conditions: &[Match]) -> Vec<(&'static str, Rule)> {
    let entry = || {
        let mut matches = conditions.to_vec();
        matches.push(Match::DestinationLocal(Is::Equal));
        Rule::new(matches, Action::jump(HOSTPORTS_ALL))
    };
    vec![
        (HOSTPORTS_ALL, Rule::new([], Action::jump(HOSTIP_HOSTPORTS))),
        (HOSTPORTS_ALL, Rule::new([], Action::jump(HOSTPORTS))),
        (PREROUTING, entry()),
        (OUTPUT, entry()),
    ]
}

/// The same base chains in words for `nft`, with conditions that only it can read.
fn script(table: Table, conditions: &str) -> String {
    let entry = format!("{conditions} fib daddr type local jump {HOSTPORTS_ALL}");
    format!(
        "add table {table} {{ comment \"{TABLE_COMMENT}\" ; }}
add chain {table} {HOSTPORTS}
add chain {table} {HOSTIP_HOSTPORTS}
add chain {table} {HOSTPORTS_ALL}
flush chain {table} {HOSTPORTS_ALL}
add rule {table} {HOSTPORTS_ALL} jump {HOSTIP_HOSTPORTS}
add rule {table} {HOSTPORTS_ALL} jump {HOSTPORTS}
add chain {table} {PREROUTING} {{ type nat hook prerouting priority -100 ; }}
flush chain {table} {PREROUTING}
add rule {table} {PREROUTING} {entry}
add chain {table} {OUTPUT} {{ type nat hook output priority -100 ; }}
flush chain {table} {OUTPUT}
add rule {table} {OUTPUT} {entry}
"
    )
}

fn own_rules(
    request: &Request,
    config: &Config,
    address: IpAddr,
) -> Result<Vec<(&'static str, Rule)>, CniError> {
    let mut rules = Vec::new();
    let family = Family::of(address);
    for mapping in config.mappings.iter().filter(|mapping| mapping.host_ip.concerns(family)) {
        rules.push((HOSTPORTS, mapping_rule(config, mapping, address)?));
    }
    if config.snat {
        rules.extend(masquerade_rules(config, address).into_iter().map(|rule| (MASQUERADING, rule)));
    }
    let tag = names::tag(request);
    let signed = |rule: Rule| rule.comment(comment_of(&request.container_id)).tag(tag.as_str());
    Ok(rules.into_iter().map(|(chain, rule)| (chain, signed(rule))).collect())
}

fn mapping_rule(config: &Config, mapping: &Mapping, address: IpAddr) -> Result<Rule, CniError> {
    let mut matches: Vec<Match> = mapping.host_ip.one()?.map(Match::destination).into_iter().collect();
    matches.extend(Match::port(mapping.transport.protocol, mapping.host_port));
    let rule = Rule::new(matches, Action::Dnat(address, Some(mapping.container_port)));
    Ok(match config.mark {
        MarkedBy::Bit(bit) if config.snat && config.masquerade_all => rule.set_mark(bit, bit),
        _ => rule,
    })
}

/// The container that calls itself through the host, and the host that calls by 127.0.0.1, would be answered
/// past the host and not know the answer. Others only where all are asked for, which Go's plugin forgets.
fn masquerade_rules(config: &Config, address: IpAddr) -> Vec<Rule> {
    let to = || Match::destination(address);
    let masquerade = |matches: [Match; 2]| Rule::new(matches, Action::masquerade(SourcePorts::Kept));
    let mut rules = vec![masquerade([Match::source(address), to()])];
    rules.extend(localhost(Family::of(address)).map(|host| masquerade([Match::source(host), to()])));
    if let (true, MarkedBy::Bit(bit)) = (config.masquerade_all, &config.mark) {
        let marked = Match::Mark { is: Is::Equal, value: *bit, mask: *bit };
        rules.push(masquerade([to(), marked]));
    }
    rules
}

/// Whether what is listed of these chains is what is desired, and nothing else.
fn stands(chains: &[&str], desired: &[(&str, Rule)], listed: &[Listed]) -> bool {
    chains.iter().all(|chain| {
        let desired = desired.iter().filter(|(of, _)| of == chain).map(|(_, rule)| rule);
        desired.eq(listed.iter().filter(|listed| listed.chain == *chain).map(|listed| &listed.rule))
    })
}

fn is_meant(meant: Meant<'_>, listed: &Listed) -> bool {
    CONTAINERS.contains(&listed.chain.as_str()) && owner::is_meant(meant, &listed.rule)
}

/// What has to be deleted; the host's ports of UDP that are mapped there still are added to a list.
pub(super) fn leftovers(
    nft: &mut Nft,
    transaction: &mut Transaction,
    meant: Meant<'_>,
    udp: &mut Vec<u16>,
) -> Result<(), NftError> {
    for table in Family::BOTH.map(|family| Table::of(family, TABLE)) {
        for listed in nft.all_rules(table)?.iter().filter(|listed| is_meant(meant, listed)) {
            transaction.push(table, listed.deletion());
            udp.extend(Leads::of([&listed.rule]).udp);
        }
    }
    Ok(())
}

/// Are the rules of a container there, and does anything lead to them?
pub(super) fn check(request: &Request, config: &Config, addresses: &[IpNet]) -> Result<(), CniError> {
    let failed = |why: NftError| failure("could not check nftables rules", &why);
    let mut nft = Nft::open().map_err(failed)?;
    for address in addresses {
        let table = Table::of(Family::of_net(*address), TABLE);
        let listed = nft.all_rules(table).map_err(failed)?;
        let entered = |chain: &str, targets: &[&str]| {
            let mut rules = listed.iter().filter(|listed| listed.chain == chain);
            rules.any(|listed| listed.rule.target().is_some_and(|target| targets.contains(&target)))
        };
        // Older plugins of Go lead to the mappings without a chain between.
        let missing =
            [PREROUTING, OUTPUT].into_iter().find(|chain| !entered(chain, &[HOSTPORTS_ALL, HOSTPORTS]));
        let absent =
            |(_, rule): &&(&'static str, Rule)| !listed.iter().any(|listed| is_like(&listed.rule, rule));
        let own = own_rules(request, &without_marks(config), address.addr())?;
        let missing = missing.or_else(|| own.iter().find(absent).map(|(chain, _)| *chain));
        if let Some(chain) = missing {
            return Err(CniError::internal(format!("missing hostport rules in {chain:?} chain")));
        }
    }
    Ok(())
}

/// Go's plugin does not do `masqAll`; what it made is right nevertheless.
fn without_marks(config: &Config) -> Config {
    Config { masquerade_all: false, ..config.clone() }
}

fn is_like(found: &Rule, wanted: &Rule) -> bool {
    *found == Rule { tag: found.tag.clone(), set_mark: found.set_mark, ..wanted.clone() }
}
