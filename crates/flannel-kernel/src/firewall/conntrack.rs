//! Connection tracking: forgets flows, so that the next packet meets the rules as they are now.
//!
//! UDP has no end of a connection: a client that goes on sending keeps its flow, and with it a translation (or
//! the lack of one) from before the rules were changed.

use super::abi::*;
use super::netfilter::{self, header};
use crate::abi::{AF_INET, AF_INET6, NLA_F_NESTED};
use crate::netlink::{Attributes, NetlinkError, Outbox, Received};

const UDP: u8 = 17;
/// What a dump is asked to look at: the protocol only.
const BY_PROTOCOL: u32 = 1 << 3;

/// Forgets all UDP flows, of both families, that were first sent to one of these ports, and says how many.
pub fn forget_udp(ports: &[u16]) -> Result<usize, NetlinkError> {
    if ports.is_empty() {
        return Ok(0);
    }
    let mut socket = netfilter::open()?;
    let mut flows = Vec::new();
    for family in [AF_INET, AF_INET6] {
        socket.dump(|| udp_flows(family), &mut flows, |message| read_flow(message, ports))?;
    }
    let mut forgotten = 0;
    for flow in &flows {
        match socket.request(deletion(flow)) {
            Ok(()) => forgotten += 1,
            Err(why) if why.says_absent() => {} // it ended by itself meanwhile
            Err(why) => return Err(why),
        }
    }
    Ok(forgotten)
}

/// One flow by what names it: its family, its first direction, its zone and its number.
struct Flow {
    family: u8,
    attributes: Vec<(u16, Vec<u8>)>,
}

/// A filter needs a family.
fn udp_flows(family: u8) -> Outbox {
    Outbox::of(NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_GET, 0, |message| {
        message.header(&header(family, 0));
        // Kernels before 5.8 do not know filters and tell everything.
        message.nest(CTA_FILTER, |filter| {
            filter.number(CTA_FILTER_ORIG_FLAGS, BY_PROTOCOL);
            filter.number(CTA_FILTER_REPLY_FLAGS, 0);
        });
        message.nest(CTA_TUPLE_ORIG, |tuple| {
            tuple.nest(CTA_TUPLE_PROTO, |proto| proto.attribute(CTA_PROTO_NUM, &[UDP]));
        });
    })
}

fn read_flow(message: &Received, ports: &[u16]) -> Option<Flow> {
    let (header, attributes) = message.split::<4>()?;
    let named = |(kind, _): &(u16, &[u8])| [CTA_TUPLE_ORIG, CTA_ZONE, CTA_ID].contains(kind);
    let attributes: Vec<_> = attributes.filter(named).map(|(kind, value)| (kind, value.to_owned())).collect();
    let (_, tuple) = attributes.iter().find(|(kind, _)| *kind == CTA_TUPLE_ORIG)?;
    let proto = Attributes(Attributes(tuple).get(CTA_TUPLE_PROTO)?);
    let port = u16::from_be_bytes(*proto.get(CTA_PROTO_DST_PORT)?.first_chunk()?);
    let is_meant = proto.get(CTA_PROTO_NUM)? == [UDP] && ports.contains(&port);
    is_meant.then_some(Flow { family: header[0], attributes })
}

fn deletion(flow: &Flow) -> Outbox {
    Outbox::of(NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_DELETE, 0, |message| {
        message.header(&header(flow.family, 0));
        for (kind, value) in &flow.attributes {
            let nested = if *kind == CTA_TUPLE_ORIG { NLA_F_NESTED } else { 0 };
            message.attribute(kind | nested, value);
        }
    })
}
