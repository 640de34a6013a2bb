//! What `iptables-save` prints, read back: of both flavours, with and without counters.
//!
//! A part of a rule that we do not know is kept in its words. Nothing here fails on a strange rule; a table that
//! the program could not print is named, as it would look empty.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use super::write::{PROTOCOLS, quoted, vxlan};
use crate::family::Family;
use crate::rules::chain::{BaseChain, ChainType, Hook};
use crate::rules::found::{FoundChain, FoundRule, FoundTable, RuleName};
use crate::rules::{Action, Is, Match, Rule, SetMark, Side, SourcePorts, System, TableId, ports};

/// What is in the tables of one family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    pub tables: Vec<FoundTable>,
    /// The names of tables that hold rules which iptables cannot show: there is no telling what is in them.
    pub unreadable: Vec<Box<str>>,
}

/// The output is cut off, so that a chain may look empty that is not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("iptables-save stopped within table {0}")]
pub struct CutOff(pub String);

/// Reads the output of `iptables-save`.
pub fn saved(system: System, family: Family, output: &str) -> Result<Saved, CutOff> {
    let mut saved = Saved::default();
    let mut open: Option<Open> = None;
    for line in output.lines() {
        if let Some(name) = line.strip_prefix('*') {
            let table = FoundTable::empty(TableId { system, family, name: name.into() });
            open = Some(Open { table, places: BTreeMap::new() });
        } else if line == "COMMIT" {
            saved.tables.extend(open.take().map(|open| open.table));
        } else if let Some(open) = &mut open {
            open.read(line);
        } else {
            saved.unreadable.extend(unreadable(line));
        }
    }
    match open {
        Some(open) => Err(CutOff(open.table.id.name.into())),
        None => Ok(saved),
    }
}

/// The flavour of nftables says in a comment that it cannot show a table, and fails nothing. Base chains that it does
/// not know are said likewise, but hide nothing else.
fn unreadable(line: &str) -> Option<Box<str>> {
    let (name, rest) = line.strip_prefix("# Table `")?.split_once('\'')?;
    rest.starts_with(" is incompatible").then(|| name.into())
}

/// A table that is being read, and where its chains are: kube-proxy may have made thousands.
struct Open {
    table: FoundTable,
    places: BTreeMap<Box<str>, usize>,
}

impl Open {
    fn read(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix(':') {
            let mut words = rest.split(' ');
            if let (Some(name), Some(policy)) = (words.next(), words.next()) {
                self.chain(name).base = base(&self.table.id.name.clone(), name, policy);
            }
            return;
        }
        // With counters a line begins with `[packets:bytes] `.
        let counted = line.strip_prefix('[').and_then(|rest| rest.split_once("] "));
        let line = counted.map_or(line, |(_, rest)| rest);
        if let Some(rest) = line.strip_prefix("-A ") {
            let (chain, text) = rest.split_once(' ').unwrap_or((rest, ""));
            let found = FoundRule { rule: rule(text), name: RuleName::Text(text.into()) };
            self.chain(chain).rules.push(found);
        }
    }

    fn chain(&mut self, name: &str) -> &mut FoundChain {
        let chains = &mut self.table.chains;
        let at = *self.places.entry(name.into()).or_insert_with(|| {
            chains.push(FoundChain { name: name.into(), base: None, rules: vec![] });
            chains.len() - 1
        });
        &mut chains[at]
    }
}

/// Where packets meet the chains of iptables itself; only those have a policy.
fn base(table: &str, chain: &str, policy: &str) -> Option<BaseChain> {
    let hook = match chain {
        "PREROUTING" => Hook::Prerouting,
        "INPUT" => Hook::Input,
        "FORWARD" => Hook::Forward,
        "OUTPUT" => Hook::Output,
        "POSTROUTING" => Hook::Postrouting,
        _ => return None,
    };
    let (kind, priority) = match (table, hook) {
        ("nat", Hook::Prerouting | Hook::Output) => (ChainType::Nat, -100),
        ("nat", _) => (ChainType::Nat, 100),
        ("raw", _) => (ChainType::Filter, -300),
        ("mangle", Hook::Output) => (ChainType::Route, -150),
        ("mangle", _) => (ChainType::Filter, -150),
        ("security", _) => (ChainType::Filter, 50),
        _ => (ChainType::Filter, 0),
    };
    (policy != "-").then_some(BaseChain { kind, hook, priority, accepts: policy != "DROP" })
}

