//! Routes of the main table: dump, create, remove.

use std::net::IpAddr;

use flannel_plan::observation::RouteFact;
use flannel_plan::state::{Route, RouteKind};
use ipnet::IpNet;
use rustix::io::Errno;

use crate::abi::{
    AF_INET, AF_INET6, IP6_RT_PRIO_USER, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, RT_SCOPE_LINK,
    RT_SCOPE_NOWHERE, RT_SCOPE_UNIVERSE, RT_TABLE_MAIN, RTA_DST, RTA_ENCAP_TYPE, RTA_GATEWAY, RTA_MULTIPATH,
    RTA_OIF, RTA_PREFSRC, RTA_PRIORITY, RTA_TABLE, RTA_VIA, RTM_DELROUTE, RTM_F_CLONED, RTM_GETROUTE,
    RTM_NEWROUTE, RTN_BLACKHOLE, RTN_LOCAL, RTN_MULTICAST, RTN_PROHIBIT, RTN_UNICAST, RTNH_F_ONLINK,
};
use crate::link::Names;
use crate::netlink::{NetlinkError, Outbox, Received, Socket, Writer, family_of, ip, number};

/// All routes of the main table, IPv4 first; `expected` is how many there may be.
pub(crate) fn dump(
    socket: &mut Socket,
    names: &Names,
    expected: usize,
) -> Result<Vec<RouteFact>, NetlinkError> {
    let mut facts = Vec::with_capacity(expected);
    for family in [AF_INET, AF_INET6] {
        let request = || {
            Outbox::of(RTM_GETROUTE, 0, |message| {
                message.header(&[family, 0, 0, 0, RT_TABLE_MAIN, 0, 0, 0, 0, 0, 0, 0]);
            })
        };
        match socket.dump(request, &mut facts, |message| read_fact(message, names, family)) {
            // A namespace without a single route has no table yet.
            Err(why) if why.is(Errno::NOENT) => {}
            outcome => outcome?,
        }
    }
    Ok(facts)
}

/// Writes the request that makes a route, in place of whatever has its destination and no metric.
pub(crate) fn create(outbox: &mut Outbox, route: &Route, link: Option<u32>) {
    write_create(outbox, route, link, NLM_F_REPLACE);
}

/// Whether a route that failed may be made with [`create_by_a_stepping_stone`].
pub(crate) fn needs_a_stepping_stone(route: &Route, why: &NetlinkError) -> bool {
    why.is(Errno::INVAL) && route.onlink && route.destination.addr().is_ipv6()
}

/// Makes an IPv6 route whose router lies, for the kernel, behind another device.
///
/// Only when a route is made, the kernel looks its router up, and refuses if the answer is another device. A
/// wider route of somebody else has that effect, and so has the very route that is to be replaced. So the router
/// gets a route of its own for that moment.
pub(crate) fn create_by_a_stepping_stone(
    socket: &mut Socket,
    route: &Route,
    link: u32,
) -> Result<(), NetlinkError> {
    let via = route.via.ok_or(Errno::INVAL)?;
    let stone = Route { destination: via.into(), via: None, onlink: false, ..*route };
    let mut requests: [Outbox; 3] = Default::default();
    write_create(&mut requests[0], &stone, Some(link), NLM_F_EXCL);
    create(&mut requests[1], route, Some(link));
    remove(&mut requests[2], &stone, Some(link));
    let [add_stone, create, remove_stone] = requests;
    socket.request(add_stone)?;
    let created = socket.request(create);
    let removed = socket.request(remove_stone);
    created.and(removed)
}

fn write_create(outbox: &mut Outbox, route: &Route, link: Option<u32>, flag: u16) {
    outbox.add(RTM_NEWROUTE, NLM_F_CREATE | flag, |message| {
        let is_connected = route.via.is_none() && route.kind == RouteKind::Unicast;
        let scope = if is_connected { RT_SCOPE_LINK } else { RT_SCOPE_UNIVERSE };
        let flags = if route.onlink { RTNH_F_ONLINK } else { 0 };
        write(message, route, link, (scope, flags));
    });
}

/// Writes the request that removes exactly this route: one with another gateway, device or maker stays.
pub(crate) fn remove(outbox: &mut Outbox, route: &Route, link: Option<u32>) {
    outbox.add(RTM_DELROUTE, 0, |message| {
        write(message, route, link, (RT_SCOPE_NOWHERE, 0));
        if route.destination.addr().is_ipv6() {
            message.number(RTA_PRIORITY, IP6_RT_PRIO_USER);
        }
    });
}

