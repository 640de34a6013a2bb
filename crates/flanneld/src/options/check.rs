//! From texts to [`Options`]: each value read and judged. Takes [`Given`], gives options or every fault at once.

use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use flannel_plan::family::{ByFamily, Family};
use flannel_plan::rules::SourcePorts;

use super::command_line::{Given, Setting};
use super::fault::{OptionFault, Origin, Shown};
use super::flags::{FLANNELD, Flag, FlagTable, Takes};
use super::value::{self, Why};
use super::{Options, RuleOptions, Source, store};

/// Options from what was given.
pub fn options(
    given: &Given,
    source: &Source,
    faults: Vec<OptionFault>,
) -> Result<Options, Vec<OptionFault>> {
    let mut reader = Reader { table: &FLANNELD, given, faults };
    let ifaces = reader.all("iface", value::interface);
    let iface_regexes = reader.all("iface-regex", value::pattern);
    let iface_can_reach = reader.last("iface-can-reach", value::optional(value::address)).flatten();
    let public = reader.public_addresses();
    let subnet_file = reader.value("subnet-file", value::path).unwrap_or_default();
    let healthz = reader.healthz();
    let verbosity = reader.value("v", value::integer(i32::MIN..=i32::MAX)).unwrap_or_default();
    let log_format = reader.value("log-format", value::log_format).unwrap_or_default();
    let rules = reader.rules();
    let mut warnings = reader.without_effect();
    let store = store::choose(&mut reader, &source.environment);
    warnings.extend(store.iter().flat_map(|store| store::strangers(&mut reader, store)));
    let owner = owner(source).map_err(|fault| reader.faults.push(fault));
    let faults = reader.faults;
    match (store, owner) {
        (Some(store), Ok(owner)) if faults.is_empty() => Ok(Options {
            store,
            owner,
            ifaces,
            iface_regexes,
            iface_can_reach,
            public,
            subnet_file,
            rules,
            healthz,
            verbosity,
            log_format,
            warnings,
        }),
        _ => Err(faults),
    }
}

/// Reads the values of flags and collects the faults.
pub struct Reader<'a> {
    pub table: &'static FlagTable,
    pub given: &'a Given,
    pub faults: Vec<OptionFault>,
}

impl Reader<'_> {
    fn all<T>(&mut self, flag: &'static str, read: impl Fn(&str) -> Result<T, Why>) -> Vec<T> {
        let mut values = Vec::new();
        for setting in self.given.settings(flag) {
            match read(&setting.text) {
                Ok(value) => values.push(value),
                Err(why) => self.faults.push(self.bad_value(flag, setting, why)),
            }
        }
        values
    }

    /// The value that holds: the last one.
    pub fn last<T>(&mut self, flag: &'static str, read: impl Fn(&str) -> Result<T, Why>) -> Option<T> {
        self.all(flag, read).pop()
    }

    /// The value that holds, or the one in the table if nobody sets it.
    pub fn value<T>(&mut self, flag: &'static str, read: impl Fn(&str) -> Result<T, Why>) -> Option<T> {
        let default = self.table.find(flag).filter(|_| self.given.settings(flag).is_empty());
        default.map_or_else(|| self.last(flag, &read), |flag| read(flag.default).ok())
    }

    /// Whether a switch is on.
    pub fn switch(&mut self, flag: &'static str) -> bool {
        self.value(flag, value::switch).unwrap_or_default()
    }

    fn bad_value(&self, flag: &'static str, setting: &Setting, why: Why) -> OptionFault {
        let secret = self.table.find(flag).is_none_or(|flag| flag.takes == Takes::Secret);
        let value = if secret { Shown::Hidden } else { Shown::Text(setting.text.clone()) };
        OptionFault::BadValue { origin: Origin { flag, from: setting.from }, value, why }
    }

    fn public_addresses(&mut self) -> ByFamily<IpAddr> {
        let mut public = ByFamily::default();
        for (family, flag) in [(Family::V4, "public-ip"), (Family::V6, "public-ipv6")] {
            *public.slot(family) = self.last(flag, value::optional(value::address_of(family))).flatten();
        }
        public
    }

    fn healthz(&mut self) -> Option<SocketAddr> {
        let address = self.value("healthz-ip", value::listen_address);
        let port = self.value("healthz-port", value::integer(0..=i32::from(u16::MAX)))?;
        let port = u16::try_from(port).ok().filter(|port| *port != 0)?;
        Some(SocketAddr::new(address?, port))
    }

    fn without_effect(&mut self) -> Vec<String> {
        self.all("vmodule", value::vmodule);
        self.all("log_backtrace_at", value::backtrace_at);
        let flags = ["log_backtrace_at", "vmodule"].into_iter().filter_map(|name| FLANNELD.find(name));
        let asked = flags.filter_map(|flag| self.asks(flag));
        asked.map(|origin| format!("{origin} has no effect; RUST_LOG chooses what is logged")).collect()
    }

    fn rules(&mut self) -> RuleOptions {
        let source_ports = match self.switch("ip-masq-fully-random-disable") {
            true => SourcePorts::Kept,
            false => SourcePorts::Randomised,
        };
        RuleOptions {
            ip_masq: self.switch("ip-masq"),
            source_ports,
            forward: self.switch("iptables-forward-rules"),
            untrack: self.switch("vxlan-notrack"),
            blackhole: self.switch("ip-blackhole-route"),
            resync: self.resync(),
        }
    }

    /// Go takes any number, and never rests between two looks at those below one.
    fn resync(&mut self) -> Duration {
        let seconds = self.value("iptables-resync", value::integer(i32::MIN..=i32::MAX)).unwrap_or_default();
        Duration::from_secs(seconds.max(1).unsigned_abs().into())
    }

    /// Who asks for something by this flag: a switch that is off and an empty text ask for nothing.
    pub fn asks(&mut self, flag: &'static Flag) -> Option<Origin> {
        let asks = match flag.takes {
            Takes::Switch => self.last(flag.name, value::switch),
            _ => self.last(flag.name, value::text).map(|text| !text.is_empty()),
        };
        asks.filter(|asks| *asks).and_then(|_| self.given.origin(flag.name))
    }
}

/// The name under which this node's lease is kept: it may become the name of a file.
fn owner(source: &Source) -> Result<String, OptionFault> {
    let given = source.environment.get(OsStr::new("NODE_NAME")).filter(|name| !name.is_empty());
    let (from, name) = match given {
        Some(name) => ("NODE_NAME", name.to_string_lossy().into_owned()),
        None => ("the host's name", source.host_name.clone()),
    };
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let good = (1..=253).contains(&name.len()) && !name.starts_with('.') && name.chars().all(allowed);
    if good { Ok(name) } else { Err(OptionFault::Nameless { from, name }) }
}
