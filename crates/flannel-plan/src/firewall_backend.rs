//! Which firewall backend holds this node's rules: decided from what is known of the host, fact by fact.
//!
//! [`next_query`] says what has to be asked of the host before [`decide`] can give the [`Firewall`] that a plan is made
//! from. A question may cost a program that runs for seconds, so none is asked that does not matter.

use crate::family::{ByFamily, Family};
use crate::finding::{Code, Finding};
use crate::firewall::Firewall;
use crate::rules::explain::PlacedRule;
use crate::rules::found::RuleObservation;
use crate::rules::role::Role;
use crate::rules::tools::{Tools, no_tools};
use crate::rules::{SourcePorts, System, TableId};

/// So many rounds of [`next_query`] are needed at most: tools, unreadable tables, untracking, translations.
pub const MOST_QUERIES: usize = 4;

/// What an observation is asked of the host's firewall.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirewallQuery {
    pub tools: Option<ToolQuery>,
    /// Tables that the programs of iptables may be unable to read: each one runs a program.
    pub suspects: Vec<TableId>,
    /// Where it is tried whether tunnel packets can be kept from conntrack.
    pub untrack: Vec<(System, Family)>,
    /// UDP ports that a rule of the host may translate.
    pub ports: Vec<(Family, u16)>,
}

/// Which tools are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolQuery {
    /// The families whose programs of iptables are looked for: each one runs a program.
    pub families: Vec<Family>,
    /// Whether no program is looked for where the kernel has nftables.
    pub prefers_nftables: bool,
}

/// What was found of that; none of what was not asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirewallFacts {
    pub tools: Option<Tools>,
    /// Those of the suspected tables that cannot be read.
    pub unreadable: Option<Vec<TableId>>,
    pub untrack: ByFamily<Untrack>,
    pub translated: ByFamily<Translated>,
}

/// Whether tunnel packets can be kept from conntrack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untrack {
    Possible,
    /// The kernel has not what it takes.
    Impossible,
    /// It could not be tried: another program kept the lock of iptables.
    Locked,
}

/// Whether a rule of the host translates a UDP port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Translated {
    No,
    By(Box<PlacedRule>),
    /// There is no telling, for this reason.
    Unknown(String),
}

/// What the choice of a firewall backend depends on, besides the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirewallNeeds {
    pub nftables: bool,
    pub families: Vec<Family>,
    /// The UDP port of the tunnel, if its packets are to be kept from conntrack.
    pub port: Option<u16>,
    /// The roles that the node cannot do without: tunnel packets may be tracked.
    pub roles: Vec<Role>,
    pub source_ports: SourcePorts,
}

/// The choice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// What a plan is made from.
    pub firewall: Firewall,
    /// Whether another choice may be possible later.
    pub is_makeshift: bool,
}

impl FirewallFacts {
    /// Takes the answers to a query; what was not asked stays.
    pub fn take(&mut self, found: Self) {
        self.tools = found.tools.or(self.tools);
        self.unreadable = found.unreadable.or_else(|| self.unreadable.take());
        for family in Family::BOTH {
            let untrack = found.untrack.get(family).or_else(|| self.untrack.get(family)).copied();
            *self.untrack.slot(family) = untrack;
            let translated = found.translated.get(family).or_else(|| self.translated.get(family)).cloned();
            *self.translated.slot(family) = translated;
        }
    }
}

impl FirewallNeeds {
    /// The tables of iptables that the node cannot do without, if they are in nftables.
    pub fn tables(&self) -> Vec<TableId> {
        let table = |role: &Role, family: &Family| TableId {
            system: System::IptablesNft,
            family: *family,
            name: role.table_of_iptables().into(),
        };
        let of_role = |role| self.families.iter().map(move |family| table(role, family));
        self.roles.iter().flat_map(of_role).collect()
    }

    /// Whether rules can stay in a system after an observation: not if a table that they have to be in cannot be read
    /// any more.
    pub fn are_met_by(&self, system: Option<System>, found: &RuleObservation) -> bool {
        let needed = self.tables();
        let mut hidden = found.unreadable.iter().filter(|it| it.table.is_some());
        system != Some(System::IptablesNft) || !hidden.any(|it| needed.iter().any(|table| it.hides(table)))
    }
}

