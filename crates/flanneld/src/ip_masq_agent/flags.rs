//! The flags of ip-masq-agent: the original's with its defaults, those of its log, and a few of ours.
//!
//! Takes the words behind `ip-masq-agent`, gives checked [`AgentOptions`] or every fault at once.

use std::ffi::OsString;
use std::path::PathBuf;

use flannel_plan::family::Family;
use flannel_plan::masq_agent::config::DefaultNetworks;
use flannel_plan::rules::ChainName;
use flannel_plan::rules::ports::{self, PortRange};

use crate::options::check::Reader;
use crate::options::command_line::CommandLine;
use crate::options::flags::{Flag, FlagTable, Takes};
use crate::options::{self, LogFormat, OptionFault, value};

/// How the program is called.
const PROGRAM: &str = "flanneld ip-masq-agent";

static FLAGS: FlagTable = FlagTable {
    original: &[
        Flag::switch("enable-ipv6", "false", "keep rules for IPv6, too"),
        Flag::new("masq-chain", Takes::One("NAME"), "IP-MASQ-AGENT", "name of the chain for the rules"),
        Flag::switch(
            "nomasq-all-reserved-ranges",
            "false",
            "without a list, leave out every IPv4 range that an RFC reserves",
        ),
        Flag::switch("random-fully", "true", "choose source ports at random, where the system can"),
        Flag::new(
            "to-ports",
            Takes::One("PORTS"),
            "",
            "choose from these ports only, such as 1024-29999,32768-65535",
        ),
        Flag::new(
            "v",
            Takes::One("N"),
            "0",
            "how much is logged: 0 changes, 1 to 3 reasons too, 4 everything",
        ),
    ],
    ours: &[
        Flag::new("config", Takes::One("FILE"), "/etc/config/ip-masq-agent", "the file, in YAML or JSON"),
        Flag::new("log-format", Takes::One("text|json"), "text", "form of a line in the log"),
        Flag::switch(
            "nftables",
            "false",
            "keep rules in nftables, unless the file says otherwise by its key nftables",
        ),
        Flag::switch(
            "status",
            "false",
            "say whether the rules are what the file says, change nothing, and exit",
        ),
        Flag::switch("version", "false", "print the version and exit"),
    ],
    ignored: &[
        klog_switch("add_dir_header"),
        klog_switch("alsologtostderr"),
        klog_switch("legacy_stderr_threshold_behavior"),
        klog_switch("logtostderr"),
        klog_switch("one_output"),
        klog_switch("skip_headers"),
        klog_switch("skip_log_headers"),
        klog_value("alsologtostderrthreshold"),
        klog_value("log_backtrace_at"),
        klog_value("log_dir"),
        klog_value("log_file"),
        klog_value("log_file_max_size"),
        klog_value("stderrthreshold"),
        klog_value("vmodule"),
    ],
};

/// A switch of the original's log.
const fn klog_switch(name: &'static str) -> Flag {
    Flag::switch(name, "false", "")
}

const fn klog_value(name: &'static str) -> Flag {
    Flag::new(name, Takes::One("VALUE"), "", "")
}

/// What the operator chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentOptions {
    pub chain: ChainName,
    /// The networks that are left out if the file names none.
    pub default_networks: DefaultNetworks,
    pub families: Vec<Family>,
    pub random_fully: bool,
    /// The ports that are chosen from; none for all.
    pub to_ports: Vec<PortRange>,
    pub config: PathBuf,
    /// Whether rules are kept in nftables, unless the file says otherwise.
    pub nftables: bool,
    /// How much is logged, as klog counts.
    pub verbosity: i32,
    pub log_format: LogFormat,
}

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum AgentParsed {
    Run(AgentOptions),
    /// To say how they are.
    Status(AgentOptions),
    Help,
    Version,
}

/// Reads and checks the command line.
pub fn parse(words: &[OsString]) -> Result<AgentParsed, Vec<OptionFault>> {
    let line = CommandLine::read(&FLAGS, words);
    if line.help {
        return Ok(AgentParsed::Help);
    }
    let mut reader = Reader { table: &FLAGS, given: &line.given, faults: line.faults };
    let options = options(&mut reader);
    let (version, status) = (reader.switch("version"), reader.switch("status"));
    match (reader.faults.is_empty(), version, status) {
        (false, ..) => Err(reader.faults),
        (true, true, _) => Ok(AgentParsed::Version),
        (true, false, true) => Ok(AgentParsed::Status(options)),
        (true, false, false) => Ok(AgentParsed::Run(options)),
    }
}

