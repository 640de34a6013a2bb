//! What one attachment to a bridge looks like, on the host's side and inside the pod. Pure.
//!
//! Takes the addresses that IPAM handed out, and gives the addresses of the bridge and the wiring of the pod; or
//! takes what a CHECK found, and gives what is not as it was promised.

use std::net::IpAddr;
use std::path::Path;

use flannel_kernel::address::Dad;
use flannel_kernel::stack::Device;
use flannel_kernel::wiring::{PodRoute, Wiring};
use flannel_plan::family::Family;
use flannel_plan::link_name::LinkName;
use flannel_plan::observation::RouteFact;
use flannel_plan::state::RouteKind;
use ipnet::IpNet;

use crate::result::{Attachment, Interface, Ip, Route};

/// The place of the pod's interface in a result: behind the bridge and the host's end of the veth pair.
const POD: i64 = 2;

/// The scope of a route whose destinations are on the wire; larger ones are on the host itself.
const SCOPE_LINK: u8 = 253;

/// What the bridge routes for its pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Router {
    /// Nothing: it has no address.
    Absent,
    /// It has the gateways' addresses.
    OfTheNetwork,
    /// The same, and pods send to it what has no other way.
    OfEverything,
}

/// Completes what IPAM handed out: the interface and the gateway of each address, and the default routes.
///
/// A default route of IPAM counts also if it names no gateway: it gets the gateway of its family.
pub fn complete(attachment: &mut Attachment, router: Router) {
    for ip in &mut attachment.ips {
        ip.interface = Some(POD);
        if router != Router::Absent {
            ip.gateway = ip.gateway.or_else(|| first_address(ip.address));
        }
    }
    if router != Router::OfEverything {
        return;
    }
    for family in Family::BOTH {
        let everything = family.everything();
        let Some(ip) = attachment.ips.iter().find(|ip| Family::of_net(ip.address) == family) else {
            continue;
        };
        if !attachment.routes.iter().any(|route| route.dst == everything) {
            attachment.routes.push(Route::new(everything, ip.gateway));
        }
    }
}

fn first_address(net: IpNet) -> Option<IpAddr> {
    match net.network() {
        IpAddr::V4(base) => u32::from(base).checked_add(1).map(|first| IpAddr::V4(first.into())),
        IpAddr::V6(base) => u128::from(base).checked_add(1).map(|first| IpAddr::V6(first.into())),
    }
}

/// The addresses that the bridge has as the router of these, IPv4 first, each once.
pub fn gateways(ips: &[Ip]) -> Vec<IpNet> {
    let mut gateways = Vec::new();
    for family in Family::BOTH {
        let of_family = ips.iter().filter(|ip| Family::of_net(ip.address) == family);
        for gateway in of_family.filter_map(|ip| IpNet::new(ip.gateway?, ip.address.prefix_len()).ok()) {
            if !gateways.contains(&gateway) {
                gateways.push(gateway);
            }
        }
    }
    gateways
}

/// What the pod's device gets: a route without a gateway goes by the first gateway of its family, if there is one
/// and the route may lead beyond the wire.
pub fn wiring(attachment: &Attachment, device: u32, dad: Dad) -> Wiring {
    let gateway_of = |route: &Route| {
        let leads_beyond = route.scope.is_none_or(|scope| scope < SCOPE_LINK);
        let mut gateways = attachment.ips.iter().filter_map(|ip| ip.gateway).filter(|_| leads_beyond);
        gateways.find(|gateway| Family::of(*gateway) == Family::of_net(route.dst))
    };
    let route = |route: &Route| PodRoute {
        destination: route.dst,
        via: route.gw.or_else(|| gateway_of(route)),
        metric: route.priority,
        table: route.table,
        scope: route.scope,
        mtu: route.mtu,
        advmss: route.advmss,
    };
    Wiring {
        device,
        addresses: attachment.ips.iter().map(|ip| ip.address).collect(),
        routes: attachment.routes.iter().map(route).collect(),
        dad,
    }
}

/// What an ADD promised, as the runtime brings it back.
#[derive(Clone, Copy, Debug)]
pub struct Promise<'a> {
    pub result: &'a Attachment,
    pub bridge: LinkName,
    /// Whether the bridge takes frames for others, too.
    pub promiscuous: bool,
    pub ifname: &'a str,
    pub netns: &'a Path,
}

/// What there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub bridge: Option<Device>,
    /// The devices of the host with the other names of the result.
    pub others: Vec<Device>,
    pub pod: Option<Device>,
    pub addresses: Vec<IpNet>,
    /// The routes of the pod's main table.
    pub routes: Vec<RouteFact>,
}

