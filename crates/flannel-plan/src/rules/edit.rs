//! What has to be done to a table so that it holds what it should: the difference, step by step.
//!
//! All steps of one table are one transaction, so their order matters only to the kernel's bookkeeping. Rules of
//! others are never deleted, and never moved against each other; ours go before those of strangers.

use serde::{Deserialize, Serialize};

use super::found::{FoundChain, FoundRule, FoundSet, FoundTable, RuleName};
use super::observed::{RuleScope, View, Whose, is_own_set, observed_table, tag, uses};
use super::role::Role;
use super::{Action, Fault, Rule, RuleSet, RuleTable, System, TableId, iptables};

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Edit {
    /// Make the table, if there is none, and let it act.
    MakeTable,
    /// Make our chain, or set what happens at its end.
    MakeChain(Role),
    /// Make a set, or fill it anew.
    PutSet(RuleSet),
    /// Take out a rule, by its place in the chain as it was found.
    Delete {
        /// The chain.
        chain: Box<str>,
        /// The place.
        at: usize,
    },
    /// Put rules of ours before all others of our chain.
    PutFirst(Role, Vec<Rule>),
    /// Send packets to our chain, at the end of the chain that leads there.
    AddJump(Role),
    /// Remove our chain, which is empty by then.
    DropChain(Role),
    /// Remove a set.
    DropSet(Box<str>),
    /// Remove the table.
    DropTable,
}

/// The steps that make a table hold what it should of ours, and nothing else of ours.
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
    let mut edits = Vec::new();
    if table.id.system == System::Nftables && want.is_some() && (found.is_none() || table.dormant) {
        edits.push(Edit::MakeTable);
    }
    let sets = want.map(|want| &want.sets[..]).unwrap_or_default();
    edits.extend(sets.iter().filter(|set| !has_set(table, set)).cloned().map(Edit::PutSet));
    for view in View::all(scope, table) {
        let chain = want.and_then(|want| want.chains.iter().find(|chain| chain.role == view.role));
        match chain {
            Some(chain) => put_chain(&view, &chain.rules, &mut edits),
            None if view.is_there() => drop_chain(&view, &mut edits),
            None => {}
        }
    }
    edits.extend(unwanted_sets(scope, sets, table, &edits));
    if want.is_none()
        && table.id.system == System::Nftables
        && applied(scope, found, &table.id, &edits).is_some_and(|table| table.is_bare())
    {
        edits.push(Edit::DropTable);
    }
    edits
}

fn has_set(table: &FoundTable, want: &RuleSet) -> bool {
    table.sets.iter().any(|set| set.name == want.name && set.networks == want.networks)
}

/// Sets that are not wanted any more; one that rules of strangers use cannot go.
fn unwanted_sets(scope: &RuleScope, wanted: &[RuleSet], table: &FoundTable, edits: &[Edit]) -> Vec<Edit> {
    let Some(after) = applied(scope, Some(table), &table.id, edits) else { return vec![] };
    let is_unwanted = |name: &str| {
        !wanted.iter().any(|set| *set.name == *name)
            && !after.rules().any(|(_, found)| uses(&found.rule, name))
    };
    let own = table.sets.iter().filter(|set| is_own_set(scope, table, &set.name));
    own.filter(|set| is_unwanted(&set.name)).map(|set| Edit::DropSet(set.name.clone())).collect()
}

fn put_chain(view: &View, want: &[Rule], edits: &mut Vec<Edit>) {
    let faults = view.faults();
    let is_as_wanted = view.is_there() && view.own_rules() == want;
    let misplaced =
        |fault: &Fault| matches!(fault, Fault::ForeignFirst(..) | Fault::Scattered(_) | Fault::WrongHook(_));
    let remake = faults.contains(&Fault::WrongHook(view.role));
    if !is_as_wanted || faults.iter().any(misplaced) {
        delete(view, put_anew(view), edits);
        if remake && view.owners.iter().all(|whose| matches!(whose, Whose::Mine | Whose::Common)) {
            edits.push(Edit::DropChain(view.role));
        }
        if view.chain.is_none() || remake || faults.contains(&Fault::WrongPolicy(view.role)) {
            edits.push(Edit::MakeChain(view.role));
        }
        edits.push(Edit::PutFirst(view.role, want.to_vec()));
    } else if faults.contains(&Fault::WrongPolicy(view.role)) {
        edits.push(Edit::MakeChain(view.role));
    }
    if view.system != System::Nftables {
        // Of equal rules iptables deletes the first, so the last one stays.
        let spare = view.jumps.len().saturating_sub(1);
        delete_at(view.role.base_chain(), &view.jumps[..spare], edits);
        delete_at(view.role.base_chain(), &view.old, edits);
        if view.jumps.is_empty() {
            edits.push(Edit::AddJump(view.role));
        }
    }
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
    delete(view, gone, edits);
    delete_at(view.role.base_chain(), &view.old, edits);
    if view.chain.is_some() && left == 0 && !view.lent {
        delete_at(view.role.base_chain(), &view.jumps, edits);
        edits.push(Edit::DropChain(view.role));
    }
}

