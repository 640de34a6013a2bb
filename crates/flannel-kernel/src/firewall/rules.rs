//! The rules of a node: looks at them in every system that can hold them, and changes what has to change.
//!
//! [`Rules::observation`] costs one question to the kernel while nothing changes, and no program is run then: nftables
//! counts its changes, and what iptables keeps is compared by numbers or by bytes. [`Rules::apply`] makes each
//! table right in one transaction. [`watch::RuleWatch`] tells when it is worth to look.

mod failure;
pub(super) mod legacy;
mod listed;
mod native;
mod programs;
mod translation;
pub mod watch;

use flannel_plan::family::{ByFamily, Family};
use flannel_plan::rules::edit::edits;
use flannel_plan::rules::explain::Step;
use flannel_plan::rules::found::{FoundTable, RuleObservation, Unreadable};
use flannel_plan::rules::iptables::Saved;
use flannel_plan::rules::observed::RuleScope;
use flannel_plan::rules::tools::{Ability, Program, Tools};
use flannel_plan::rules::{RuleChange, RuleTable, System, TableId, iptables as language};

pub use failure::{RuleFailure, RulesError};

use super::iptables::{Flavour, Iptables};
use native::Native;
use programs::Programs;
use translation::Translation;

/// The rules of this machine, in one network namespace: that of the thread that opened it, and that uses it.
pub struct Rules {
    native: Native,
    programs: Vec<Programs>,
    /// The tables of the last look, which changes are made to.
    found: Vec<FoundTable>,
    leftovers: legacy::Leftovers,
    translations: Vec<Translation>,
}

impl Default for Rules {
    fn default() -> Self {
        Self::open()
    }
}

impl Rules {
    /// Finds out what there is to look at, in the namespace of this thread.
    pub fn open() -> Self {
        let (native, leftovers) = (Native::open(), legacy::Leftovers::default());
        Self { native, programs: Vec::new(), found: Vec::new(), leftovers, translations: Vec::new() }
    }

    /// The port ID of our netlink socket, which notices carry; none if the kernel has no nftables.
    pub fn port_id(&self) -> Option<u32> {
        self.native.port_id()
    }

    /// What the kernel's nftables can do; none if the kernel has none.
    pub fn nftables(&mut self) -> Option<Ability> {
        self.native.ability()
    }

    /// What this host can hold rules of some families with; runs the program of iptables of each once.
    pub fn tools(&mut self, families: &[Family]) -> Tools {
        let mut programs = ByFamily::default();
        for family in families {
            *programs.slot(*family) = Iptables::find(*family).map(|found| program(&found));
        }
        Tools { nftables: self.native.ability(), iptables: programs }
    }

    /// Whether a system can keep tunnel packets from connection tracking; not every kernel has what it takes. None if
    /// it could not be tried, because another program kept the lock of iptables.
    pub fn can_untrack(&mut self, system: System, family: Family) -> Option<bool> {
        match system {
            System::Nftables => Some(self.native.can_untrack()),
            _ => self.programs(system, family).map_or(Some(false), |at| self.programs[at].can_untrack()),
        }
    }

    /// Looks at everything that may be ours while rules are kept in one system: there, and in the others for
    /// what an earlier mode or Go flannel left.
    pub fn observe(&mut self, system: System) -> RuleObservation {
        let mut observation = RuleObservation::default();
        match self.native.observe(system) {
            Ok(tables) => observation.tables.extend_from_slice(tables),
            Err(why) => observation
                .unreadable
                .extend(Family::BOTH.map(|family| not_readable(System::Nftables, family, &why))),
        }
        let check_legacy = self.leftovers.are_due(system);
        for family in Family::BOTH {
            if system == System::IptablesNft {
                let found = self.observe_by_program(system, family);
                add(&mut observation, (system, family), found);
            }
            // In nftables the leftovers of iptables are found without a program, by `native`.
            let legacy = System::IptablesLegacy;
            if system == legacy || check_legacy && legacy::has_ours(family) {
                self.leftovers.found_some(system);
                let found = self.observe_by_program(legacy, family);
                add(&mut observation, (legacy, family), found);
            }
        }
        self.found.clone_from(&observation.tables);
        observation
    }

    /// Whether the programs of iptables cannot show a table; runs one. Whatever else is wrong, a look tells.
    pub fn cannot_read(&mut self, table: &TableId) -> bool {
        let programs = self.programs(table.system, table.family);
        programs.is_ok_and(|at| self.programs[at].cannot_read(&table.name))
    }

    /// Every table of a family, everybody's, for an explanation: runs the programs of iptables.
    pub fn observe_everything(&mut self, family: Family) -> RuleObservation {
        let mut observation = RuleObservation::default();
        let by_program = Programs::find(System::IptablesNft, family).and_then(|programs| programs.save());
        // What the program cannot read is told as nftables sees it, without the names of matches.
        let shown: Vec<Box<str>> =
            by_program.iter().flat_map(|saved| &saved.tables).map(|table| table.id.name.clone()).collect();
        let native = self.native.everything(family, &shown);
        let native = native.map(|tables| Saved { tables, unreadable: vec![] });
        add(&mut observation, (System::Nftables, family), native);
        match by_program {
            Err(RulesError::NoProgram(_)) => {}
            found => {
                let found = found.map(|saved| Saved { unreadable: vec![], ..saved });
                add(&mut observation, (System::IptablesNft, family), found);
            }
        }
        add(&mut observation, (System::IptablesLegacy, family), all_legacy(family));
        observation
    }

