//! The configuration of the bridge plugin: every key read and checked once, with Go's names and defaults.

use flannel_kernel::address::Dad;
use flannel_kernel::bridge::Port;
use flannel_plan::link_name::LinkName;
use flannel_plan::mac::Mac;
use serde_json::Value;

use crate::attachment::Router;
use crate::error::{CniError, OrInternal};
use crate::json::Object;
use crate::request::Request;
use crate::result::Dns;

const LAST_VLAN: i64 = 4094;

/// What the configuration and the environment ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Config {
    pub(super) bridge: LinkName,
    pub(super) router: Router,
    /// Whether another address of the bridge is replaced, whoever uses it.
    pub(super) force_address: bool,
    /// `ipMasq`, with the wanted backend.
    pub(super) masquerade: Option<Masquerade>,
    pub(super) mtu: Option<u32>,
    pub(super) port: Port,
    pub(super) promiscuous: bool,
    pub(super) vlan: Option<u16>,
    /// The tagged VLANs in ascending order; a list without one still asks for a bridge that knows VLANs.
    pub(super) trunk: Option<Vec<u16>>,
    pub(super) keeps_default_vlan: bool,
    pub(super) checks_mac: bool,
    pub(super) dad: Dad,
    /// `disableContainerInterface`: the pod's end stays switched off.
    pub(super) inside: Inside,
    /// The plugin that hands out addresses; none is a bridge for frames alone.
    pub(super) ipam: Option<String>,
    /// What replaces the name servers of IPAM.
    pub(super) dns: Option<Dns>,
    pub(super) mac: Option<Mac>,
}

/// Rules that give packets of the pod the host's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Masquerade {
    pub(super) backend: Option<String>,
}

/// What becomes of the pod's end of the veth pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inside {
    /// It is switched on.
    Raised,
    /// It stays off, for a program inside to use as it likes.
    Untouched,
}

impl Config {
    /// Reads the configuration of a request.
    pub(super) fn read(request: &Request) -> Result<Self, CniError> {
        let keys = request.config();
        let config = Self {
            bridge: bridge_name(keys)?,
            router: router(keys)?,
            force_address: keys.switch("forceAddress")?,
            masquerade: masquerade(keys)?,
            mtu: mtu(keys)?,
            port: Port { hairpin: keys.switch("hairpinMode")?, isolated: keys.switch("portIsolation")? },
            promiscuous: keys.switch("promiscMode")?,
            vlan: vlan(keys)?,
            trunk: trunk(keys)?,
            keeps_default_vlan: keys.switch("preserveDefaultVlan")?,
            checks_mac: keys.switch("macspoofchk")?,
            dad: dad(keys)?,
            inside: if keys.switch("disableContainerInterface")? {
                Inside::Untouched
            } else {
                Inside::Raised
            },
            ipam: ipam(keys)?.map(str::to_owned),
            dns: dns(keys)?,
            mac: mac(request, keys)?,
        };
        config.check()
    }

    fn check(self) -> Result<Self, CniError> {
        if self.ipam.is_some() && self.inside == Inside::Untouched {
            return Err(CniError::internal("cannot use IPAM when DisableContainerInterface flag is set"));
        }
        if self.port.hairpin && self.promiscuous {
            return Err(CniError::internal("cannot set hairpin mode and promiscuous mode at the same time"));
        }
        Ok(self)
    }

    /// Whether the bridge has to keep VLANs apart.
    pub(super) fn wants_vlans(&self) -> bool {
        self.vlan.is_some() || self.trunk.is_some()
    }
}

/// The plugin that hands out addresses, if there is one.
pub(super) fn ipam(keys: Object<'_>) -> Result<Option<&str>, CniError> {
    let Some(ipam) = keys.object("ipam")? else { return Ok(None) };
    Ok(ipam.text("type")?.filter(|name| !name.is_empty()))
}

/// The name of the bridge.
pub(in crate::plugins) fn bridge_name(keys: Object<'_>) -> Result<LinkName, CniError> {
    let name = keys.text("bridge")?.unwrap_or("cni0");
    name.parse().or_internal(format_args!("failed to create bridge {name:?}"))
}

fn router(keys: Object<'_>) -> Result<Router, CniError> {
    let (is_gateway, is_default) = (keys.switch("isGateway")?, keys.switch("isDefaultGateway")?);
    Ok(match (is_gateway, is_default) {
        (_, true) => Router::OfEverything,
        (true, false) => Router::OfTheNetwork,
        (false, false) => Router::Absent,
    })
}

