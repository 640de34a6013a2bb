//! Addresses of devices: dumped for all, and found, added and removed for the device of a pod or its router.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

use flannel_plan::observation::AddressFact;
use flannel_plan::state::Address;
use ipnet::IpNet;

use crate::abi::{
    AF_INET, AF_INET6, IFA_ADDRESS, IFA_BROADCAST, IFA_F_DADFAILED, IFA_F_DEPRECATED, IFA_F_NODAD,
    IFA_F_PERMANENT, IFA_F_TEMPORARY, IFA_F_TENTATIVE, IFA_FLAGS, IFA_LOCAL, NLM_F_CREATE, NLM_F_EXCL,
    NLM_F_REPLACE, RT_SCOPE_UNIVERSE, RTM_DELADDR, RTM_GETADDR, RTM_NEWADDR, RTNLGRP_IPV6_IFADDR,
};
use crate::link::Names;
use crate::netlink::{NetlinkError, Outbox, Received, Socket, family_of, ip, number};
use crate::stack::Stack;

/// Duplicate address detection: whether the kernel does it before it uses an IPv6 address, which takes a second or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dad {
    Enabled,
    Disabled,
}

/// How far duplicate address detection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DadState {
    /// It found no duplicate, or was not done.
    Done,
    Tentative,
    /// There is a duplicate: the address is not used.
    Failed,
}

/// An address of a device, as found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceAddress {
    /// The address and the length of its network.
    pub address: IpNet,
    pub dad: DadState,
}

/// All addresses of the namespace, IPv4 first.
pub(crate) fn dump(socket: &mut Socket, names: &Names) -> Result<Vec<AddressFact>, NetlinkError> {
    dump_of(socket, 0, |message| read(message, names))
}

/// The addresses of a device, or of all if it is 0.
fn dump_of<T>(
    socket: &mut Socket,
    device: u32,
    read: impl Fn(&Received) -> Option<T>,
) -> Result<Vec<T>, NetlinkError> {
    let mut found = Vec::new();
    for family in [AF_INET, AF_INET6] {
        let [a, b, c, d] = device.to_ne_bytes();
        let request = || Outbox::of(RTM_GETADDR, 0, |message| message.header(&[family, 0, 0, 0, a, b, c, d]));
        // Without IPv6 in the kernel the question is answered with the addresses of another family.
        socket.dump(request, &mut found, |message| {
            read(message).filter(|_| message.payload.first() == Some(&family))
        })?;
    }
    Ok(found)
}

pub(crate) fn create(outbox: &mut Outbox, address: &Address, link: u32) {
    // A subnet is leased to one node: looking for a duplicate behind the tunnel would only delay us.
    write(outbox, NLM_F_REPLACE, (address.address, link), Dad::Disabled);
}

/// Writes the request that gives an address to the device of a pod or its router.
pub(crate) fn add(outbox: &mut Outbox, address: IpNet, device: u32, dad: Dad) {
    write(outbox, NLM_F_EXCL, (address, device), dad);
}

fn write(outbox: &mut Outbox, flag: u16, (address, link): (IpNet, u32), dad: Dad) {
    outbox.add(RTM_NEWADDR, NLM_F_CREATE | flag, |message| {
        message.header(&header(address, link));
        message.ip(IFA_LOCAL, address.addr());
        message.ip(IFA_ADDRESS, address.addr());
        if let Some(broadcast) = broadcast(address) {
            message.ip(IFA_BROADCAST, broadcast.into());
        }
        if address.addr().is_ipv6() && dad == Dad::Disabled {
            message.number(IFA_FLAGS, IFA_F_NODAD);
        }
    });
}

/// Networks of one or two addresses have none, nor has IPv6.
fn broadcast(address: IpNet) -> Option<Ipv4Addr> {
    match address {
        IpNet::V4(address) if address.prefix_len() < 31 => Some(address.broadcast()),
        _ => None,
    }
}

pub(crate) fn remove(outbox: &mut Outbox, address: IpNet, link: u32) {
    outbox.add(RTM_DELADDR, 0, |message| {
        message.header(&header(address, link));
        message.ip(IFA_LOCAL, address.addr());
    });
}

