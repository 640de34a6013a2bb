//! What nftables holds: our own tables, and what the programs of iptables left in theirs.
//!
//! The kernel counts changes. While the count stays, nothing is read again.

use flannel_plan::family::Family;
use flannel_plan::rules::chain::{Chain, ChainType, Hook};
use flannel_plan::rules::edit::{Edit, edits};
use flannel_plan::rules::found::{FoundChain, FoundTable};
use flannel_plan::rules::observed::RuleScope;
use flannel_plan::rules::role::Role;
use flannel_plan::rules::{Action, Is, Match, Rule, SourcePorts, System, TableId, UDP};

use super::programs::fingerprint;
use super::{RulesError, Wanted};
use crate::firewall::nft::{Listed, Nft, NftError, Table, TableFamily, Transaction};

/// Somebody else may change rules all the time.
const MOST_TRIES: usize = 5;
/// Where rules are tried, and taken back.
const TRIAL: Table = Table { family: TableFamily::Ip, name: "flannel-trial" };

pub(super) struct Native {
    /// The way to nftables, or why there is none.
    pub(super) nft: Result<Nft, NftError>,
    /// What the chains are for that concern us.
    pub(super) roles: Vec<Role>,
    /// Where rules are kept, said by whoever looked last.
    system: System,
    last: Option<Last>,
}

/// What the last look found.
struct Last {
    generation: u32,
    system: System,
    tables: Vec<FoundTable>,
}

impl Native {
    pub(super) fn open(roles: Vec<Role>) -> Self {
        // Without nftables in the kernel the socket opens, and only the first question fails.
        let nft = Nft::open().and_then(|mut nft| nft.generation().map(|_| nft));
        Self { nft, roles, system: System::Nftables, last: None }
    }

    /// How masquerade can choose ports in the kernel's nftables: tried, and taken back; none if there is none. Where we
    /// may not even ask, looking will tell why.
    pub(super) fn source_ports(&mut self) -> Option<SourcePorts> {
        if self.nft.is_err() {
            *self = Self::open(std::mem::take(&mut self.roles)); // the module may have been loaded since
        }
        let nft = match &mut self.nft {
            Ok(nft) => nft,
            Err(why) if why.says_there_is_none() => return None,
            Err(_) => return Some(SourcePorts::Randomised),
        };
        let masquerade = Rule::new([], Action::masquerade(SourcePorts::Randomised));
        let trial = trial(Chain::base("trial", ChainType::Nat, Hook::Postrouting, 100), masquerade);
        let is_possible = nft.would_commit(&trial).is_ok();
        Some(if is_possible { SourcePorts::Randomised } else { SourcePorts::Kept })
    }

    /// Whether the kernel can keep packets from connection tracking by what they carry.
    pub(super) fn can_untrack(&mut self) -> bool {
        let mut matches = Match::port(UDP, 1).to_vec();
        matches.extend([Match::Vxlan(Family::V4, 1), Match::DestinationLocal(Is::Equal)]);
        let chain = Chain::base("trial", ChainType::Filter, Hook::Prerouting, -300);
        let trial = trial(chain, Rule::new(matches, Action::Untrack));
        self.nft.as_mut().is_ok_and(|nft| nft.would_commit(&trial).is_ok())
    }

    /// Our own tables, and what the programs of iptables left if rules are kept elsewhere.
    pub(super) fn observe(&mut self, system: System) -> Result<&[FoundTable], RulesError> {
        self.system = system;
        let nft = match &mut self.nft {
            Ok(nft) => nft,
            Err(why) if why.says_there_is_none() => return Ok(&[]),
            Err(why) => return Err(why.clone().into()),
        };
        let (roles, generation) = (&self.roles, nft.generation()?);
        let known = self.last.take().filter(|last| (last.generation, last.system) == (generation, system));
        let last = match known {
            Some(last) => last,
            None => {
                let (generation, tables) =
                    until_quiet(nft, Nft::generation, |nft| look_once(nft, roles, system))?;
                Last { generation, system, tables }
            }
        };
        Ok(&self.last.insert(last).tables)
    }

