//! The flags of ip-masq-agent: the original's with its defaults, those of its log, and a few of ours.
//!
//! Takes the words behind `ip-masq-agent`, gives checked [`AgentOptions`] or every fault at once.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use flannel_plan::family::Family;
use flannel_plan::masq_agent::config::DefaultNetworks;
use flannel_plan::masq_agent::ports::{self, PortRange};

use crate::options::{LogFormat, value};

/// One flag: its name, its value's name if it takes one, its default, what it does.
type Flag = (&'static str, Option<&'static str>, &'static str, &'static str);

const OF_THE_ORIGINAL: [Flag; 6] = [
    ("enable-ipv6", None, "false", "keep rules for IPv6, too"),
    ("masq-chain", Some("NAME"), "IP-MASQ-AGENT", "name of the chain for the rules"),
    (
        "nomasq-all-reserved-ranges",
        None,
        "false",
        "without a list, leave out every IPv4 range that an RFC reserves",
    ),
    ("random-fully", None, "true", "choose source ports at random, where the system can"),
    ("to-ports", Some("PORTS"), "", "choose from these ports only, such as 1024-29999,32768-65535"),
    ("v", Some("N"), "0", "how much is logged: 0 changes, 1 to 3 reasons too, 4 everything"),
];

const OF_OURS: [Flag; 5] = [
    ("config", Some("FILE"), "/etc/config/ip-masq-agent", "the file, in YAML or JSON"),
    ("log-format", Some("text|json"), "text", "form of a line in the log"),
    ("nftables", None, "false", "keep rules in nftables, unless the file says otherwise by its key nftables"),
    ("status", None, "false", "say whether the rules are what the file says, change nothing, and exit"),
    ("version", None, "false", "print the version and exit"),
];

/// The switches of the original's log; taken for the sake of old command lines.
const SWITCHES_OF_KLOG: [&str; 7] = [
    "add_dir_header",
    "alsologtostderr",
    "legacy_stderr_threshold_behavior",
    "logtostderr",
    "one_output",
    "skip_headers",
    "skip_log_headers",
];
/// The same with a value.
const VALUES_OF_KLOG: [&str; 7] = [
    "alsologtostderrthreshold",
    "log_backtrace_at",
    "log_dir",
    "log_file",
    "log_file_max_size",
    "stderrthreshold",
    "vmodule",
];

/// What the operator chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentOptions {
    /// The name of the chain.
    pub chain: String,
    /// The networks that are left out if the file names none.
    pub default_networks: DefaultNetworks,
    /// The families that have rules.
    pub families: Vec<Family>,
    /// Whether ports are chosen at random.
    pub random_fully: bool,
    /// The ports that are chosen from; none for all.
    pub to_ports: Vec<PortRange>,
    /// The file.
    pub config: PathBuf,
    /// Whether rules are kept in nftables, unless the file says otherwise.
    pub nftables: bool,
    /// How much is logged, as klog counts.
    pub verbosity: i32,
    /// The form of a line in the log.
    pub log_format: LogFormat,
}

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum AgentParsed {
    /// To keep the rules.
    Run(AgentOptions),
    /// To say how they are.
    Status(AgentOptions),
    /// To print the usage text.
    Help,
    /// To print the version.
    Version,
}

/// Reads and checks the command line.
pub fn parse(words: &[OsString]) -> Result<AgentParsed, Vec<String>> {
    let mut line = Line::default();
    line.read(words);
    if line.help {
        return Ok(AgentParsed::Help);
    }
    let options = line.options();
    let (version, status) = (line.switch("version"), line.switch("status"));
    match (line.faults.is_empty(), version, status) {
        (false, ..) => Err(line.faults),
        (true, true, _) => Ok(AgentParsed::Version),
        (true, false, true) => Ok(AgentParsed::Status(options)),
        (true, false, false) => Ok(AgentParsed::Run(options)),
    }
}

/// A command line that is being read.
#[derive(Default)]
struct Line {
    given: BTreeMap<&'static str, String>,
    help: bool,
    faults: Vec<String>,
}

