//! The file of ip-masq-agent: its keys, defaults and limits are the original's. Takes JSON (YAML is made into it
//! elsewhere), gives a checked [`AgentConfig`] or every fault at once.

use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net};

use super::duration;
use crate::config::ConfigFault;
use crate::config::faults;
use crate::config::fields::Fields;
use crate::config::non_masquerade::{self, CidrFault};
use crate::family::Family;

/// How many networks there may be if the file sets no limit: it protects from really bad mistakes.
const LIMIT: u64 = 64;
const LIST: &str = "nonMasqueradeCIDRs";
const RESYNC: Duration = Duration::from_secs(60);
/// The original would never rest with less.
const LEAST_RESYNC: Duration = Duration::from_secs(1);

/// What RFC 1918 keeps for private networks.
const PRIVATE: [([u8; 4], u8); 3] = [([10, 0, 0, 0], 8), ([172, 16, 0, 0], 12), ([192, 168, 0, 0], 16)];
/// What other RFCs reserve: 6598, 6890, 5737, 7526, 6815, 5737, 5737, 5735.
const RESERVED: [([u8; 4], u8); 8] = [
    ([100, 64, 0, 0], 10),
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    ([192, 88, 99, 0], 24),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    ([240, 0, 0, 0], 4),
];

/// The networks that are not masqueraded if the file names none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DefaultNetworks {
    #[default]
    Private,
    Reserved,
}

impl DefaultNetworks {
    fn networks(self) -> Vec<IpNet> {
        let reserved = if self == Self::Reserved { &RESERVED[..] } else { &[] };
        let all = PRIVATE.iter().chain(reserved);
        all.map(|(address, length)| IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::from(*address), *length)))
            .collect()
    }
}

/// What the file says, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentConfig {
    /// Where packets keep their source, in the order of the file.
    pub non_masquerade: Vec<IpNet>,
    /// Whether packets to IPv4 addresses of the link are masqueraded.
    pub masq_link_local: bool,
    /// Whether packets to IPv6 addresses of the link are masqueraded.
    pub masq_link_local_v6: bool,
    /// How often the file and the rules are looked at although nobody said that they changed.
    pub resync: Duration,
    /// Where rules are kept, if the file says so: nftables or iptables. The original has no such key.
    pub nftables: Option<bool>,
}

/// All that is wrong with a file; never empty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", faults::listed(.0))]
pub struct AgentFaults(pub Vec<ConfigFault>);

impl AgentConfig {
    /// What holds without a file.
    pub fn without_file(networks: DefaultNetworks) -> Self {
        Self {
            non_masquerade: networks.networks(),
            masq_link_local: false,
            masq_link_local_v6: false,
            resync: RESYNC,
            nftables: None,
        }
    }

    /// Reads a JSON object; what it does not say is as without a file.
    pub fn parse(text: &str, networks: DefaultNetworks, families: &[Family]) -> Result<Self, AgentFaults> {
        let mut fields = Fields::of_document(text).map_err(|fault| AgentFaults(vec![fault]))?;
        let mut config = Self::without_file(networks);
        let limit = fields.number("cidrLimit", "a whole number", |_: u64| true);
        // Go empties a list that is `null`.
        if fields.has(LIST) {
            let limit = limit.ok().flatten().unwrap_or(LIMIT);
            let too_many = format!("at most {limit}, link-local not counted; set cidrLimit to take more");
            let read = |text: &str| network(text, families);
            let listed = fields.networks(LIST, "a list of networks", (limit, too_many), read);
            config.non_masquerade = listed.unwrap_or_default();
        }
        config.masq_link_local = fields.flag("masqLinkLocal", false);
        config.masq_link_local_v6 = fields.flag("masqLinkLocalIPv6", false);
        config.nftables = fields.has("nftables").then(|| fields.flag("nftables", false));
        if let Some(resync) = resync(&mut fields) {
            config.resync = resync;
        }
        let faults = fields.into_faults();
        if faults.is_empty() { Ok(config) } else { Err(AgentFaults(faults)) }
    }
}

fn network(text: &str, families: &[Family]) -> Result<IpNet, CidrFault> {
    let network = non_masquerade::network(text)?;
    if families.contains(&Family::of_net(network)) { Ok(network) } else { Err(CidrFault::Ipv6Off) }
}

fn resync(fields: &mut Fields<'_>) -> Option<Duration> {
    const KEY: &str = "resyncInterval";
    let expected = "a time such as \"60s\" or \"5m\"";
    let text = fields.text(KEY, expected).ok()??;
    let Some(nanoseconds) = duration::nanoseconds(&text) else {
        fields.note(KEY, expected);
        return None;
    };
    let time = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(0));
    Some(time.max(LEAST_RESYNC))
}
