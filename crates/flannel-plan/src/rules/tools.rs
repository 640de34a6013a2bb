//! What this host can hold rules with, and which of it is used.

use serde::{Deserialize, Serialize};

use super::{SourcePorts, System};
use crate::family::{ByFamily, Family};

/// What this host can hold rules with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tools {
    /// What the kernel's nftables can do; none if the kernel has none.
    pub nftables: Option<Ability>,
    /// The programs of iptables, by family.
    pub iptables: ByFamily<Program>,
}

/// The programs of iptables of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Where they keep rules.
    pub system: System,
    /// What they can do.
    pub ability: Ability,
}

/// What rules may say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ability {
    /// Whether masquerade can choose ports at random.
    pub random_ports: bool,
}

/// Where the rules are kept, and what an operator should know about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// Where.
    pub system: System,
    /// Why it is not what was asked for.
    pub note: Option<&'static str>,
}

/// Neither of them is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this host has neither nftables in its kernel nor an iptables program: \
     `modprobe nf_tables`, or install iptables, or run without --ip-masq and with --iptables-forward-rules=false"
)]
pub struct NoTools;

impl Tools {
    /// Chooses where rules are kept; `nftables` is what the net-conf asks for.
    pub fn choose(&self, nftables: bool) -> Result<Choice, NoTools> {
        let program = self.iptables.iter().next().map(|(_, program)| program.system);
        match (nftables, self.nftables, program) {
            (true, Some(_), _) => Ok(Choice { system: System::Nftables, note: None }),
            (false, _, Some(system)) => Ok(Choice { system, note: None }),
            (false, Some(_), None) => {
                let note = "EnableNFTables is false, but this host has no iptables program: nftables is used";
                Ok(Choice { system: System::Nftables, note: Some(note) })
            }
            (true, None, Some(system)) => {
                let note = "EnableNFTables is true, but this kernel has no nftables: iptables is used";
                Ok(Choice { system, note: Some(note) })
            }
            (_, None, None) => Err(NoTools),
        }
    }

    /// How masquerade chooses ports in a system, unless the operator wants them kept.
    pub fn source_ports(&self, system: System, family: Family) -> SourcePorts {
        let ability = match system {
            System::Nftables => self.nftables,
            _ => self.iptables.get(family).map(|program| program.ability),
        };
        match ability {
            Some(Ability { random_ports: true }) => SourcePorts::Randomised,
            _ => SourcePorts::Kept,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_used_where_it_is_there_and_the_other_is_said() {
        let ability = Ability { random_ports: true };
        let program = Program { system: System::IptablesLegacy, ability };
        let both = Tools { nftables: Some(ability), iptables: ByFamily { v4: Some(program), v6: None } };
        let without_programs = Tools { iptables: ByFamily::default(), ..both };
        let without_nftables = Tools { nftables: None, ..both };
        let system = |tools: Tools, nftables| {
            tools.choose(nftables).map(|choice| (choice.system, choice.note.is_some()))
        };
        assert_eq!(system(both, true), Ok((System::Nftables, false)));
        assert_eq!(system(both, false), Ok((System::IptablesLegacy, false)));
        assert_eq!(system(without_programs, false), Ok((System::Nftables, true)));
        assert_eq!(system(without_nftables, true), Ok((System::IptablesLegacy, true)));
        assert_eq!(system(Tools::default(), true), Err(NoTools));
        assert_eq!(both.source_ports(System::IptablesLegacy, Family::V4), SourcePorts::Randomised);
        assert_eq!(both.source_ports(System::IptablesLegacy, Family::V6), SourcePorts::Kept);
    }
}
