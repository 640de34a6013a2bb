//! DEL: the veth pair, the rules, the address. What is gone is no failure; what fails does not stop the rest.

use std::time::Duration;

use flannel_kernel::netns::visit;
use flannel_kernel::stack::{Device, Stack};
use flannel_plan::link_name::LinkName;
use ipnet::IpNet;

use super::{all, host, request_to_ipam};
use crate::error::{CniError, OrInternal};
use crate::json::Object;
use crate::request::{Command, Request};
use crate::{delegate, macspoof, masquerade, sandbox};

/// So long the rules wait for the veth pair, not longer.
const ABSENCE_LIMIT: Duration = Duration::from_millis(100);

/// Detaches a pod, and frees everything that was made for it.
pub fn del(request: &Request) -> Result<(), CniError> {
    let mut failures = Vec::new();
    let veth = match find_veth(request) {
        Ok(veth) => veth,
        Err(why) => {
            failures.push(why);
            None
        }
    };
    failures.extend(remove_veth_and_rules(request, veth));
    // Last: the address must not be another's while the veth pair or a rule is there.
    if let Some(ipam) = text_at(request.config(), "ipam", "type") {
        let freed = delegate::call(&request_to_ipam(request), Command::Del, ipam, &request.config);
        failures.extend(freed.err());
    }
    all(failures)
}

/// A configuration that ADD would refuse must not keep anything from being freed.
fn text_at<'a>(config: Object<'a>, object: &str, key: &str) -> Option<&'a str> {
    config.object(object).ok()??.text(key).ok()?.filter(|text| !text.is_empty())
}

fn is_on(config: Object<'_>, key: &str) -> bool {
    config.switch(key).unwrap_or(false)
}

/// One end of the veth pair, with a way to it.
struct Veth {
    stack: Stack,
    device: Device,
    /// The number of the host's device.
    port: Option<u32>,
    /// The pod's addresses, if rules are made of them.
    addresses: Vec<IpNet>,
}

/// Finds the veth pair: in the pod, or, where that is gone, by the name that the runtime brings back.
fn find_veth(request: &Request) -> Result<Option<Veth>, CniError> {
    match sandbox::find(request.netns.as_deref())? {
        Some(namespace) => {
            visit(&namespace, || find_inside(request)).map_err(|why| CniError::internal(why.to_string()))?
        }
        None => find_on_host(request),
    }
}

fn find_inside(request: &Request) -> Result<Option<Veth>, CniError> {
    let Ok(name) = request.ifname.parse::<LinkName>() else { return Ok(None) };
    let mut stack = host::open()?;
    let found = stack.device(name).or_internal(format_args!("failed to lookup {name:?}"))?;
    // A device of another kind is not ours.
    let Some(device) = found.filter(|found| &*found.kind == "veth") else { return Ok(None) };
    let mut addresses = Vec::new();
    if is_on(request.config(), "ipMasq") {
        let found = stack.addresses(device.index).or_internal(format_args!("failed to lookup {name:?}"))?;
        addresses.extend(found.into_iter().map(|found| found.address).filter(is_global));
    }
    let port = device.peer;
    Ok(Some(Veth { stack, device, port, addresses }))
}

fn is_global(net: &IpNet) -> bool {
    match net {
        IpNet::V4(net) => !net.addr().is_link_local(),
        IpNet::V6(net) => !net.addr().is_unicast_link_local(),
    }
}

/// A namespace that lost its name may live on in a process, and the veth pair with it.
fn find_on_host(request: &Request) -> Result<Option<Veth>, CniError> {
    let Ok(Some(promised)) = request.prev_result() else { return Ok(None) };
    let on_host = promised.interfaces.iter().filter(|interface| interface.sandbox.is_none());
    let mut ports = on_host.filter(|interface| interface.name.starts_with("veth"));
    let Some((port, name)) = ports.find_map(|port| Some((port, port.name.parse().ok()?))) else {
        return Ok(None);
    };
    let mut stack = host::open()?;
    let found = stack.device(name).or_internal(format_args!("failed to lookup {name:?}"))?;
    let is_same = |found: &Device| &*found.kind == "veth" && found.mac.to_string() == port.mac;
    let addresses = promised.ips.iter().map(|ip| ip.address).collect();
    let veth = |device: Device| Veth { stack, port: Some(device.index), device, addresses };
    Ok(found.filter(is_same).map(veth))
}

/// Removes both at the same time: for each the kernel makes us wait, 10 to 20 ms.
fn remove_veth_and_rules(request: &Request, veth: Option<Veth>) -> Vec<CniError> {
    let config = request.config();
    let (masquerades, checks_mac) = (is_on(config, "ipMasq"), is_on(config, "macspoofchk"));
    let port = veth.as_ref().and_then(|veth| veth.port);
    let addresses = veth.as_ref().map_or_else(Vec::new, |veth| veth.addresses.clone());
    let remove_veth = || veth.and_then(|veth| veth.remove().err());
    if !masquerades && !checks_mac {
        return remove_veth().into_iter().collect();
    }
    let remove_rules = || {
        if let Some(port) = port {
            wait_for_absence(port);
        }
        let checked = if checks_mac { macspoof::tear_down(request) } else { Ok(()) };
        let masqueraded = if masquerades { masquerade::tear_down(request, &addresses) } else { Ok(()) };
        [checked.err(), masqueraded.err()]
    };
    std::thread::scope(|scope| {
        let rules = std::thread::Builder::new().spawn_scoped(scope, remove_rules);
        let veth = remove_veth();
        let rules = match rules {
            Ok(thread) => thread.join().unwrap_or_else(|bug| std::panic::resume_unwind(bug)),
            Err(_) => remove_rules(), // a host that is out of threads must get rid of pods first of all
        };
        rules.into_iter().chain([veth]).flatten().collect()
    })
}

/// The veth pair is gone after a millisecond; the kernel then waits until nobody can see it any more. Rules that are
/// removed before that would make it wait once more: together 28 ms, and 16 ms in this order.
fn wait_for_absence(port: u32) {
    // If it cannot be seen, the order costs time and nothing else.
    let _ = host::open().map(|mut host| host.wait_for_absence(port, ABSENCE_LIMIT));
}

impl Veth {
    fn remove(mut self) -> Result<(), CniError> {
        let removed = self.stack.remove(self.device.index);
        removed.or_internal(format_args!("failed to delete {:?}", self.device.name))
    }
}
