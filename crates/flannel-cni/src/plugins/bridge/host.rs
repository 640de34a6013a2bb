//! The host's side that all pods share: the bridge itself, and forwarding.

use std::fmt;

use flannel_kernel::Refusal;
use flannel_kernel::bridge::NewBridge;
use flannel_kernel::stack::{Device, Stack};
use flannel_kernel::sysctl;
use flannel_plan::family::Family;
use flannel_plan::mac::Mac;
use ipnet::IpNet;
use rustix::io::Errno;

use super::config::Config;
use crate::error::CniError;

/// Opens a way to the network stack of this thread's namespace.
pub(super) fn open() -> Result<Stack, CniError> {
    Stack::open().map_err(refused(format_args!("cannot open a netlink socket")))
}

/// An error of the kernel, with what was tried in front.
pub(super) fn refused(tried: fmt::Arguments) -> impl FnOnce(Refusal) -> CniError {
    let tried = tried.to_string();
    move |why| CniError::internal(format!("{tried}: {why}"))
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
    let failed = || format!("failed to create bridge {name:?}");
    let find = |host: &mut Stack| host.device(name).map_err(refused(format_args!("{}", failed())));
    let bridge = match find(host)? {
        Some(found) => found,
        None => {
            create(host, config).map_err(refused(format_args!("{}", failed())))?;
            let gone = || CniError::internal("somebody removed it").context(failed());
            find(host)?.ok_or_else(gone)?
        }
    };
    if &*bridge.kind != "bridge" {
        return Err(
            CniError::internal(format!("{name:?} already exists but is not a bridge")).context(failed())
        );
    }
    if config.promiscuous && !bridge.promiscuous {
        host.make_promiscuous(bridge.index).map_err(refused(format_args!("{}", failed())))?;
    }
    // The host's own routers must not come from a pod.
    let _ = sysctl::set(&format!("net/ipv6/conf/{name}/accept_ra"), "0"); // a host may have no IPv6
    if !bridge.up {
        host.raise(bridge.index).map_err(refused(format_args!("{}", failed())))?;
    }
    Ok(bridge)
}

/// Makes the bridge, unless another ADD was faster.
fn create(host: &mut Stack, config: &Config) -> Result<(), Refusal> {
    let mac = random_mac().map_err(|_| Errno::IO)?;
    let bridge = NewBridge {
        name: config.bridge,
        mac,
        mtu: config.mtu,
        vlan_filtering: config.wants_vlans(),
        promiscuous: config.promiscuous,
    };
    match host.create_bridge(&bridge) {
        Err(why) if why.errno == Errno::EXIST => Ok(()),
        outcome => outcome,
    }
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
            sysctl::set(path, "1").map_err(refused(format_args!("failed to enable forwarding")))?;
        }
    }
    Ok(())
}
