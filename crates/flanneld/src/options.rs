//! Go flannel's flags and environment, and two of ours, read into one checked value.
//!
//! Takes words, variables and the host's name as plain data; gives [`Options`], or every fault at once.

pub(crate) mod check;
pub(crate) mod command_line;
mod fault;
pub(crate) mod flags;
mod store;
pub(crate) mod value;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use flannel_leases::etcd::EtcdOptions;
use flannel_leases::kubernetes::KubernetesOptions;
use flannel_plan::family::ByFamily;
use flannel_plan::rules::SourcePorts;
use regex::Regex;

use check::Reader;
use command_line::CommandLine;
pub use fault::{OptionFault, report};
use flags::FLANNELD;
pub use flags::usage;

pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The variables of a process.
pub type Environment = BTreeMap<OsString, OsString>;

/// All that options are made of. It may hold a secret, so it cannot be printed.
pub struct Source {
    /// The words behind the program's name.
    pub words: Vec<OsString>,
    pub environment: Environment,
    pub host_name: String,
}

impl Source {
    /// That of the running process.
    pub fn of_this_process() -> Self {
        Self {
            words: std::env::args_os().skip(1).collect(),
            environment: std::env::vars_os().collect(),
            host_name: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        }
    }
}

/// What the command line asks for.
#[derive(Debug, PartialEq)]
pub enum Parsed {
    Run(Box<Options>),
    Help,
    Version,
}

/// What the operator chose for this daemon.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    pub store: Store,
    /// This node's name in the store.
    pub owner: String,
    /// Names or addresses of interfaces to try, in this order, before the patterns.
    pub ifaces: Vec<String>,
    /// Patterns of interfaces to try, in this order, before the address to reach.
    pub iface_regexes: Vec<Pattern>,
    /// An address that the interface should lead to.
    pub iface_can_reach: Option<IpAddr>,
    /// The addresses that other nodes are told to send to.
    pub public: ByFamily<IpAddr>,
    /// Where the CNI plugin looks for the node's subnet.
    pub subnet_file: String,
    pub rules: RuleOptions,
    /// Where health and metrics are served, if they are.
    pub healthz: Option<SocketAddr>,
    /// How much is logged, as klog counts.
    pub verbosity: i32,
    pub log_format: LogFormat,
    /// What to tell the operator about accepted flags that do nothing.
    pub warnings: Vec<String>,
}

/// What the operator chose for the rules of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleOptions {
    /// Whether packets that leave the pod network get the node's address.
    pub ip_masq: bool,
    /// How they get their ports, where the host can do either.
    pub source_ports: SourcePorts,
    /// Whether packets of the pod network are let through the host's firewall.
    pub forward: bool,
    /// Whether the tunnel's own packets are kept from connection tracking.
    pub untrack: bool,
    /// Whether packets for pods of this node that are gone are dropped.
    pub blackhole: bool,
    /// The time between two looks at rules whose changes nobody tells.
    pub resync: Duration,
}

/// Where leases are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Store {
    /// In files of this folder.
    Directory(PathBuf),
    Etcd(EtcdOptions),
    /// In the annotations of Kubernetes nodes.
    Kubernetes(KubernetesOptions),
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(dir) => write!(f, "directory {}", dir.display()),
            Self::Etcd(options) => write!(f, "etcd {}", options.prefix),
            Self::Kubernetes(options) => write!(f, "kubernetes {}", options.prefix),
        }
    }
}

/// A regular expression over addresses and names of interfaces; not anchored, equal by its text.
#[derive(Clone, Debug)]
pub struct Pattern(pub Regex);

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

/// The form of a line in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// Where a value is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provenance {
    Flag,
    Environment,
}

/// Reads and checks everything; help beats faults, and the version beats what is in the environment.
pub fn parse(source: &Source) -> Result<Parsed, Vec<OptionFault>> {
    let CommandLine { mut given, help, faults, .. } = CommandLine::read(&FLANNELD, &source.words);
    if help {
        return Ok(Parsed::Help);
    }
    let mut reader = Reader { table: &FLANNELD, given: &given, faults };
    if reader.switch("version") && reader.faults.is_empty() {
        return Ok(Parsed::Version);
    }
    let mut faults = reader.faults;
    faults.extend(given.fill_in(&source.environment));
    check::options(&given, source, faults).map(|options| Parsed::Run(Box::new(options)))
}

#[cfg(test)]
mod tests;
