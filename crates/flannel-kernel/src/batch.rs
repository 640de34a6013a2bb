//! Sends requests in one batch and tells which of them failed.
//!
//! When the kernel could not deliver its answers, every request is made a second time. Then what the first time made
//! exists, and what it removed is absent: both are done, and no failure.

use rustix::io::Errno;

use crate::abi::{
    AF_INET, AF_INET6, IFA_ADDRESS, IFA_BROADCAST, IFA_F_NODAD, IFA_FLAGS, IFA_LOCAL, IP6_RT_PRIO_USER,
    NLM_F_REPLACE, RTA_DST, RTA_GATEWAY, RTA_METRICS, RTA_MULTIPATH, RTA_OIF, RTA_PREFSRC, RTA_PRIORITY,
    RTA_TABLE, RTM_DELADDR, RTM_DELLINK, RTM_DELNEIGH, RTM_DELROUTE, RTM_GETADDR, RTM_GETROUTE, RTM_NEWADDR,
    RTM_NEWROUTE,
};
use crate::netlink::{Attributes, FailedRequest, NetlinkError, Outbox, Received, Socket, messages, number};

/// Sends the requests and returns those that failed.
pub(crate) fn send(socket: &mut Socket, requests: &mut Outbox) -> Result<Vec<FailedRequest>, NetlinkError> {
    let mut failed = socket.send_batch(requests)?;
    failed.retain(|one| {
        let is_done = |request: Outbox| is_done(socket, &request, &one.why);
        !(one.repeated && requests.nth(one.place).is_some_and(is_done))
    });
    Ok(failed)
}

/// Whether a repeated request failed because nothing is left to do.
fn is_done(socket: &mut Socket, request: &Outbox, why: &NetlinkError) -> bool {
    let Some(asked) = messages(request.as_bytes()).next() else { return false };
    match asked.kind {
        RTM_DELLINK | RTM_DELADDR | RTM_DELROUTE | RTM_DELNEIGH => why.says_absent(),
        // To a request that replaces, this says that something else stands before what is wanted.
        _ if !why.is(Errno::EXIST) || asked.flags & NLM_F_REPLACE != 0 => false,
        RTM_NEWADDR => {
            exists(socket, &asked, (RTM_GETADDR, &[0; 7]), |told, asked| address(told) == address(asked))
        }
        RTM_NEWROUTE => exists(socket, &asked, (RTM_GETROUTE, &[0; 11]), is_same_route),
        _ => false,
    }
}

/// Whether the kernel has what is asked for; the question is a kind, and the fixed part without the family.
fn exists(
    socket: &mut Socket,
    asked: &Received,
    (kind, rest): (u16, &[u8]),
    is_same: fn(&Received, &Received) -> bool,
) -> bool {
    let question = || {
        Outbox::of(kind, 0, |message| {
            message.header(asked.payload.get(..1).unwrap_or_default());
            message.header(rest);
        })
    };
    let mut same = Vec::new();
    let told = socket.dump(question, &mut same, |told| is_same(told, asked).then_some(()));
    told.is_ok() && !same.is_empty()
}

/// All that makes an address, in a request and in what the kernel tells.
fn address(message: &Received) -> Option<impl PartialEq> {
    let (header, attributes) = message.split::<8>()?;
    let [family, length, _, scope, a, b, c, d] = *header;
    let flags = attributes.get(IFA_FLAGS).and_then(number).unwrap_or_default();
    let other = attributes.get(IFA_ADDRESS);
    Some((
        [family, length, scope_of(family, scope), a, b, c, d],
        flags & IFA_F_NODAD,
        // Of IPv6 the kernel tells it only if it differs from the other.
        attributes.get(IFA_LOCAL).or(other),
        other,
        attributes.get(IFA_BROADCAST),
    ))
}

fn is_same_route(told: &Received, asked: &Received) -> bool {
    route(told) == route(asked) && ways(asked).all(|wanted| ways(told).any(|way| way == wanted))
}

/// What makes a route beside its ways, in a request and in what the kernel tells.
fn route(message: &Received) -> Option<impl PartialEq> {
    let (header, attributes) = message.split::<12>()?;
    let [family, length, source, tos, table, protocol, scope, kind, ..] = *header;
    let default_metric = if family == AF_INET6 { IP6_RT_PRIO_USER } else { 0 };
    Some((
        [family, length, source, tos, protocol, scope_of(family, scope), kind],
        attributes.get(RTA_TABLE).and_then(number).unwrap_or(table.into()),
        attributes.get(RTA_PRIORITY).and_then(number).unwrap_or(default_metric),
        attributes.get(RTA_DST).filter(|_| length != 0),
        attributes.get(RTA_PREFSRC),
        attributes.get(RTA_METRICS),
    ))
}

/// How far something reaches; of IPv6 the kernel does not ask us.
fn scope_of(family: u8, scope: u8) -> u8 {
    if family == AF_INET { scope } else { 0 }
}

/// The ways of a route, each by its device and its router: the kernel joins IPv6 routes to one destination.
fn ways<'a>(message: &Received<'a>) -> impl Iterator<Item = (Option<&'a [u8]>, Option<&'a [u8]>)> {
    let attributes = message.split::<12>().map(|(_, attributes)| attributes);
    let single = attributes.map(|all| (all.get(RTA_OIF), all.get(RTA_GATEWAY)));
    let mut hops = attributes.and_then(|all| all.get(RTA_MULTIPATH)).unwrap_or_default();
    let joined = std::iter::from_fn(move || {
        // `struct rtnexthop`
        let length = usize::from(u16::from_ne_bytes(*hops.first_chunk()?));
        let hop = hops.get(..length)?;
        hops = hops.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((Some(hop.get(4..8)?), Attributes(hop.get(8..)?).get(RTA_GATEWAY)))
    });
    single.into_iter().chain(joined)
}

#[cfg(test)]
mod tests;
