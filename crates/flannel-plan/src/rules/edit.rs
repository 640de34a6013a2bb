//! What has to be done to a table so that it holds what it should: the difference, edit by edit.
//!
//! All edits of one table are one transaction, of which a batch of nftables and a script of iptables are two
//! spellings. Rules of others are never deleted, and never moved against each other; ours go before those of strangers.

use super::chain::Chain;
use super::found::{FoundChain, FoundRule, FoundTable, RuleName};
use super::observed::{RuleScope, View, Whose, is_own_set, observed_table, tag, uses};
use super::{Fault, Rule, RuleSet, RuleTable, System, TableId, iptables};

/// One change to a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Make the table, if there is none, with a comment.
    AddTable(Option<Box<str>>),
    /// Let the table act, which was dormant.
    WakeTable,
    /// Make a chain; in nftables only if there is none, and else set what happens at its end.
    AddChain(Chain),
    /// Make a chain, or empty it.
    RenewChain(Chain),
    FlushChain(Box<str>),
    AppendRule(Box<str>, Rule),
    /// Put rules before all others of a chain, in their order.
    InsertRules(Box<str>, Vec<Rule>),
    DeleteRule(Box<str>, RuleName),
    /// Make a set, or fill it anew; none of its networks may overlap another.
    PutSet(RuleSet),
    /// Remove a chain that is empty and that nothing jumps to.
    DeleteChain(Box<str>),
    /// Remove a set that no rule uses.
    DeleteSet(Box<str>),
    DeleteTable,
}

/// The edits that make a table hold what it should of ours, and nothing else of ours.
pub fn edits(scope: &RuleScope, want: Option<&RuleTable>, found: Option<&FoundTable>) -> Vec<Edit> {
    let empty;
    let table = match (found, want) {
        (Some(found), _) => found,
        (None, Some(want)) => {
            empty = FoundTable::empty(want.id.clone());
            &empty
        }
        (None, None) => return vec![],
    };
    if found.is_some() && observed_table(scope, table).as_ref() == want {
        return vec![];
    }
    let mut edits = prepare(scope, want, (table, found.is_some()));
    let sets = want.map(|want| &want.sets[..]).unwrap_or_default();
    edits.extend(sets.iter().filter(|set| !table.sets.contains(set)).cloned().map(Edit::PutSet));
    for view in View::all(scope, table) {
        let chain = want.and_then(|want| want.chains.iter().find(|chain| chain.role == view.role));
        match chain {
            Some(chain) => put_chain(scope, &view, &chain.rules, &mut edits),
            None if view.is_there() => drop_chain(&view, &mut edits),
            None => {}
        }
    }
    edits.extend(unwanted_sets(scope, sets, table, &edits));
    if want.is_none()
        && table.id.system == System::Nftables
        && applied(found, &table.id, &edits).is_some_and(|table| table.is_bare())
    {
        edits.push(Edit::DeleteTable);
    }
    edits
}

/// What comes first: the table, and what is in the way of ours.
fn prepare(scope: &RuleScope, want: Option<&RuleTable>, (table, is_there): (&FoundTable, bool)) -> Vec<Edit> {
    let mut edits = Vec::new();
    if let Some(want) = want.filter(|want| want.id.system == System::Nftables) {
        let role = want.chains.first().map(|chain| chain.role);
        let comment = role.map(|role| role.comment_of_table(table.id.family).into());
        edits.extend((!is_there).then_some(Edit::AddTable(comment)));
        edits.extend(table.dormant.then_some(Edit::WakeTable));
    }
    // A set of our name and of another kind cannot be altered, and goes when no rule of ours uses it any more.
    for name in table.other_sets.iter().filter(|name| **name == scope.set()) {
        let own = View::all(scope, table).filter(|view| view.role.owns_its_chain() && view.chain.is_some());
        edits.extend(own.map(|view| Edit::FlushChain(view.name().into())));
        edits.push(Edit::DeleteSet(name.clone()));
    }
    edits
}

/// Sets that are not wanted any more; one that rules of strangers use cannot go.
fn unwanted_sets(scope: &RuleScope, wanted: &[RuleSet], table: &FoundTable, edits: &[Edit]) -> Vec<Edit> {
    let Some(after) = applied(Some(table), &table.id, edits) else { return vec![] };
    let is_unwanted = |name: &str| {
        !wanted.iter().any(|set| *set.name == *name)
            && !after.rules().any(|(_, found)| uses(&found.rule, name))
    };
    let own = table.sets.iter().filter(|set| is_own_set(scope, table, &set.name));
    own.filter(|set| is_unwanted(&set.name)).map(|set| Edit::DeleteSet(set.name.clone())).collect()
}

fn put_chain(scope: &RuleScope, view: &View, want: &[Rule], edits: &mut Vec<Edit>) {
    let faults = view.faults();
    let is_as_wanted = view.is_there() && view.own_rules() == want;
    let misplaced =
        |fault: &Fault| matches!(fault, Fault::ForeignFirst(..) | Fault::Scattered(_) | Fault::WrongHook(_));
    let remake = faults.contains(&Fault::WrongHook(view.role));
    let make = Edit::AddChain(view.role.to_chain(view.system));
    if !is_as_wanted || faults.iter().any(misplaced) {
        clear(view, &put_anew(view), edits);
        if remake && view.owners.iter().all(|whose| matches!(whose, Whose::Mine | Whose::Common)) {
            edits.push(Edit::DeleteChain(view.name().into()));
        }
        if view.chain.is_none() || remake || faults.contains(&Fault::WrongPolicy(view.role)) {
            edits.push(make);
        }
        edits.push(Edit::InsertRules(view.name().into(), signed(scope, view, want)));
    } else if faults.contains(&Fault::WrongPolicy(view.role)) {
        edits.push(make);
    }
    if view.system != System::Nftables {
        // Of equal rules iptables deletes the first, so the last one stays.
        let spare = view.jumps.len().saturating_sub(1);
        delete(view.base, &view.jumps[..spare], edits);
        delete(view.base, &view.old, edits);
        if view.jumps.is_empty() {
            edits.push(Edit::AppendRule(view.role.base_chain().into(), view.role.jump(view.system)));
        }
    }
}