/// What has to be asked next; none if enough is known. The suspects are tables that may not be readable.
pub fn next_query(
    needs: &FirewallNeeds,
    suspects: &[TableId],
    facts: &FirewallFacts,
) -> Option<FirewallQuery> {
    let Some(tools) = &facts.tools else { return Some(ask_for_tools(needs)) };
    let wanted = tools.choose(needs.nftables).map(|choice| choice.system);
    let suspects: Vec<_> = suspects.iter().filter(|table| Some(table.system) == wanted).cloned().collect();
    if facts.unreadable.is_none() && !suspects.is_empty() {
        return Some(FirewallQuery { suspects, ..FirewallQuery::default() });
    }
    let port = needs.port?;
    let system = decide(needs, facts).firewall.system?;
    let missing = |asked: &&Family| facts.untrack.get(**asked).is_none();
    let untrack: Vec<_> = needs.families.iter().filter(missing).map(|family| (system, *family)).collect();
    let ports: Vec<_> = trackless(facts).filter(|family| facts.translated.get(*family).is_none()).collect();
    if untrack.is_empty() && ports.is_empty() {
        return None;
    }
    let ports = ports.into_iter().map(|family| (family, port)).collect();
    Some(FirewallQuery { untrack, ports, ..FirewallQuery::default() })
}

fn ask_for_tools(needs: &FirewallNeeds) -> FirewallQuery {
    let tools = ToolQuery { families: needs.families.clone(), prefers_nftables: needs.nftables };
    FirewallQuery { tools: Some(tools), ..FirewallQuery::default() }
}

/// The families whose tunnel packets could go untracked.
fn trackless(facts: &FirewallFacts) -> impl Iterator<Item = Family> {
    let can = |(family, found): (Family, &Untrack)| (*found == Untrack::Possible).then_some(family);
    facts.untrack.iter().filter_map(can)
}

/// Chooses, and says why it is not what was asked for.
pub fn decide(needs: &FirewallNeeds, facts: &FirewallFacts) -> Decision {
    let tools = facts.tools.unwrap_or_default();
    let unreadable = facts.unreadable.as_deref().unwrap_or_default();
    let choice = tools.choose(needs.nftables).map(|choice| choice.unless_unreadable(unreadable));
    let (system, note) = match choice {
        Some(choice) => (choice.system, choice.note),
        // The rules are planned all the same, so that their failure keeps the node from being ready.
        None => (System::Nftables, (!needs.roles.is_empty()).then(no_tools)),
    };
    let source_ports = |family| (family, needs.source_ports.min(tools.source_ports(system, family)));
    let source_ports = needs.families.iter().copied().map(source_ports).collect();
    let is_locked = facts.untrack.iter().any(|(_, found)| *found == Untrack::Locked);
    let is_makeshift = note.is_some() || is_locked;
    let (untracked, tracked) = untracked(facts);
    let notes = note.into_iter().chain(why_not_untracked(system, facts)).chain(tracked).collect();
    Decision { firewall: Firewall { system: Some(system), source_ports, untracked, notes }, is_makeshift }
}

fn why_not_untracked(system: System, facts: &FirewallFacts) -> impl Iterator<Item = Finding> {
    facts.untrack.iter().filter_map(move |(family, found)| match found {
        Untrack::Impossible if system.is_iptables() => Some(stays_tracked(
            family,
            &format!(
                "{system} here cannot tell them by their content (match u32); EnableNFTables in net-conf.json needs no \
                 such match"
            ),
        )),
        Untrack::Locked => Some(stays_tracked(
            family,
            "another program holds the lock of iptables (/run/xtables.lock); it is tried again",
        )),
        Untrack::Impossible | Untrack::Possible => None,
    })
}

/// The families whose tunnel packets are not tracked, and why others are: a rule of the host that translates the port
/// needs to have its packets tracked.
fn untracked(facts: &FirewallFacts) -> (Vec<Family>, Vec<Finding>) {
    let (mut untracked, mut tracked) = (Vec::new(), Vec::new());
    for family in trackless(facts) {
        match facts.translated.get(family) {
            Some(Translated::No) => untracked.push(family),
            Some(Translated::By(step)) => {
                let PlacedRule { table, chain, place, rule, .. } = &**step;
                let why = format!("rule {place} of {chain} in {table} translates their port: {rule}");
                tracked.push(stays_tracked(family, &why));
            }
            Some(Translated::Unknown(why)) => {
                let why = format!("no telling whether a rule translates their port: {why}");
                tracked.push(stays_tracked(family, &why));
            }
            None => {}
        }
    }
    (untracked, tracked)
}