    /// A rule of this host that translates packets to a UDP port, whoever made it. Looks again if anything changed; a
    /// program is run only for tables of legacy iptables.
    pub fn translation_of(&mut self, family: Family, port: u16) -> Result<Option<Step>, RulesError> {
        let known = self.translations.iter().position(|known| known.is_about(family, port));
        let at = known.unwrap_or_else(|| {
            self.translations.push(Translation::new(family, port));
            self.translations.len() - 1
        });
        self.translations[at].observe(&mut self.native)
    }

    fn observe_by_program(&mut self, system: System, family: Family) -> Result<Saved, RulesError> {
        match self.programs(system, family) {
            Ok(at) => self.programs[at].observe(&mut self.native),
            // Many hosts have no program for a family that they do not use.
            Err(_) if programs::has_none(system, family, &mut self.native)? => Ok(Saved::default()),
            Err(why) => Err(why),
        }
    }

    /// The place of the programs of a system and a family; they are looked for until they are found.
    fn programs(&mut self, system: System, family: Family) -> Result<usize, RulesError> {
        let known = self.programs.iter().position(|known| known.is_of(system, family));
        if let Some(at) = known {
            return Ok(at);
        }
        self.programs.push(Programs::find(system, family)?);
        Ok(self.programs.len() - 1)
    }

    /// Makes changes to the tables of the last look; goes on after a failure, and returns all failures.
    ///
    /// What makes rules is done before what only removes them: packets never find neither the old nor the new.
    pub fn apply(&mut self, scope: &RuleScope, changes: &[RuleChange]) -> Vec<RuleFailure> {
        let (make, remove): (Vec<_>, Vec<_>) = changes.iter().partition(|change| change.to.is_some());
        let mut failures = self.apply_together(scope, &make);
        failures.extend(self.apply_together(scope, &remove));
        failures
    }

    fn apply_together(&mut self, scope: &RuleScope, changes: &[&RuleChange]) -> Vec<RuleFailure> {
        let mut failures = Vec::new();
        let mut by_program: Vec<((System, Family), Vec<&RuleChange>)> = Vec::new();
        for (id, change) in changes.iter().filter_map(|change| Some((change.id()?, *change))) {
            if self.is_native(id) {
                let done = self.native.apply(scope, id, change.to.as_ref());
                failures.extend(done.err().map(|why| RuleFailure { id: id.clone(), why }));
                continue;
            }
            let place = (id.system, id.family);
            match by_program.iter_mut().find(|(known, _)| *known == place) {
                Some((_, changes)) => changes.push(change),
                None => by_program.push((place, vec![change])),
            }
        }
        for (place, changes) in by_program {
            failures.extend(self.restore(scope, place, &changes));
        }
        failures
    }

    /// Whether a table is changed by netlink: our own, and leftovers of iptables that were found there.
    fn is_native(&self, id: &TableId) -> bool {
        id.system == System::Nftables || self.native.has(id)
    }

    /// Changes tables of iptables: one script for all of them, which the program commits table by table.
    fn restore(
        &mut self,
        scope: &RuleScope,
        (system, family): (System, Family),
        changes: &[&RuleChange],
    ) -> Vec<RuleFailure> {
        let script: String = changes.iter().filter_map(|change| self.script(scope, change)).collect();
        let done = self.programs(system, family).and_then(|at| self.programs[at].restore(&script));
        let Err(why) = done else { return vec![] };
        // Some of the tables may be done: only a look tells which.
        let now = self.observe_by_program(system, family).unwrap_or_default().tables;
        let failed = changes.iter().filter_map(|change| Some((change.id()?, change.to.as_ref()))).filter(
            |(id, to)| {
                let found = now.iter().find(|table| table.id == **id);
                !edits(scope, *to, found).is_empty()
            },
        );
        failed.map(|(id, _)| RuleFailure { id: id.clone(), why: why.clone() }).collect()
    }

    fn script(&self, scope: &RuleScope, change: &RuleChange) -> Option<String> {
        let id = change.id()?;
        let found = self.found.iter().find(|table| table.id == *id);
        let edits = edits(scope, change.to.as_ref(), found);
        (!edits.is_empty()).then(|| language::script(&id.name, &edits))
    }
}

/// Adds what was found in one place, and where nothing could be seen.
fn add(
    observation: &mut RuleObservation,
    (system, family): (System, Family),
    found: Result<Saved, RulesError>,
) {
    match found {
        Ok(Saved { tables, unreadable }) => {
            observation.tables.extend(tables);
            observation.unreadable.extend(unreadable.into_iter().map(|table| {
                let why = RulesError::Unreadable(TableId { system, family, name: table.clone() });
                Unreadable { table: Some(table), ..not_readable(system, family, &why) }
            }));
        }
        Err(why) => observation.unreadable.push(not_readable(system, family, &why)),
    }
}

/// Every table of legacy iptables that is in use.
fn all_legacy(family: Family) -> Result<Saved, RulesError> {
    if !legacy::is_used(family) {
        return Ok(Saved::default());
    }
    Programs::find(System::IptablesLegacy, family)?.save()
}

fn not_readable(system: System, family: Family, why: &RulesError) -> Unreadable {
    let why = why.hint().map_or_else(|| why.to_string(), |hint| format!("{why}; {hint}"));
    Unreadable { system, family, table: None, why }
}

fn program(found: &Iptables) -> Program {
    let system = match found.flavour() {
        Flavour::Nftables => System::IptablesNft,
        Flavour::Legacy => System::IptablesLegacy,
    };
    Program { system, ability: Ability { random_ports: found.knows_random_ports() } }
}

/// What a table should hold of ours; a name for the type that several files use.
type Wanted<'a> = Option<&'a RuleTable>;