    /// The kernel's count of changes at the last look.
    pub(super) fn generation(&self) -> Option<u32> {
        self.last.as_ref().map(|last| last.generation)
    }

    /// A table that the last look found here.
    pub(super) fn found(&self, id: &TableId) -> Option<&FoundTable> {
        self.last.as_ref()?.tables.iter().find(|table| table.id == *id)
    }

    /// All tables of nftables with packets of a family, but for some of that family alone, which iptables has told.
    pub(super) fn everything(
        &mut self,
        family: Family,
        told: &[Box<str>],
    ) -> Result<Vec<FoundTable>, RulesError> {
        let Ok(nft) = &mut self.nft else { return Ok(vec![]) };
        let mut tables = Vec::new();
        for kind in [family.into(), TableFamily::Inet] {
            let is_told = |name: &str| kind != TableFamily::Inet && told.iter().any(|told| **told == *name);
            let found = nft.tables(kind, family)?;
            tables.extend(found.into_iter().filter(|table| !is_told(&table.id.name)));
        }
        Ok(tables)
    }

    /// The fingerprints of our chains in the tables of iptables, and of the rules that lead to them.
    pub(super) fn fingerprints(&mut self, family: Family) -> Result<Vec<Option<u64>>, RulesError> {
        let nft = self.nft.as_mut().map_err(|why| why.clone())?;
        let mut found = Vec::new();
        for role in &self.roles {
            let (table, own) = (of_iptables(*role, family), role.chain(System::IptablesNft));
            let is_there = nft.has_chain(table, own)?;
            let rules = nft.rules(table, own)?;
            found.push(is_there.then(|| fingerprint(&rules)));
            let mut leading = nft.rules(table, role.base_chain())?;
            leading.retain(|Listed { rule, .. }| {
                rule.target() == Some(own) || rule.comment.as_deref() == Some(role.comment_of_rules())
            });
            found.push((!leading.is_empty()).then(|| fingerprint(&leading)));
        }
        Ok(found)
    }

    /// Makes a table hold what it should; looks again if somebody else changed it meanwhile.
    pub(super) fn apply(&mut self, scope: &RuleScope, id: &TableId, want: Wanted) -> Result<(), RulesError> {
        let mut outcome = Ok(());
        for _ in 0..MOST_TRIES {
            self.observe(self.system)?;
            let mut steps = Transaction::default();
            steps.extend(self.table_of(id), edits(scope, want, self.found(id)));
            let generation = self.generation();
            let nft = self.nft.as_mut().map_err(|why| why.clone())?;
            outcome = nft.commit_at(&steps, generation).map_err(RulesError::from);
            match &outcome {
                Err(RulesError::Nft(why)) if why.is_a_race() => {}
                _ => return outcome,
            }
        }
        outcome
    }

    /// The table of an id that is one of ours or of iptables.
    fn table_of(&self, id: &TableId) -> Table {
        let names = self.roles.iter().map(|role| role.table(id.system, id.family));
        Table::of(id.family, names.into_iter().find(|name| **name == *id.name).unwrap_or_default())
    }
}

/// The table of iptables that a chain of ours is in.
fn of_iptables(role: Role, family: Family) -> Table {
    Table::of(family, role.table_of_iptables())
}

/// Reads again if somebody changed rules meanwhile, but not for ever; with the count of changes before the reading.
/// What may be half old and half new is known by a count that is past, so it is neither kept nor changed by.
fn until_quiet<S, T>(
    source: &mut S,
    count: impl Fn(&mut S) -> Result<u32, NftError>,
    read: impl Fn(&mut S) -> Result<T, NftError>,
) -> Result<(u32, T), NftError> {
    let mut before = count(source)?;
    for _ in 1..MOST_TRIES {
        let found = read(source)?;
        let after = count(source)?;
        if after == before {
            return Ok((before, found));
        }
        before = after;
    }
    Ok((before, read(source)?))
}

