//! The gateways' addresses on the bridge: added where missing, and old ones replaced where nobody uses them.

use std::io::Write;

use flannel_kernel::address::Dad;
use flannel_kernel::stack::{Device, Stack};
use flannel_plan::family::{Family, overlap};
use ipnet::IpNet;
use rustix::io::Errno;

use crate::error::{CniError, OrInternal};

/// The device that gets the addresses, and who is on its bridge.
pub(super) struct Target<'a> {
    pub(super) bridge: &'a Device,
    /// The device that gets them: the bridge, or the one that stands for it in a VLAN.
    pub(super) device: &'a Device,
    /// The port of the pod that is being attached.
    pub(super) port: u32,
    /// Whether old addresses go, whoever uses them.
    pub(super) force: bool,
    /// Duplicate address detection of IPv6 addresses.
    pub(super) dad: Dad,
}

/// Gives the device the addresses that it lacks.
pub(super) fn ensure(host: &mut Stack, target: &Target, wanted: &[IpNet]) -> Result<(), CniError> {
    let name = target.device.name;
    let found = host.addresses(target.device.index);
    let found = found.or_internal(format_args!("failed to set bridge addr: {name}"))?;
    let found: Vec<_> = found.into_iter().map(|found| found.address).collect();
    let missing: Vec<_> = wanted.iter().copied().filter(|wanted| !found.contains(wanted)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let stale = stale(&found, wanted, &missing);
    if !stale.is_empty() {
        if target.force || !is_used(host, target)? {
            for address in &stale {
                host.remove_address(target.device.index, *address).or_internal(format_args!(
                    "failed to set bridge addr: could not remove {address} from {name}"
                ))?;
            }
        } else {
            tell(target, &stale, &missing);
        }
    }
    for address in missing {
        match host.add_address(target.device.index, address, target.dad) {
            Err(why) if why.errno == Errno::EXIST => {}
            added => added.or_internal(format_args!(
                "failed to set bridge addr: could not add IP address {address} to {name:?}"
            ))?,
        }
    }
    // A bridge that somebody made without one would change its address with every pod from now on.
    let pinned = host.set_mac(target.device.index, target.device.mac);
    pinned.or_internal(format_args!("failed to set bridge addr: {name}: could not set its MAC"))
}

/// The addresses that a missing one cannot stand beside: of IPv4 any, of IPv6 those of the same network.
fn stale(found: &[IpNet], wanted: &[IpNet], missing: &[IpNet]) -> Vec<IpNet> {
    let clashes = |old: &IpNet, new: &IpNet| {
        Family::of_net(*old) == Family::of_net(*new)
            && (Family::of_net(*old) == Family::V4 || overlap(old.trunc(), new.trunc()))
    };
    let old = found.iter().filter(|old| !wanted.contains(old));
    old.filter(|old| missing.iter().any(|new| clashes(old, new))).copied().collect()
}

/// Whether anything but the new pod is on the bridge: nobody here knows its address.
fn is_used(host: &mut Stack, target: &Target) -> Result<bool, CniError> {
    let ports = host.ports(target.bridge.index);
    let ports = ports.or_internal(format_args!("failed to set bridge addr: {}", target.device.name))?;
    let own = [Some(target.port), target.device.peer];
    Ok(ports.iter().any(|port| !own.contains(&Some(port.index))))
}

/// Tells the operator, by the log of the runtime.
fn tell(target: &Target, stale: &[IpNet], missing: &[IpNet]) {
    let list = |nets: &[IpNet]| nets.iter().map(IpNet::to_string).collect::<Vec<_>>().join(", ");
    let name = target.device.name;
    let (old, new) = (list(stale), list(missing));
    let _ = writeln!(
        std::io::stderr(),
        "{name} already has an IP address different from {new}: {old} stays beside it, since pods on {name} \
         may use it; when they are gone, remove it with `ip addr del`"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn stale_of(found: &[&str], wanted: &[&str]) -> Vec<IpNet> {
        let (found, wanted) = (nets(found), nets(wanted));
        let missing: Vec<_> = wanted.iter().copied().filter(|wanted| !found.contains(wanted)).collect();
        stale(&found, &wanted, &missing)
    }

    #[test]
    fn any_other_ipv4_address_is_stale() {
        assert_eq!(stale_of(&["10.0.0.1/8"], &["10.1.2.3/16"]), nets(&["10.0.0.1/8"]));
        assert_eq!(stale_of(&["10.244.1.1/24"], &["10.244.2.1/24"]), nets(&["10.244.1.1/24"]));
        assert_eq!(stale_of(&["fd00::1/64"], &["10.244.2.1/24"]), []);
    }

    #[test]
    fn the_gateways_of_one_pod_stand_beside_each_other() {
        assert_eq!(stale_of(&["10.1.0.1/24"], &["10.1.0.1/24", "10.2.0.1/24"]), []);
    }

    #[test]
    fn of_ipv6_only_addresses_of_the_same_network_are_stale() {
        let found = ["fe80::1/64", "2001:db8:1::1/64", "2001:db8:2::1/64"];
        assert_eq!(stale_of(&found, &["2001:db8:3::1/64"]), []);
        assert_eq!(stale_of(&found, &["2001:db8::1/32"]), nets(&["2001:db8:1::1/64", "2001:db8:2::1/64"]));
        assert_eq!(stale_of(&found, &["2001:db8:1::9/64"]), nets(&["2001:db8:1::1/64"]));
    }
}
