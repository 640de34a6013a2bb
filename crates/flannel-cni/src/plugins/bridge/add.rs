//! ADD: the bridge, the veth pair, the addresses, the inside of the pod, the gateway, the rules.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use flannel_kernel::netns::visit;
use flannel_kernel::stack::{Device, OperState, Stack};
use flannel_plan::link_name::LinkName;
use ipnet::IpNet;

use super::config::{Config, Inside};
use super::{gateway, host, inside, request_to_ipam, veth};
use crate::attachment::{self, Router};
use crate::error::{CniError, OrInternal};
use crate::request::{Command, Request};
use crate::result::{Attachment, Interface};
use crate::{delegate, macspoof, masquerade, sandbox};

/// As long as Go's plugin waits for a port, all its pauses together.
const PORT_LIMIT: Duration = Duration::from_millis(2550);

/// Attaches a pod.
pub fn add(request: &Request) -> Result<Attachment, CniError> {
    let config = Config::read(request)?;
    let ifname = request.ifname.parse().map_err(|why| CniError::internal(format!("{why}")))?;
    // First: for a pod that is not there nothing has to be made, not even the bridge.
    let sandbox = sandbox::open(request.netns.as_deref().unwrap_or(Path::new("")))?;
    let mut host = host::open()?;
    let bridge = host::ensure_bridge(&mut host, &config)?;
    let mut adding =
        Adding { request, config: &config, ifname, host, bridge, sandbox, made: Made::default() };
    adding.attach().map_err(|why| adding.undo(why))
}

/// What is to be taken back if a later step fails.
#[derive(Default)]
struct Made {
    veth: Option<Device>,
    mac_rules: bool,
    lease: bool,
    masquerade: Option<Vec<IpNet>>,
}

struct Adding<'a> {
    request: &'a Request,
    config: &'a Config,
    ifname: LinkName,
    host: Stack,
    bridge: Device,
    sandbox: File,
    made: Made,
}

