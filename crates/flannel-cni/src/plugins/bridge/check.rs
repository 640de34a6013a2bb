//! CHECK: is everything as ADD promised? Looks in both namespaces, and tells all that is not.

use std::path::Path;

use flannel_kernel::Linux;
use flannel_kernel::netns::visit;
use flannel_plan::link_name::LinkName;
use flannel_plan::observation::Scope;

use super::config::Config;
use super::{host, request_to_ipam};
use crate::attachment::{Found, Promise};
use crate::error::{CniError, OrInternal};
use crate::request::{Command, Request};
use crate::{delegate, sandbox};

/// Compares what there is with what the runtime was told.
pub fn check(request: &Request) -> Result<(), CniError> {
    let config = Config::read(request)?;
    let netns = request.netns.as_deref().unwrap_or(Path::new(""));
    let namespace = sandbox::open(netns)?;
    if let Some(ipam) = &config.ipam {
        delegate::call(&request_to_ipam(request), Command::Check, ipam, &request.config)?;
    }
    let result = request.prev_result()?.ok_or_else(|| CniError::internal("Required prevResult missing"))?;
    let promise = Promise {
        result: &result,
        bridge: config.bridge,
        promiscuous: config.promiscuous,
        ifname: &request.ifname,
        netns,
    };
    let mut found = visit(&namespace, || observe_pod(&request.ifname))
        .map_err(|why| CniError::internal(why.to_string()))??;
    observe_host(&promise, &mut found)?;
    match promise.faults(&found) {
        faults if faults.is_empty() => Ok(()),
        faults => Err(CniError::internal(faults.join("; "))),
    }
}

fn observe_pod(ifname: &str) -> Result<Found, CniError> {
    let Ok(name) = ifname.parse::<LinkName>() else { return Ok(Found::default()) };
    let pod = host::open()?.device(name).or_internal(format_args!("cannot look into the container"))?;
    let observation = Linux::open().and_then(|mut kernel| kernel.observe_without_rules(&Scope::default()));
    let observation = observation.or_internal(format_args!("cannot look into the container"))?;
    let addresses =
        observation.addresses.iter().filter(|fact| fact.link == name).map(|fact| fact.address).collect();
    Ok(Found { pod, addresses, routes: observation.routes, ..Found::default() })
}

fn observe_host(promise: &Promise, found: &mut Found) -> Result<(), CniError> {
    let mut host = host::open()?;
    let mut find = |name: LinkName| host.device(name).or_internal(format_args!("failed to lookup {name:?}"));
    found.bridge = find(promise.bridge)?;
    for name in promise.other_names().filter_map(|name| name.parse().ok()) {
        found.others.extend(find(name)?);
    }
    Ok(())
}
