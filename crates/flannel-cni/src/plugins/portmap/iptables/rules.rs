//! The chains and rules of a container for one family, as words for iptables, and the script that makes them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use flannel_kernel::firewall::iptables::{Saved, quoted};
use flannel_plan::family::Family;
use ipnet::IpNet;

use crate::error::CniError;
use crate::firewall::names;
use crate::plugins::portmap::config::{Config, Mapping, Mark, localhost};
use crate::request::Request;

pub(super) const NAT: &str = "nat";
/// What every packet for this host goes through.
pub(super) const DNAT: &str = "CNI-HOSTPORT-DNAT";
/// What marks packets that are to be masqueraded.
pub(super) const SETMARK: &str = "CNI-HOSTPORT-SETMARK";
/// What masquerades the marked ones.
pub(super) const MASQ: &str = "CNI-HOSTPORT-MASQ";
/// The beginning of the name of a container's chain.
pub(super) const OWN: &str = "CNI-DN-";
/// The match `multiport` takes no more.
const MOST_PORTS: usize = 15;
const LONGEST_COMMENT: usize = 255;

/// A rule, word by word, without its chain.
pub(super) type Words = Vec<String>;

/// What should be there for one address of a container.
pub(super) struct Plan {
    pub(super) family: Family,
    /// The container's chain.
    pub(super) chain: String,
    /// The bit that marks packets, if we do that.
    pub(super) mark: Option<u32>,
    /// The rules of the container's chain.
    rules: Vec<Words>,
    /// The rules that lead to it.
    entries: Vec<Words>,
}

impl Plan {
    pub(super) fn new(request: &Request, config: &Config, address: IpNet) -> Result<Self, CniError> {
        let chain = names::chain(OWN, &request.network, &request.container_id);
        let mut rules = Vec::new();
        let family = Family::of_net(address);
        for mapping in config.mappings.iter().filter(|mapping| mapping.host_ip.concerns(family)) {
            rules.extend(mapping_rules(config, mapping, address)?);
        }
        Ok(Self {
            family,
            mark: match config.mark {
                Mark::Bit(bit) if config.snat => Some(bit),
                Mark::Bit(_) | Mark::Chain(_) => None,
            },
            entries: entries(request, config, family, &chain),
            chain,
            rules,
        })
    }

    /// The container's rules, each with its chain.
    pub(super) fn own_rules(&self) -> impl Iterator<Item = (&str, &Words)> {
        let rules = self.rules.iter().map(|rule| (self.chain.as_str(), rule));
        rules.chain(self.entries.iter().map(|rule| (DNAT, rule)))
    }

    /// A script that makes only the container's rules.
    pub(super) fn own_script(&self) -> String {
        let mut script = Script::default();
        script.chain(&self.chain);
        for (chain, rule) in self.own_rules() {
            script.append(chain, rule);
        }
        script.finish()
    }

    /// A script that makes everything that is not there, and the container's own chain anew.
    pub(super) fn script(&self, saved: &Saved) -> String {
        let mut script = Script::default();
        if let Some(bit) = self.mark {
            masquerade(&mut script, saved, bit);
        }
        script.ensure(saved, DNAT, &[]);
        for entry in ["PREROUTING", "OUTPUT"] {
            if !leads(saved, entry, DNAT) {
                script.append(entry, &words("-m addrtype --dst-type LOCAL -j", &[DNAT]));
            }
        }
        script.chain(&self.chain);
        for rule in &self.rules {
            script.append(&self.chain, rule);
        }
        let entries: Vec<_> = saved
            .of_chain(DNAT)
            .filter(|rule| rule.target().as_deref() == Some(self.chain.as_str()))
            .collect();
        let found: Vec<_> = entries.iter().map(|rule| normal(&rule.words())).collect();
        if found != self.entries.iter().map(|rule| normal(rule)).collect::<Vec<_>>() {
            for rule in entries {
                script.line(&format!("-D {DNAT} {}", rule.text));
            }
            for rule in &self.entries {
                script.append(DNAT, rule);
            }
        }
        script.finish()
    }
}

/// The chains that mark and masquerade. That of masquerade has to be first: those of containers end the walk.
fn masquerade(script: &mut Script, saved: &Saved, bit: u32) {
    let mark = format!("{bit:#x}/{bit:#x}");
    let comment = ["CNI portfwd masquerade mark", "-j", "MARK", "--set-xmark", &mark];
    script.ensure(saved, SETMARK, &words("-m comment --comment", &comment));
    script.ensure(saved, MASQ, &words("-m mark --mark", &[&mark, "-j", "MASQUERADE"]));
    if !leads(saved, "POSTROUTING", MASQ) {
        let rule = words("-m comment --comment", &["CNI portfwd requiring masquerade", "-j", MASQ]);
        script.insert("POSTROUTING", &rule);
    }
}

fn leads(saved: &Saved, from: &str, to: &str) -> bool {
    saved.of_chain(from).any(|rule| rule.target().as_deref() == Some(to))
}

