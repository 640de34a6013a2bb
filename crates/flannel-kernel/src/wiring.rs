//! Addresses and routes of one device, made in one batch, for the inside of a pod and for its router.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use ipnet::IpNet;

use crate::abi::{
    AF_INET, AF_INET6, IFA_ADDRESS, IFA_BROADCAST, IFA_F_DADFAILED, IFA_F_NODAD, IFA_F_TENTATIVE, IFA_FLAGS,
    IFA_LOCAL, IFF_UP, IFLA_AF_SPEC, IFLA_INET_CONF, IPV4_DEVCONF_ARP_NOTIFY, NLM_F_CREATE, NLM_F_EXCL,
    RT_SCOPE_UNIVERSE, RT_TABLE_MAIN, RTA_DST, RTA_GATEWAY, RTA_METRICS, RTA_OIF, RTA_PRIORITY, RTA_TABLE,
    RTAX_ADVMSS, RTAX_MTU, RTM_DELADDR, RTM_GETADDR, RTM_NEWADDR, RTM_NEWLINK, RTM_NEWROUTE, RTN_UNICAST,
    RTNLGRP_IPV6_IFADDR, RTPROT_BOOT,
};
use crate::netlink::{NetlinkError, Outbox, Received, ip, number};
use crate::stack::{Stack, Wish};
use crate::{batch, link};

/// Whether the kernel asks the wire for a double before it uses an IPv6 address, which takes a second or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoubleCheck {
    /// It asks.
    Asked,
    /// It does not.
    Skipped,
}

/// A route of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodRoute {
    /// Where it leads.
    pub destination: IpNet,
    /// The next router; none if everything is on the wire.
    pub via: Option<IpAddr>,
    /// The metric; 0 is the kernel's choice.
    pub metric: u32,
    /// The table; none is the main one.
    pub table: Option<u32>,
    /// How far it leads; none is everywhere.
    pub scope: Option<u8>,
    /// The MTU of the way; 0 is not said.
    pub mtu: u32,
    /// The segment size of the way; 0 is not said.
    pub advmss: u32,
}

impl fmt::Display for PodRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.destination)?;
        self.via.map_or(Ok(()), |via| write!(f, " via {via}"))
    }
}

/// What a device inside a pod gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wiring {
    /// The device's number.
    pub device: u32,
    /// Its addresses.
    pub addresses: Vec<IpNet>,
    /// The routes through it.
    pub routes: Vec<PodRoute>,
    /// Whether its IPv6 addresses are checked.
    pub double_check: DoubleCheck,
}

/// What of a [`Wiring`] was refused, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WiringError {
    /// Not a single request could be made.
    #[error("cannot speak to the kernel: {0}")]
    Unheard(NetlinkError),
    /// An address.
    #[error("failed to add IP addr {0}: {1}")]
    Address(IpNet, NetlinkError),
    /// To switch the device on.
    #[error("failed to set the device up: {0}")]
    Raise(NetlinkError),
    /// A route.
    #[error("failed to add route '{0}': {1}")]
    Route(PodRoute, NetlinkError),
}

/// An address of a device, as found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceAddress {
    /// The address and the length of its network.
    pub address: IpNet,
    /// What is known about a double of it on the wire.
    pub doubt: Doubt,
}

/// What is known about a double of an address on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// There is none, or nobody asked.
    None,
    /// The wire is being asked.
    Asking,
    /// There is one: the address is not used.
    Double,
}

impl Stack {
    /// Gives a device its addresses, switches it on and makes its routes; the first refusal is told.
    ///
    /// Addresses come before the switch: the kernel announces those that are there when the device goes on, if it
    /// is told to. They may have been another pod's a moment ago.
    pub fn wire(&mut self, wiring: &Wiring) -> Result<(), WiringError> {
        let mut outbox = Outbox::default();
        if !wiring.addresses.is_empty() {
            write_announce(&mut outbox, wiring.device);
        }
        let before = outbox.len();
        for address in &wiring.addresses {
            write_address(&mut outbox, wiring.device, *address, wiring.double_check);
        }
        outbox.add(RTM_NEWLINK, 0, |message| message.header(&link::header(wiring.device, IFF_UP, IFF_UP)));
        for route in &wiring.routes {
            write_route(&mut outbox, wiring.device, route);
        }
        let refused = batch::send(&mut self.socket, &mut outbox).map_err(WiringError::Unheard)?;
        // A pod without announcements still works.
        let mut refused =
            refused.into_iter().filter_map(|one| Some((one.place.checked_sub(before)?, one.why)));
        let Some((place, why)) = refused.next() else { return Ok(()) };
        let addresses = &wiring.addresses;
        Err(match (addresses.get(place), place.checked_sub(addresses.len() + 1)) {
            (Some(address), _) => WiringError::Address(*address, why),
            (None, None) => WiringError::Raise(why),
            (None, Some(place)) => match wiring.routes.get(place) {
                Some(route) => WiringError::Route(*route, why),
                None => WiringError::Unheard(why),
            },
        })
    }

    /// The addresses of a device, IPv4 first.
    pub fn addresses(&mut self, device: u32) -> Result<Vec<DeviceAddress>, NetlinkError> {
        let mut found = Vec::new();
        for family in [AF_INET, AF_INET6] {
            let [a, b, c, d] = device.to_ne_bytes();
            let request =
                || Outbox::of(RTM_GETADDR, 0, |message| message.header(&[family, 0, 0, 0, a, b, c, d]));
            // Without IPv6 in the kernel the question is answered with the addresses of another family; an old
            // kernel ignores the device and tells about all.
            self.socket.dump(request, &mut found, |message| {
                read_address(message, device).filter(|_| message.payload.first() == Some(&family))
            })?;
        }
        Ok(found)
    }