impl Promise<'_> {
    /// The names of the result that are neither the bridge nor the pod's interface: one is the host's end.
    pub fn other_names(&self) -> impl Iterator<Item = &str> {
        let known = |name: &str| name == self.bridge.as_str() || name == self.ifname;
        self.result.interfaces.iter().map(|interface| &*interface.name).filter(move |name| !known(name))
    }

    /// All that is not as promised, in words.
    pub fn faults(&self, found: &Found) -> Vec<String> {
        let mut faults = self.bridge_faults(found.bridge.as_ref());
        faults.extend(self.pod_faults(found.pod.as_ref()));
        if let (Some(bridge), Some(pod)) = (&found.bridge, &found.pod) {
            let is_veth = |end: &Device| {
                let pairs = end.peer == Some(pod.index) && pod.peer == Some(end.index);
                &*end.kind == "veth" && pairs && end.master == Some(bridge.index)
            };
            match found.others.iter().find(|end| is_veth(end)) {
                Some(end) => faults.extend(self.veth_fault(end)),
                None => faults.push(format!("CNI veth created for bridge {} was not found", self.bridge)),
            }
        }
        if found.pod.is_some() {
            faults.extend(self.result.ips.iter().flat_map(|ip| address_faults(ip, found)));
            faults.extend(self.result.routes.iter().filter_map(|route| route_fault(route, found)));
        }
        faults
    }

    fn bridge_faults(&self, found: Option<&Device>) -> Vec<String> {
        let promised = self.result.interfaces.iter().find(|one| one.name == self.bridge.as_str());
        let (Some(promised), Some(found)) = (promised, found) else {
            return vec![format!("CNI created bridge {} in host namespace was not found", self.bridge)];
        };
        let mut faults = Vec::new();
        if let Some(sandbox) = &promised.sandbox {
            faults.push(format!("Bridge interface {} is in the sandbox {}", self.bridge, sandbox.display()));
        }
        if &*found.kind != "bridge" {
            faults.push(format!("Interface {} does not have the bridge type", self.bridge));
        }
        faults.extend(mac_fault("Bridge interface", promised, found));
        if found.promiscuous != self.promiscuous {
            let (wanted, is) = if self.promiscuous { ("on", "off") } else { ("off", "on") };
            faults
                .push(format!("Bridge interface {} has promisc mode {is}, configured {wanted}", self.bridge));
        }
        faults
    }

    fn veth_fault(&self, end: &Device) -> Option<String> {
        let promised = self.result.interfaces.iter().find(|one| one.name == end.name.as_str());
        promised.and_then(|promised| mac_fault("Interface", promised, end))
    }

    fn pod_faults(&self, found: Option<&Device>) -> Vec<String> {
        let is_inside = |one: &&Interface| one.name == self.ifname && one.sandbox.is_some();
        let Some(promised) = self.result.interfaces.iter().find(is_inside) else {
            return vec![format!("CNI created interface in container {} not found", self.ifname)];
        };
        let sandbox = promised.sandbox.as_deref().unwrap_or(Path::new(""));
        if sandbox != self.netns {
            let (promised, netns) = (sandbox.display(), self.netns.display());
            let text = "doesn't match configured netns";
            return vec![format!("Sandbox in prevResult {promised} {text}: {netns}")];
        }
        let Some(found) = found else {
            return vec![format!("Container interface {} was not found", self.ifname)];
        };
        let mut faults = Vec::new();
        if &*found.kind != "veth" {
            faults.push(format!("Container interface {} not of type veth", self.ifname));
        }
        faults.extend(mac_fault("Container interface", promised, found));
        faults
    }
}

fn mac_fault(what: &str, promised: &Interface, found: &Device) -> Option<String> {
    let is_same = promised.mac.is_empty() || promised.mac.eq_ignore_ascii_case(&found.mac.to_string());
    let words = || {
        let name = &promised.name;
        format!("{what} {name} Mac doesn't match: {} promised, {} found", promised.mac, found.mac)
    };
    (!is_same).then(words)
}

fn address_faults(ip: &Ip, found: &Found) -> Vec<String> {
    if !found.addresses.contains(&ip.address) {
        return vec![format!("Failed to match addr {} on interface", ip.address)];
    }
    let network = ip.address.trunc();
    // A network of one address needs no route, and IPv4 has none.
    let is_single = network.prefix_len() == network.max_prefix_len();
    if is_single || found.routes.iter().any(|fact| fact.route.destination == network) {
        return Vec::new();
    }
    vec![format!("Failed to find the route for the network {network} of {}", ip.address)]
}

/// Routes of other tables are not looked at; of a default route any gateway will do.
fn route_fault(route: &Route, found: &Found) -> Option<String> {
    const MAIN: u32 = 254;
    if route.table.is_some_and(|table| table != MAIN && table != 0) {
        return None;
    }
    let leads_there = |fact: &RouteFact| {
        let by_gateway = route.gw.is_none() || fact.route.via == route.gw;
        let is_any = route.dst.prefix_len() == 0 || fact.route.kind == RouteKind::Multipath;
        fact.route.destination == route.dst.trunc() && (by_gateway || is_any)
    };
    let gateway = || route.gw.map_or_else(String::new, |gw| format!(" via {gw}"));
    let is_there = found.routes.iter().any(leads_there);
    (!is_there).then(|| format!("Expected route {}{} was not found", route.dst, gateway()))
}

#[cfg(test)]
mod tests;