impl Line {
    fn read(&mut self, words: &[OsString]) {
        let mut words = words.iter().map(|word| word.to_string_lossy().into_owned());
        while let Some(word) = words.next() {
            let Some(name) =
                word.strip_prefix("--").or_else(|| word.strip_prefix('-')).filter(|it| !it.is_empty())
            else {
                self.faults.push(format!("{word}: only flags are taken; write --NAME or --NAME=VALUE"));
                continue;
            };
            let (name, value) =
                name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value)));
            if ["h", "help"].contains(&name) {
                self.help = true;
                continue;
            }
            match (find(name), value) {
                (None, _) => self.faults.push(format!("--{name}: there is no such flag")),
                (Some((name, _)), Some(value)) => _ = self.given.insert(name, value.to_owned()),
                (Some((name, Takes::Switch)), None) => _ = self.given.insert(name, "true".to_owned()),
                (Some((name, Takes::Value)), None) => match words.next() {
                    Some(value) => _ = self.given.insert(name, value),
                    None => self.faults.push(format!("--{name}: the value is missing; write --{name}=VALUE")),
                },
            }
        }
    }

    fn options(&mut self) -> AgentOptions {
        SWITCHES_OF_KLOG.iter().for_each(|name| _ = self.value(name, value::switch));
        let reserved = self.switch("nomasq-all-reserved-ranges");
        let both = self.switch("enable-ipv6");
        AgentOptions {
            chain: self.value("masq-chain", chain).unwrap_or_default(),
            default_networks: if reserved { DefaultNetworks::Reserved } else { DefaultNetworks::Private },
            families: if both { Family::BOTH.into() } else { vec![Family::V4] },
            random_fully: self.switch("random-fully"),
            to_ports: self
                .value("to-ports", |text| {
                    ports::ranges(text).map_err(|fault| format!("is no list of ports: {fault}"))
                })
                .unwrap_or_default(),
            config: self.value("config", value::path).unwrap_or_default().into(),
            nftables: self.switch("nftables"),
            verbosity: self.value("v", value::integer(i32::MIN..=i32::MAX)).unwrap_or_default(),
            log_format: self.value("log-format", value::log_format).unwrap_or_default(),
        }
    }

    fn switch(&mut self, name: &'static str) -> bool {
        self.value(name, value::switch).unwrap_or(false)
    }

    /// What a flag is, by default if nobody sets it; a fault is told once.
    fn value<T>(&mut self, name: &'static str, read: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        let default = all().find(|flag| flag.0 == name).map_or("false", |flag| flag.2);
        let text = self.given.get(name).map_or(default, String::as_str);
        match read(text) {
            Ok(value) => Some(value),
            Err(why) => {
                self.faults.push(format!("--{name}: {text:?} {why}"));
                None
            }
        }
    }
}

/// Whether a flag has a value of its own.
#[derive(Clone, Copy)]
enum Takes {
    Switch,
    Value,
}

fn all() -> impl Iterator<Item = &'static Flag> {
    OF_THE_ORIGINAL.iter().chain(&OF_OURS)
}

fn find(name: &str) -> Option<(&'static str, Takes)> {
    let known = all().map(|flag| (flag.0, if flag.1.is_some() { Takes::Value } else { Takes::Switch }));
    let switches = SWITCHES_OF_KLOG.iter().map(|name| (*name, Takes::Switch));
    let values = VALUES_OF_KLOG.iter().map(|name| (*name, Takes::Value));
    known.chain(switches).chain(values).find(|(known, _)| *known == name)
}

/// The name of a chain that is the agent's alone: it is emptied whenever its rules are not as they should be.
fn chain(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let of_iptables =
        ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING", "ACCEPT", "DROP", "RETURN", "QUEUE"];
    let of_others = ["FLANNEL-", "KUBE-", "CNI-", "MASQUERADE", "DNAT", "SNAT"];
    if !text.bytes().all(plain) || text.starts_with('-') || !(1..=28).contains(&text.len()) {
        Err("is no name of a chain: 1 to 28 letters, digits, dashes, dots and underscores".to_owned())
    } else if of_iptables.contains(&text) || of_others.iter().any(|begin| text.starts_with(begin)) {
        Err("is the name of somebody else's chain".to_owned())
    } else {
        Ok(text.to_owned())
    }
}

