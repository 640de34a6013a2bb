//! The veth pair of a pod: created with one end in the pod, and what the bridge does with the other, its port.

use std::fs::File;
use std::os::fd::AsFd;

use flannel_kernel::NetlinkError;
use flannel_kernel::bridge::{Port, PortVlans};
use flannel_kernel::stack::{Device, Stack};
use flannel_kernel::sysctl;
use flannel_kernel::veth::NewVeth;
use flannel_plan::link_name::LinkName;
use flannel_plan::mac::Mac;
use rustix::io::Errno;

use super::config::Config;
use super::host::{random, random_mac};
use crate::error::{CniError, OrInternal};

/// With 32 random bits in a name, ten tries fail only on a host with billions of pods.
const MOST_TRIES: usize = 10;

/// The VLAN of frames without a tag, on a port that is told only of those with one.
const NATIVE_VLAN: u16 = 1;

/// Creates a veth pair with one end in the pod; gives the host's end and the pod's hardware address.
pub(super) fn create(
    host: &mut Stack,
    bridge: u32,
    config: &Config,
    ifname: LinkName,
    sandbox: &File,
) -> Result<(Device, Mac), CniError> {
    let peer_mac = config.mac.map_or_else(random_mac, Ok)?;
    let mut veth = NewVeth {
        name: port_name()?,
        mac: random_mac()?,
        master: Some(bridge),
        peer: ifname,
        peer_mac,
        peer_namespace: Some(sandbox.as_fd()),
        mtu: config.mtu,
    };
    for _ in 0..MOST_TRIES {
        match host.create_veth(&veth) {
            Ok(port) => return Ok((port, peer_mac)),
            Err(why) if why.errno != Errno::EXIST => {
                return Err(CniError::internal(format!("failed to make veth pair: {why}")));
            }
            // One of the two names is taken; if not ours, then the pod's.
            Err(_) if matches!(host.device(veth.name), Ok(None)) => break,
            Err(_) => veth.name = port_name()?,
        }
    }
    let (ifname, port) = (ifname.as_str(), veth.name.as_str());
    let text = format!("container veth name ({ifname:?}) peer provided ({port:?}) already exists");
    Err(CniError::internal(text).details(format!("the pod has an interface {ifname} already: DEL it first")))
}

fn port_name() -> Result<LinkName, CniError> {
    let name = format!("veth{:08x}", u32::from_ne_bytes(random()?));
    name.parse().or_internal(format_args!("bug"))
}

/// Sets what the bridge does with the frames of a new port.
pub(super) fn set_port(
    host: &mut Stack,
    port: &Device,
    bridge: &Device,
    config: &Config,
) -> Result<(), CniError> {
    ignore_router_advertisements(port.name);
    if config.port != Port::default() {
        let Port { hairpin, isolated } = config.port;
        host.set_port(port.index, config.port).or_internal(format_args!(
            "failed to set hairpin {hairpin} and isolation {isolated} for {}",
            port.name
        ))?;
    }
    let tagged = config.trunk.as_deref().unwrap_or_default();
    set_vlans(host, port, bridge, &vlans(config, bridge, config.vlan, tagged))
}

/// What is announced by a pod must not become a way of the host.
fn ignore_router_advertisements(name: LinkName) {
    let _ = sysctl::set(&format!("net/ipv6/conf/{name}/accept_ra"), "0"); // a host may have no IPv6
}

/// The VLANs of a port of a bridge; a port without any is left as it is.
fn vlans(config: &Config, bridge: &Device, vlan: Option<u16>, trunk: &[u16]) -> PortVlans {
    if vlan.is_none() && trunk.is_empty() {
        return PortVlans::default();
    }
    let untagged = vlan.unwrap_or(NATIVE_VLAN);
    PortVlans {
        without: bridge.default_vlan.filter(|default| !config.keeps_default_vlan && *default != untagged),
        untagged: Some(untagged),
        // Told again as tagged, it would lose its mark.
        tagged: trunk.iter().copied().filter(|vlan| *vlan != untagged).collect(),
    }
}

fn set_vlans(host: &mut Stack, port: &Device, bridge: &Device, vlans: &PortVlans) -> Result<(), CniError> {
    if *vlans == PortVlans::default() {
        return Ok(());
    }
    let set = host.set_vlans(port.index, vlans);
    set.or_internal(format_args!("failed to set the VLANs of {} on {}", port.name, bridge.name))
}

/// The host's own device in a VLAN, which has the gateway's address: one end of a veth pair whose other end is a port.
pub(super) fn vlan_gateway(
    host: &mut Stack,
    bridge: &Device,
    vlan: u16,
    config: &Config,
) -> Result<Device, CniError> {
    let text = format!("{}.{vlan}", bridge.name);
    let failed = format!("failed to create vlan interface {text:?}");
    let name: LinkName = text.parse().or_internal(format_args!("{failed}"))?;
    let find = |host: &mut Stack| host.device(name).or_internal(format_args!("{failed}"));
    let gateway = match find(host)? {
        Some(found) => found,
        None => {
            let vlans = vlans(config, bridge, Some(vlan), &[]);
            create_vlan_veth(host, bridge, name, &vlans).map_err(|why| why.context(&failed))?;
            find(host)?.ok_or_else(|| CniError::internal("somebody removed it").context(&failed))?
        }
    };
    if !gateway.up {
        host.raise(gateway.index).or_internal(format_args!("{failed}"))?;
    }
    Ok(gateway)
}

/// Creates the veth pair, unless another ADD was faster; what is only half made is taken back.
fn create_vlan_veth(
    host: &mut Stack,
    bridge: &Device,
    name: LinkName,
    vlans: &PortVlans,
) -> Result<(), CniError> {
    let veth = NewVeth {
        name,
        mac: random_mac()?,
        master: None,
        peer: port_name()?,
        peer_mac: random_mac()?,
        peer_namespace: None,
        mtu: Some(bridge.mtu),
    };
    let gateway = match host.create_veth(&veth) {
        Ok(made) => made,
        Err(why) if why.errno == Errno::EXIST => return Ok(()),
        Err(why) => return Err(CniError::internal(why.to_string())),
    };
    attach(host, bridge, veth.peer, vlans).inspect_err(|_| {
        let _ = remove(host, &gateway); // the first error is the one to tell
    })
}

fn attach(host: &mut Stack, bridge: &Device, port: LinkName, vlans: &PortVlans) -> Result<(), CniError> {
    let failed = |why: NetlinkError| CniError::internal(why.to_string());
    let found = host.device(port).map_err(failed)?;
    let found = found.ok_or_else(|| CniError::internal(format!("somebody removed {port}")))?;
    ignore_router_advertisements(port);
    host.set_master(found.index, bridge.index).map_err(failed)?;
    host.raise(found.index).map_err(failed)?;
    set_vlans(host, &found, bridge, vlans)
}

/// Removes a veth pair by the host's end: by its number, as the name may belong to another by now.
pub(super) fn remove(host: &mut Stack, port: &Device) -> Result<(), CniError> {
    host.remove(port.index).or_internal(format_args!("failed to delete {}", port.name))
}
