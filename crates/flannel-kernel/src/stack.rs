//! The network stack of one namespace as a CNI plugin sees it: one device at a time, found, changed, removed.
//!
//! Takes numbers and names of devices and gives [`Device`]s; one netlink socket serves all questions. It stays
//! in the namespace of the thread that opened it. The daemon looks at everything instead, by [`crate::Linux`].

use std::fmt;
use std::net::IpAddr;
use std::ops::ControlFlow::{self, Break, Continue};
use std::time::{Duration, Instant};

use flannel_plan::link_name::LinkName;
use flannel_plan::mac::Mac;

use crate::abi::{
    IFF_PROMISC, IFF_UP, IFLA_ADDRESS, IFLA_BR_VLAN_DEFAULT_PVID, IFLA_IFNAME, IFLA_INFO_DATA,
    IFLA_INFO_KIND, IFLA_LINK, IFLA_LINKINFO, IFLA_MASTER, IFLA_MTU, IFLA_OPERSTATE, NDA_DST, NUD_PERMANENT,
    RTM_GETNEIGH, RTM_NEWLINK, RTM_NEWNEIGH, RTNLGRP_LINK,
};
use crate::link::{self, header, question, text};
use crate::netlink::{Attributes, NetlinkError, NoticeSocket, Outbox, Received, Socket, Writer, ip, number};

/// A neighbour that has answered: reachable, stale, about to be asked again, or set by hand. One that was only
/// asked for may not be there.
const NUD_ANSWERED: u16 = 0x02 | 0x04 | 0x08 | 0x10 | NUD_PERMANENT;

/// A device, as found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    pub index: u32,
    pub name: LinkName,
    /// Its hardware address; all zero if it has none.
    pub mac: Mac,
    pub mtu: u32,
    pub up: bool,
    /// Whether it takes frames for others, too.
    pub promiscuous: bool,
    /// What it is, such as `veth`; empty for a plain network card.
    pub kind: Box<str>,
    /// The number of the bridge that it is a port of.
    pub master: Option<u32>,
    /// The number of the other end of a veth pair, in the namespace of that end.
    pub peer: Option<u32>,
    pub state: OperState,
    /// Of a bridge that knows VLANs: the one that every new port gets.
    pub default_vlan: Option<u16>,
}

/// Whether a device can carry packets, in the kernel's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperState(u8);

impl OperState {
    /// Packets can flow.
    pub const UP: Self = Self(6);
}

impl fmt::Display for OperState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = ["unknown", "not-present", "down", "lower-layer-down", "testing", "dormant", "up"];
        f.write_str(words.get(usize::from(self.0)).copied().unwrap_or("unknown"))
    }
}

/// A way to the network stack of one namespace.
pub struct Stack {
    pub(crate) socket: Socket,
}

impl Stack {
    /// Opens a way to the stack of this thread's namespace.
    pub fn open() -> Result<Self, NetlinkError> {
        Ok(Self { socket: Socket::open()? })
    }

    /// The device of a name.
    pub fn device(&mut self, name: LinkName) -> Result<Option<Device>, NetlinkError> {
        let question = question(0, |message| message.text(IFLA_IFNAME, name.as_str()));
        link::ask(&mut self.socket, question, read)
    }

    /// The device of a number.
    pub fn device_at(&mut self, index: u32) -> Result<Option<Device>, NetlinkError> {
        link::ask(&mut self.socket, question(index, |_| ()), read)
    }

    /// The ports of a bridge.
    pub fn ports(&mut self, bridge: u32) -> Result<Vec<Device>, NetlinkError> {
        let request = || question(0, |message| message.number(IFLA_MASTER, bridge));
        let mut found = Vec::new();
        // An old kernel ignores IFLA_MASTER and tells all devices.
        self.socket.dump(request, &mut found, |message| {
            read(message).filter(|device| device.master == Some(bridge))
        })?;
        Ok(found)
    }

    /// The addresses of the neighbours on all devices that were there when they were last heard of.
    pub fn neighbours(&mut self) -> Result<Vec<IpAddr>, NetlinkError> {
        let mut found = Vec::new();
        // `struct ndmsg` for every family and device
        let request = || Outbox::of(RTM_GETNEIGH, 0, |message| message.header(&[0; 12]));
        self.socket.dump(request, &mut found, read_neighbour)?;
        Ok(found)
    }

    /// Switches a device on.
    pub fn raise(&mut self, index: u32) -> Result<(), NetlinkError> {
        self.change(&header(index, IFF_UP, IFF_UP), |_| ())
    }

    /// Switches a device off.
    pub fn lower(&mut self, index: u32) -> Result<(), NetlinkError> {
        self.change(&header(index, 0, IFF_UP), |_| ())
    }

    /// Lets a device take frames for others, too.
    pub fn make_promiscuous(&mut self, index: u32) -> Result<(), NetlinkError> {
        self.change(&header(index, IFF_PROMISC, IFF_PROMISC), |_| ())
    }

