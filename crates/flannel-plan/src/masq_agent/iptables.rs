//! The rules of ip-masq-agent in the language of iptables: the chain, the rules and the comments of the original, so
//! that either program continues what the other made.
//!
//! Takes the rules that are wanted and what `iptables-save -t nat` says; gives what differs, and the script that
//! mends it in one transaction.

use ipnet::IpNet;

use super::spec::{AgentRules, AgentSpec, Chance, KEPT, MASQUERADED, MasqueradeRule};
use crate::family::Family;
use crate::rules::iptables::rule;
use crate::rules::{Action, Is, Match, Rule, SourcePorts};

/// The chain of iptables itself that leads to the agent's.
pub const BASE_CHAIN: &str = "POSTROUTING";

/// What is there of one agent in the table `nat`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentFound {
    /// The rules of its chain, in the words of `iptables-save`; none if there is no chain.
    pub chain: Option<Vec<String>>,
    /// The rules of the agent that lead to the chain.
    pub jumps: Vec<String>,
    /// Whether others lead to it, too: then it cannot go.
    pub lent: bool,
}

/// The rule that leads to a chain, behind the name of [`BASE_CHAIN`]. The comment stands first, where the original has it:
/// to iptables the same matches in another order are another rule.
pub fn jump(chain: &str) -> String {
    format!("-m comment --comment \"{}\" -m addrtype ! --dst-type LOCAL -j {chain}", jump_comment(chain))
}

fn jump_comment(chain: &str) -> String {
    format!(
        "ip-masq-agent: ensure nat POSTROUTING directs all non-LOCAL destination traffic to our custom {chain} chain"
    )
}

/// Whether a rule of [`BASE_CHAIN`] is the agent's own jump, whatever the order of its matches.
pub fn is_jump(chain: &str, found: &Rule) -> bool {
    found.action == Action::Jump(chain.into())
        && found.comment.as_deref() == Some(&jump_comment(chain))
        && found.sorted() == [&Match::DestinationLocal(Is::Different)]
}

/// Whether a rule leads to the chain, and says that it is the agent's.
pub fn is_jump_by_comment(chain: &str, target: Option<&str>, comment: Option<&str>) -> bool {
    target == Some(chain) && comment == Some(&jump_comment(chain))
}

/// The rules of the chain, as `iptables-save` prints them.
pub fn lines(rules: &AgentRules) -> Vec<String> {
    rules.kept.iter().map(|net| kept(*net)).chain(rules.masquerade.iter().map(masquerade)).collect()
}

fn kept(network: IpNet) -> String {
    // What is true of every packet is not printed.
    let to = if network.prefix_len() == 0 { String::new() } else { format!("-d {network} ") };
    format!("{to}-m comment --comment \"{KEPT}\" -j RETURN")
}

fn masquerade(rule: &MasqueradeRule) -> String {
    let protocol = rule.protocol.map(|number| match number {
        6 => "-p tcp ".to_owned(),
        17 => "-p udp ".to_owned(),
        132 => "-p sctp ".to_owned(),
        other => format!("-p {other} "),
    });
    let chance = rule.chance.map(probability).unwrap_or_default();
    let ports = rule.to_ports.map(|range| format!(" --to-ports {range}")).unwrap_or_default();
    let random = match rule.source_ports {
        SourcePorts::Randomised => " --random-fully",
        SourcePorts::Kept => "",
    };
    let protocol = protocol.unwrap_or_default();
    format!("{protocol}-m comment --comment \"{MASQUERADED}\"{chance} -j MASQUERADE{ports}{random}")
}

/// iptables keeps a probability as a part of 2³¹, and shows eleven digits of that.
fn probability(chance: Chance) -> String {
    let whole = f64::from(1_u32 << 31);
    let part = (f64::from(chance.part) / f64::from(chance.of) * whole).round() / whole;
    format!(" -m statistic --mode random --probability {part:.11}")
}

