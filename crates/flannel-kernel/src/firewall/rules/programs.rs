//! What the programs of iptables hold, of one flavour and family: run only if something of ours changed.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use flannel_plan::family::Family;
use flannel_plan::rules::iptables::{Saved, saved};
use flannel_plan::rules::role::Role;
use flannel_plan::rules::{Action, Is, Match, Rule, System, UDP};

use super::native::Native;
use super::{RulesError, legacy};
use crate::firewall::iptables::{Iptables, IptablesError, name_of};

/// How long a table that could not be read is taken for such without another try, while our rules stay the same.
const UNREADABLE_FOR: Duration = Duration::from_secs(30);

pub(super) struct Programs {
    iptables: Iptables,
    last: Option<Last>,
}

/// What the last look found.
struct Last {
    /// The kernel's count of changes, where it counts them.
    generation: Option<u32>,
    fingerprints: Vec<Option<u64>>,
    saved: Saved,
    at: Instant,
}

impl Last {
    /// Whether a look that finds these fingerprints finds the same. Whatever keeps a table from being read may stand in
    /// any chain, which they say nothing about.
    fn holds(&self, fingerprints: &[Option<u64>]) -> bool {
        self.fingerprints == fingerprints
            && (self.saved.unreadable.is_empty() || self.at.elapsed() < UNREADABLE_FOR)
    }
}

impl Programs {
    /// Finds the programs by whatever name.
    pub(super) fn find(system: System, family: Family) -> Result<Self, RulesError> {
        let found = Iptables::find_of(system, family);
        let iptables = found.ok_or_else(|| RulesError::NoProgram(name_of(system, family)))?;
        Ok(Self { iptables, last: None })
    }

    pub(super) fn is_of(&self, system: System, family: Family) -> bool {
        (self.iptables.system, self.iptables.family) == (system, family)
    }

    /// The tables with chains that have to do with ours.
    pub(super) fn observe(&mut self, native: &mut Native) -> Result<Saved, RulesError> {
        let Iptables { system, family, .. } = self.iptables;
        // What changes between the fingerprints and the reading is seen at the next look: they are the older ones.
        let generation = native.generation().filter(|_| system == System::IptablesNft);
        if let Some(last) =
            self.last.as_ref().filter(|last| last.generation == generation && generation.is_some())
        {
            return Ok(last.saved.clone());
        }
        let fingerprints = fingerprints(system, family, native)?;
        let (saved, at) = match self.last.take().filter(|last| last.holds(&fingerprints)) {
            Some(last) => (last.saved, last.at),
            None if fingerprints.iter().all(Option::is_none) => (Saved::default(), Instant::now()),
            None => (self.save_ours(&native.roles)?, Instant::now()),
        };
        self.last = Some(Last { generation, fingerprints, saved: saved.clone(), at });
        Ok(saved)
    }

    /// Whether a table holds what the program cannot show.
    pub(super) fn cannot_read(&self, table: &str) -> bool {
        matches!(self.iptables.save(table), Err(IptablesError::Incompatible { .. }))
    }

    fn save_ours(&self, roles: &[Role]) -> Result<Saved, RulesError> {
        let mut saved = self.save()?;
        saved.tables.iter_mut().for_each(|table| table.keep_ours(roles));
        saved.tables.retain(|table| !table.chains.is_empty());
        Ok(saved)
    }

    /// All tables with everything in them.
    pub(super) fn save(&self) -> Result<Saved, RulesError> {
        Ok(saved(self.iptables.system, self.iptables.family, &self.iptables.save_all()?)?)
    }

    /// Whether the program and the kernel know all parts of a rule for tunnel packets; none if it could not be tried.
    pub(super) fn can_untrack(&self) -> Option<bool> {
        let mut matches = Match::port(UDP, 1).to_vec();
        matches.extend([Match::DestinationLocal(Is::Equal), Match::Vxlan(self.iptables.family, 1)]);
        let rule = Rule::new(matches, Action::Untrack).comment("trial");
        self.iptables.would_restore(&format!("*raw\n-A PREROUTING {rule}\nCOMMIT\n"))
    }

    /// Makes all changes of a script.
    pub(super) fn restore(&mut self, script: &str) -> Result<(), RulesError> {
        self.last = None;
        Ok(self.iptables.restore_soon(script)?)
    }
}

/// A number for each place where rules of ours may be, which stays as long as they do; none where there are none.
pub(super) fn fingerprints(
    system: System,
    family: Family,
    native: &mut Native,
) -> Result<Vec<Option<u64>>, RulesError> {
    match system {
        System::IptablesLegacy => legacy::fingerprints(family).map_err(RulesError::Legacy),
        System::IptablesNft | System::Nftables => native.fingerprints(family),
    }
}

pub(super) fn fingerprint(it: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    it.hash(&mut hasher);
    hasher.finish()
}