/// `struct ifaddrmsg`
fn header(address: IpNet, link: u32) -> [u8; 8] {
    let [a, b, c, d] = link.to_ne_bytes();
    [family_of(address.addr()), address.prefix_len(), 0, RT_SCOPE_UNIVERSE, a, b, c, d]
}

impl Stack {
    /// The addresses of a device, IPv4 first.
    pub fn addresses(&mut self, device: u32) -> Result<Vec<DeviceAddress>, NetlinkError> {
        // An old kernel ignores the device and tells about all.
        dump_of(&mut self.socket, device, |message| {
            let (_, address, flags) = parse(message).filter(|(link, ..)| *link == device)?;
            let dad = match (flags & IFA_F_DADFAILED != 0, flags & IFA_F_TENTATIVE != 0) {
                (true, _) => DadState::Failed,
                (false, true) => DadState::Tentative,
                (false, false) => DadState::Done,
            };
            Some(DeviceAddress { address, dad })
        })
    }

    /// Gives a device an address.
    pub fn add_address(&mut self, device: u32, address: IpNet, dad: Dad) -> Result<(), NetlinkError> {
        let mut outbox = Outbox::default();
        add(&mut outbox, address, device, dad);
        self.socket.request(outbox)
    }

    /// Takes an address from a device.
    pub fn remove_address(&mut self, device: u32, address: IpNet) -> Result<(), NetlinkError> {
        let mut outbox = Outbox::default();
        remove(&mut outbox, address, device);
        self.socket.request(outbox)
    }

    /// Waits for the end of duplicate address detection on a device, at most for so long, and gives the addresses that
    /// cannot be used. To be called in the namespace of the device.
    pub fn wait_for_addresses(
        &mut self,
        device: u32,
        limit: Duration,
    ) -> Result<Vec<DeviceAddress>, NetlinkError> {
        self.wait_for(RTNLGRP_IPV6_IFADDR, limit, |stack| {
            let mut found = stack.addresses(device)?;
            found.retain(|found| found.dad != DadState::Done);
            let is_decided = found.iter().all(|found| found.dad == DadState::Failed);
            Ok(if is_decided { Break(found) } else { Continue(found) })
        })
    }
}

/// The number of the device that a message about an address is about, unless the address is of no use to us:
/// every device has a link-local one, which the kernel mentions several times until it is checked.
pub(crate) fn read_mention(message: &Received) -> Option<u32> {
    let (header, mut attributes) = message.split::<8>()?;
    let is_link_local = attributes.any(|(kind, value)| {
        kind == IFA_ADDRESS
            && matches!(ip(value), Some(IpAddr::V6(address)) if address.is_unicast_link_local())
    });
    if is_link_local { None } else { number(&header[4..]) }
}

pub(crate) fn read(message: &Received, names: &Names) -> Option<AddressFact> {
    let (link, address, flags) = parse(message)?;
    Some(AddressFact {
        link: *names.get(&link)?,
        address,
        permanent: flags & IFA_F_PERMANENT != 0,
        // The same bit of an IPv4 address only says that it is not the first of its network.
        temporary: address.addr().is_ipv6() && flags & IFA_F_TEMPORARY != 0,
        deprecated: flags & IFA_F_DEPRECATED != 0,
        unusable: flags & (IFA_F_TENTATIVE | IFA_F_DADFAILED) != 0,
    })
}

/// The number of the device, the address and its flags.
fn parse(message: &Received) -> Option<(u32, IpNet, u32)> {
    let (header, attributes) = message.split::<8>()?;
    let (mut local, mut other, mut flags) = (None, None, u32::from(header[2]));
    for (kind, value) in attributes {
        match kind {
            // Of a point-to-point pair ours is the local one.
            IFA_LOCAL => local = ip(value),
            IFA_ADDRESS => other = ip(value),
            IFA_FLAGS => flags = number(value)?,
            _ => {}
        }
    }
    Some((number(&header[4..])?, IpNet::new(local.or(other)?, header[1]).ok()?, flags))
}