/// What of the output of `iptables-save` concerns one agent.
pub fn found(chain: &str, saved: &str) -> AgentFound {
    let mut found = AgentFound::default();
    let mut in_nat = false;
    for line in saved.lines() {
        if let Some(table) = line.strip_prefix('*') {
            in_nat = table == "nat";
        } else if in_nat && let Some(name) = line.strip_prefix(':').and_then(|rest| rest.split(' ').next()) {
            if name == chain {
                found.chain.get_or_insert_default();
            }
        } else if in_nat
            && let Some((place, text)) = line.strip_prefix("-A ").and_then(|rest| rest.split_once(' '))
        {
            found.add(chain, place, text);
        }
    }
    found
}

impl AgentFound {
    fn add(&mut self, chain: &str, place: &str, text: &str) {
        if place == chain {
            self.chain.get_or_insert_default().push(text.to_owned());
        } else if text.contains(chain) {
            let found = rule(text);
            match found.target() {
                Some(target) if target == chain && place == BASE_CHAIN && is_jump(chain, &found) => {
                    self.jumps.push(text.to_owned());
                }
                Some(target) if target == chain => self.lent = true,
                _ => {}
            }
        }
    }

    /// Whether nothing of the agent is there.
    pub fn is_empty(&self) -> bool {
        self.chain.is_none() && self.jumps.is_empty()
    }

    /// What is not as wanted, in words; nothing if all is.
    pub fn differences(&self, chain: &str, want: &AgentRules) -> Vec<String> {
        let wanted = lines(want);
        let mut told = Vec::new();
        match &self.chain {
            None => told.push(format!("there is no chain {chain}")),
            Some(have) if !are_same(have, &wanted) => {
                told.push(format!("chain {chain} has {}", unlike(have.len(), wanted.len())));
            }
            Some(_) => {}
        }
        match self.jumps.len() {
            0 => told.push(format!("nothing in {BASE_CHAIN} leads to {chain}")),
            1 => {}
            many => told.push(format!("{many} rules of {BASE_CHAIN} lead to {chain}")),
        }
        told
    }

    /// The script for `iptables-restore --noflush` that makes it as wanted.
    pub fn script(&self, spec: &AgentSpec, family: Family) -> Option<String> {
        let (chain, want) = (&spec.chain, spec.rules(family));
        let Some(want) = want else { return self.removal(chain) };
        if self.differences(chain, &want).is_empty() {
            return None;
        }
        // To name the chain empties it, or makes it; the table changes only with the last line.
        let mut script = vec!["*nat".to_owned(), format!(":{chain} - [0:0]")];
        script.extend(lines(&want).into_iter().map(|line| format!("-A {chain} {line}")));
        let spare = self.jumps.len().saturating_sub(1);
        script.extend(self.jumps[..spare].iter().map(|text| format!("-D {BASE_CHAIN} {text}")));
        if self.jumps.is_empty() {
            script.push(format!("-A {BASE_CHAIN} {}", jump(chain)));
        }
        script.push("COMMIT\n".to_owned());
        Some(script.join("\n"))
    }

    /// The script that takes everything of the agent out; a chain that others use stays, empty.
    pub fn removal(&self, chain: &str) -> Option<String> {
        let is_idle =
            self.jumps.is_empty() && self.chain.as_ref().is_none_or(|rules| rules.is_empty() && self.lent);
        if is_idle {
            return None;
        }
        let mut script = vec!["*nat".to_owned()];
        script.extend(self.jumps.iter().map(|text| format!("-D {BASE_CHAIN} {text}")));
        if self.chain.is_some() {
            script.push(format!("-F {chain}"));
        }
        if self.chain.is_some() && !self.lent {
            script.push(format!("-X {chain}"));
        }
        script.push("COMMIT\n".to_owned());
        Some(script.join("\n"))
    }
}

/// How many rules there are, where others should be.
pub fn unlike(have: usize, want: usize) -> String {
    if have == want {
        format!("{have} rules that are not the agent's")
    } else {
        format!("{have} rules, not {want}")
    }
}

/// Whether two lists of rules say the same; iptables of another version may spell it in another way.
fn are_same(have: &[String], want: &[String]) -> bool {
    have.len() == want.len()
        && have.iter().zip(want).all(|(have, want)| have == want || rule(have) == rule(want))
}
