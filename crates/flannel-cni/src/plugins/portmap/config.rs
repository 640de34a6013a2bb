//! The settings of portmap and the ports that the runtime asks for, read as Go's plugin reads them.

use std::net::{IpAddr, Ipv4Addr};

use flannel_plan::family::Family;
use flannel_plan::rules::{SCTP, TCP, UDP};
use ipnet::IpNet;
use serde_json::Value;

use crate::error::CniError;
use crate::firewall::backend::FirewallBackend;
use crate::json::Object;
use crate::request::Request;
use crate::result::Attachment;

const DEFAULT_MARK_BIT: i64 = 13;

/// One port of the host that leads to one of the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) host_port: u16,
    pub(super) container_port: u16,
    pub(super) transport: Transport,
    pub(super) host_ip: HostIp,
}

/// A protocol that has ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Transport {
    /// As iptables and nft call it.
    pub(super) name: &'static str,
    pub(super) protocol: u8,
}

impl Transport {
    pub(super) const UDP: Self = Self { name: "udp", protocol: UDP };
    /// All of them, in the order of their names.
    pub(super) const ALL: [Self; 5] = [
        Self { name: "dccp", protocol: 33 },
        Self { name: "sctp", protocol: SCTP },
        Self { name: "tcp", protocol: TCP },
        Self::UDP,
        Self { name: "udplite", protocol: 136 },
    ];

    fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|transport| transport.name.eq_ignore_ascii_case(name))
    }
}

/// The address of the host at which the port is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HostIp {
    /// At all of them.
    Any,
    AnyOf(Family),
    One(IpAddr),
    /// No address at all; Go takes it for one of IPv6.
    Unreadable(String),
}

/// The address by which the host calls itself, where packets from there can leave it.
pub(super) fn localhost(family: Family) -> Option<IpAddr> {
    match family {
        Family::V4 => Some(Ipv4Addr::LOCALHOST.into()),
        // The kernel does not route ::1 out of the host, whatever is done.
        Family::V6 => None,
    }
}

impl HostIp {
    fn parse(text: &str) -> Self {
        match text.parse::<IpAddr>().map(|address| address.to_canonical()) {
            _ if text.is_empty() => Self::Any,
            Ok(address) if address.is_unspecified() => Self::AnyOf(Family::of(address)),
            Ok(address) => Self::One(address),
            Err(_) => Self::Unreadable(text.to_owned()),
        }
    }

    /// Whether a mapping with it concerns packets of this family.
    pub(super) fn concerns(&self, family: Family) -> bool {
        match self {
            Self::Any => true,
            Self::AnyOf(own) => *own == family,
            Self::One(address) => Family::of(*address) == family,
            Self::Unreadable(_) => family == Family::V6,
        }
    }

    /// The one address that packets must be for.
    pub(super) fn one(&self) -> Result<Option<IpAddr>, CniError> {
        match self {
            Self::Any | Self::AnyOf(_) => Ok(None),
            Self::One(address) => Ok(Some(*address)),
            Self::Unreadable(text) => Err(CniError::internal(format!("Invalid host IP: {text}"))),
        }
    }
}

/// Who marks packets that are to be masqueraded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MarkedBy {
    /// We do, with one bit.
    Bit(u32),
    /// A chain of somebody else.
    Chain(String),
}

/// The settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Config {
    /// What was asked for, if anything.
    pub(super) backend: Option<FirewallBackend>,
    pub(super) snat: bool,
    pub(super) masquerade_all: bool,
    pub(super) mark: MarkedBy,
    pub(super) conditions_v4: Vec<String>,
    pub(super) conditions_v6: Vec<String>,
    pub(super) mappings: Vec<Mapping>,
}

impl Config {
    /// Reads and checks everything; the order of the checks is Go's.
    pub(super) fn read(request: &Request) -> Result<Self, CniError> {
        let object = request.config();
        let mark = mark(object)?;
        let backend = object.text("backend")?;
        let mut config = Self {
            backend: None,
            snat: object.get("snat").is_none() || object.switch("snat")?,
            masquerade_all: object.switch("masqAll")?,
            mark,
            conditions_v4: object.texts("conditionsV4")?.unwrap_or_default(),
            conditions_v6: object.texts("conditionsV6")?.unwrap_or_default(),
            mappings: Vec::new(),
        };
        config.backend = backend.map(|name| config.check_backend(name)).transpose()?;
        config.mappings = mappings(object, mapping)?;
        Ok(config)
    }

    /// The backend that is asked for, else the one that this host has.
    pub(super) fn backend(&self) -> Result<FirewallBackend, CniError> {
        match self.backend {
            Some(backend) => Ok(backend),
            None => self.check_backend(FirewallBackend::of_this_host().name()),
        }
    }

    /// Whether there are settings that only one backend has.
    pub(super) fn is_particular(&self) -> bool {
        [FirewallBackend::Iptables, FirewallBackend::Nftables]
            .into_iter()
            .any(|backend| !self.options_of(backend).is_empty())
    }

    pub(super) fn conditions(&self, family: Family) -> &[String] {
        match family {
            Family::V4 => &self.conditions_v4,
            Family::V6 => &self.conditions_v6,
        }
    }