/// All faults as one text.
pub fn report(faults: &[String]) -> String {
    let mut text = "ip-masq-agent cannot start:\n".to_owned();
    faults.iter().for_each(|fault| text += &format!("  {fault}\n"));
    text + "`flanneld ip-masq-agent --help` lists every flag.\n"
}

/// The text of `--help`.
pub fn usage() -> String {
    let mut text = "Usage: flanneld ip-masq-agent [OPTION]...\n\
        Gives the node's address to what leaves the node, except to the networks that a file names.\n\n\
        Flags of the original:\n"
        .to_owned();
    OF_THE_ORIGINAL.iter().for_each(|flag| text += &describe(flag));
    text += "\nFlags of this one only:\n";
    OF_OURS.iter().for_each(|flag| text += &describe(flag));
    text += "\nTaken without effect: ";
    text += &[&SWITCHES_OF_KLOG[..], &VALUES_OF_KLOG].concat().join(", ");
    text + "\n"
}

fn describe((name, value, default, meaning): &Flag) -> String {
    let dashes = if name.len() == 1 { "-" } else { "--" };
    let value = value.map(|value| format!(" {value}")).unwrap_or_default();
    let default = if default.is_empty() { String::new() } else { format!(" (default: {default})") };
    format!("  {dashes}{name}{value}\n        {meaning}{default}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &str) -> Result<AgentParsed, Vec<String>> {
        parse(&words.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    fn usual() -> AgentOptions {
        AgentOptions {
            chain: "IP-MASQ-AGENT".to_owned(),
            default_networks: DefaultNetworks::Private,
            families: vec![Family::V4],
            random_fully: true,
            to_ports: vec![],
            config: "/etc/config/ip-masq-agent".into(),
            nftables: false,
            verbosity: 0,
            log_format: LogFormat::Text,
        }
    }

    #[test]
    fn the_defaults_are_those_of_the_original() {
        assert_eq!(options(""), Ok(AgentParsed::Run(usual())));
    }

    #[test]
    fn flags_are_written_as_go_takes_them() {
        let expected = AgentOptions {
            chain: "MINE".to_owned(),
            default_networks: DefaultNetworks::Reserved,
            families: Family::BOTH.into(),
            random_fully: false,
            to_ports: vec![PortRange { first: 1024, last: 29999 }],
            verbosity: 2,
            ..usual()
        };
        let words = "-masq-chain MINE --nomasq-all-reserved-ranges -enable-ipv6=true --random-fully=F \
                     --to-ports=1024-29999 -v=2 -logtostderr --stderrthreshold INFO -vmodule a=1";
        assert_eq!(options(words), Ok(AgentParsed::Run(expected.clone())));
        let more =
            AgentOptions { nftables: true, config: "/x".into(), log_format: LogFormat::Json, ..usual() };
        assert_eq!(
            options("--nftables --config /x --log-format json --status"),
            Ok(AgentParsed::Status(more))
        );
        assert_eq!(options("--version --masq-chain=A"), Ok(AgentParsed::Version));
        assert_eq!(options("--what -h"), Ok(AgentParsed::Help));
    }

    #[test]
    fn every_fault_is_told() {
        let faults = [
            "there: only flags are taken; write --NAME or --NAME=VALUE",
            "--masq: there is no such flag",
            "--v: the value is missing; write --v=VALUE",
            "--enable-ipv6: \"x\" is neither true nor false",
            "--masq-chain: \"POSTROUTING\" is the name of somebody else's chain",
            "--to-ports: \"9-1\" is no list of ports: \"9-1\" ends before it begins",
        ];
        let words = "there --masq --enable-ipv6=x --masq-chain=POSTROUTING --to-ports 9-1 -v";
        assert_eq!(options(words), Err(faults.map(str::to_owned).into()));
        for name in ["", "a b", "-X", "KUBE-SERVICES", "FLANNEL-POSTRTG", "ABCDEFGHIJKLMNOPQRSTUVWXYZABC"] {
            assert!(chain(name).is_err(), "{name}");
        }
    }

    #[test]
    fn the_usage_names_every_flag() {
        let text = usage();
        for flag in all() {
            assert!(text.contains(&format!("-{}", flag.0)) && text.contains(flag.3), "{}", flag.0);
        }
    }
}
