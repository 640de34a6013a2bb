//! Who is behind an address (ARP and ND), and where frames for a hardware address go (the FDB of vxlan devices):
//! dump, create, remove. The kernel keeps both in messages of one form.

use flannel_plan::link_name::LinkName;
use flannel_plan::mac::Mac;
use flannel_plan::state::{FdbEntry, Neighbour};

use crate::abi::{
    AF_BRIDGE, AF_UNSPEC, NDA_DST, NDA_IFINDEX, NDA_LLADDR, NDA_PORT, NDA_PROTOCOL, NDA_VNI, NLM_F_CREATE,
    NLM_F_REPLACE, NTF_EXT_LEARNED, NTF_SELF, NUD_PERMANENT, RTM_DELNEIGH, RTM_GETNEIGH, RTM_NEWNEIGH,
};
use crate::netlink::{NetlinkError, Outbox, Received, Socket, family_of, ip, number};

/// A device of ours, by number and name.
pub(crate) type Device = (u32, LinkName);

/// Adds the permanent neighbours on a device.
pub(crate) fn dump_neighbours(
    socket: &mut Socket,
    device: Device,
    into: &mut Vec<Neighbour>,
) -> Result<(), NetlinkError> {
    socket.dump(|| on_device(AF_UNSPEC, device.0), into, |message| read_neighbour(message, device))
}

/// Adds the forwarding entries of a device.
pub(crate) fn dump_fdb(
    socket: &mut Socket,
    device: Device,
    into: &mut Vec<FdbEntry>,
) -> Result<(), NetlinkError> {
    let first = into.len();
    socket.dump(|| on_device(AF_BRIDGE, device.0), into, |message| read_fdb(message, device))?;
    join_destinations(into, first);
    Ok(())
}

pub(crate) fn create_neighbour(outbox: &mut Outbox, neighbour: &Neighbour, link: u32) {
    outbox.add(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, |message| {
        message.header(&header(family_of(neighbour.address), link, NUD_PERMANENT, 0));
        message.ip(NDA_DST, neighbour.address);
        message.attribute(NDA_LLADDR, &neighbour.mac.0);
        message.attribute(NDA_PROTOCOL, &[neighbour.protocol]);
    });
}

pub(crate) fn remove_neighbour(outbox: &mut Outbox, neighbour: &Neighbour, link: u32) {
    outbox.add(RTM_DELNEIGH, 0, |message| {
        message.header(&header(family_of(neighbour.address), link, 0, 0));
        message.ip(NDA_DST, neighbour.address);
    });
}

pub(crate) fn create_fdb(outbox: &mut Outbox, entry: &FdbEntry, link: u32) {
    let mark = if entry.marked { NTF_EXT_LEARNED } else { 0 };
    outbox.add(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, |message| {
        message.header(&header(AF_BRIDGE, link, NUD_PERMANENT, NTF_SELF | mark));
        message.attribute(NDA_LLADDR, &entry.mac.0);
        if let Some(destination) = entry.destination {
            message.ip(NDA_DST, destination);
        }
    });
}

pub(crate) fn remove_fdb(outbox: &mut Outbox, entry: &FdbEntry, link: u32) {
    // Without a destination: a wrong one is answered with success, and nothing is removed.
    outbox.add(RTM_DELNEIGH, 0, |message| {
        message.header(&header(AF_BRIDGE, link, 0, NTF_SELF));
        message.attribute(NDA_LLADDR, &entry.mac.0);
    });
}

/// What a message about a neighbour or a forwarding entry says, before its attributes are read.
pub(crate) struct Mention {
    pub(crate) link: u32,
    pub(crate) fdb: bool,
    pub(crate) permanent: bool,
    flags: u8,
}

pub(crate) fn read_mention(message: &Received) -> Option<Mention> {
    let (header, _) = message.split::<12>()?;
    let state = u16::from_ne_bytes([header[8], header[9]]);
    Some(Mention {
        link: number(&header[4..])?,
        fdb: header[0] == AF_BRIDGE,
        permanent: state & NUD_PERMANENT != 0,
        flags: header[10],
    })
}

fn on_device(family: u8, link: u32) -> Outbox {
    Outbox::of(RTM_GETNEIGH, 0, |message| {
        message.header(&header(family, 0, 0, 0));
        message.number(NDA_IFINDEX, link);
    })
}

/// `struct ndmsg`
fn header(family: u8, link: u32, state: u16, flags: u8) -> [u8; 12] {
    let [a, b, c, d] = link.to_ne_bytes();
    let [e, f] = state.to_ne_bytes();
    [family, 0, 0, 0, a, b, c, d, e, f, flags, 0]
}

pub(crate) fn read_neighbour(message: &Received, (link, name): Device) -> Option<Neighbour> {
    let mention = read_mention(message)?;
    if mention.link != link || mention.fdb || !mention.permanent {
        return None;
    }
    let (_, attributes) = message.split::<12>()?;
    let (mut address, mut mac, mut protocol) = (None, None, 0);
    for (kind, value) in attributes {
        match kind {
            NDA_DST => address = ip(value),
            NDA_LLADDR => mac = value.try_into().ok().map(Mac),
            NDA_PROTOCOL => protocol = value.first().copied().unwrap_or_default(),
            _ => {}
        }
    }
    Some(Neighbour { link: name, address: address?, mac: mac?, protocol })
}

pub(crate) fn read_fdb(message: &Received, (link, name): Device) -> Option<FdbEntry> {
    let mention = read_mention(message)?;
    // An entry without SELF is one of the bridge that the device is a port of.
    if mention.link != link || !mention.fdb || mention.flags & NTF_SELF == 0 {
        return None;
    }
    let (_, attributes) = message.split::<12>()?;
    let (mut mac, mut destination, mut odd) = (None, None, false);
    for (kind, value) in attributes {
        match kind {
            NDA_LLADDR => mac = value.try_into().ok().map(Mac),
            NDA_DST => destination = ip(value),
            // With a port, network number or device of its own it leads to no plain place.
            NDA_PORT | NDA_VNI | NDA_IFINDEX => odd = true,
            _ => {}
        }
    }
    let (destination, marked) = (destination.filter(|_| !odd), mention.flags & NTF_EXT_LEARNED != 0);
    Some(FdbEntry { link: name, mac: mac?, destination, marked })
}

/// An entry with several destinations is told once for each, one after the other.
fn join_destinations(entries: &mut Vec<FdbEntry>, first: usize) {
    let mut rest = entries.split_off(first);
    rest.dedup_by(|next, kept| {
        let same = next.mac == kept.mac;
        if same {
            kept.destination = None;
        }
        same
    });
    entries.append(&mut rest);
}
