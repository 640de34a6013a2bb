//! The rules of ip-masq-agent: compared with what is there in every system, and made right in one transaction each.
//!
//! Takes an [`AgentSpec`], gives what differs in words. While nothing changes no program is run: nftables counts its
//! changes, the rules of iptables there keep their numbers, and legacy tables are compared by their bytes.

mod failure;
mod in_iptables;
mod own_table;

use std::sync::Arc;

use flannel_plan::family::Family;
use flannel_plan::masq_agent::iptables::AgentFound;
use flannel_plan::masq_agent::spec::AgentSpec;
use flannel_plan::rules::{System, TableId};

pub use failure::{AgentError, AgentFailure};

use super::nft::{Nft, NftError};
use super::rules::watch::RuleWatch;
use crate::watch::WatchError;
use in_iptables::{InIptables, LeftInNft};
use own_table::OwnTable;

/// Somebody else may change rules all the time.
const MOST_TRIES: usize = 5;

/// What is not as wanted in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The table.
    pub id: TableId,
    /// What differs.
    pub words: Vec<String>,
}

/// What a look found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentLook {
    /// What is not as wanted; where rules are to be made first, where they only have to go behind.
    pub differences: Vec<Difference>,
    /// Where nothing could be seen, and why, with a way out where one is known.
    pub unreadable: Vec<String>,
}

/// How far a look goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Where rules are kept, and in nftables, which tells of its changes.
    Usual,
    /// Also in tables of legacy iptables, for what an earlier run left there.
    Thorough,
}

/// The rules of one agent on this machine, in the network namespace of the thread that opened it.
pub struct AgentFirewall {
    nft: Result<Nft, NftError>,
    programs: Vec<InIptables>,
}

impl Default for AgentFirewall {
    fn default() -> Self {
        Self::open()
    }
}

impl AgentFirewall {
    /// Opens the way to nftables, in the namespace of this thread.
    pub fn open() -> Self {
        // Without nftables in the kernel the socket opens, and only the first question fails.
        let nft = Nft::open().and_then(|mut nft| nft.generation().map(|_| nft));
        Self { nft, programs: Vec::new() }
    }

