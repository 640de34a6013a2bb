//! The rules of a node: looks at them in every system that can hold them, and changes what has to change.
//!
//! [`Rules::observe`] costs one question to the kernel while nothing changes, and no program is run then: nftables
//! counts its changes, and what iptables keeps is compared by numbers or by bytes. [`Rules::apply`] makes each
//! table right in one transaction. [`watch::RuleWatch`] tells when it is worth to look.

mod failure;
mod legacy;
mod native;
mod programs;
mod translation;
pub mod watch;

use std::collections::HashMap;

use flannel_plan::diff::Change;
use flannel_plan::family::{ByFamily, Family};
use flannel_plan::rules::edit::edits;
use flannel_plan::rules::explain::PlacedRule;
use flannel_plan::rules::found::{FoundTable, RuleObservation, Unreadable};
use flannel_plan::rules::iptables::Saved;
use flannel_plan::rules::observed::RuleScope;
use flannel_plan::rules::role::Role;
use flannel_plan::rules::tools::{Program, Tools};
use flannel_plan::rules::{RuleTable, SourcePorts, System, TableId, iptables as language};
use flannel_plan::state::Item;

pub use failure::{RuleFailure, RulesError};

use super::iptables::Iptables;
use super::nft::Nft;
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
    translations: HashMap<(Family, u16), Translation>,
}

impl Rules {
    /// Finds out what there is to look at for flanneld, in the namespace of this thread.
    pub fn open() -> Self {
        Self::open_for(&RuleScope::default())
    }

    /// The same for whoever asks for these rules.
    pub fn open_for(scope: &RuleScope) -> Self {
        Self {
            native: Native::open(scope.roles()),
            programs: Vec::new(),
            found: Vec::new(),
            leftovers: legacy::Leftovers::default(),
            translations: HashMap::new(),
        }
    }

    /// The port ID of our netlink socket, which notices carry; none if the kernel has no nftables.
    pub fn port_id(&self) -> Option<u32> {
        self.native.nft.as_ref().ok().map(Nft::port_id)
    }

    /// How masquerade can choose ports in the kernel's nftables; none if the kernel has none.
    pub fn nftables(&mut self) -> Option<SourcePorts> {
        self.native.source_ports()
    }

