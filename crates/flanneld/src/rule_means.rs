//! What this host holds rules with: asked once for a net-conf, and again where the answer was not the one wished for.
//!
//! Takes the net-conf and the operator's flags, gives the [`Firewall`] that a plan is made from.

use std::time::{Duration, Instant};

use flannel_kernel::firewall::rules::Rules;
use flannel_plan::config::{Backend, NetworkConfig};
use flannel_plan::family::{ByFamily, Family};
use flannel_plan::firewall::Firewall;
use flannel_plan::rules::System;
use flannel_plan::rules::tools::Tools;

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
    /// The families whose tunnel packets could go untracked.
    can_untrack: Vec<Family>,
    /// Those that do, and why the others do not.
    untracked: Vec<Family>,
    tracked: Vec<String>,
    asked: Instant,
}

/// The last answer.
#[derive(Debug)]
pub struct RuleMeans {
    options: RuleOptions,
    answer: Option<Answer>,
}

impl RuleMeans {
    /// Nothing asked so far.
    pub fn new(options: RuleOptions) -> Self {
        Self { options, answer: None }
    }

    /// What rules are held with under a net-conf.
    pub fn of(&mut self, config: &NetworkConfig, rules: &mut Rules, now: Instant) -> Firewall {
        let question = self.question(config);
        let is_due = |answer: &Answer| now >= answer.asked + PAUSE;
        let known = self
            .answer
            .take()
            .filter(|answer| answer.question == question && !(answer.is_makeshift && is_due(answer)));
        let answer = match known {
            Some(mut answer) => {
                if is_due(&answer) {
                    answer.watch_the_port(rules);
                    answer.asked = now;
                }
                answer
            }
            None => self.ask(question, rules, now),
        };
        let mut firewall = answer.firewall.clone();
        firewall.untracked.clone_from(&answer.untracked);
        firewall.notes.extend(answer.tracked.iter().cloned());
        self.answer = Some(answer);
        firewall
    }

    fn question(&self, config: &NetworkConfig) -> Question {
        let port = match &config.backend {
            Backend::Vxlan(vxlan) if self.options.untrack => Some(vxlan.port),
            _ => None,
        };
        Question { nftables: config.nftables, families: config.families(), port }
    }

    fn ask(&self, question: Question, rules: &mut Rules, now: Instant) -> Answer {
        let tools = find_tools(&question, rules);
        let (firewall, is_makeshift) = self.choose(&tools, &question);
        let mut answer = Answer {
            question,
            firewall,
            is_makeshift,
            can_untrack: vec![],
            untracked: vec![],
            tracked: vec![],
            asked: now,
        };
        answer.try_to_untrack(rules);
        answer
    }

    /// Chooses the system, and says why it is not the one that was asked for.
    fn choose(&self, tools: &Tools, question: &Question) -> (Firewall, bool) {
        let (system, note) = match tools.choose(question.nftables) {
            Ok(choice) => (choice.system, choice.note.map(str::to_owned)),
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
            if rules.can_untrack(system, family) {
                self.can_untrack.push(family);
            } else if system.is_iptables() {
                let note = format!(
                    "{family} tunnel packets stay in connection tracking: {system} here cannot tell them by their \
                     content (match u32); EnableNFTables in net-conf.json needs no such match"
                );
                self.firewall.notes.push(note);
            }
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
    use super::*;
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

    fn question(nftables: bool) -> Question {
        Question { nftables, families: Family::BOTH.to_vec(), port: Some(8472) }
    }

    #[test]
    fn ports_are_random_where_the_program_can_and_the_operator_does_not_mind() {
        let program =
            |random_ports| Program { system: System::IptablesNft, ability: Ability { random_ports } };
        let tools = Tools {
            nftables: None,
            iptables: ByFamily { v4: Some(program(true)), v6: Some(program(false)) },
        };
        let (firewall, is_makeshift) = RuleMeans::new(OPTIONS).choose(&tools, &question(false));
        let expected = Firewall {
            system: Some(System::IptablesNft),
            source_ports: ByFamily { v4: Some(SourcePorts::Randomised), v6: Some(SourcePorts::Kept) },
            untracked: vec![],
            notes: vec![],
        };
        assert_eq!((firewall, is_makeshift), (expected, false));
        let options = RuleOptions { source_ports: SourcePorts::Kept, ..OPTIONS };
        let (firewall, _) = RuleMeans::new(options).choose(&tools, &question(false));
        assert_eq!(firewall.source_ports.v4, Some(SourcePorts::Kept));
    }

    #[test]
    fn a_host_that_can_hold_no_rules_is_told_only_if_any_are_wanted_and_asked_again() {
        let choose = |options| RuleMeans::new(options).choose(&Tools::default(), &question(true));
        let (firewall, is_makeshift) = choose(OPTIONS);
        assert_eq!((firewall.system, is_makeshift), (Some(System::Nftables), true));
        assert_eq!(firewall.notes, [NoTools.to_string()]);
        let (firewall, _) = choose(RuleOptions { ip_masq: false, forward: false, ..OPTIONS });
        assert_eq!(firewall.notes, [] as [&str; 0]);
    }
}
