//! What this host holds rules with: asked once for a net-conf, and again where the answer was not the one wished for.
//!
//! Takes the net-conf and the operator's flags, gives the [`Firewall`] that a plan is made from.

use std::time::{Duration, Instant};

use flannel_kernel::firewall::rules::Rules;
use flannel_plan::config::{Backend, NetworkConfig};
use flannel_plan::family::{ByFamily, Family};
use flannel_plan::firewall::Firewall;
use flannel_plan::rules::found::{RuleObservation, Unreadable};
use flannel_plan::rules::role::Role;
use flannel_plan::rules::tools::Tools;
use flannel_plan::rules::{System, TableId};

use crate::options::RuleOptions;

/// What others do to the host is asked for so often: programs are installed, modules are loaded, and any rule may
/// begin to translate the tunnel's port. Shorter than the pause between two looks, so that each of those asks.
const PAUSE: Duration = Duration::from_secs(55);

/// What the answer depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Question {
    nftables: bool,
    families: Vec<Family>,
    /// The port of the tunnel, if it is not to be tracked.
    port: Option<u16>,
}

/// What was found.
#[derive(Debug)]
struct Answer {
    question: Question,
    /// What holds whatever becomes of the tunnel.
    firewall: Firewall,
    /// Whether another answer may be had later.
    is_makeshift: bool,
    /// The tables that iptables could not read.
    unreadable: Vec<TableId>,
    /// The families whose tunnel packets could go untracked.
    can_untrack: Vec<Family>,
    /// Those that do, and why the others do not.
    untracked: Vec<Family>,
    tracked: Vec<String>,
    asked: Instant,
}

/// The last answer.
#[derive(Debug)]
pub struct FirewallBackend {
    options: RuleOptions,
    answer: Option<Answer>,
}

impl FirewallBackend {
    /// Nothing asked so far.
    pub fn new(options: RuleOptions) -> Self {
        Self { options, answer: None }
    }

    /// What rules are held with under a net-conf.
    pub fn of(&mut self, config: &NetworkConfig, rules: &mut Rules, now: Instant) -> Firewall {
        let question = self.question(config);
        let is_due = |answer: &Answer| now >= answer.asked + PAUSE;
        let known = self.answer.take().filter(|answer| answer.question == question);
        let answer = match known {
            Some(answer) if answer.is_makeshift && is_due(&answer) => {
                // Another table that cannot be read is found by the look, and is rare: reading one may take seconds.
                let suspects = match answer.unreadable.is_empty() {
                    true => self.needed(&question),
                    false => answer.unreadable,
                };
                self.ask(question, suspects, rules, now)
            }
            Some(mut answer) => {
                if is_due(&answer) {
                    answer.watch_the_port(rules);
                    answer.asked = now;
                }
                answer
            }
            None => {
                let suspects = self.needed(&question);
                self.ask(question, suspects, rules, now)
            }
        };
        let mut firewall = answer.firewall.clone();
        firewall.untracked.clone_from(&answer.untracked);
        firewall.notes.extend(answer.tracked.iter().cloned());
        self.answer = Some(answer);
        firewall
    }

    /// Whether the last answer can be kept after a look: not if a table that rules have to be in cannot be read any
    /// more. Then it is forgotten, and the next question finds another answer.
    pub fn bears(&mut self, observation: &RuleObservation) -> bool {
        let bears = self.answer.as_ref().is_none_or(|answer| {
            let needed = self.needed(&answer.question);
            let hidden = observation
                .unreadable
                .iter()
                .filter_map(Unreadable::unreadable)
                .any(|table| needed.contains(&table));
            !hidden || answer.firewall.system != Some(System::IptablesNft)
        });
        if !bears {
            self.answer = None;
        }
        bears
    }

    /// The tables of iptables that the node cannot do without, if they are in nftables: tunnel packets may be tracked.
    fn needed(&self, question: &Question) -> Vec<TableId> {
        let roles = [(Role::Masquerade, self.options.ip_masq), (Role::Forward, self.options.forward)];
        let wanted = roles.into_iter().filter(|(_, wanted)| *wanted);
        let table = |role: Role, family| TableId {
            system: System::IptablesNft,
            family,
            name: role.table_of_iptables().into(),
        };
        wanted
            .flat_map(|(role, _)| question.families.iter().map(move |family| table(role, *family)))
            .collect()
    }