/// Rules with the name of the instance beside them, where there is a place for it, and where others may have theirs.
fn signed(scope: &RuleScope, view: &View, rules: &[Rule]) -> Vec<Rule> {
    let shared = view.system == System::Nftables && !view.role.owns_its_chain();
    let tag = shared.then(|| tag(&scope.instance));
    rules.iter().map(|rule| Rule { tag: tag.clone(), ..rule.clone() }).collect()
}

/// What is taken out to be put in again: in iptables what is common goes to the front with ours.
fn put_anew(view: &View) -> Vec<usize> {
    match view.system {
        System::Nftables => view.own(),
        _ => view.places(|whose| matches!(whose, Whose::Mine | Whose::Common)),
    }
}

fn drop_chain(view: &View, edits: &mut Vec<Edit>) {
    let needed = view.is_common_needed();
    let gone = view.places(|whose| whose == Whose::Mine || whose == Whose::Common && !needed);
    let left = view.owners.len() - gone.len();
    clear(view, &gone, edits);
    delete(view.base, &view.old, edits);
    let goes = view.chain.is_some() && left == 0 && !view.lent;
    if goes || view.role.owns_its_chain() {
        delete(view.base, &view.jumps, edits);
    }
    edits.extend(goes.then(|| Edit::DeleteChain(view.name().into())));
}

/// Takes rules out of our chain: those at these places, or all if it is ours as a whole.
fn clear(view: &View, places: &[usize], edits: &mut Vec<Edit>) {
    match view.role.owns_its_chain() {
        true if !places.is_empty() => edits.push(Edit::FlushChain(view.name().into())),
        true => {}
        false => delete(view.chain, places, edits),
    }
}

fn delete(chain: Option<&FoundChain>, places: &[usize], edits: &mut Vec<Edit>) {
    let Some(chain) = chain else { return };
    let rules = places.iter().filter_map(|at| chain.rules.get(*at));
    edits.extend(rules.map(|found| Edit::DeleteRule(chain.name.clone(), found.name.clone())));
}

/// What a table holds after these edits, as the kernel would have it; for tests, and for a kernel in memory.
pub fn applied(found: Option<&FoundTable>, id: &TableId, edits: &[Edit]) -> Option<FoundTable> {
    let table = found.cloned().unwrap_or_else(|| FoundTable::empty(id.clone()));
    let highest = table.rules().map(|(_, found)| match found.name {
        RuleName::Handle(handle) => handle,
        RuleName::Text(_) => 0,
    });
    let handle = highest.max().unwrap_or(0);
    let mut kernel = Model { table, handle };
    for edit in edits {
        if *edit == Edit::DeleteTable {
            return None;
        }
        kernel.apply(edit);
    }
    (found.is_some() || !edits.is_empty()).then_some(kernel.table)
}

/// A kernel that numbers its rules.
struct Model {
    table: FoundTable,
    handle: u64,
}

impl Model {
    fn apply(&mut self, edit: &Edit) {
        match edit {
            Edit::WakeTable => self.table.dormant = false,
            Edit::AddChain(chain) => self.chain(&chain.name).base = chain.base,
            Edit::RenewChain(chain) => {
                let found = self.chain(&chain.name);
                (found.base, found.rules) = (chain.base, vec![]);
            }
            Edit::FlushChain(name) => self.chain(name).rules.clear(),
            Edit::PutSet(set) => {
                self.table.sets.retain(|found| found.name != set.name);
                self.table.sets.push(set.clone());
            }
            Edit::InsertRules(chain, rules) => {
                let rules: Vec<_> = rules.iter().map(|rule| self.found(rule.clone())).collect();
                self.chain(chain).rules.splice(..0, rules);
            }
            Edit::AppendRule(chain, rule) => {
                let rule = self.found(rule.clone());
                self.chain(chain).rules.push(rule);
            }
            Edit::DeleteRule(chain, name) => {
                let rules = &mut self.chain(chain).rules;
                rules.iter().position(|found| found.name == *name).map(|at| rules.remove(at));
            }
            Edit::DeleteChain(name) => self.table.chains.retain(|chain| chain.name != *name),
            Edit::DeleteSet(name) => {
                self.table.sets.retain(|set| set.name != *name);
                self.table.other_sets.retain(|set| set != name);
            }
            Edit::AddTable(_) | Edit::DeleteTable => {}
        }
    }

    fn found(&mut self, rule: Rule) -> FoundRule {
        self.handle += 1;
        let name = match self.table.id.system {
            System::Nftables => RuleName::Handle(self.handle),
            _ => RuleName::Text(iptables::text(&rule).into()),
        };
        FoundRule { rule, name }
    }

    fn chain(&mut self, name: &str) -> &mut FoundChain {
        let chains = &mut self.table.chains;
        let at = chains.iter().position(|chain| &*chain.name == name).unwrap_or_else(|| {
            chains.push(FoundChain { name: name.into(), base: None, rules: vec![] });
            chains.len() - 1
        });
        &mut chains[at]
    }
}
