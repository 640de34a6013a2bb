//! The `ipam` part of a configuration, and the addresses that are requested beside it: takes a request, gives checked
//! values. Pure.
//!
//! IPAM plugins get the whole configuration of their caller, of which only the part `ipam` is theirs.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use flannel_plan::family::Family;
use ipnet::IpNet;
use serde_json::{Map, Value};

use super::range::{RangeSet, RawRange};
use crate::error::CniError;
use crate::json::Object;
use crate::request::Request;
use crate::result::{Attachment, Route};
use crate::version::Version;

const DATA_DIR: &str = "/var/lib/cni/networks";

/// What host-local is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The folder of the network's reservations.
    pub folder: PathBuf,
    /// One address is given of each.
    pub sets: Vec<RangeSet>,
    /// Routes for the container, passed on as they are.
    pub routes: Vec<Route>,
    /// Whose name servers the container gets.
    pub resolv_conf: Option<PathBuf>,
    /// The addresses that are asked for, each once, in the order of their sources.
    pub requested: Vec<IpAddr>,
}

impl Config {
    /// Reads and checks the configuration, in the order of Go.
    pub fn read(request: &Request) -> Result<Self, CniError> {
        let ipam = ipam(request)?.ok_or_else(|| CniError::internal("IPAM config missing 'ipam' key"))?;
        let runtime = request.config().object("runtimeConfig")?;
        let requested = requested(request, runtime)?;
        let sets = check_sets(&raw_sets(ipam, runtime)?, request.version)?;
        let resolv_conf = ipam.text("resolvConf")?.filter(|path| !path.is_empty()).map(PathBuf::from);
        Ok(Self { folder: folder_of(request, ipam)?, sets, routes: routes(ipam)?, resolv_conf, requested })
    }
}

/// The folder of the network's reservations; none if the configuration has no `ipam` part.
pub fn folder(request: &Request) -> Result<Option<PathBuf>, CniError> {
    ipam(request)?.map(|ipam| folder_of(request, ipam)).transpose()
}

/// The part of the configuration that is for host-local.
fn ipam(request: &Request) -> Result<Option<Object<'_>>, CniError> {
    request.config().object("ipam")
}

fn folder_of(request: &Request, ipam: Object<'_>) -> Result<PathBuf, CniError> {
    let data_dir = ipam.text("dataDir")?.filter(|path| !path.is_empty()).unwrap_or(DATA_DIR);
    Ok(Path::new(data_dir).join(&request.network))
}

/// The sets in the order that numbers them: of the runtime, of the old form, of the new form.
fn raw_sets(ipam: Object<'_>, runtime: Option<Object<'_>>) -> Result<Vec<Vec<RawRange>>, CniError> {
    let mut sets = match runtime {
        Some(runtime) => listed_sets(runtime, "ipRanges")?,
        None => Vec::new(),
    };
    let single = raw_range(ipam)?;
    if single.subnet.is_some() {
        sets.push(vec![single]);
    }
    sets.extend(listed_sets(ipam, "ranges")?);
    Ok(sets)
}

fn listed_sets(object: Object<'_>, key: &str) -> Result<Vec<Vec<RawRange>>, CniError> {
    let wrong = || CniError::internal(format!("{key} must be an array of arrays of ranges"));
    let range = |range: &Value| match range {
        Value::Null => Ok(RawRange::default()),
        range => raw_range(Object::new(range.as_object().ok_or_else(wrong)?)),
    };
    let set = |set: &Value| match set {
        Value::Null => Ok(Vec::new()),
        set => set.as_array().ok_or_else(wrong)?.iter().map(range).collect(),
    };
    object.list(key)?.into_iter().flatten().map(set).collect()
}

fn raw_range(object: Object<'_>) -> Result<RawRange, CniError> {
    let invalid = |text| CniError::internal(format!("invalid CIDR address: {text}"));
    let subnet = object.text("subnet")?;
    Ok(RawRange {
        subnet: subnet.map(|text| text.parse::<IpNet>().map_err(|_| invalid(text))).transpose()?,
        start: object.address("rangeStart")?,
        end: object.address("rangeEnd")?,
        gateway: object.address("gateway")?,
    })
}

fn check_sets(raw: &[Vec<RawRange>], version: Version) -> Result<Vec<RangeSet>, CniError> {
    let check = |(place, set): (usize, &Vec<RawRange>)| {
        RangeSet::check(set).map_err(|error| error.context(format_args!("invalid range set {place}")))
    };
    let sets: Vec<RangeSet> = raw.iter().enumerate().map(check).collect::<Result<_, _>>()?;
    if sets.is_empty() {
        return Err(CniError::internal("no IP ranges specified"));
    }
    let of = |family| sets.iter().filter(|set| set.family() == family).count();
    if version < Version::V0_3_0 && Family::BOTH.into_iter().any(|family| of(family) > 1) {
        let text = format!("CNI version {version} does not support more than 1 address per family");
        return Err(CniError::internal(text));
    }
    for (place, one) in sets.iter().enumerate() {
        let later = sets.iter().enumerate().skip(place + 1);
        if let Some((other, _)) = later.into_iter().find(|(_, other)| one.overlaps(other)) {
            return Err(CniError::internal(format!("range set {place} overlaps with {other}")));
        }
    }
    Ok(sets)
}

/// The addresses that are asked for: by `CNI_ARGS`, by `args` and by the runtime, all of them together.
fn requested(request: &Request, runtime: Option<Object<'_>>) -> Result<Vec<IpAddr>, CniError> {
    // MAC is the bridge's. Go refuses it here, so that nobody could ask a bridge for a hardware address
    // without IgnoreUnknown.
    let in_environment = request.cni_arg("IP", &["IP", "MAC"])?.filter(|text| !text.is_empty());
    let args = request.config().object("args")?.map(|args| args.object("cni")).transpose()?.flatten();
    let mut texts: Vec<String> = in_environment.into_iter().map(str::to_owned).collect();
    for place in [args, runtime].into_iter().flatten() {
        texts.extend(place.texts("ips")?.unwrap_or_default());
    }
    let mut requested = Vec::with_capacity(texts.len());
    for text in texts {
        let address = requested_address(&text)?;
        if !requested.contains(&address) {
            requested.push(address);
        }
    }
    Ok(requested)
}

/// An address with or without the length of its network, which does not matter here.
fn requested_address(text: &str) -> Result<IpAddr, CniError> {
    let address = match text.contains('/') {
        true => text.parse::<IpNet>().ok().map(|net| net.addr()),
        false => text.parse::<IpAddr>().ok(),
    };
    let unknown = || CniError::internal(format!("cannot understand ip: invalid IP address {text}"));
    Ok(address.ok_or_else(unknown)?.to_canonical())
}

/// Routes have the form that they have in results.
fn routes(ipam: Object<'_>) -> Result<Vec<Route>, CniError> {
    let Some(routes) = ipam.get("routes") else { return Ok(Vec::new()) };
    let result = Map::from_iter([("routes".to_owned(), routes.clone())]);
    Ok(Attachment::from_output(&result, Version::NEWEST)?.routes)
}

#[cfg(test)]
mod tests;
