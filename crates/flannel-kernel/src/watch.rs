//! Says "something of ours may have changed", and nothing more: a reason to look, never work to do.
//!
//! Takes the kernel's notices, drops those that cannot matter to this node, and gives the rest one by one.
//! Notices that were lost count as one about everything.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use flannel_plan::family::overlap;
use flannel_plan::link_name::LinkName;
use flannel_plan::state::{FdbEntry, Route, RouteKind};
use ipnet::IpNet;
use rustix::net::RecvFlags;

use crate::abi::{
    RTM_DELADDR, RTM_DELLINK, RTM_DELNEIGH, RTM_DELROUTE, RTM_NEWADDR, RTM_NEWLINK, RTM_NEWNEIGH,
    RTM_NEWROUTE, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV6_ROUTE,
    RTNLGRP_LINK, RTNLGRP_NEIGH,
};
use crate::link::Names;
use crate::netlink::{NetlinkError, NoticeSocket, Receipt, Received, Socket, messages};
use crate::{address, link, neighbour, route};

const GROUPS: [u32; 6] = [
    RTNLGRP_LINK,
    RTNLGRP_NEIGH,
    RTNLGRP_IPV4_IFADDR,
    RTNLGRP_IPV4_ROUTE,
    RTNLGRP_IPV6_IFADDR,
    RTNLGRP_IPV6_ROUTE,
];
/// What matters to this node. The loop changes it as it learns; a watch follows at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    pub links: Vec<LinkName>,
    /// The device below; while it is not chosen, every device matters.
    pub underlay: Option<LinkName>,
    /// Devices of others that stand in the way of a peer: routes of IPv4 that go with them are not told.
    pub obstacles: Vec<LinkName>,
    pub networks: Vec<IpNet>,
    /// The port ids of sockets whose changes are our own.
    pub own_ports: Vec<u32>,
    /// What we did to forwarding entries lately: the kernel's notices of those name no port.
    pub own_entries: Vec<OwnEntry>,
}

/// A forwarding entry that we changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnEntry {
    /// The entry, as it is or was.
    pub entry: FdbEntry,
    /// Whether we made it rather than removed it.
    pub is_there: bool,
}

/// What may have changed: for a log, not to act upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    Everything,
    Link(LinkName),
    Address(LinkName),
    Route(IpNet),
    Neighbour(LinkName),
    Fdb(LinkName),
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => f.write_str("notices were lost"),
            Self::Link(link) => write!(f, "link {link}"),
            Self::Address(link) => write!(f, "address on {link}"),
            Self::Route(destination) => write!(f, "route {destination}"),
            Self::Neighbour(link) => write!(f, "neighbour on {link}"),
            Self::Fdb(link) => write!(f, "forwarding entry of {link}"),
        }
    }
}