fn write(message: &mut Writer, route: &Route, link: Option<u32>, (scope, flags): (u8, u32)) {
    let family = family_of(route.destination.addr());
    let kind = if route.kind == RouteKind::Blackhole { RTN_BLACKHOLE } else { RTN_UNICAST };
    let length = route.destination.prefix_len();
    let [a, b, c, d] = flags.to_ne_bytes();
    message.header(&[family, length, 0, 0, RT_TABLE_MAIN, route.protocol, scope, kind, a, b, c, d]);
    message.ip(RTA_DST, route.destination.network());
    match route.via {
        Some(via) if family_of(via) == family => message.ip(RTA_GATEWAY, via),
        Some(IpAddr::V6(via)) => {
            let family = u16::from(AF_INET6).to_ne_bytes();
            message.attribute(RTA_VIA, &[&family[..], &via.octets()].concat());
        }
        _ => {}
    }
    if let Some(link) = link {
        message.number(RTA_OIF, link);
    }
}

/// Reads a message about a route of the main table that leads packets on, or drops them.
pub(crate) fn read(message: &Received, names: &Names) -> Option<RouteFact> {
    let (header, attributes) = message.split::<12>()?;
    let [family, length, _, tos, table, protocol, _, kind, ..] = *header;
    let flags = number(&header[8..])?;
    if tos != 0 || flags & RTM_F_CLONED != 0 || (RTN_LOCAL..=RTN_MULTICAST).contains(&kind) {
        return None;
    }
    let (destination, onlink) = (IpNet::new(unspecified(family)?, length).ok()?, flags & RTNH_F_ONLINK != 0);
    let mut route = Route { destination, kind: kind_of(kind), via: None, link: None, onlink, protocol };
    let (mut table, mut metric, mut source) = (u32::from(table), 0, None);
    for (kind, value) in attributes {
        match kind {
            RTA_DST => route.destination = IpNet::new(ip(value)?, length).ok()?,
            RTA_TABLE => table = number(value)?,
            RTA_OIF => route.link = number(value).and_then(|index| names.get(&index).copied()),
            RTA_GATEWAY => route.via = ip(value),
            RTA_VIA => route.via = value.get(2..).and_then(ip),
            RTA_PRIORITY => metric = number(value).unwrap_or_default(),
            RTA_PREFSRC => source = ip(value),
            RTA_MULTIPATH if route.kind == RouteKind::Unicast => route.kind = RouteKind::Multipath,
            RTA_ENCAP_TYPE => route.kind = RouteKind::Other,
            _ => {}
        }
    }
    // What the kernel adds by itself: a metric, and `lo` to a blackhole, both of IPv6.
    metric = if family == AF_INET6 && metric == IP6_RT_PRIO_USER { 0 } else { metric };
    route.link = route.link.filter(|_| route.kind != RouteKind::Blackhole);
    (table == u32::from(RT_TABLE_MAIN)).then_some(RouteFact { route, metric, source })
}

fn unspecified(family: u8) -> Option<IpAddr> {
    match family {
        AF_INET => Some(std::net::Ipv4Addr::UNSPECIFIED.into()),
        AF_INET6 => Some(std::net::Ipv6Addr::UNSPECIFIED.into()),
        _ => None,
    }
}

fn kind_of(kind: u8) -> RouteKind {
    match kind {
        RTN_UNICAST => RouteKind::Unicast,
        RTN_BLACKHOLE..=RTN_PROHIBIT => RouteKind::Blackhole,
        _ => RouteKind::Other,
    }
}

/// The same of a dump for one family: without IPv6 in the kernel the question is answered with the routes of another.
pub(crate) fn read_fact(message: &Received, names: &Names, family: u8) -> Option<RouteFact> {
    let fact = read(message, names).filter(|_| message.payload.first() == Some(&family))?;
    (!is_local_business(fact.route.destination)).then_some(fact)
}

/// Every IPv6 device has routes for its own wire and for multicast.
pub(crate) fn is_local_business(destination: IpNet) -> bool {
    match destination.addr() {
        IpAddr::V4(_) => false,
        IpAddr::V6(address) => address.is_unicast_link_local() || address.is_multicast(),
    }
}