    /// What this host can hold rules of some families with; runs the program of iptables of each once.
    pub fn tools(&mut self, families: &[Family]) -> Tools {
        let mut programs = ByFamily::default();
        for family in families {
            *programs.slot(*family) = Iptables::find(*family)
                .map(|found| Program { system: found.system, source_ports: found.source_ports() });
        }
        Tools { nftables: self.native.source_ports(), iptables: programs }
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
                .extend(Family::BOTH.map(|family| self.not_readable(System::Nftables, family, &why))),
        }
        let check_legacy = self.leftovers.are_due(system);
        for family in Family::BOTH {
            if system == System::IptablesNft {
                let found = self.observe_by_program(system, family);
                self.add(&mut observation, (system, family), found);
            }
            // In nftables the leftovers of iptables are found without a program, by `native`.
            let legacy = System::IptablesLegacy;
            if system == legacy || check_legacy && legacy::has_ours(&self.native.roles, family) {
                self.leftovers.found_some(system);
                let found = self.observe_by_program(legacy, family);
                self.add(&mut observation, (legacy, family), found);
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
        self.add(&mut observation, (System::Nftables, family), native);
        match by_program {
            Err(RulesError::NoProgram(_)) => {}
            found => {
                let found = found.map(|saved| Saved { unreadable: vec![], ..saved });
                self.add(&mut observation, (System::IptablesNft, family), found);
            }
        }
        self.add(&mut observation, (System::IptablesLegacy, family), all_legacy(family));
        observation
    }

    /// A rule of this host that translates packets to a UDP port, whoever made it. Looks again if anything changed; a
    /// program is run only for tables of legacy iptables.
    pub fn translation_of(&mut self, family: Family, port: u16) -> Result<Option<PlacedRule>, RulesError> {
        let known = self.translations.entry((family, port)).or_default();
        known.observe(self.native.nft.as_mut().ok(), (family, port))
    }

    fn observe_by_program(&mut self, system: System, family: Family) -> Result<Saved, RulesError> {
        match self.programs(system, family) {
            Ok(at) => self.programs[at].observe(&mut self.native),
            // Many hosts have no program for a family that they do not use.
            Err(why) => {
                let found = programs::fingerprints(system, family, &mut self.native)?;
                if found.iter().all(Option::is_none) { Ok(Saved::default()) } else { Err(why) }
            }
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
    pub fn apply(&mut self, scope: &RuleScope, changes: &[Change]) -> Vec<RuleFailure> {
        let asked = changes.iter().filter_map(asked);
        let (make, remove): (Vec<_>, Vec<_>) = asked.partition(|(_, want)| want.is_some());
        let mut failures = self.apply_together(scope, &make);
        failures.extend(self.apply_together(scope, &remove));
        failures
    }

    fn apply_together(&mut self, scope: &RuleScope, asked: &[Asked]) -> Vec<RuleFailure> {
        let mut failures = Vec::new();
        let (native, by_program): (Vec<_>, Vec<_>) = asked.iter().partition(|(id, _)| self.is_native(id));
        for (id, want) in native {
            let done = self.native.apply(scope, id, want);
            failures.extend(done.err().map(|why| self.failure(id, why)));
        }
        let place = |(id, _): &Asked| (id.system, id.family);
        for asked in by_program.chunk_by(|a, b| place(a) == place(b)) {
            failures.extend(self.restore(scope, place(&asked[0]), asked));
        }
        failures
    }

    fn failure(&self, id: &TableId, why: RulesError) -> RuleFailure {
        RuleFailure { id: id.clone(), hint: why.hint(self.to_nftables()), why }
    }

    /// How an operator chooses nftables.
    fn to_nftables(&self) -> &'static str {
        match self.native.roles[..] {
            [Role::MasqAgent(_), ..] => "choose nftables with --nftables",
            _ => "set EnableNFTables in net-conf.json",
        }
    }

    /// Adds what was found in one place, and where nothing could be seen.
    fn add(
        &self,
        observation: &mut RuleObservation,
        (system, family): (System, Family),
        found: Result<Saved, RulesError>,
    ) {
        match found {
            Ok(Saved { tables, unreadable }) => {
                observation.tables.extend(tables);
                observation.unreadable.extend(unreadable.into_iter().map(|table| {
                    let why = RulesError::Unreadable(TableId { system, family, name: table.clone() });
                    Unreadable { table: Some(table), ..self.not_readable(system, family, &why) }
                }));
            }
            Err(why) => observation.unreadable.push(self.not_readable(system, family, &why)),
        }
    }

    fn not_readable(&self, system: System, family: Family, why: &RulesError) -> Unreadable {
        let hint = why.hint(self.to_nftables());
        let why = hint.map_or_else(|| why.to_string(), |hint| format!("{why}; {hint}"));
        Unreadable { system, family, table: None, why }
    }

    /// Whether a table is changed by netlink: our own, and leftovers of iptables that were found there.
    fn is_native(&self, id: &TableId) -> bool {
        id.system == System::Nftables || self.native.found(id).is_some()
    }

    /// Changes tables of iptables: one script for all of them, which the program commits table by table.
    fn restore(
        &mut self,
        scope: &RuleScope,
        (system, family): (System, Family),
        asked: &[Asked],
    ) -> Vec<RuleFailure> {
        let script: String = asked.iter().filter_map(|asked| self.script(scope, *asked)).collect();
        let done = self.programs(system, family).and_then(|at| self.programs[at].restore(&script));
        let Err(why) = done else { return vec![] };
        // Some of the tables may be done: only a look tells which.
        let now = self.observe_by_program(system, family).unwrap_or_default().tables;
        let failed = asked.iter().filter(|(id, want)| {
            let found = now.iter().find(|table| table.id == **id);
            !edits(scope, *want, found).is_empty()
        });
        failed.map(|(id, _)| self.failure(id, why.clone())).collect()
    }

    fn script(&self, scope: &RuleScope, (id, want): Asked) -> Option<String> {
        let found = self.found.iter().find(|table| table.id == *id);
        let edits = edits(scope, want, found);
        (!edits.is_empty()).then(|| language::script(&id.name, &edits))
    }
}

/// A table, and what it should hold of ours.
type Asked<'a> = (&'a TableId, Wanted<'a>);
type Wanted<'a> = Option<&'a RuleTable>;

/// What a change asks for; none if it is not one of rules.
fn asked(change: &Change) -> Option<Asked<'_>> {
    let Item::Rules(table) = change.item() else { return None };
    let is_wanted = !matches!(change, Change::Remove(_));
    Some((&table.id, is_wanted.then_some(&**table)))
}

/// Every table of legacy iptables that is in use.
fn all_legacy(family: Family) -> Result<Saved, RulesError> {
    if !legacy::is_used(family) {
        return Ok(Saved::default());
    }
    Programs::find(System::IptablesLegacy, family)?.save()
}
