//! What nftables holds: our own tables, and what the programs of iptables left in theirs.
//!
//! The kernel counts changes. While the count stays, nothing is read again.

use flannel_plan::family::Family;
use flannel_plan::rules::edit::{Edit, edits};
use flannel_plan::rules::found::{FoundChain, FoundTable, RuleName};
use flannel_plan::rules::observed::{RuleScope, tag};
use flannel_plan::rules::role::{Role, comment_of_table, own_table};
use flannel_plan::rules::tools::Ability;
use flannel_plan::rules::{System, TableId};

use super::{RulesError, Wanted, convert};
use crate::firewall::nft::{
    self, Chain, Hook, Kind, Listed, Nft, NftError, Protocol, Rule, SourcePorts, Statement, Step, Table,
    Transaction, fill_set,
};

/// Somebody else may change rules all the time.
const MOST_TRIES: usize = 5;

pub(super) struct Native {
    /// The way to nftables, or why there is none.
    nft: Result<Nft, NftError>,
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
    pub(super) fn open() -> Self {
        // Without nftables in the kernel the socket opens, and only the first question fails.
        let nft = Nft::open().and_then(|mut nft| nft.generation().map(|_| nft));
        Self { nft, system: System::Nftables, last: None }
    }

    pub(super) fn port_id(&self) -> Option<u32> {
        self.nft.as_ref().ok().map(Nft::port_id)
    }

    /// What the kernel's nftables can do: tried, and taken back; none if there is none. Where we may not even ask,
    /// looking will tell why.
    pub(super) fn ability(&mut self) -> Option<Ability> {
        if self.nft.is_err() {
            *self = Self::open(); // the module may have been loaded since
        }
        let nft = match &mut self.nft {
            Ok(nft) => nft,
            Err(why) if why.says_there_is_none() => return None,
            Err(_) => return Some(Ability { random_ports: true }),
        };
        let table = own(Family::V4);
        let masquerade = Rule::new([Statement::Masquerade(SourcePorts::Randomised)]);
        let mut trial = Transaction::default();
        trial.push(Step::AddTable(table, None));
        trial.push(Step::AddChain(table, Chain::base("trial", Kind::Nat, Hook::Postrouting, 100)));
        trial.push(Step::AddRule(table, "trial".to_owned(), masquerade));
        Some(Ability { random_ports: nft.would_commit(&trial).is_ok() })
    }

    /// Whether the kernel can keep packets from connection tracking by what they carry.
    pub(super) fn can_untrack(&mut self) -> bool {
        let table = own(Family::V4);
        let port = Statement::DestinationPort(Protocol::UDP, nft::Is::Equal, 1);
        let here = Statement::DestinationType(nft::Is::Equal, nft::LOCAL);
        let mut trial = Transaction::default();
        trial.push(Step::AddTable(table, None));
        trial.push(Step::AddChain(table, Chain::base("trial", Kind::Filter, Hook::Prerouting, -300)));
        let rule = Rule::new([port, Statement::Vxlan(1), here, Statement::NoTrack]);
        trial.push(Step::AddRule(table, "trial".to_owned(), rule));
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
        let generation = nft.generation()?;
        let known = self.last.take().filter(|last| (last.generation, last.system) == (generation, system));
        let last = match known {
            Some(last) => last,
            None => {
                let (generation, tables) = until_quiet(nft, Nft::generation, |nft| look_once(nft, system))?;
                Last { generation, system, tables }
            }
        };
        Ok(&self.last.insert(last).tables)
    }

    /// The kernel's count of changes now.
    pub(super) fn count(&mut self) -> Option<u32> {
        self.nft()?.generation().ok()
    }

    /// The kernel's count of changes at the last look.
    pub(super) fn generation(&self) -> Option<u32> {
        self.last.as_ref().map(|last| last.generation)
    }

    /// Whether the last look found this table here.
    pub(super) fn has(&self, id: &TableId) -> bool {
        self.found(id).is_some()
    }

    fn found(&self, id: &TableId) -> Option<&FoundTable> {
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
        for kind in [convert::family(family), nft::Family::Inet] {
            let is_told = |name: &str| kind != nft::Family::Inet && told.iter().any(|told| **told == *name);
            for listed in nft.tables(kind)?.into_iter().filter(|listed| !is_told(&listed.name)) {
                let id = TableId { system: System::Nftables, family, name: listed.name.as_str().into() };
                tables.push(convert::found(id, listed));
            }
        }
        Ok(tables)
    }

    /// The way to nftables; none if there is no way.
    pub(super) fn nft(&mut self) -> Option<&mut Nft> {
        self.nft.as_mut().ok()
    }

