//! The host's side that all pods share: the bridge itself, and forwarding.

use std::net::Ipv6Addr;

use flannel_kernel::address::Dad;
use flannel_kernel::bridge::NewBridge;
use flannel_kernel::stack::{Device, Stack};
use flannel_kernel::sysctl;
use flannel_plan::family::Family;
use flannel_plan::mac::Mac;
use ipnet::IpNet;
use rustix::io::Errno;

use super::config::Config;
use crate::error::{CniError, OrInternal};

/// Opens a way to the network stack of this thread's namespace.
pub(super) fn open() -> Result<Stack, CniError> {
    Stack::open().or_internal(format_args!("cannot open a netlink socket"))
}

/// So many random bytes.
pub(super) fn random<const N: usize>() -> Result<[u8; N], CniError> {
    let mut bytes = [0; N];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    match filled {
        Ok(length) if length == N => Ok(bytes),
        Ok(_) => Err(CniError::internal("the kernel gave too few random bytes")),
        Err(errno) => Err(CniError::internal(format!("cannot get random bytes: {errno}"))),
    }
}

/// A hardware address that no other device is likely to have.
pub(super) fn random_mac() -> Result<Mac, CniError> {
    Ok(Mac::from_random(random()?))
}

/// Finds or makes the bridge, and gives it as it is then: up, and promiscuous if that is asked for.
pub(super) fn ensure_bridge(host: &mut Stack, config: &Config) -> Result<Device, CniError> {
    let name = config.bridge;
    let tried = format_args!("failed to create bridge {name:?}");
    let bridge = match host.device(name).or_internal(tried)? {
        Some(found) => found,
        None => create_bridge(host, config)?,
    };
    if &*bridge.kind != "bridge" {
        return Err(CniError::internal(format!("{tried}: {name:?} already exists but is not a bridge")));
    }
    if config.promiscuous && !bridge.promiscuous {
        host.make_promiscuous(bridge.index).or_internal(tried)?;
    }
    // The host's own routers must not come from a pod.
    let _ = sysctl::set(&format!("net/ipv6/conf/{name}/accept_ra"), "0"); // a host may have no IPv6
    if !bridge.up {
        host.raise(bridge.index).or_internal(tried)?;
    }
    Ok(bridge)
}

/// Makes the bridge, unless another ADD was faster.
fn create_bridge(host: &mut Stack, config: &Config) -> Result<Device, CniError> {
    let name = config.bridge;
    let tried = format_args!("failed to create bridge {name:?}");
    let bridge = NewBridge {
        name,
        mac: random_mac()?,
        mtu: config.mtu,
        vlan_filtering: config.wants_vlans(),
        promiscuous: config.promiscuous,
    };
    let created = host.create_bridge(&bridge);
    let found = host.device(name).or_internal(tried)?;
    match (created, found) {
        (Ok(()), Some(made)) => {
            add_link_local(host, &made);
            Ok(made)
        }
        (Err(why), Some(found)) if why.errno == Errno::EXIST => Ok(found),
        (Err(why), _) => Err(CniError::internal(format!("{tried}: {why}"))),
        (Ok(()), None) => Err(CniError::internal(format!("{tried}: somebody removed it"))),
    }
}

/// Gives a new bridge the link-local address that the kernel gives it only when the first pod is up, so that it
/// has one from the start, as a bridge of Go's plugin.
fn add_link_local(host: &mut Stack, bridge: &Device) {
    const BY_MAC: &str = "0";
    if sysctl::is(&format!("net/ipv6/conf/{}/addr_gen_mode", bridge.name), BY_MAC)
        && let Ok(address) = IpNet::new(link_local(bridge.mac).into(), 64)
    {
        let _ = host.add_address(bridge.index, address, Dad::Enabled); // the kernel will come to it
    }
}

fn link_local(Mac([a, b, c, d, e, f]): Mac) -> Ipv6Addr {
    let pair = |high: u8, low: u8| u16::from_be_bytes([high, low]);
    Ipv6Addr::new(0xfe80, 0, 0, 0, pair(a ^ 0x02, b), pair(c, 0xff), pair(0xfe, d), pair(e, f))
}

/// Lets the host pass packets on, for the families of the gateways; a host that does is left alone.
///
/// For IPv6 this stops the host from learning routers itself, unless its `accept_ra` is 2.
pub(super) fn enable_forwarding(gateways: &[IpNet]) -> Result<(), CniError> {
    for family in Family::BOTH {
        let path = match family {
            Family::V4 => "net/ipv4/ip_forward",
            Family::V6 => "net/ipv6/conf/all/forwarding",
        };
        let is_wanted = gateways.iter().any(|gateway| Family::of_net(*gateway) == family);
        if is_wanted && !sysctl::is(path, "1") {
            sysctl::set(path, "1").or_internal(format_args!("failed to enable forwarding"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_local_address_is_made_of_the_hardware_address_as_the_kernel_does() {
        let mac: Mac = "d2:d5:db:5e:24:e8".parse().unwrap();
        assert_eq!(link_local(mac).to_string(), "fe80::d0d5:dbff:fe5e:24e8");
    }
}