fn masquerade(keys: Object<'_>) -> Result<Option<Masquerade>, CniError> {
    let backend = keys.text("ipMasqBackend")?.map(str::to_owned);
    Ok(keys.switch("ipMasq")?.then_some(Masquerade { backend }))
}

fn mtu(keys: Object<'_>) -> Result<Option<u32>, CniError> {
    let Some(mtu) = keys.number("mtu")?.filter(|mtu| *mtu > 0) else { return Ok(None) };
    u32::try_from(mtu).map(Some).map_err(|_| CniError::internal(format!("mtu {mtu} is too large")))
}

fn dad(keys: Object<'_>) -> Result<Dad, CniError> {
    Ok(if keys.switch("enabledad")? { Dad::Enabled } else { Dad::Disabled })
}

fn vlan(keys: Object<'_>) -> Result<Option<u16>, CniError> {
    let id = keys.number("vlan")?.unwrap_or(0);
    let wrong = || CniError::internal(format!("invalid VLAN ID {id} (must be between 0 and {LAST_VLAN})"));
    let id = u16::try_from(id).ok().filter(|id| i64::from(*id) <= LAST_VLAN).ok_or_else(wrong)?;
    Ok(Some(id).filter(|id| *id != 0))
}

fn trunk(keys: Object<'_>) -> Result<Option<Vec<u16>>, CniError> {
    let Some(list) = keys.list("vlanTrunk")? else { return Ok(None) };
    let mut vlans = Vec::new();
    for item in list.iter().filter(|item| !item.is_null()) {
        add_trunk(&mut vlans, item)?;
    }
    // In order and each once, without sorting, which would weigh in the program.
    Ok(Some((1..=u16::MAX >> 4).filter(|id| vlans.contains(id)).collect()))
}

fn add_trunk(vlans: &mut Vec<u16>, item: &Value) -> Result<(), CniError> {
    let wrong = || CniError::internal(format!("vlanTrunk must be a list of minID, maxID and id, not {item}"));
    let item = Object::new(item.as_object().ok_or_else(wrong)?);
    let id = |key: &str| {
        let number = item.number(key)?;
        let valid = |id: i64| u16::try_from(id).ok().filter(|_| (1..=LAST_VLAN).contains(&id));
        let incorrect = || CniError::internal(format!("incorrect trunk {key} parameter"));
        number.map(|id| valid(id).ok_or_else(incorrect)).transpose()
    };
    let missing = |key: &str| {
        let text = "minID and maxID should be configured simultaneously";
        CniError::internal(format!("{text}, {key} is missing"))
    };
    match (item.get("minID"), item.get("maxID")) {
        (Some(_), None) => return Err(missing("maxID")),
        (None, Some(_)) => return Err(missing("minID")),
        _ => {}
    }
    if let (Some(first), Some(last)) = (id("minID")?, id("maxID")?) {
        if first > last {
            return Err(CniError::internal("minID is greater than maxID in trunk parameter"));
        }
        vlans.extend(first..=last);
    }
    vlans.extend(id("id")?);
    Ok(())
}

/// A list that is there replaces what IPAM says, even an empty one.
fn dns(keys: Object<'_>) -> Result<Option<Dns>, CniError> {
    let Some(dns) = keys.object("dns")? else { return Ok(None) };
    let (servers, search, options) = (dns.texts("nameservers")?, dns.texts("search")?, dns.texts("options")?);
    let domain = dns.text("domain")?.unwrap_or_default().to_owned();
    let is_said = servers.is_some() || search.is_some() || options.is_some() || !domain.is_empty();
    Ok(is_said.then(|| Dns {
        nameservers: servers.unwrap_or_default(),
        domain,
        search: search.unwrap_or_default(),
        options: options.unwrap_or_default(),
    }))
}

/// The pod's hardware address: the runtime's word counts before that of `args`, and that before `CNI_ARGS`.
fn mac(request: &Request, keys: Object<'_>) -> Result<Option<Mac>, CniError> {
    let by_environment = request.cni_arg("MAC", &["MAC"])?;
    let by_args = match keys.object("args")? {
        Some(args) => args.object("cni")?.map(|cni| cni.text("mac")).transpose()?.flatten(),
        None => None,
    };
    let by_runtime = keys.object("runtimeConfig")?.map(|config| config.text("mac")).transpose()?.flatten();
    let said = [by_runtime, by_args, by_environment].into_iter().flatten().find(|mac| !mac.is_empty());
    said.map(|mac| mac.parse().or_internal(format_args!("mac"))).transpose()
}

#[cfg(test)]
mod tests;