/// Reads what stands behind the chain in a line.
pub fn rule(text: &str) -> Rule {
    let words = words(text);
    let mut reader = Reader { words: &words, is: Is::Equal, rule: Rule::new([], Action::Nothing) };
    while let Some(word) = reader.next() {
        match word {
            "!" => reader.is = Is::Different,
            "-m" => reader.module(),
            "-j" => reader.target(),
            "-g" => reader.rule.action = Action::Goto(reader.next().unwrap_or_default().into()),
            option => reader.option(option),
        }
    }
    reader.rule
}

struct Reader<'a> {
    words: &'a [String],
    is: Is,
    rule: Rule,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }

    /// Whether the value is wanted or anything but it, said by the word before.
    fn take_is(&mut self) -> Is {
        std::mem::replace(&mut self.is, Is::Equal)
    }

    fn option(&mut self, option: &str) {
        let is = self.take_is();
        let value = self.next().unwrap_or_default();
        let known = match option {
            "-s" => network(value).map(|net| Match::Source(is, net)),
            "-d" => network(value).map(|net| Match::Destination(is, net)),
            "-i" => Some(Match::InLink(is, device(value))),
            "-o" => Some(Match::OutLink(is, device(value))),
            "-p" => protocol(value).map(|number| Match::Protocol(is, number)),
            _ => None,
        };
        self.rule.matches.push(known.unwrap_or_else(|| other(is, &[option, value])));
    }

    /// The options of a module reach to the next module, target or option of iptables itself.
    fn module(&mut self) {
        let name = self.next().unwrap_or_default();
        let ends = |word: &str| matches!(word, "-m" | "-j" | "-g" | "-s" | "-d" | "-i" | "-o" | "-p");
        let end = self.words.iter().position(|word| ends(word)).unwrap_or(self.words.len());
        let (mut options, rest) = self.words.split_at(end);
        self.words = rest;
        // A `!` at the end belongs to the option of iptables itself that follows.
        if let [before @ .., last] = options
            && last == "!"
        {
            options = before;
            self.is = Is::Different;
        }
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        match (name, &options[..]) {
            ("comment", ["--comment", comment]) => {
                let before = self.rule.comment.replace((*comment).into());
                self.rule.matches.extend(before.is_none().then_some(Match::Comment));
            }
            (_, []) => {} // `-m udp` alone only repeats the protocol
            _ => self.rule.matches.push(
                known_module(name, &options)
                    .unwrap_or_else(|| other(Is::Equal, &[&["-m", name], &options[..]].concat())),
            ),
        }
    }

    fn target(&mut self) {
        let name = self.next().unwrap_or_default();
        let options: Vec<&str> = std::mem::take(&mut self.words).iter().map(String::as_str).collect();
        let words = || {
            let words: Vec<String> = [name].iter().chain(&options).map(|word| quoted(word)).collect();
            Box::from(words.join(" "))
        };
        self.rule.action = match (name, &options[..]) {
            ("ACCEPT", []) => Action::Accept,
            ("DROP", []) => Action::Drop,
            ("RETURN", []) => Action::Return,
            ("MASQUERADE", options) => masquerade(options).unwrap_or_else(|| Action::OtherSource(words())),
            ("DNAT", ["--to-destination", to]) => dnat(to).unwrap_or_else(|| Action::Other(words())),
            ("NOTRACK", []) | ("CT", ["--notrack"]) => Action::Untrack,
            ("SNAT" | "NETMAP", _) => Action::OtherSource(words()),
            ("MARK", ["--set-xmark", mark]) => {
                self.rule.set_mark = masked(mark).map(|(value, mask)| SetMark { value, mask });
                Action::Nothing
            }
            ("LOG" | "NFLOG" | "MARK" | "CONNMARK" | "TRACE" | "TCPMSS", _) => Action::Nothing,
            (chain, []) if !is_extension(chain) => Action::Jump(chain.into()),
            _ => Action::Other(words()),
        };
    }
}

fn masquerade(options: &[&str]) -> Option<Action> {
    let (to_ports, options) = match options {
        ["--to-ports", range, rest @ ..] => (Some(ports::range(range).ok()?), rest),
        options => (None, options),
    };
    let source_ports = match options {
        [] => SourcePorts::Kept,
        ["--random-fully"] => SourcePorts::Randomised,
        _ => return None,
    };
    Some(Action::Masquerade(source_ports, to_ports))
}

