//! DEL: the cable, the rules, the address. What is gone is no failure; what fails does not stop the rest.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use flannel_kernel::netns::visit;
use flannel_kernel::stack::{Device, Stack};
use flannel_plan::link_name::LinkName;
use ipnet::IpNet;

use super::{all, host, request_to_ipam};
use crate::error::CniError;
use crate::json::Object;
use crate::request::Request;
use crate::sandbox::{self, Sandbox};
use crate::{delegate, macspoof, masquerade};

/// So long the rules wait for the cable, not longer.
const ABSENCE_LIMIT: Duration = Duration::from_millis(100);

/// Detaches a pod, and frees everything that was made for it.
pub fn del(request: &Request) -> Result<(), CniError> {
    let mut failures = Vec::new();
    let cable = match find_cable(request) {
        Ok(cable) => cable,
        Err(why) => {
            failures.push(why);
            None
        }
    };
    failures.extend(remove_cable_and_rules(request, cable));
    // Last: the address must not be another's while the cable or a rule is there.
    if let Some(ipam) = text_at(request.config(), "ipam", "type") {
        failures.extend(delegate::del(&request_to_ipam(request), ipam, &request.config).err());
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

/// One end of the cable, with a way to it.
struct Cable {
    stack: Stack,
    end: Device,
    /// The number of the host's end.
    port: Option<u32>,
    /// The pod's addresses, if rules are made of them.
    addresses: Vec<IpNet>,
}

/// Finds the cable: in the pod, or, where that is gone, by the name that the runtime brings back.
fn find_cable(request: &Request) -> Result<Option<Cable>, CniError> {
    match sandbox::find(request.netns.as_deref())? {
        Sandbox::Open(namespace) => {
            visit(&namespace, || find_inside(request)).map_err(|why| CniError::internal(why.to_string()))?
        }
        Sandbox::Gone => find_on_host(request),
    }
}

fn find_inside(request: &Request) -> Result<Option<Cable>, CniError> {
    let Ok(name) = request.ifname.parse::<LinkName>() else { return Ok(None) };
    let mut stack = host::open()?;
    let failed = || format!("failed to lookup {name:?}");
    let found = stack.device(name).map_err(host::refused(format_args!("{}", failed())))?;
    // A device of another kind is not ours.
    let Some(end) = found.filter(|found| &*found.kind == "veth") else { return Ok(None) };
    let mut addresses = Vec::new();
    if is_on(request.config(), "ipMasq") {
        let found = stack.addresses(end.index).map_err(host::refused(format_args!("{}", failed())))?;
        addresses.extend(found.into_iter().map(|found| found.address).filter(is_global));
    }
    let port = end.peer;
    Ok(Some(Cable { stack, end, port, addresses }))
}

fn is_global(net: &IpNet) -> bool {
    match net {
        IpNet::V4(net) => !net.addr().is_link_local(),
        IpNet::V6(net) => !net.addr().is_unicast_link_local(),
    }
}

/// A namespace that lost its name may live on in a process, and the cable with it.
fn find_on_host(request: &Request) -> Result<Option<Cable>, CniError> {
    let Ok(Some(promised)) = request.prev_result() else { return Ok(None) };
    let on_host = promised.interfaces.iter().filter(|interface| interface.sandbox.is_none());
    let mut ports = on_host.filter(|interface| interface.name.starts_with("veth"));
    let Some((port, name)) = ports.find_map(|port| Some((port, port.name.parse().ok()?))) else {
        return Ok(None);
    };
    let mut stack = host::open()?;
    let found = stack.device(name).map_err(host::refused(format_args!("failed to lookup {name:?}")))?;
    let is_same = |found: &Device| &*found.kind == "veth" && found.mac.to_string() == port.mac;
    let addresses = promised.ips.iter().map(|ip| ip.address).collect();
    let cable = |end: Device| Cable { stack, port: Some(end.index), end, addresses };
    Ok(found.filter(is_same).map(cable))
}

/// Removes both at the same time: for each the kernel makes us wait, 10 to 20 ms.
fn remove_cable_and_rules(request: &Request, cable: Option<Cable>) -> Vec<CniError> {
    let config = request.config();
    let (masquerades, checks_mac) = (is_on(config, "ipMasq"), is_on(config, "macspoofchk"));
    let port = cable.as_ref().and_then(|cable| cable.port);
    let addresses = cable.as_ref().map_or_else(Vec::new, |cable| cable.addresses.clone());
    let cable = Mutex::new(cable);
    let remove_cable = || {
        let cable = cable.lock().unwrap_or_else(PoisonError::into_inner).take();
        cable.map_or(Ok(()), Cable::remove)
    };
    let mut failures = Vec::new();
    if !masquerades && !checks_mac {
        failures.extend(remove_cable().err());
        return failures;
    }
    std::thread::scope(|scope| {
        let removal = std::thread::Builder::new().spawn_scoped(scope, remove_cable);
        if let (Ok(_), Some(port)) = (&removal, port) {
            wait_for_absence(port);
        }
        if checks_mac {
            failures.extend(macspoof::tear_down(request).err());
        }
        if masquerades {
            failures.extend(masquerade::tear_down(request, &addresses).err());
        }
        let removed = match removal {
            Ok(thread) => thread.join().unwrap_or_else(|bug| std::panic::resume_unwind(bug)),
            Err(_) => remove_cable(), // a host that is out of threads must get rid of pods first of all
        };
        failures.extend(removed.err());
    });
    failures
}

/// The cable is gone after a millisecond; the kernel then waits until nobody can see it any more. Rules that are
/// removed before that would make it wait once more: together 28 ms, and 16 ms in this order.
fn wait_for_absence(port: u32) {
    // If it cannot be seen, the order costs time and nothing else.
    let _ = host::open().map(|mut host| host.wait_for_absence(port, ABSENCE_LIMIT));
}

impl Cable {
    fn remove(mut self) -> Result<(), CniError> {
        let tried = format_args!("failed to delete {:?}", self.end.name);
        self.stack.remove(self.end.index).map_err(host::refused(tried))
    }
}