fn stays_tracked(family: Family, why: &str) -> Finding {
    let text = format!("{family} tunnel packets stay in connection tracking");
    Finding::new(Code::TunnelTracked, format!("{family} tunnel"), text).because(why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::found::Unreadable;
    use crate::rules::tools::Program;

    /// A host with the programs of both families.
    fn iptables(v6: SourcePorts) -> Tools {
        let program = |source_ports| Program { system: System::IptablesNft, source_ports };
        let iptables = ByFamily { v4: Some(program(SourcePorts::Randomised)), v6: Some(program(v6)) };
        Tools { nftables: None, iptables }
    }

    fn needs(nftables: bool) -> FirewallNeeds {
        FirewallNeeds {
            nftables,
            families: Family::BOTH.to_vec(),
            port: Some(8472),
            roles: vec![Role::Masquerade, Role::Forward],
            source_ports: SourcePorts::Randomised,
        }
    }

    fn by_tools(needs: &FirewallNeeds, tools: Tools) -> Decision {
        decide(needs, &FirewallFacts { tools: Some(tools), ..FirewallFacts::default() })
    }

    #[test]
    fn ports_are_random_where_the_program_can_and_the_operator_does_not_mind() {
        let firewall = Firewall {
            system: Some(System::IptablesNft),
            source_ports: ByFamily { v4: Some(SourcePorts::Randomised), v6: Some(SourcePorts::Kept) },
            untracked: vec![],
            notes: vec![],
        };
        let decision = by_tools(&needs(false), iptables(SourcePorts::Kept));
        assert_eq!(decision, Decision { firewall, is_makeshift: false });
        let kept = FirewallNeeds { source_ports: SourcePorts::Kept, ..needs(false) };
        assert_eq!(
            by_tools(&kept, iptables(SourcePorts::Kept)).firewall.source_ports.v4,
            Some(SourcePorts::Kept)
        );
    }

    #[test]
    fn a_host_that_can_hold_no_rules_is_told_only_if_any_are_wanted_and_asked_again() {
        let decision = by_tools(&needs(true), Tools::default());
        assert_eq!((decision.firewall.system, decision.is_makeshift), (Some(System::Nftables), true));
        assert_eq!(decision.firewall.notes, [no_tools()]);
        let without = FirewallNeeds { roles: vec![], ..needs(true) };
        assert_eq!(by_tools(&without, Tools::default()).firewall.notes, []);
    }

    #[test]
    fn a_table_that_can_be_read_no_more_is_a_reason_to_ask_again_only_if_rules_have_to_be_there() {
        let met = |system, table: &str, needs: &FirewallNeeds| {
            let unreadable =
                Unreadable { system, family: Family::V4, table: Some(table.into()), why: String::new() };
            let found = RuleObservation { tables: vec![], unreadable: vec![unreadable] };
            needs.are_met_by(Some(System::IptablesNft), &found)
        };
        let forward = FirewallNeeds { roles: vec![Role::Forward], ..needs(false) };
        assert!(!met(System::IptablesNft, "nat", &needs(false)));
        assert!(met(System::IptablesNft, "nat", &forward));
        assert!(met(System::IptablesNft, "raw", &needs(false)));
        assert!(met(System::IptablesLegacy, "nat", &needs(false)));
        assert!(needs(false).are_met_by(Some(System::IptablesNft), &RuleObservation::default()));
    }

    #[test]
    fn each_question_follows_from_the_answers_before_and_none_is_asked_twice() {
        let (needs, mut facts, mut asked) = (needs(false), FirewallFacts::default(), Vec::new());
        let answers = [
            FirewallFacts { tools: Some(iptables(SourcePorts::Randomised)), ..FirewallFacts::default() },
            FirewallFacts { unreadable: Some(vec![]), ..FirewallFacts::default() },
            FirewallFacts {
                untrack: ByFamily { v4: Some(Untrack::Possible), v6: Some(Untrack::Impossible) },
                ..FirewallFacts::default()
            },
            FirewallFacts {
                translated: ByFamily { v4: Some(Translated::No), v6: None },
                ..FirewallFacts::default()
            },
        ];
        for answer in answers {
            asked.extend(next_query(&needs, &needs.tables(), &facts));
            facts.take(answer);
        }
        assert_eq!(next_query(&needs, &needs.tables(), &facts), None);
        let untrack = Family::BOTH.map(|family| (System::IptablesNft, family)).to_vec();
        let tools = ToolQuery { families: Family::BOTH.to_vec(), prefers_nftables: false };
        let expected = [
            FirewallQuery { tools: Some(tools), ..FirewallQuery::default() },
            FirewallQuery { suspects: needs.tables(), ..FirewallQuery::default() },
            FirewallQuery { untrack, ..FirewallQuery::default() },
            FirewallQuery { ports: vec![(Family::V4, 8472)], ..FirewallQuery::default() },
        ];
        assert_eq!(asked, expected);
        let Decision { firewall, is_makeshift } = decide(&needs, &facts);
        assert_eq!((firewall.untracked, is_makeshift), (vec![Family::V4], false));
        let [note] = &firewall.notes[..] else { panic!("{:?}", firewall.notes) };
        assert_eq!((note.code, note.object.as_str()), (Code::TunnelTracked, "IPv6 tunnel"), "{note}");
    }
}
