//! The loopback plugin: raises `lo` inside the container, and lowers it at the end. It has no settings and
//! ignores `CNI_IFNAME`.

use std::path::Path;

use flannel_kernel::NetlinkError;
use flannel_kernel::netns::visit;
use flannel_kernel::stack::{Device, Stack};
use ipnet::IpNet;

use crate::error::{CniError, OrInternal};
use crate::request::Request;
use crate::result::{Attachment, Interface, Ip};
use crate::sandbox;

/// Raises `lo`; behind other plugins their result is the answer.
pub fn add(request: &Request) -> Result<Attachment, CniError> {
    let netns = netns(request)?;
    let previous = request.prev_result()?;
    let (device, addresses) = visit_lo(sandbox::open(netns)?, |stack, lo| {
        stack.raise(lo.index)?;
        let addresses = stack.addresses(lo.index)?;
        Ok((lo, addresses.into_iter().map(|found| found.address).collect::<Vec<_>>()))
    })?;
    if let Some(odd) = addresses.iter().find(|address| !address.addr().is_loopback()) {
        let text = format!("loopback interface found with non-loopback address {:?}", odd.addr().to_string());
        return Err(CniError::internal(text));
    }
    Ok(previous.unwrap_or_else(|| attachment(netns, &device, &addresses)))
}

/// Lowers `lo`, if there is still one, and never the host's: not even one who overrides the check wants that.
pub fn del(request: &Request) -> Result<(), CniError> {
    match sandbox::find(request.netns.as_deref())? {
        None => Ok(()),
        Some(_) if sandbox::is_ours(netns(request)?)? => Ok(()),
        Some(netns) => visit_lo(netns, |stack, lo| stack.lower(lo.index)),
    }
}

/// Is `lo` up?
pub fn check(request: &Request) -> Result<(), CniError> {
    let device = visit_lo(sandbox::open(netns(request)?)?, |_, lo| Ok(lo))?;
    if device.up { Ok(()) } else { Err(CniError::internal("loopback interface is down")) }
}

/// There is nothing outside of the container.
pub fn gc(_: &Request) -> Result<(), CniError> {
    Ok(())
}

/// It needs nothing.
pub fn status(_: &Request) -> Result<(), CniError> {
    Ok(())
}

/// The namespace, which the skeleton has asked for.
fn netns(request: &Request) -> Result<&Path, CniError> {
    request.netns.as_deref().ok_or_else(|| CniError::internal("bug: no network namespace"))
}

fn visit_lo<T>(
    netns: std::fs::File,
    work: impl FnOnce(&mut Stack, Device) -> Result<T, NetlinkError>,
) -> Result<T, CniError> {
    let found = visit(netns, || {
        let mut stack = Stack::open()?;
        let name = "lo".parse().map_err(|_| NetlinkError::from(rustix::io::Errno::INVAL))?;
        stack.device(name)?.map(|lo| work(&mut stack, lo)).transpose()
    });
    let found = found.map_err(|error| CniError::internal(error.to_string()))?;
    found
        .or_internal(format_args!("cannot set up lo"))?
        .ok_or_else(|| CniError::internal("cannot set up lo: the namespace has no such interface"))
}

/// `lo` with its first address of each family.
fn attachment(netns: &Path, device: &Device, addresses: &[IpNet]) -> Attachment {
    let first = |is_v4: bool| addresses.iter().find(|address| address.addr().is_ipv4() == is_v4);
    let lo = Interface {
        name: device.name.to_string(),
        mac: device.mac.to_string(),
        sandbox: Some(netns.to_owned()),
        ..Interface::default()
    };
    let ips = [true, false].into_iter().filter_map(first);
    Attachment {
        interfaces: vec![lo],
        ips: ips.map(|address| Ip { interface: Some(0), address: *address, gateway: None }).collect(),
        ..Attachment::default()
    }
}
