//! Network devices: dump, find, create, alter, remove.
//!
//! Takes and gives [`Link`]s. A device that could not be brought up is not left behind.

mod kind;

use std::collections::BTreeMap;

use flannel_plan::link_name::LinkName;
use flannel_plan::mac::Mac;
use flannel_plan::observation::LinkFact;
use flannel_plan::state::{Link, LinkKind};
use rustix::io::Errno;

use crate::abi::{
    AF_UNSPEC, IFF_LOOPBACK, IFF_LOWER_UP, IFF_RUNNING, IFF_UP, IFLA_ADDRESS, IFLA_EXT_MASK, IFLA_IFALIAS,
    IFLA_IFNAME, IFLA_INFO_DATA, IFLA_INFO_KIND, IFLA_LINK_NETNSID, IFLA_LINKINFO, IFLA_MTU, IFLA_TXQLEN,
    NLM_F_CREATE, NLM_F_EXCL, RTEXT_FILTER_SKIP_STATS, RTM_DELLINK, RTM_GETLINK, RTM_NEWLINK,
};
use crate::netlink::{Attributes, NetlinkError, Outbox, Received, Socket, Writer, number};
pub(crate) use kind::culprit;

/// The names of devices by their indexes, for a moment: a device may come back under the same name with another index.
pub(crate) type Names = BTreeMap<u32, LinkName>;

/// A device whose lower device is known by index only.
pub(crate) struct Found {
    fact: LinkFact,
    lower: u32,
}

/// All devices of the namespace.
pub(crate) fn dump(socket: &mut Socket) -> Result<Vec<LinkFact>, NetlinkError> {
    let mut found = Vec::new();
    socket.dump(|| question(0, |_| ()), &mut found, read)?;
    let names: Vec<_> = found.iter().map(|found| (found.fact.index, found.fact.link.name)).collect();
    let facts = found.into_iter().map(|Found { mut fact, lower }| {
        let lower = names.iter().find(|(index, _)| *index == lower).map(|(_, name)| *name);
        kind::set_lower(&mut fact.link.kind, lower);
        fact
    });
    Ok(facts.collect())
}

/// The names of the devices in a dump. One by one: the CNI plugin would carry the sorting of a whole list.
pub(crate) fn names_of(links: &[LinkFact]) -> Names {
    let mut names = Names::new();
    for fact in links {
        names.insert(fact.index, fact.link.name);
    }
    names
}

/// The device of a name; its lower device is left out.
pub(crate) fn find(socket: &mut Socket, name: LinkName) -> Result<Option<LinkFact>, NetlinkError> {
    let found = ask(socket, question(0, |message| message.text(IFLA_IFNAME, name.as_str())), read)?;
    Ok(found.map(|found| found.fact))
}