fn mapping_rules(config: &Config, mapping: &Mapping, address: IpNet) -> Result<Vec<Words>, CniError> {
    let target = match &config.mark {
        Mark::Bit(_) => SETMARK,
        Mark::Chain(chain) => chain,
    };
    let host_ip = mapping.host_ip.one()?.map(|address| IpNet::from(address).to_string());
    let port = mapping.host_port.to_string();
    let rule = |source: Option<IpNet>, rest: &[&str]| {
        let mut rule = Words::new();
        let source = source.map(|source| source.to_string());
        for (option, value) in [("-s", &source), ("-d", &host_ip)] {
            rule.extend(value.iter().flat_map(|value| [option.to_owned(), value.clone()]));
        }
        rule.extend(words("-p", &[mapping.transport.name, "--dport", &port, "-j"]));
        rule.extend(rest.iter().map(|word| (*word).to_owned()));
        rule
    };
    let mut rules = Vec::new();
    if config.snat {
        // Every container of the network, not only this one: its answer would not pass the host.
        rules.push(rule((!config.masquerade_all).then(|| address.trunc()), &[target]));
        let host = localhost(Family::of_net(address)).filter(|_| !config.masquerade_all);
        rules.extend(host.map(|host| rule(Some(host.into()), &[target])));
    }
    let destination = match address.addr() {
        IpAddr::V4(ip) => format!("{ip}:{}", mapping.container_port),
        IpAddr::V6(ip) => format!("[{ip}]:{}", mapping.container_port),
    };
    rules.push(rule(None, &["DNAT", "--to-destination", &destination]));
    Ok(rules)
}

fn entries(request: &Request, config: &Config, family: Family, chain: &str) -> Vec<Words> {
    let comment = comment(&request.network, &request.container_id);
    let mut transports: Vec<_> = config.mappings.iter().map(|mapping| mapping.transport.name).collect();
    transports.sort_unstable();
    transports.dedup();
    let mut entries = Vec::new();
    for transport in transports {
        let ports: Vec<String> = config
            .mappings
            .iter()
            .filter(|mapping| mapping.transport.name == transport)
            .map(|mapping| mapping.host_port.to_string())
            .collect();
        for ports in ports.chunks(MOST_PORTS) {
            let ports = ports.join(",");
            let mut rule = words("-p", &[transport, "-m", "comment", "--comment", &comment]);
            rule.extend(words("-m multiport --dports", &[&ports]));
            rule.extend(config.conditions(family).iter().cloned());
            rule.extend(words("-j", &[chain]));
            entries.push(rule);
        }
    }
    entries
}

fn comment(network: &str, container: &str) -> String {
    let comment = format!("dnat name: \"{network}\" id: \"{container}\"");
    if comment.len() <= LONGEST_COMMENT { comment } else { format!("{}...", &comment[..253]) }
}

fn words(fixed: &str, more: &[&str]) -> Words {
    fixed.split(' ').chain(more.iter().copied()).map(str::to_owned).collect()
}

/// What a rule says whatever the order of its words: options with their values, `!` before them.
pub(super) fn normal(words: &[String]) -> BTreeSet<Vec<String>> {
    let mut parts = BTreeSet::new();
    let mut part: Vec<String> = Vec::new();
    for word in words {
        let begins = word == "!" || word.starts_with('-') && part != ["!"];
        if begins && !part.is_empty() {
            parts.insert(std::mem::take(&mut part));
        }
        // Go cuts comments to one byte more than iptables keeps.
        part.push(word[..word.floor_char_boundary(LONGEST_COMMENT)].to_owned());
    }
    parts.insert(part);
    // Which matches are loaded follows from their options.
    parts.retain(|part| part.first().is_some_and(|option| option != "-m"));
    parts
}

/// A script for `iptables-restore`: chains first, then rules.
#[derive(Default)]
pub(super) struct Script {
    chains: String,
    lines: String,
}

impl Script {
    /// Makes a chain, or empties it.
    pub(super) fn chain(&mut self, name: &str) {
        self.chains += &format!(":{name} - [0:0]\n");
    }

    /// Makes a chain if there is none, and a rule in it if that is not there. A chain that somebody else makes
    /// meanwhile is not emptied: then the whole script fails.
    fn ensure(&mut self, saved: &Saved, chain: &str, rule: &[String]) {
        if !saved.has_chain(chain) {
            self.chains += &format!("-N {chain}\n");
        }
        let is_there = saved.of_chain(chain).any(|found| normal(&found.words()) == normal(rule));
        if !rule.is_empty() && !is_there {
            self.append(chain, rule);
        }
    }

    /// Adds a rule at the end of a chain.
    pub(super) fn append(&mut self, chain: &str, rule: &[String]) {
        self.rule(&format!("-A {chain}"), rule);
    }

    fn insert(&mut self, chain: &str, rule: &[String]) {
        self.rule(&format!("-I {chain} 1"), rule);
    }

    fn rule(&mut self, beginning: &str, rule: &[String]) {
        let words: Vec<_> = rule.iter().map(|word| quoted(word)).collect();
        self.line(&format!("{beginning} {}", words.join(" ")));
    }

    /// Adds a line as it is.
    pub(super) fn line(&mut self, line: &str) {
        self.lines += line;
        self.lines.push('\n');
    }

    /// Whether nothing is to be done.
    pub(super) fn is_empty(&self) -> bool {
        self.chains.is_empty() && self.lines.is_empty()
    }

    /// The whole script.
    pub(super) fn finish(self) -> String {
        format!("*{NAT}\n{}{}COMMIT\n", self.chains, self.lines)
    }
}
