//! What the programs of iptables hold, of one flavour and family: run only if something of ours changed.

use std::time::{Duration, Instant};

use flannel_plan::family::Family;
use flannel_plan::rules::iptables::{Saved, saved};
use flannel_plan::rules::role::Role;
use flannel_plan::rules::{Action, Is, Match, Rule, System, UDP};

use super::native::Native;
use super::{RulesError, legacy};
use crate::firewall::iptables::{Iptables, IptablesError};

/// How long a table that could not be read is taken for such without another try, while our rules stay the same.
const UNREADABLE_FOR: Duration = Duration::from_secs(30);
/// Seconds to wait for the lock of legacy iptables: the loop has other things to do.
const PATIENCE: u32 = 5;

pub(super) struct Programs {
    system: System,
    family: Family,
    iptables: Iptables,
    last: Option<Last>,
}

/// What the last look found.
struct Last {
    /// The kernel's count of changes, where it counts them.
    generation: Option<u32>,
    mark: Fingerprint,
    saved: Saved,
    at: Instant,
}

impl Last {
    /// Whether a look that finds this mark finds the same. Whatever keeps a table from being read may stand in any
    /// chain, which the mark says nothing about.
    fn holds(&self, mark: &Fingerprint) -> bool {
        self.mark == *mark && (self.saved.unreadable.is_empty() || self.at.elapsed() < UNREADABLE_FOR)
    }
}

/// What stays the same as long as nothing of ours changes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fingerprint {
    /// The numbers that nftables gave the rules.
    Numbers(Vec<Option<Vec<u64>>>),
    /// The tables of the legacy flavour, without what they count.
    Bytes(Vec<Option<u64>>),
}

impl Programs {
    /// Finds the programs by whatever name.
    pub(super) fn find(system: System, family: Family) -> Result<Self, RulesError> {
        let (found, name) = match (system, family) {
            (System::IptablesLegacy, Family::V4) => (Iptables::find_legacy(family), "iptables-legacy"),
            (System::IptablesLegacy, Family::V6) => (Iptables::find_legacy(family), "ip6tables-legacy"),
            (_, Family::V4) => (Iptables::find_nft(family), "iptables-nft"),
            (_, Family::V6) => (Iptables::find_nft(family), "ip6tables-nft"),
        };
        let iptables = found.ok_or(RulesError::NoProgram(name))?;
        Ok(Self { system, family, iptables, last: None })
    }

    pub(super) fn is_of(&self, system: System, family: Family) -> bool {
        (self.system, self.family) == (system, family)
    }

    /// The tables with chains that have to do with ours.
    pub(super) fn observe(&mut self, native: &mut Native) -> Result<Saved, RulesError> {
        // What changes between the mark and the reading is seen at the next look: the mark is the older one.
        let generation = native.generation().filter(|_| self.system == System::IptablesNft);
        if let Some(last) =
            self.last.as_ref().filter(|last| last.generation == generation && generation.is_some())
        {
            return Ok(last.saved.clone());
        }
        let mark = Fingerprint::of(self.system, self.family, native)?;
        let (saved, at) = match self.last.take().filter(|last| last.holds(&mark)) {
            Some(last) => (last.saved, last.at),
            None if mark.is_empty() => (Saved::default(), Instant::now()),
            None => (self.save_ours(native.roles())?, Instant::now()),
        };
        self.last = Some(Last { generation, mark, saved: saved.clone(), at });
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
        Ok(saved(self.system, self.family, &self.iptables.save_all()?)?)
    }

    /// Whether the program and the kernel know all parts of a rule for tunnel packets; none if it could not be tried.
    pub(super) fn can_untrack(&self) -> Option<bool> {
        let mut matches = Match::port(UDP, 1).to_vec();
        matches.extend([Match::DestinationLocal(Is::Equal), Match::Vxlan(self.family, 1)]);
        let rule = Rule::new(matches, Action::Untrack).comment("trial");
        self.iptables.would_restore(&format!("*raw\n-A PREROUTING {rule}\nCOMMIT\n"), PATIENCE)
    }

    /// Makes all changes of a script.
    pub(super) fn restore(&mut self, script: &str) -> Result<(), RulesError> {
        self.last = None;
        Ok(self.iptables.restore_within(script, PATIENCE)?)
    }
}

/// Whether nothing of ours is in the tables of a system and a family, without its program.
pub(super) fn has_none(system: System, family: Family, native: &mut Native) -> Result<bool, RulesError> {
    Ok(Fingerprint::of(system, family, native)?.is_empty())
}

impl Fingerprint {
    fn of(system: System, family: Family, native: &mut Native) -> Result<Self, RulesError> {
        Ok(match system {
            System::IptablesLegacy => Self::Bytes(legacy::marks(family).map_err(RulesError::Legacy)?),
            _ => Self::Numbers(native.numbers(family)?),
        })
    }

    /// Whether nothing of ours is there: then no program has to say so.
    fn is_empty(&self) -> bool {
        match self {
            Self::Numbers(numbers) => {
                numbers.iter().flatten().all(Vec::is_empty) && numbers.iter().step_by(2).all(Option::is_none)
            }
            Self::Bytes(tables) => tables.iter().all(Option::is_none),
        }
    }
}
