//! The pod's side, seen from inside its namespace: settings, addresses, routes.

use std::time::Duration;

use flannel_kernel::address::{Dad, DadState, DeviceAddress};
use flannel_kernel::stack::Stack;
use flannel_kernel::sysctl;
use flannel_kernel::wiring::Wiring;
use flannel_plan::link_name::LinkName;

use crate::error::{CniError, OrInternal};

/// Duplicate address detection takes one to two seconds.
const DAD_LIMIT: Duration = Duration::from_secs(5);

/// Wires the pod's device. The thread must be inside the pod's namespace.
pub(super) fn wire(ifname: LinkName, wiring: &Wiring) -> Result<(), CniError> {
    let has_ipv6 = wiring.addresses.iter().any(|address| address.addr().is_ipv6());
    if !wiring.addresses.is_empty() {
        set_manners(ifname, wiring.dad);
    }
    if has_ipv6 {
        switch_ipv6_on(ifname)?;
    }
    let mut stack = super::host::open()?;
    stack.wire(wiring).or_internal(format_args!("{ifname}"))?;
    if has_ipv6 && wiring.dad == Dad::Enabled {
        settle(&mut stack, ifname, wiring.device)?;
    }
    Ok(())
}

/// A pod may have no IPv6, and then nothing to set.
fn set_manners(ifname: LinkName, dad: Dad) {
    let set = |path: String, value| {
        let _ = sysctl::set(&path, value);
    };
    if dad == Dad::Enabled {
        set(format!("net/ipv6/conf/{ifname}/enhanced_dad"), "1");
        set(format!("net/ipv6/conf/{ifname}/accept_dad"), "1");
    } else {
        set(format!("net/ipv6/conf/{ifname}/accept_dad"), "0");
    }
}

/// Runtimes switch IPv6 off in new pods; addresses would be lost with the device going off for a moment.
fn switch_ipv6_on(ifname: LinkName) -> Result<(), CniError> {
    for device in ["lo", ifname.as_str()] {
        let path = format!("net/ipv6/conf/{device}/disable_ipv6");
        if !sysctl::is(&path, "0") {
            let _ = sysctl::set(&path, "0"); // if it matters, the address will be refused, with the reason
        }
    }
    let path = format!("net/ipv6/conf/{ifname}/keep_addr_on_down");
    sysctl::set(&path, "1").or_internal(format_args!("failed to set {path}"))
}

/// Waits until the kernel has asked the wire, and refuses an address that another has.
fn settle(stack: &mut Stack, ifname: LinkName, device: u32) -> Result<(), CniError> {
    let unusable = stack.wait_for_addresses(device, DAD_LIMIT);
    let unusable = unusable.or_internal(format_args!("cannot read the addresses of {ifname}"))?;
    let Some(DeviceAddress { address, dad }) = unusable.first() else { return Ok(()) };
    Err(CniError::internal(match dad {
        DadState::Failed => format!("{ifname} cannot have {address}: another device on the wire has it"),
        _ => format!("{ifname} still has a tentative {address} after {} s", DAD_LIMIT.as_secs()),
    }))
}