    /// Gives a device an address.
    pub fn add_address(
        &mut self,
        device: u32,
        address: IpNet,
        double_check: DoubleCheck,
    ) -> Result<(), NetlinkError> {
        let mut outbox = Outbox::default();
        write_address(&mut outbox, device, address, double_check);
        self.socket.request(outbox)
    }

    /// Takes an address from a device.
    pub fn remove_address(&mut self, device: u32, address: IpNet) -> Result<(), NetlinkError> {
        self.socket.request(Outbox::of(RTM_DELADDR, 0, |message| {
            message.header(&address_header(address, device));
            message.ip(IFA_LOCAL, address.addr());
        }))
    }

    /// Waits until no address of a device is in doubt any more, at most for so long, and gives those that are.
    ///
    /// To be called in the namespace of the device.
    pub fn wait_for_addresses(
        &mut self,
        device: u32,
        limit: Duration,
    ) -> Result<Vec<DeviceAddress>, NetlinkError> {
        self.wait_for(RTNLGRP_IPV6_IFADDR, limit, |stack| {
            let mut found = stack.addresses(device)?;
            found.retain(|found| found.doubt != Doubt::None);
            let is_decided = found.iter().all(|found| found.doubt == Doubt::Double);
            Ok(if is_decided { Wish::Granted(found) } else { Wish::Pending(found) })
        })
    }
}

/// Sets `arp_notify` of a device: the file below `/proc/sys` costs five times as much.
fn write_announce(outbox: &mut Outbox, device: u32) {
    outbox.add(RTM_NEWLINK, 0, |message| {
        message.header(&link::header(device, 0, 0));
        message.nest(IFLA_AF_SPEC, |families| {
            families.nest(AF_INET.into(), |inet| {
                inet.nest(IFLA_INET_CONF, |settings| settings.number(IPV4_DEVCONF_ARP_NOTIFY, 1));
            });
        });
    });
}

fn write_address(outbox: &mut Outbox, device: u32, address: IpNet, double_check: DoubleCheck) {
    outbox.add(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, |message| {
        message.header(&address_header(address, device));
        message.ip(IFA_LOCAL, address.addr());
        message.ip(IFA_ADDRESS, address.addr());
        match broadcast(address) {
            Some(broadcast) => message.ip(IFA_BROADCAST, broadcast.into()),
            None if address.addr().is_ipv6() && double_check == DoubleCheck::Skipped => {
                message.number(IFA_FLAGS, IFA_F_NODAD);
            }
            None => {}
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

/// `struct ifaddrmsg`
fn address_header(address: IpNet, device: u32) -> [u8; 8] {
    let [a, b, c, d] = device.to_ne_bytes();
    [family_of(address), address.prefix_len(), 0, RT_SCOPE_UNIVERSE, a, b, c, d]
}

fn family_of(address: IpNet) -> u8 {
    if address.addr().is_ipv4() { AF_INET } else { AF_INET6 }
}

/// Neither exclusive nor replacing: a second route to the same destination is another way there.
fn write_route(outbox: &mut Outbox, device: u32, route: &PodRoute) {
    outbox.add(RTM_NEWROUTE, NLM_F_CREATE, |message| {
        let (family, length) = (family_of(route.destination), route.destination.prefix_len());
        let scope = route.scope.unwrap_or(RT_SCOPE_UNIVERSE);
        // Tables from 256 on do not fit here, and are said below.
        let table = route.table.map_or(RT_TABLE_MAIN, |table| u8::try_from(table).unwrap_or(0));
        message.header(&[family, length, 0, 0, table, RTPROT_BOOT, scope, RTN_UNICAST, 0, 0, 0, 0]);
        message.ip(RTA_DST, route.destination.network());
        if let Some(via) = route.via {
            message.ip(RTA_GATEWAY, via);
        }
        message.number(RTA_OIF, device);
        if route.metric != 0 {
            message.number(RTA_PRIORITY, route.metric);
        }
        if let Some(table) = route.table {
            message.number(RTA_TABLE, table);
        }
        if route.mtu != 0 || route.advmss != 0 {
            message.nest(RTA_METRICS, |metrics| {
                for (kind, value) in [(RTAX_MTU, route.mtu), (RTAX_ADVMSS, route.advmss)] {
                    if value != 0 {
                        metrics.number(kind, value);
                    }
                }
            });
        }
    });
}

fn read_address(message: &Received, device: u32) -> Option<DeviceAddress> {
    let (header, attributes) = message.split::<8>()?;
    if number(&header[4..])? != device {
        return None;
    }
    let (mut local, mut other, mut flags) = (None, None, u32::from(header[2]));
    for (kind, value) in attributes {
        match kind {
            IFA_LOCAL => local = ip(value),
            IFA_ADDRESS => other = ip(value),
            IFA_FLAGS => flags = number(value)?,
            _ => {}
        }
    }
    let doubt = match (flags & IFA_F_DADFAILED != 0, flags & IFA_F_TENTATIVE != 0) {
        (true, _) => Doubt::Double,
        (false, true) => Doubt::Asking,
        (false, false) => Doubt::None,
    };
    Some(DeviceAddress { address: IpNet::new(local.or(other)?, header[1]).ok()?, doubt })
}