fn delete(view: &View, places: Vec<usize>, edits: &mut Vec<Edit>) {
    delete_at(view.role.chain(view.system), &places, edits);
}

fn delete_at(chain: &str, places: &[usize], edits: &mut Vec<Edit>) {
    edits.extend(places.iter().map(|at| Edit::Delete { chain: chain.into(), at: *at }));
}

/// What a table holds after these steps, as the kernel would have it; for tests, and for a kernel in memory.
pub fn applied(
    scope: &RuleScope,
    found: Option<&FoundTable>,
    id: &TableId,
    edits: &[Edit],
) -> Option<FoundTable> {
    let mut table = found.cloned().unwrap_or_else(|| FoundTable::empty(id.clone()));
    let highest = table.rules().map(|(_, found)| match found.name {
        RuleName::Handle(handle) => handle,
        RuleName::Text(_) => 0,
    });
    let mut kernel =
        Model { system: id.system, tag: tag(&scope.instance), handle: highest.max().unwrap_or(0) };
    // Places are those of before, so what is deleted goes first, from behind.
    let mut gone: Vec<_> = edits
        .iter()
        .filter_map(|edit| match edit {
            Edit::Delete { chain, at } => Some((chain, *at)),
            _ => None,
        })
        .collect();
    gone.sort_by_key(|(_, at)| std::cmp::Reverse(*at));
    for (chain, at) in gone {
        kernel.chain(&mut table, chain).rules.remove(at);
    }
    for edit in edits {
        if *edit == Edit::DropTable {
            return None;
        }
        kernel.apply(&mut table, edit);
    }
    (found.is_some() || !edits.is_empty()).then_some(table)
}

/// A kernel that numbers its rules.
struct Model {
    system: System,
    tag: Box<str>,
    handle: u64,
}

impl Model {
    fn apply(&mut self, table: &mut FoundTable, edit: &Edit) {
        match edit {
            Edit::MakeTable => table.dormant = false,
            Edit::MakeChain(role) => {
                let base = (self.system == System::Nftables).then(|| role.base());
                self.chain(table, role.chain(self.system)).base = base;
            }
            Edit::PutSet(set) => {
                table.sets.retain(|found| found.name != set.name);
                table.sets.push(FoundSet { name: set.name.clone(), networks: set.networks.clone() });
            }
            Edit::PutFirst(role, rules) => {
                let rules: Vec<_> = rules.iter().map(|rule| self.found(rule.clone())).collect();
                self.chain(table, role.chain(self.system)).rules.splice(..0, rules);
            }
            Edit::AddJump(role) => {
                let jump = self.found(jump(*role, self.system));
                self.chain(table, role.base_chain()).rules.push(jump);
            }
            Edit::DropChain(role) => table.chains.retain(|chain| &*chain.name != role.chain(self.system)),
            Edit::DropSet(name) => table.sets.retain(|set| set.name != *name),
            Edit::Delete { .. } | Edit::DropTable => {}
        }
    }

    fn found(&mut self, rule: Rule) -> FoundRule {
        self.handle += 1;
        match self.system {
            System::Nftables => {
                FoundRule { rule, tag: Some(self.tag.clone()), name: RuleName::Handle(self.handle) }
            }
            _ => {
                let name = RuleName::Text(iptables::text(&rule).into());
                FoundRule { rule, tag: None, name }
            }
        }
    }

    fn chain<'a>(&self, table: &'a mut FoundTable, name: &str) -> &'a mut FoundChain {
        let at = table.chains.iter().position(|chain| &*chain.name == name).unwrap_or_else(|| {
            table.chains.push(FoundChain { name: name.into(), base: None, rules: vec![] });
            table.chains.len() - 1
        });
        &mut table.chains[at]
    }
}

/// The rule that sends packets to our chain.
pub fn jump(role: Role, system: System) -> Rule {
    Rule::new([], Action::Jump(role.chain(system).into())).comment(role.comment_of_rules())
}
