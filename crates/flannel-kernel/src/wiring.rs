//! Addresses and routes of one device, made in one batch, for the inside of a pod and for its router.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::abi::{
    AF_INET, IFF_UP, IFLA_AF_SPEC, IFLA_INET_CONF, IPV4_DEVCONF_ARP_NOTIFY, NLM_F_CREATE, RT_SCOPE_UNIVERSE,
    RT_TABLE_MAIN, RTA_DST, RTA_GATEWAY, RTA_METRICS, RTA_OIF, RTA_PRIORITY, RTA_TABLE, RTAX_ADVMSS,
    RTAX_MTU, RTM_NEWLINK, RTM_NEWROUTE, RTN_UNICAST, RTPROT_BOOT,
};
use crate::address::{self, Dad};
use crate::netlink::{NetlinkError, Outbox, family_of};
use crate::stack::Stack;
use crate::{batch, link};

/// A route of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodRoute {
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
    pub device: u32,
    pub addresses: Vec<IpNet>,
    pub routes: Vec<PodRoute>,
    pub dad: Dad,
}

/// What of a [`Wiring`] failed, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WiringError {
    #[error("cannot speak to the kernel: {0}")]
    Unheard(NetlinkError),
    #[error("failed to add IP addr {0}: {1}")]
    Address(IpNet, NetlinkError),
    #[error("failed to set the device up: {0}")]
    Raise(NetlinkError),
    #[error("failed to add route '{0}': {1}")]
    Route(PodRoute, NetlinkError),
}

impl Stack {
    /// Gives a device its addresses, switches it on and makes its routes; the first error is told.
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
            address::add(&mut outbox, *address, wiring.device, wiring.dad);
        }
        outbox.add(RTM_NEWLINK, 0, |message| message.header(&link::header(wiring.device, IFF_UP, IFF_UP)));
        for route in &wiring.routes {
            write_route(&mut outbox, wiring.device, route);
        }
        let failed = batch::send(&mut self.socket, &mut outbox).map_err(WiringError::Unheard)?;
        // A pod without announcements still works.
        let mut failed = failed.into_iter().filter_map(|one| Some((one.place.checked_sub(before)?, one.why)));
        let Some((place, why)) = failed.next() else { return Ok(()) };
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

/// Neither exclusive nor replacing: a second route to the same destination is another way there.
fn write_route(outbox: &mut Outbox, device: u32, route: &PodRoute) {
    outbox.add(RTM_NEWROUTE, NLM_F_CREATE, |message| {
        let (family, length) = (family_of(route.destination.addr()), route.destination.prefix_len());
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
