//! What this host can hold rules with, and which of it is used.

use super::{SourcePorts, System, TableId};
use crate::family::{ByFamily, Family};
use crate::finding::{Code, Finding};

const NO_IPTABLES: &str = "EnableNFTables is false, but this host has no iptables program: nftables is used";
const NO_NFTABLES: &str = "EnableNFTables is true, but this kernel has no nftables: iptables is used";

/// What this host can hold rules with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tools {
    /// How masquerade can choose ports in the kernel's nftables; none if the kernel has none.
    pub nftables: Option<SourcePorts>,
    pub iptables: ByFamily<Program>,
}

/// The programs of iptables of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    pub system: System,
    pub source_ports: SourcePorts,
}

/// Where the rules are kept, and what an operator should know about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub system: System,
    /// Why it is not what was asked for.
    pub note: Option<Finding>,
}

/// Neither of them is there.
pub fn no_tools() -> Finding {
    let remedy = "`modprobe nf_tables`, or install iptables, or run without --ip-masq and with \
                  --iptables-forward-rules=false";
    let text = format!("this host has neither nftables in its kernel nor an iptables program: {remedy}");
    Finding::new(Code::NoFirewall, "rules", text).with_parts(None, Some(remedy.to_owned()))
}

impl Choice {
    /// The same, or our own tables of nftables where the programs of iptables cannot read a table that rules have to
    /// be in: another program wrote there, and it is not ours to clear.
    pub fn unless_unreadable(self, tables: &[TableId]) -> Self {
        let Some(table) = tables.first().filter(|table| table.system == self.system) else { return self };
        let (id, table) = (table, table.in_nft());
        let cause = "as another program wrote rules there by nftables";
        let text = format!("iptables cannot read its table {table}, {cause}: nftables is used");
        let note = Finding::new(Code::RulesUnreadable, id, text).with_parts(Some(cause.to_owned()), None);
        let note = note.or_do(format!(
            "list it with `nft list table {table}`, and move what is not from iptables to a table of its own"
        ));
        Self { system: System::Nftables, note: Some(note) }
    }
}

impl Tools {
    /// Chooses where rules are kept, if there is anything; `nftables` is what the net-conf asks for.
    pub fn choose(&self, nftables: bool) -> Option<Choice> {
        let program = self.iptables.iter().next().map(|(_, program)| program.system);
        let (system, note) = match (nftables, self.nftables, program) {
            (true, Some(_), _) => (System::Nftables, None),
            (false, _, Some(system)) => (system, None),
            (false, Some(_), None) => (System::Nftables, Some(NO_IPTABLES)),
            (true, None, Some(system)) => (system, Some(NO_NFTABLES)),
            (_, None, None) => return None,
        };
        let finding = |text| Finding::new(Code::OtherFirewall, "EnableNFTables", text);
        Some(Choice { system, note: note.map(finding) })
    }

    /// How masquerade chooses ports in a system, unless the operator wants them kept.
    pub fn source_ports(&self, system: System, family: Family) -> SourcePorts {
        let possible = match system {
            System::Nftables => self.nftables,
            _ => self.iptables.get(family).map(|program| program.source_ports),
        };
        possible.unwrap_or(SourcePorts::Kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_used_where_it_is_there_and_the_other_is_said() {
        let source_ports = SourcePorts::Randomised;
        let program = Program { system: System::IptablesLegacy, source_ports };
        let both = Tools { nftables: Some(source_ports), iptables: ByFamily { v4: Some(program), v6: None } };
        let without_programs = Tools { iptables: ByFamily::default(), ..both };
        let without_nftables = Tools { nftables: None, ..both };
        let system = |tools: Tools, nftables| {
            tools.choose(nftables).map(|choice| (choice.system, choice.note.is_some()))
        };
        assert_eq!(system(both, true), Some((System::Nftables, false)));
        assert_eq!(system(both, false), Some((System::IptablesLegacy, false)));
        assert_eq!(system(without_programs, false), Some((System::Nftables, true)));
        assert_eq!(system(without_nftables, true), Some((System::IptablesLegacy, true)));
        assert_eq!(system(Tools::default(), true), None);
        assert_eq!(both.source_ports(System::IptablesLegacy, Family::V4), SourcePorts::Randomised);
        assert_eq!(both.source_ports(System::IptablesLegacy, Family::V6), SourcePorts::Kept);
    }

    #[test]
    fn a_table_that_iptables_cannot_read_is_a_reason_for_nftables_and_of_another_system_none() {
        let choice = |system| Choice { system, note: None };
        let table = TableId { system: System::IptablesNft, family: Family::V6, name: "nat".into() };
        let after = choice(System::IptablesNft).unless_unreadable(std::slice::from_ref(&table));
        assert_eq!(after.system, System::Nftables);
        assert!(after.note.is_some_and(|note| note.code == Code::RulesUnreadable));
        let legacy = choice(System::IptablesLegacy);
        assert_eq!(legacy.clone().unless_unreadable(&[table]), legacy);
        assert_eq!(choice(System::IptablesNft).unless_unreadable(&[]), choice(System::IptablesNft));
    }
}