    /// Gives a device a hardware address. A bridge that was given one keeps it when ports come and go, also if
    /// it is the one that it has.
    pub fn set_mac(&mut self, index: u32, mac: Mac) -> Result<(), NetlinkError> {
        self.change(&header(index, 0, 0), |message| message.attribute(IFLA_ADDRESS, &mac.0))
    }

    pub(crate) fn change(
        &mut self,
        header: &[u8; 16],
        write: impl FnOnce(&mut Writer),
    ) -> Result<(), NetlinkError> {
        link::set(&mut self.socket, header, write)
    }

    /// Removes a device; with one end of a veth pair the other goes, too. One that is gone is no failure.
    pub fn remove(&mut self, index: u32) -> Result<(), NetlinkError> {
        link::remove(&mut self.socket, index)
    }

    /// Waits until a device can carry packets, and gives it as it is then, or as it is at the end of the limit.
    pub fn wait_for_up(&mut self, index: u32, limit: Duration) -> Result<Option<Device>, NetlinkError> {
        self.wait_for(RTNLGRP_LINK, limit, |stack| {
            let device = stack.device_at(index)?;
            let waits = device.as_ref().is_some_and(|device| device.state != OperState::UP);
            Ok(if waits { Continue(device) } else { Break(device) })
        })
    }

    /// Waits until a device is gone, at most for so long. The one who removes it waits much longer: the kernel
    /// cleans up behind it. To be called in the namespace of the device.
    pub fn wait_for_absence(&mut self, index: u32, limit: Duration) -> Result<(), NetlinkError> {
        self.wait_for(RTNLGRP_LINK, limit, |stack| {
            Ok(if stack.device_at(index)?.is_some() { Continue(()) } else { Break(()) })
        })
    }

    /// Asks until the answer is to be waited for no longer, again after every notice of a group, at most for so long;
    /// the last answer. Most are right the first time, which needs no socket for notices.
    pub(crate) fn wait_for<T>(
        &mut self,
        group: u32,
        limit: Duration,
        observe: impl Fn(&mut Self) -> Result<ControlFlow<T, T>, NetlinkError>,
    ) -> Result<T, NetlinkError> {
        if let Break(found) = observe(self)? {
            return Ok(found);
        }
        let end = Instant::now() + limit;
        let mut notices = NoticeSocket::open(None, &[group])?;
        loop {
            match observe(self)? {
                Break(found) => return Ok(found),
                Continue(last) if Instant::now() >= end => return Ok(last),
                Continue(_) => {
                    notices.wait_until(end)?;
                    notices.discard();
                }
            }
        }
    }
}

fn read_neighbour(message: &Received) -> Option<IpAddr> {
    let (header, attributes) = message.split::<12>()?;
    let has_answered = u16::from_ne_bytes([header[8], header[9]]) & NUD_ANSWERED != 0;
    attributes.get(NDA_DST).and_then(ip).filter(|_| message.kind == RTM_NEWNEIGH && has_answered)
}

pub(crate) fn read(message: &Received) -> Option<Device> {
    if message.kind != RTM_NEWLINK {
        return None;
    }
    let (header, attributes) = message.split::<16>()?;
    let flags = number(&header[8..])?;
    let mut name = None;
    let mut device = Device {
        index: number(&header[4..])?,
        name: "none".parse().ok()?,
        mac: Mac([0; 6]),
        mtu: 0,
        up: flags & IFF_UP != 0,
        promiscuous: flags & IFF_PROMISC != 0,
        kind: "".into(),
        master: None,
        peer: None,
        state: OperState(0),
        default_vlan: None,
    };
    for (kind, value) in attributes {
        match kind {
            IFLA_IFNAME => name = text(value).parse().ok(),
            IFLA_ADDRESS => device.mac = value.try_into().map_or(device.mac, Mac),
            IFLA_MTU => device.mtu = number(value)?,
            IFLA_MASTER => device.master = number(value),
            IFLA_LINK => device.peer = number(value),
            IFLA_OPERSTATE => device.state = OperState(*value.first()?),
            IFLA_LINKINFO => read_info(&mut device, Attributes(value)),
            _ => {}
        }
    }
    device.name = name?;
    Some(device)
}

fn read_info(device: &mut Device, info: Attributes) {
    for (kind, value) in info {
        match kind {
            IFLA_INFO_KIND => device.kind = text(value).into(),
            IFLA_INFO_DATA if &*device.kind == "bridge" => {
                let vlan =
                    Attributes(value).get(IFLA_BR_VLAN_DEFAULT_PVID).and_then(|vlan| vlan.first_chunk());
                device.default_vlan = vlan.map(|vlan| u16::from_ne_bytes(*vlan)).filter(|vlan| *vlan != 0);
            }
            _ => {}
        }
    }
}
