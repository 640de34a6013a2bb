//! Lets the host itself use its own port mappings by 127.0.0.1: the kernel throws packets from there away when
//! they leave the host, unless the device that they leave by is told otherwise.

use std::net::Ipv4Addr;

use crate::abi::{AF_INET, RTA_DST, RTA_OIF, RTM_GETROUTE};
use crate::netlink::{NetlinkError, Outbox, Received, number};
use crate::stack::Stack;
use crate::sysctl;

/// Why the device could not be told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot let 127.0.0.1 reach {address}: {why}")]
pub struct LocalnetError {
    pub address: Ipv4Addr,
    pub why: NetlinkError,
}

/// Sets `route_localnet` of the device by which packets to an address leave; nothing if there is no way to it.
pub fn let_localhost_reach(address: Ipv4Addr) -> Result<(), LocalnetError> {
    let failed = |why| LocalnetError { address, why };
    let mut stack = Stack::open().map_err(failed)?;
    let Ok(Some(index)) = stack.socket.ask(way_to(address), outgoing) else { return Ok(()) };
    let Some(device) = stack.device_at(index).map_err(failed)? else { return Ok(()) };
    let setting = format!("net/ipv4/conf/{}/route_localnet", device.name);
    if sysctl::is(&setting, "1") { Ok(()) } else { sysctl::set(&setting, "1").map_err(failed) }
}

fn way_to(address: Ipv4Addr) -> Outbox {
    Outbox::of(RTM_GETROUTE, 0, |message| {
        message.header(&[AF_INET, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        message.ip(RTA_DST, address.into());
    })
}

fn outgoing(message: &Received) -> Option<u32> {
    message.split::<12>()?.1.get(RTA_OIF).and_then(number)
}