    fn question(&self, config: &NetworkConfig) -> Question {
        let port = match &config.backend {
            Backend::Vxlan(vxlan) if self.options.untrack => Some(vxlan.port),
            _ => None,
        };
        Question { nftables: config.nftables, families: config.families(), port }
    }

    /// Finds an answer, with an eye on tables that may not be readable.
    fn ask(&self, question: Question, suspects: Vec<TableId>, rules: &mut Rules, now: Instant) -> Answer {
        let tools = find_tools(&question, rules);
        let mut unreadable = suspects;
        let system = tools.choose(question.nftables).ok().map(|choice| choice.system);
        unreadable.retain(|table| Some(table.system) == system && rules.cannot_read(table));
        let (firewall, is_makeshift) = self.choose(&tools, &question, &unreadable);
        let mut answer = Answer {
            question,
            firewall,
            is_makeshift,
            unreadable,
            can_untrack: vec![],
            untracked: vec![],
            tracked: vec![],
            asked: now,
        };
        answer.try_to_untrack(rules);
        answer
    }

    /// Chooses the system, and says why it is not the one that was asked for.
    fn choose(&self, tools: &Tools, question: &Question, unreadable: &[TableId]) -> (Firewall, bool) {
        let choice = tools.choose(question.nftables).map(|choice| choice.unless_unreadable(unreadable));
        let (system, note) = match choice {
            Ok(choice) => (choice.system, choice.note),
            // The rules are planned all the same, so that their failure keeps the node from being ready.
            Err(none) => {
                let needed = self.options.ip_masq || self.options.forward;
                (System::Nftables, needed.then(|| none.to_string()))
            }
        };
        let mut source_ports = ByFamily::default();
        for family in &question.families {
            let able = tools.source_ports(system, *family);
            *source_ports.slot(*family) = Some(self.options.source_ports.min(able));
        }
        let is_makeshift = note.is_some();
        let notes = note.into_iter().collect();
        (Firewall { system: Some(system), source_ports, untracked: vec![], notes }, is_makeshift)
    }
}

/// Programs are not run where none is wished for.
fn find_tools(question: &Question, rules: &mut Rules) -> Tools {
    match rules.nftables().filter(|_| question.nftables) {
        Some(ability) => Tools { nftables: Some(ability), iptables: ByFamily::default() },
        None => rules.tools(&question.families),
    }
}

impl Answer {
    fn try_to_untrack(&mut self, rules: &mut Rules) {
        let (Some(system), Some(_)) = (self.firewall.system, self.question.port) else { return };
        for family in self.question.families.clone() {
            let why = match rules.can_untrack(system, family) {
                Some(true) => {
                    self.can_untrack.push(family);
                    continue;
                }
                Some(false) if system.is_iptables() => format!(
                    "{system} here cannot tell them by their content (match u32); EnableNFTables in net-conf.json \
                     needs no such match"
                ),
                Some(false) => continue,
                None => {
                    self.is_makeshift = true;
                    "another program holds the lock of iptables (/run/xtables.lock); it is tried again"
                        .to_owned()
                }
            };
            let note = format!("{family} tunnel packets stay in connection tracking: {why}");
            self.firewall.notes.push(note);
        }
        self.watch_the_port(rules);
    }