/// Why the kernel's notices cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot watch the kernel's notices: {0}")]
pub struct WatchError(#[from] NetlinkError);

/// A listener to the kernel's notices, in one network namespace.
pub struct Watch {
    socket: NoticeSocket,
    names: Names,
    /// For the names of all devices, when notices were lost.
    asking: Socket,
    interest: Arc<RwLock<Interest>>,
}

impl Watch {
    /// Starts to listen, in the namespace of this thread; what happens from now on is told.
    pub fn open(interest: Arc<RwLock<Interest>>) -> Result<Self, WatchError> {
        let socket = NoticeSocket::open(None, &GROUPS)?;
        let mut asking = Socket::open()?;
        let names = link::names_of(&link::dump(&mut asking)?);
        Ok(Self { socket, names, asking, interest })
    }

    /// Keeps at most so many bytes of notices that were not read yet.
    pub fn keep_at_most(&self, bytes: usize) -> Result<(), WatchError> {
        Ok(self.socket.keep_at_most(bytes)?)
    }

    /// Waits until something that matters may have changed.
    pub fn wait(&mut self) -> Result<Notice, WatchError> {
        loop {
            if let Some(notice) = self.read_once(RecvFlags::empty())? {
                return Ok(notice);
            }
        }
    }

    /// The same with a limit; none if nothing happened.
    pub fn wait_at_most(&mut self, limit: Duration) -> Result<Option<Notice>, WatchError> {
        let end = Instant::now() + limit;
        while self.socket.wait_until(end)? {
            if let Some(notice) = self.read_once(RecvFlags::DONTWAIT)? {
                return Ok(Some(notice));
            }
        }
        Ok(None)
    }

    /// Reads what came with one notice of the kernel, and says whether it matters.
    fn read_once(&mut self, flags: RecvFlags) -> Result<Option<Notice>, WatchError> {
        let bytes = match self.socket.receive(flags)? {
            Receipt::Nothing => return Ok(None),
            Receipt::Lost => return self.start_over().map(Some),
            Receipt::Notices(bytes) => bytes,
        };
        let interest = self.interest.read().unwrap_or_else(PoisonError::into_inner);
        let mut first = None;
        for message in messages(bytes) {
            let notice = notice(&message, &mut self.names, &interest);
            first = first.or(notice.filter(|_| !interest.own_ports.contains(&message.port)));
        }
        Ok(first)
    }

    /// Notices were lost, perhaps one about a new device.
    fn start_over(&mut self) -> Result<Notice, WatchError> {
        self.names = link::names_of(&link::dump(&mut self.asking)?);
        Ok(Notice::Everything)
    }
}

impl Interest {
    fn is_ours(&self, link: LinkName) -> bool {
        self.links.contains(&link)
    }

    fn includes(&self, link: LinkName) -> bool {
        self.is_ours(link)
            || self.underlay.is_none_or(|underlay| underlay == link)
            || self.obstacles.contains(&link)
    }

    fn includes_route(&self, route: &Route) -> bool {
        let to = route.destination;
        // A route of several ways may lead through any device.
        let by_link = route.link.map_or(route.kind == RouteKind::Multipath, |link| self.includes(link));
        !route::is_local_business(to)
            && (by_link || to.prefix_len() == 0 || self.networks.iter().any(|network| overlap(*network, to)))
    }
}

/// What a message says about something that matters; names of devices are learned on the way.
fn notice(message: &Received, names: &mut Names, interest: &Interest) -> Option<Notice> {
    match message.kind {
        RTM_NEWLINK | RTM_DELLINK => {
            let (index, name) = link::read_name(message)?;
            let before = match message.kind {
                RTM_NEWLINK => names.insert(index, name),
                _ => names.remove(&index),
            };
            before.into_iter().chain([name]).find(|name| interest.includes(*name)).map(Notice::Link)
        }
        RTM_NEWADDR | RTM_DELADDR => {
            let link = *names.get(&address::read_mention(message)?)?;
            interest.includes(link).then_some(Notice::Address(link))
        }
        RTM_NEWROUTE | RTM_DELROUTE => {
            let route = route::read(message, names)?.route;
            interest.includes_route(&route).then_some(Notice::Route(route.destination))
        }
        RTM_NEWNEIGH | RTM_DELNEIGH => notice_of_entry(message, names, interest),
        _ => None,
    }
}

fn notice_of_entry(message: &Received, names: &Names, interest: &Interest) -> Option<Notice> {
    let mention = neighbour::read_mention(message)?;
    let link = *names.get(&mention.link).filter(|link| interest.is_ours(**link))?;
    if mention.fdb {
        let matters = mention.permanent && !is_own_entry(message, (mention.link, link), interest);
        return matters.then_some(Notice::Fdb(link));
    }
    // What a person or program did has a port, a removal too: the neighbour first fails, in their name. What the
    // kernel does by itself has none: ageing, which would wake us all the time, and the end of a removed entry.
    let matters = mention.permanent || message.port != 0;
    matters.then_some(Notice::Neighbour(link))
}

/// Whether a notice says of a forwarding entry just what we did to it.
fn is_own_entry(message: &Received, device: (u32, LinkName), interest: &Interest) -> bool {
    let is_there = message.kind == RTM_NEWNEIGH;
    let said = || neighbour::read_fdb(message, device).map(|entry| OwnEntry { entry, is_there });
    !interest.own_entries.is_empty() && said().is_some_and(|said| interest.own_entries.contains(&said))
}