impl Adding<'_> {
    fn attach(&mut self) -> Result<Attachment, CniError> {
        let (port, mac) =
            veth::create(&mut self.host, self.bridge.index, self.config, self.ifname, &self.sandbox)?;
        self.made.veth = Some(port.clone());
        veth::set_port(&mut self.host, &port, &self.bridge, self.config)?;
        if self.config.checks_mac {
            self.made.mac_rules = true;
            macspoof::set_up(self.request, port.name.as_str(), mac)?;
        }
        let mut result = self.lease()?;
        attachment::complete(&mut result, self.config.router);
        self.wire(&port, &result)?;
        let vlan_gateway = self.set_gateways(&result, &port)?;
        self.masquerade(&result)?;
        let port = self.wait_for_port(&port)?;
        result.interfaces = self.interfaces(&port, mac.to_string(), vlan_gateway)?;
        if let Some(dns) = &self.config.dns {
            result.dns = dns.clone();
        }
        Ok(result)
    }

    /// Asks IPAM for addresses, if there is one.
    fn lease(&mut self) -> Result<Attachment, CniError> {
        let Some(ipam) = &self.config.ipam else { return Ok(Attachment::default()) };
        let leased = delegate::add(&request_to_ipam(self.request), ipam, &self.request.config)?;
        self.made.lease = true;
        if leased.ips.is_empty() {
            return Err(CniError::internal("IPAM plugin returned missing IP config"));
        }
        Ok(Attachment { interfaces: Vec::new(), ..leased })
    }

    fn wire(&self, port: &Device, result: &Attachment) -> Result<(), CniError> {
        if self.config.inside == Inside::Untouched {
            return Ok(());
        }
        let gone = || CniError::internal(format!("bug: {} has no other end", port.name));
        let device = port.peer.ok_or_else(gone)?;
        let wiring = attachment::wiring(result, device, self.config.dad);
        visit(&self.sandbox, || inside::wire(self.ifname, &wiring))
            .map_err(|why| CniError::internal(why.to_string()))?
    }

    /// Makes the bridge the router, or the device that stands for it in a VLAN, which is given back.
    fn set_gateways(&mut self, result: &Attachment, port: &Device) -> Result<Option<Device>, CniError> {
        let gateways = attachment::gateways(&result.ips);
        if self.config.router == Router::Absent || gateways.is_empty() {
            return Ok(None);
        }
        let vlan =
            self.config.vlan.map(|vlan| veth::vlan_gateway(&mut self.host, &self.bridge, vlan, self.config));
        let vlan = vlan.transpose()?;
        let target = gateway::Target {
            bridge: &self.bridge,
            device: vlan.as_ref().unwrap_or(&self.bridge),
            port: port.index,
            force: self.config.force_address,
            dad: self.config.dad,
        };
        gateway::ensure(&mut self.host, &target, &gateways)?;
        host::enable_forwarding(&gateways)?;
        Ok(vlan)
    }

    fn masquerade(&mut self, result: &Attachment) -> Result<(), CniError> {
        let Some(wanted) = &self.config.masquerade else { return Ok(()) };
        let addresses: Vec<_> = result.ips.iter().map(|ip| ip.address).collect();
        if addresses.is_empty() {
            return Ok(());
        }
        let addresses = self.made.masquerade.insert(addresses);
        masquerade::set_up(self.request, addresses, wanted.backend.as_deref())
    }

    /// Waits until the bridge passes the pod's packets on; the port as it is then.
    fn wait_for_port(&mut self, port: &Device) -> Result<Device, CniError> {
        let observation = match self.config.inside {
            Inside::Raised => self.host.wait_for_up(port.index, PORT_LIMIT),
            Inside::Untouched => self.host.device_at(port.index),
        };
        let found = observation.or_internal(format_args!("failed to lookup {:?}", port.name))?;
        let found = found.ok_or_else(|| CniError::internal(format!("somebody removed {}", port.name)))?;
        if self.config.inside == Inside::Raised && found.state != OperState::UP {
            return Err(CniError::internal(format!("bridge port in error state: {}", found.state)));
        }
        Ok(found)
    }

    fn interfaces(
        &mut self,
        port: &Device,
        mac: String,
        vlan_gateway: Option<Device>,
    ) -> Result<Vec<Interface>, CniError> {
        // A bridge that was made by another may have changed its address when it got our port.
        let bridge = self.host.device_at(self.bridge.index);
        let bridge = bridge.or_internal(format_args!("failed to lookup {:?}", self.bridge.name))?;
        let bridge = bridge.as_ref().unwrap_or(&self.bridge);
        let on_host = |device: &Device| Interface {
            name: device.name.to_string(),
            mac: device.mac.to_string(),
            ..Interface::default()
        };
        let sandbox = self.request.netns.clone();
        let pod = Interface { name: self.ifname.to_string(), mac, sandbox, ..Interface::default() };
        let mut interfaces = vec![on_host(bridge), on_host(port), pod];
        interfaces.extend(vlan_gateway.as_ref().map(on_host));
        Ok(interfaces)
    }

    /// Takes back what was made, and tells what could not be.
    fn undo(&mut self, why: CniError) -> CniError {
        let mut failures = Vec::new();
        if let Some(addresses) = &self.made.masquerade {
            failures.extend(masquerade::tear_down(self.request, addresses).err());
        }
        if self.made.mac_rules {
            failures.extend(macspoof::tear_down(self.request).err());
        }
        if let Some(port) = &self.made.veth {
            failures.extend(veth::remove(&mut self.host, port).err());
        }
        if let (true, Some(ipam)) = (self.made.lease, &self.config.ipam) {
            let request = request_to_ipam(self.request);
            failures.extend(delegate::call(&request, Command::Del, ipam, &self.request.config).err());
        }
        failures.iter().fold(why, CniError::not_taken_back)
    }
}