    /// A rule of the host that translates the port needs to have its packets tracked.
    fn watch_the_port(&mut self, rules: &mut Rules) {
        self.untracked.clear();
        self.tracked.clear();
        let Some(port) = self.question.port else { return };
        for family in &self.can_untrack {
            let why = match rules.translation_of(*family, port) {
                Ok(None) => {
                    self.untracked.push(*family);
                    continue;
                }
                Ok(Some(step)) => format!(
                    "rule {} of {} in {} translates their port: {}",
                    step.place, step.chain, step.table, step.rule
                ),
                Err(why) => format!("no telling whether a rule translates their port: {why}"),
            };
            self.tracked.push(format!("{family} tunnel packets stay in connection tracking: {why}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use flannel_kernel::netns::{Namespace, run_inside};
    use flannel_plan::rules::SourcePorts;
    use flannel_plan::rules::tools::{Ability, NoTools, Program};

    const OPTIONS: RuleOptions = RuleOptions {
        ip_masq: true,
        source_ports: SourcePorts::Randomised,
        forward: true,
        untrack: true,
        blackhole: false,
        resync: Duration::from_secs(5),
    };

    /// A host with the programs of both families.
    fn iptables(random_ports6: bool) -> Tools {
        let program =
            |random_ports| Program { system: System::IptablesNft, ability: Ability { random_ports } };
        let iptables = ByFamily { v4: Some(program(true)), v6: Some(program(random_ports6)) };
        Tools { nftables: None, iptables }
    }

    fn question(nftables: bool) -> Question {
        Question { nftables, families: Family::BOTH.to_vec(), port: Some(8472) }
    }

    #[test]
    fn ports_are_random_where_the_program_can_and_the_operator_does_not_mind() {
        let tools = iptables(false);
        let (firewall, is_makeshift) = FirewallBackend::new(OPTIONS).choose(&tools, &question(false), &[]);
        let expected = Firewall {
            system: Some(System::IptablesNft),
            source_ports: ByFamily { v4: Some(SourcePorts::Randomised), v6: Some(SourcePorts::Kept) },
            untracked: vec![],
            notes: vec![],
        };
        assert_eq!((firewall, is_makeshift), (expected, false));
        let options = RuleOptions { source_ports: SourcePorts::Kept, ..OPTIONS };
        let (firewall, _) = FirewallBackend::new(options).choose(&tools, &question(false), &[]);
        assert_eq!(firewall.source_ports.v4, Some(SourcePorts::Kept));
    }

    #[test]
    fn a_host_that_can_hold_no_rules_is_told_only_if_any_are_wanted_and_asked_again() {
        let choose = |options| FirewallBackend::new(options).choose(&Tools::default(), &question(true), &[]);
        let (firewall, is_makeshift) = choose(OPTIONS);
        assert_eq!((firewall.system, is_makeshift), (Some(System::Nftables), true));
        assert_eq!(firewall.notes, [NoTools.to_string()]);
        let (firewall, _) = choose(RuleOptions { ip_masq: false, forward: false, ..OPTIONS });
        assert_eq!(firewall.notes, [] as [&str; 0]);
    }

    fn sh(script: &str) {
        assert!(Command::new("sh").args(["-ec", script]).status().unwrap().success(), "{script}");
    }

    #[test]
    fn nftables_is_used_while_iptables_cannot_read_a_table_and_not_left_before_the_pause_ends() {
        let systems = run_inside(&Namespace::Fresh, || {
            let config = NetworkConfig::parse(r#"{"Network":"10.244.0.0/16"}"#).unwrap();
            let (mut rules, mut means, start) =
                (Rules::open(), FirewallBackend::new(OPTIONS), Instant::now());
            let mut system = |after| means.of(&config, &mut rules, start + after).system.unwrap();
            sh("iptables -A INPUT; nft add rule ip filter INPUT ct state established accept");
            let at_start = system(Duration::ZERO);
            sh("nft flush chain ip filter INPUT");
            let at_once = system(Duration::from_secs(1));
            [at_start, at_once, system(PAUSE)]
        });
        assert_eq!(systems.unwrap(), [System::Nftables, System::Nftables, System::IptablesNft]);
    }

    #[test]
    fn a_table_that_can_be_read_no_more_is_a_reason_to_ask_again_only_if_rules_have_to_be_there() {
        let unreadable = |system, table: &str| RuleObservation {
            tables: vec![],
            unreadable: vec![Unreadable {
                system,
                family: Family::V4,
                table: Some(table.into()),
                why: String::new(),
            }],
        };
        let bears = |observation: &RuleObservation, options| {
            let mut means = FirewallBackend::new(options);
            let (firewall, is_makeshift) = means.choose(&iptables(true), &question(false), &[]);
            means.answer = Some(Answer {
                question: question(false),
                firewall,
                is_makeshift,
                unreadable: vec![],
                can_untrack: vec![],
                untracked: vec![],
                tracked: vec![],
                asked: Instant::now(),
            });
            means.bears(observation)
        };
        assert!(!bears(&unreadable(System::IptablesNft, "nat"), OPTIONS));
        assert!(bears(&unreadable(System::IptablesNft, "nat"), RuleOptions { ip_masq: false, ..OPTIONS }));
        assert!(bears(&unreadable(System::IptablesNft, "raw"), OPTIONS));
        assert!(bears(&unreadable(System::IptablesLegacy, "nat"), OPTIONS));
        assert!(bears(&RuleObservation::default(), OPTIONS));
    }
}