    fn check_backend(&self, name: &str) -> Result<FirewallBackend, CniError> {
        // Go takes every other name for nftables at first, and complains about the name afterwards.
        let wrong = if name == "iptables" { FirewallBackend::Nftables } else { FirewallBackend::Iptables };
        let options = self.options_of(wrong);
        if !options.is_empty() {
            let (wrong, options) = (wrong.name(), options.join(" "));
            return Err(CniError::internal(format!(
                "{name} backend was requested but configuration contains {wrong}-specific options [{options}]"
            )));
        }
        FirewallBackend::parse(name)
            .ok_or_else(|| CniError::internal(format!("unrecognized backend {name:?}")))
    }

    fn options_of(&self, backend: FirewallBackend) -> Vec<&'static str> {
        let mut options = Vec::new();
        if backend == FirewallBackend::Iptables && matches!(self.mark, MarkedBy::Chain(_)) {
            options.push("externalSetMarkChain");
        }
        for (name, conditions) in
            [("conditionsV4", &self.conditions_v4), ("conditionsV6", &self.conditions_v6)]
        {
            if backend_of(conditions) == Some(backend) {
                options.push(name);
            }
        }
        options
    }
}

/// Conditions of iptables begin with a hyphen or an exclamation mark, those of nftables never do.
fn backend_of(conditions: &[String]) -> Option<FirewallBackend> {
    match conditions.first()?.bytes().next()? {
        b'-' | b'!' => Some(FirewallBackend::Iptables),
        _ => Some(FirewallBackend::Nftables),
    }
}

fn mark(object: Object<'_>) -> Result<MarkedBy, CniError> {
    let bit = object.number("markMasqBit")?;
    if let Some(chain) = object.text("externalSetMarkChain")? {
        return match bit {
            Some(_) => Err(CniError::internal("Cannot specify externalSetMarkChain and markMasqBit")),
            None => Ok(MarkedBy::Chain(chain.to_owned())),
        };
    }
    match u32::try_from(bit.unwrap_or(DEFAULT_MARK_BIT)) {
        Ok(bit) if bit < 32 => Ok(MarkedBy::Bit(1 << bit)),
        _ => Err(CniError::internal("MasqMarkBit must be between 0 and 31")),
    }
}

fn mappings<T>(
    object: Object<'_>,
    read: impl Fn(Object<'_>) -> Result<T, CniError>,
) -> Result<Vec<T>, CniError> {
    let Some(runtime) = object.object("runtimeConfig")? else { return Ok(Vec::new()) };
    let entries = runtime.list("portMappings")?.map(Vec::as_slice).unwrap_or_default();
    let entry = |value: &Value| match value.as_object() {
        Some(entry) => read(Object::new(entry)),
        None => Err(CniError::internal(format!("portMappings must hold objects, not {value}"))),
    };
    entries.iter().map(entry).collect()
}

fn mapping(entry: Object<'_>) -> Result<Mapping, CniError> {
    let container_port = port(entry, "containerPort", "container")?;
    let host_port = port(entry, "hostPort", "host")?;
    let protocol = entry.text("protocol")?.unwrap_or_default();
    let unknown = || CniError::internal(format!("Invalid protocol: {protocol:?} has no ports"));
    let transport = Transport::find(protocol).ok_or_else(unknown)?;
    let host_ip = HostIp::parse(entry.text("hostIP")?.unwrap_or_default());
    Ok(Mapping { host_port, container_port, transport, host_ip })
}

fn port(entry: Object<'_>, key: &str, side: &str) -> Result<u16, CniError> {
    let number = entry.number(key)?.unwrap_or(0);
    match u16::try_from(number) {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(CniError::internal(format!("Invalid {side} port number: {number}"))),
    }
}

/// The host's ports, all and those of UDP, as far as they can be read: DEL must not fail for a bad setting.
pub(super) fn host_ports(request: &Request) -> (Vec<u16>, Vec<u16>) {
    let read = |entry: Object<'_>| {
        let protocol = entry.text("protocol").ok().flatten().and_then(Transport::find);
        Ok((port(entry, "hostPort", "host").ok(), protocol == Some(Transport::UDP)))
    };
    let found = mappings(request.config(), read).unwrap_or_default();
    let all = found.iter().filter_map(|(port, _)| *port).collect();
    (all, found.iter().filter(|(_, is_udp)| *is_udp).filter_map(|(port, _)| *port).collect())
}

/// The container's first address of each family: those of its interface, and those of which nothing is said.
pub(super) fn container_addresses(previous: &Attachment, ifname: &str) -> Vec<IpNet> {
    let is_elsewhere = |index: Option<i64>| {
        let interface = index.and_then(|index| previous.interfaces.get(usize::try_from(index).ok()?));
        interface.is_some_and(|interface| interface.name != ifname || interface.sandbox.is_none())
    };
    let mut found: Vec<IpNet> = Vec::new();
    for ip in previous.ips.iter().filter(|ip| !is_elsewhere(ip.interface)) {
        if !found.iter().any(|other| Family::of(other.addr()) == Family::of(ip.address.addr())) {
            found.push(ip.address);
        }
    }
    // At most one of each; sorting would weigh four kilobytes.
    if found.first().is_some_and(|address| address.addr().is_ipv6()) {
        found.reverse();
    }
    found
}