fn options(reader: &mut Reader<'_>) -> AgentOptions {
    FLAGS
        .ignored
        .iter()
        .filter(|flag| flag.takes == Takes::Switch)
        .for_each(|flag| _ = reader.switch(flag.name));
    let reserved = reader.switch("nomasq-all-reserved-ranges");
    let both = reader.switch("enable-ipv6");
    AgentOptions {
        chain: reader.value("masq-chain", |text| text.to_owned().try_into()).unwrap_or_default(),
        default_networks: if reserved { DefaultNetworks::Reserved } else { DefaultNetworks::Private },
        families: if both { Family::BOTH.into() } else { vec![Family::V4] },
        random_fully: reader.switch("random-fully"),
        to_ports: reader.value("to-ports", port_ranges).unwrap_or_default(),
        config: reader.value("config", value::path).unwrap_or_default().into(),
        nftables: reader.switch("nftables"),
        verbosity: reader.value("v", value::integer(i32::MIN..=i32::MAX)).unwrap_or_default(),
        log_format: reader.value("log-format", value::log_format).unwrap_or_default(),
    }
}

fn port_ranges(text: &str) -> Result<Vec<PortRange>, String> {
    ports::ranges(text).map_err(|fault| format!("is no list of ports: {fault}"))
}

/// All faults as one text.
pub fn report(faults: &[OptionFault]) -> String {
    options::report(PROGRAM, faults)
}

/// The text of `--help`.
pub fn usage() -> String {
    let flags = FLAGS.describe(["Flags of the original:", "Flags of this one only:"]);
    format!(
        "Usage: {PROGRAM} [OPTION]...\n\
         Gives the node's address to what leaves the node, except to the networks that a file names.\n\n{flags}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &str) -> Result<AgentParsed, Vec<OptionFault>> {
        parse(&words.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    fn usual() -> AgentOptions {
        AgentOptions {
            chain: ChainName::try_from("IP-MASQ-AGENT".to_owned()).unwrap(),
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
        assert_eq!(parsed(""), Ok(AgentParsed::Run(usual())));
    }

    #[test]
    fn flags_are_written_as_go_takes_them() {
        let expected = AgentOptions {
            chain: ChainName::try_from("MINE".to_owned()).unwrap(),
            default_networks: DefaultNetworks::Reserved,
            families: Family::BOTH.into(),
            random_fully: false,
            to_ports: vec![PortRange { first: 1024, last: 29999 }],
            verbosity: 2,
            ..usual()
        };
        let words = "-masq-chain MINE --nomasq-all-reserved-ranges -enable-ipv6=true --random-fully=F \
                     --to-ports=1024-29999 -v=2 -logtostderr --stderrthreshold INFO -vmodule a=1";
        assert_eq!(parsed(words), Ok(AgentParsed::Run(expected.clone())));
        let more =
            AgentOptions { nftables: true, config: "/x".into(), log_format: LogFormat::Json, ..usual() };
        assert_eq!(
            parsed("--nftables --config /x --log-format json --status"),
            Ok(AgentParsed::Status(more))
        );
        assert_eq!(parsed("--version --masq-chain=A"), Ok(AgentParsed::Version));
        assert_eq!(parsed("--what -h"), Ok(AgentParsed::Help));
    }

    #[test]
    fn every_fault_is_told() {
        let faults = [
            "\"there\": flanneld takes only flags; quote a value that has spaces in it",
            "--maskchain: there is no such flag; did you mean --masq-chain?",
            "--v: the value is missing; write --v=VALUE",
            "--enable-ipv6: \"x\" is neither true nor false",
            "--masq-chain: \"POSTROUTING\" is the name of somebody else's chain",
            "--to-ports: \"9-1\" is no list of ports: \"9-1\" ends before it begins",
        ];
        let words = "there --maskchain --enable-ipv6=x --masq-chain=POSTROUTING --to-ports 9-1 -v";
        let told =
            parsed(words).map_err(|found| found.iter().map(OptionFault::to_string).collect::<Vec<_>>());
        assert_eq!(told, Err(faults.map(str::to_owned).into()));
        for name in ["", "a b", "-X", "KUBE-SERVICES", "FLANNEL-POSTRTG", "ABCDEFGHIJKLMNOPQRSTUVWXYZABC"] {
            assert!(ChainName::try_from(name.to_owned()).is_err(), "{name}");
        }
    }

    #[test]
    fn the_usage_names_every_flag() {
        let text = usage();
        for flag in FLAGS.all() {
            assert!(text.contains(flag.name) && text.contains(flag.meaning), "{}", flag.name);
        }
    }
}