fn look_once(nft: &mut Nft, roles: &[Role], system: System) -> Result<Vec<FoundTable>, NftError> {
    let mut tables = Vec::new();
    for family in Family::BOTH {
        let Some(name) = roles.first().map(|role| role.table(System::Nftables, family)) else { continue };
        let id = TableId { system: System::Nftables, family, name: name.into() };
        let likely: Vec<_> = roles.iter().map(|role| role.chain(System::Nftables)).collect();
        match nft.table(id, &likely) {
            Ok(found) => tables.extend(found),
            Err(why) if why.says_there_is_none() => {} // a kernel without this family
            Err(why) => return Err(why),
        }
    }
    if system != System::IptablesNft {
        for family in Family::BOTH {
            tables.extend(left_by_iptables(nft, roles, family)?);
        }
    }
    Ok(tables)
}

/// What programs of iptables left in nftables: only chains that have to do with ours, and none if there are none.
fn left_by_iptables(nft: &mut Nft, roles: &[Role], family: Family) -> Result<Vec<FoundTable>, NftError> {
    let mut tables: Vec<FoundTable> = Vec::new();
    for role in roles {
        let table = of_iptables(*role, family);
        let chains = chains_left(nft, *role, family)?;
        let id = TableId { system: System::IptablesNft, family, name: table.name.into() };
        match tables.iter_mut().find(|table| table.id == id) {
            Some(table) => table.chains.extend(chains),
            None if chains.is_empty() => {}
            None => tables.push(FoundTable { chains, ..FoundTable::empty(id) }),
        }
    }
    Ok(tables)
}

/// The chain that leads to ours, ours, and then also others' that lead to it: it cannot go while they are there.
fn chains_left(nft: &mut Nft, role: Role, family: Family) -> Result<Vec<FoundChain>, NftError> {
    let table = of_iptables(role, family);
    let own = role.chain(System::IptablesNft);
    let has_own = nft.has_chain(table, own)?;
    let found = |name: &str, rules: Vec<Listed>| FoundChain {
        name: name.into(),
        base: None,
        rules: rules.into_iter().filter_map(|listed| listed.found_about(family)).collect(),
    };
    let mut chains = vec![found(role.base_chain(), nft.rules(table, role.base_chain())?)];
    if has_own {
        let (ours, others): (Vec<_>, Vec<_>) =
            nft.all_rules(table)?.into_iter().partition(|listed| listed.chain == own);
        chains.push(found(own, ours));
        let leads = |listed: &Listed| listed.chain != role.base_chain() && listed.rule.target() == Some(own);
        let leading = others.into_iter().filter(leads);
        chains.extend(leading.map(|listed| found(&listed.chain.clone(), vec![listed])));
    }
    chains.retain(|chain| &*chain.name == own || !chain.rules.is_empty());
    Ok(chains)
}

/// A rule in a chain of its own, to be tried and taken back.
fn trial(chain: Chain, rule: Rule) -> Transaction {
    let mut trial = Transaction::default();
    let append = Edit::AppendRule(chain.name.clone(), rule);
    trial.extend(TRIAL, [Edit::AddTable(None), Edit::AddChain(chain), append]);
    trial
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel whose rules change during the first readings, and how often it was read.
    struct Busy {
        changes: u32,
        generation: u32,
        read: u32,
    }

    fn observe(busy: &mut Busy) -> (u32, u32) {
        let read = |busy: &mut Busy| {
            busy.read += 1;
            busy.generation += u32::from(busy.read <= busy.changes);
            Ok(busy.generation)
        };
        until_quiet(busy, |busy| Ok(busy.generation), read).unwrap()
    }

    #[test]
    fn what_was_read_while_rules_changed_is_known_by_a_count_that_is_past() {
        let mut busy = Busy { changes: u32::MAX, generation: 10, read: 0 };
        let (count, _) = observe(&mut busy);
        assert_eq!(busy.read, 5);
        assert_ne!(count, busy.generation, "the next look would take it for what is there");
        let mut quiet = Busy { changes: 2, generation: 10, read: 0 };
        assert_eq!((observe(&mut quiet), quiet.read), ((12, 12), 3));
    }
}