    /// The numbers of the rules that concern us in the tables of iptables: as long as they stay, nothing changed.
    pub(super) fn numbers(&mut self, family: Family) -> Result<Vec<Option<Vec<u64>>>, RulesError> {
        let nft = self.nft.as_mut().map_err(|why| why.clone())?;
        let mut numbers = Vec::new();
        for role in Role::ALL {
            let table = of_iptables(role, family);
            let own = role.chain(System::IptablesNft);
            let is_there = nft.has_chain(table, own)?;
            let rules = nft.rules(table, own)?;
            numbers.push(is_there.then(|| rules.iter().map(Listed::fingerprint).collect()));
            let leading = nft.rules(table, role.base_chain())?.into_iter().filter(|listed| {
                let comment = listed.rule.any_comment();
                listed.rule.target() == Some(own) || comment.as_deref() == Some(role.comment_of_rules())
            });
            numbers.push(Some(leading.map(|listed| listed.fingerprint()).collect()));
        }
        Ok(numbers)
    }

    /// Makes a table hold what it should; looks again if somebody else changed it meanwhile.
    pub(super) fn apply(&mut self, scope: &RuleScope, id: &TableId, want: Wanted) -> Result<(), RulesError> {
        let mut outcome = Ok(());
        for _ in 0..MOST_TRIES {
            self.observe(self.system)?;
            let steps = self.transaction(scope, id, want);
            let generation = self.last.as_ref().map(|last| last.generation);
            let nft = self.nft.as_mut().map_err(|why| why.clone())?;
            outcome = nft.commit_at(&steps, generation).map_err(RulesError::from);
            match &outcome {
                Err(RulesError::Nft(why)) if why.is_a_race() => {}
                _ => return outcome,
            }
        }
        outcome
    }

    fn transaction(&self, scope: &RuleScope, id: &TableId, want: Wanted) -> Transaction {
        let found = self.found(id);
        let empty = FoundTable::empty(id.clone());
        let mut transaction = Transaction::default();
        for edit in edits(scope, want, found) {
            transaction.extend(steps(scope, found.unwrap_or(&empty), edit));
        }
        transaction
    }
}

fn own(family: Family) -> Table {
    Table { family: convert::family(family), name: own_table(family) }
}

/// The table of iptables that a chain of ours is in.
fn of_iptables(role: Role, family: Family) -> Table {
    Table { family: convert::family(family), name: role.table_of_iptables() }
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

fn look_once(nft: &mut Nft, system: System) -> Result<Vec<FoundTable>, NftError> {
    let mut tables = Vec::new();
    for family in Family::BOTH {
        let id = TableId { system: System::Nftables, family, name: own_table(family).into() };
        match nft.table(own(family), &Role::ALL.map(|role| role.chain(System::Nftables))) {
            Ok(listed) => tables.extend(listed.map(|listed| convert::found(id, listed))),
            Err(why) if why.says_there_is_none() => {} // a kernel without this family
            Err(why) => return Err(why),
        }
    }
    if system != System::IptablesNft {
        for family in Family::BOTH {
            tables.extend(left_by_iptables(nft, family)?);
        }
    }
    Ok(tables)
}

/// What programs of iptables left in nftables: only chains that have to do with ours, and none if there are none.
fn left_by_iptables(nft: &mut Nft, family: Family) -> Result<Vec<FoundTable>, NftError> {
    let mut tables: Vec<FoundTable> = Vec::new();
    for role in Role::ALL {
        let table = of_iptables(role, family);
        let chains = chains_left(nft, role, family)?;
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
        rules: rules.into_iter().map(|listed| convert::found_rule(listed, family)).collect(),
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

/// The table of an id that is one of ours or of iptables.
fn table_of(id: &TableId) -> Table {
    let of_iptables = Role::ALL.iter().map(|role| role.table_of_iptables()).find(|name| **name == *id.name);
    let name = of_iptables.filter(|_| id.system.is_iptables()).unwrap_or(own_table(id.family));
    Table { family: convert::family(id.family), name }
}

/// An edit as steps of a transaction.
fn steps(scope: &RuleScope, found: &FoundTable, edit: Edit) -> Vec<Step> {
    let (id, table) = (&found.id, table_of(&found.id));
    match edit {
        Edit::MakeTable if found.dormant => vec![Step::WakeTable(table)],
        Edit::MakeTable => vec![Step::AddTable(table, Some(comment_of_table(id.family)))],
        Edit::MakeChain(role) => vec![Step::AddChain(table, convert::chain(role))],
        Edit::PutSet(set) => fill_set(table, &set.name, &set.networks),
        Edit::Delete { chain, at } => {
            let rule = found.chain(&chain).and_then(|chain| chain.rules.get(at));
            match rule.map(|rule| &rule.name) {
                Some(RuleName::Handle(handle)) => vec![Step::DeleteRule(table, chain.into(), *handle)],
                _ => vec![],
            }
        }
        // Each goes to the very front, so the first is put last.
        Edit::PutFirst(role, rules) => {
            let tag = tag(&scope.instance);
            let insert =
                |rule| Step::InsertRule(table, role.chain(id.system).to_owned(), convert::rule(rule, &tag));
            rules.iter().rev().map(insert).collect()
        }
        Edit::DropChain(role) => vec![Step::DeleteChain(table, role.chain(id.system).to_owned())],
        Edit::DropSet(name) => vec![Step::DeleteSet(table, name.into())],
        Edit::DropTable => vec![Step::DeleteTable(table)],
        // Only the programs of iptables write jumps.
        Edit::AddJump(_) => vec![],
    }
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