/// The question for the device of an index, or for all that fit what is written; without counters.
pub(crate) fn question(index: u32, write: impl FnOnce(&mut Writer)) -> Outbox {
    Outbox::of(RTM_GETLINK, 0, |message| {
        message.header(&header(index, 0, 0));
        write(message);
        message.number(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
    })
}

/// The device that a question is for, if it is there.
pub(crate) fn ask<T>(
    socket: &mut Socket,
    question: Outbox,
    read: impl Fn(&Received) -> Option<T>,
) -> Result<Option<T>, NetlinkError> {
    match socket.ask(question, read) {
        Err(why) if why.says_absent() => Ok(None),
        answer => answer,
    }
}

/// Makes a device, up or down as wanted, and gives its index; one that cannot be brought up is deleted again by the
/// kernel.
pub(crate) fn create(socket: &mut Socket, link: &Link, lower: u32) -> Result<u32, NetlinkError> {
    let request = Outbox::of(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, |message| {
        let up = if link.up { IFF_UP } else { 0 };
        message.header(&header(0, up, up));
        message.text(IFLA_IFNAME, link.name.as_str());
        if let Some(mac) = link.mac {
            message.attribute(IFLA_ADDRESS, &mac.0);
        }
        message.number(IFLA_MTU, link.mtu);
        message.number(IFLA_TXQLEN, 0);
        message.nest(IFLA_LINKINFO, |info| kind::write(info, &link.kind, lower));
    });
    let index = match socket.make(request, read)? {
        Some(made) => made.fact.index,
        None => made_before(socket, link)?,
    };
    // The kernel ignores an alias in the message that makes a device.
    let marked =
        set(socket, &header(index, 0, 0), |message| message.attribute(IFLA_IFALIAS, link.alias.as_bytes()));
    if marked.is_err() {
        let _ = remove(socket, index); // the first error is the one to tell
    }
    marked.map(|()| index)
}

/// The index of a device that was made a moment ago, for a kernel that does not tell it.
fn made_before(socket: &mut Socket, link: &Link) -> Result<u32, NetlinkError> {
    let found = find(socket, link.name)?.filter(|found| found.link.mac == link.mac);
    found.map(|found| found.index).ok_or_else(|| Errno::NODEV.into())
}

/// Changes the device of an index in place from `from` to `to`: tries all that differs, and tells the first error.
pub(crate) fn alter(socket: &mut Socket, index: u32, from: &Link, to: &Link) -> Result<(), NetlinkError> {
    let (same, mut steps) = (header(index, 0, 0), Vec::new());
    if from.kind != to.kind {
        steps.push(set(socket, &same, |message| {
            message.nest(IFLA_LINKINFO, |info| kind::write_alterable(info, &to.kind));
        }));
    }
    if from.mtu != to.mtu {
        steps.push(set_mtu(socket, &same, to.mtu));
    }
    if let Some(mac) = to.mac.filter(|_| from.mac != to.mac) {
        steps.push(set(socket, &same, |message| message.attribute(IFLA_ADDRESS, &mac.0)));
    }
    if from.alias != to.alias {
        steps.push(set(socket, &same, |message| message.attribute(IFLA_IFALIAS, to.alias.as_bytes())));
    }
    if from.up != to.up {
        let up = if to.up { IFF_UP } else { 0 };
        steps.push(set(socket, &header(index, up, IFF_UP), |_| ()));
    }
    steps.into_iter().collect()
}

/// The kernel has no words of its own for the one reason that it has.
fn set_mtu(socket: &mut Socket, header: &[u8; 16], mtu: u32) -> Result<(), NetlinkError> {
    let words = || format!("an MTU of {mtu} is more than the device below allows");
    set(socket, header, |message| message.number(IFLA_MTU, mtu)).map_err(|why| NetlinkError {
        message: why.message.or_else(|| why.errno.eq(&Errno::INVAL).then(|| words().into())),
        errno: why.errno,
    })
}

/// Deletes the device of an index; one that is gone is no failure.
pub(crate) fn remove(socket: &mut Socket, index: u32) -> Result<(), NetlinkError> {
    match socket.request(Outbox::of(RTM_DELLINK, 0, |message| message.header(&header(index, 0, 0)))) {
        Err(why) if why.says_absent() => Ok(()),
        outcome => outcome,
    }
}

/// Devices are altered by index: a name may belong to another one by now, and would be given to this one.
pub(crate) fn set(
    socket: &mut Socket,
    header: &[u8; 16],
    write: impl FnOnce(&mut Writer),
) -> Result<(), NetlinkError> {
    socket.request(Outbox::of(RTM_NEWLINK, 0, |message| {
        message.header(header);
        write(message);
    }))
}

/// `struct ifinfomsg`
pub(crate) fn header(index: u32, flags: u32, change: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
    bytes[12..16].copy_from_slice(&change.to_ne_bytes());
    bytes
}

/// The index and the name in a message about a device: all that a watcher needs.
pub(crate) fn read_name(message: &Received) -> Option<(u32, LinkName)> {
    let (header, attributes) = message.split::<16>()?;
    if header[0] != AF_UNSPEC {
        return None; // a bridge speaks of its ports so; one that left it is not deleted
    }
    Some((number(&header[4..])?, text(attributes.get(IFLA_IFNAME)?).parse().ok()?))
}

pub(crate) fn read(message: &Received) -> Option<Found> {
    if message.kind != RTM_NEWLINK {
        return None;
    }
    let (header, attributes) = message.split::<16>()?;
    let flags = number(&header[8..])?;
    let (mut name, mut mac, mut mtu, mut alias) = (None, None, 0, "");
    let (mut info, mut lower_is_elsewhere) = (None, false);
    for (kind, value) in attributes {
        match kind {
            IFLA_IFNAME => name = text(value).parse().ok(),
            IFLA_ADDRESS => mac = value.try_into().ok().map(Mac),
            IFLA_MTU => mtu = number(value)?,
            IFLA_IFALIAS => alias = text(value),
            IFLA_LINKINFO => info = Some(Attributes(value)),
            IFLA_LINK_NETNSID => lower_is_elsewhere = true,
            _ => {}
        }
    }
    let loopback = flags & IFF_LOOPBACK != 0;
    let (kind, lower) = read_kind(info, loopback);
    // A name that we cannot hold is not ours, and no route of ours goes there.
    let link = Link { name: name?, mac, mtu, up: flags & IFF_UP != 0, alias: alias.into(), kind };
    // The kernel takes its time to turn RUNNING off after the cable is out; LOWER_UP says it at once.
    let running = [IFF_UP, IFF_RUNNING, IFF_LOWER_UP].iter().all(|flag| flags & flag != 0);
    let fact = LinkFact { index: number(&header[4..])?, link, running, loopback };
    Some(Found { fact, lower: if lower_is_elsewhere { 0 } else { lower } })
}

/// The kind of a device, and the index of its lower device.
fn read_kind(info: Option<Attributes>, loopback: bool) -> (LinkKind, u32) {
    let value_of = |wanted| info.and_then(|info| info.get(wanted));
    match value_of(IFLA_INFO_KIND) {
        Some(name) => kind::read(text(name), value_of(IFLA_INFO_DATA).map(Attributes)),
        None => (LinkKind::Other(if loopback { "loopback" } else { "device" }.into()), 0),
    }
}

/// The text in an attribute, without the zero at its end.
pub(crate) fn text(bytes: &[u8]) -> &str {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    std::str::from_utf8(&bytes[..end]).unwrap_or_default()
}