fn dnat(to: &str) -> Option<Action> {
    let with_port = to.parse().map(|to: SocketAddr| Action::Dnat(to.ip(), Some(to.port())));
    with_port.ok().or_else(|| Some(Action::Dnat(to.parse().ok()?, None)))
}

/// Targets of iptables that have no options to be known by.
fn is_extension(name: &str) -> bool {
    ["REJECT", "QUEUE", "CHECKSUM", "CLASSIFY", "SYNPROXY", "AUDIT", "REDIRECT", "DNAT", "CT"].contains(&name)
}

fn known_module(name: &str, options: &[&str]) -> Option<Match> {
    let (is, options) = match options {
        ["!", rest @ ..] => (Is::Different, rest),
        rest => (Is::Equal, rest),
    };
    match (name, options) {
        ("mark", ["--mark", mark]) => masked(mark).map(|(value, mask)| Match::Mark { is, value, mask }),
        ("tcp" | "udp" | "sctp" | "dccp" | "udplite", ["--dport", port]) => {
            port.parse().ok().map(|port| Match::DestinationPort(is, port))
        }
        ("u32", ["--u32", test]) if is == Is::Equal => vxlan_network(test),
        ("addrtype", ["--dst-type", "LOCAL"]) => Some(Match::DestinationLocal(is)),
        ("set", ["--match-set", set, "src"]) => Some(Match::Set(Side::Source, is, (*set).into())),
        ("set", ["--match-set", set, "dst"]) => Some(Match::Set(Side::Destination, is, (*set).into())),
        ("multiport", ["--dports", list]) => {
            let ranges = ports::ranges(&list.replace(':', "-")).ok()?;
            Some(Match::DestinationPorts(is, ranges.into()))
        }
        ("statistic", ["--mode", "random", "--probability", chance]) if is == Is::Equal => chance_of(chance),
        _ => None,
    }
}

/// A probability in digits behind a point; numbers with a point of their own would weigh in the CNI program.
fn chance_of(text: &str) -> Option<Match> {
    let (whole, digits) = text.split_once('.').unwrap_or((text, ""));
    let of = 10_u64.checked_pow(u32::try_from(digits.len()).ok()?)?;
    let part = format!("{whole}{digits}").parse().ok().filter(|part| *part <= of)?;
    Some(Match::chance_of_iptables(part, of))
}

/// A value and a mask with a slash between; every bit counts if there is no mask.
fn masked(text: &str) -> Option<(u32, u32)> {
    match text.split_once('/') {
        Some((value, mask)) => number(value).zip(number(mask)),
        None => Some((number(text)?, u32::MAX)),
    }
}

/// The network of a test that only vxlan packets of ours pass; it is spelled in one way only.
fn vxlan_network(test: &str) -> Option<Match> {
    let (_, value) = test.rsplit_once('=')?;
    let vni = number(value)? >> 8;
    let family = Family::BOTH.into_iter().find(|family| vxlan(*family, vni) == test)?;
    Some(Match::Vxlan(family, vni))
}

fn other(is: Is, words: &[&str]) -> Match {
    let not = (is == Is::Different).then_some("!".to_owned());
    let words: Vec<String> = not.into_iter().chain(words.iter().map(|word| quoted(word))).collect();
    Match::Other(words.join(" ").into())
}

/// A network, an address, or an address with a mask in the form of an address.
fn network(text: &str) -> Option<IpNet> {
    let Some((address, mask)) = text.split_once('/') else {
        return text.parse::<IpAddr>().ok().map(IpNet::from);
    };
    let address: IpAddr = address.parse().ok()?;
    match mask.parse::<IpAddr>() {
        Ok(mask) => IpNet::with_netmask(address, mask).ok().map(|net| net.trunc()),
        Err(_) => IpNet::new(address, mask.parse().ok()?).ok().map(|net| net.trunc()),
    }
}

fn device(text: &str) -> Box<str> {
    match text.strip_suffix('+') {
        Some(beginning) => format!("{beginning}*").into(),
        None => text.into(),
    }
}

fn protocol(text: &str) -> Option<u8> {
    let known = PROTOCOLS.iter().find(|(_, name)| *name == text).map(|(number, _)| *number);
    known.or_else(|| text.parse().ok())
}

fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The words of a line: between quotes spaces belong to a word, and behind a backslash quotes do.
pub fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quoted = false;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            '\\' if quoted => word.get_or_insert_default().extend(letters.next()),
            ' ' if !quoted => words.extend(word.take()),
            letter => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}