    /// Opens listeners to changes of this agent's chain that others make.
    pub fn watcher(&self, chain: &str) -> impl Fn() -> Result<RuleWatch, WatchError> + Send + 'static {
        let own_ports: Vec<u32> = self.nft.iter().map(Nft::port_id).collect();
        let own: Arc<str> = chain.into();
        move || {
            let own = Arc::clone(&own);
            let matters = move |table: &str, chain: Option<&str>| match table {
                own_table::NAME => true,
                "nat" => chain.is_none_or(|chain| chain == &*own || chain == "POSTROUTING"),
                _ => false,
            };
            RuleWatch::open_for(own_ports.clone(), Box::new(matters))
        }
    }

    /// What is not as wanted.
    pub fn observe(&mut self, spec: &AgentSpec, depth: Depth) -> AgentLook {
        let mut observation = AgentLook::default();
        for (system, family) in places(spec) {
            if system == System::IptablesLegacy && system != spec.system && depth == Depth::Usual {
                continue;
            }
            let id = table(system, family);
            match self.differences(spec, &id) {
                Ok(words) if words.is_empty() => {}
                Ok(words) => observation.differences.push(Difference { id, words }),
                Err(why) => observation.unreadable.push(why.in_words()),
            }
        }
        observation
    }

    /// Makes right what a look found; goes on after a failure, and returns all failures.
    pub fn apply(&mut self, spec: &AgentSpec, differences: &[Difference]) -> Vec<AgentFailure> {
        let mend = |difference: &Difference| {
            let id = &difference.id;
            self.mend(spec, id).err().map(|why| AgentFailure { id: id.clone(), why })
        };
        differences.iter().filter_map(mend).collect()
    }

    fn differences(&mut self, spec: &AgentSpec, id: &TableId) -> Result<Vec<String>, AgentError> {
        let want = spec.rules(id.family).filter(|_| id.system == spec.system);
        match (id.system, want) {
            (System::Nftables, want) => {
                let Some(nft) = self.nft()? else { return Ok(vec![]) };
                Ok(OwnTable::observe(nft, spec, id.family)?.differences(want.as_ref()))
            }
            (System::IptablesNft, None) => {
                let Some(nft) = self.nft()? else { return Ok(vec![]) };
                Ok(LeftInNft::look_at_all(nft, &spec.chain, id.family)?.differences(&spec.chain))
            }
            (System::IptablesLegacy, None) if !in_iptables::is_in_legacy(id.family, &spec.chain) => {
                Ok(vec![])
            }
            (_, Some(want)) => Ok(self.in_iptables(id, &spec.chain)?.differences(&spec.chain, &want)),
            (_, None) => {
                let found = self.in_iptables(id, &spec.chain)?;
                Ok(found.removal(&spec.chain).map(|_| left_over(&spec.chain)).into_iter().collect())
            }
        }
    }

    fn mend(&mut self, spec: &AgentSpec, id: &TableId) -> Result<(), AgentError> {
        let want = spec.rules(id.family).filter(|_| id.system == spec.system);
        if id.system == System::Nftables || id.system == System::IptablesNft && want.is_none() {
            return self.mend_by_netlink(spec, id);
        }
        let found = self.in_iptables(id, &spec.chain)?;
        let script = match want {
            Some(_) => found.script(spec, id.family),
            None => found.removal(&spec.chain),
        };
        let at = self.programs_of(id)?;
        self.programs[at].restore(&script.unwrap_or_default())
    }

    /// Looks again if somebody else changed rules meanwhile.
    fn mend_by_netlink(&mut self, spec: &AgentSpec, id: &TableId) -> Result<(), AgentError> {
        let want = spec.rules(id.family).filter(|_| id.system == spec.system);
        let Some(nft) = self.nft()? else { return Ok(()) };
        let mut outcome = Ok(());
        for _ in 0..MOST_TRIES {
            let generation = nft.generation()?;
            let steps = match id.system {
                System::Nftables => OwnTable::observe(nft, spec, id.family)?.transaction(want.as_ref()),
                _ => LeftInNft::look_at_all(nft, &spec.chain, id.family)?.removal(&spec.chain),
            };
            outcome = nft.commit_at(&steps, Some(generation));
            match &outcome {
                Err(why) if why.is_a_race() => {}
                _ => break,
            }
        }
        Ok(outcome?)
    }

    /// The way to nftables; none if the kernel has none, and so nothing of anybody is there.
    fn nft(&mut self) -> Result<Option<&mut Nft>, AgentError> {
        match &mut self.nft {
            Ok(nft) => Ok(Some(nft)),
            Err(why) if why.says_there_is_none() => Ok(None),
            Err(why) => Err(why.clone().into()),
        }
    }

    fn in_iptables(&mut self, id: &TableId, chain: &str) -> Result<AgentFound, AgentError> {
        let at = self.programs_of(id)?;
        self.programs[at].observe(self.nft.as_mut().ok(), chain)
    }

    /// The place of the programs of a system and a family; they are looked for until they are found.
    fn programs_of(&mut self, id: &TableId) -> Result<usize, AgentError> {
        let known = self.programs.iter().position(|known| known.is_of(id.system, id.family));
        if let Some(at) = known {
            return Ok(at);
        }
        self.programs.push(InIptables::find(id.system, id.family)?);
        Ok(self.programs.len() - 1)
    }
}

/// Every place where rules of an agent may be: first that where they are to be.
fn places(spec: &AgentSpec) -> Vec<(System, Family)> {
    let systems = [System::Nftables, System::IptablesNft, System::IptablesLegacy];
    let mut places: Vec<_> =
        systems.iter().flat_map(|system| Family::BOTH.map(|family| (*system, family))).collect();
    places.sort_by_key(|(system, _)| *system != spec.system);
    places
}

fn table(system: System, family: Family) -> TableId {
    let name = if system == System::Nftables { own_table::NAME } else { "nat" };
    TableId { system, family, name: name.into() }
}

/// What is told of rules where none should be.
fn left_over(chain: &str) -> String {
    format!("rules of {chain} are left over")
}
