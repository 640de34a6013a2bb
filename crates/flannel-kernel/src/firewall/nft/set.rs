//! Sets of networks: the kernel keeps where each begins and where the next addresses after it do.
//!
//! A rule that looks an address up in a set costs the same for ten networks and for thousands.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flannel_plan::family::Family;
use ipnet::{IpNet, Ipv4Subnets, Ipv6Subnets};

use super::TableFamily;
use crate::firewall::abi::*;
use crate::firewall::netfilter::be32;
use crate::netlink::{Attributes, Writer, ip};

/// More of them would not fit into one attribute, which holds 64 KiB.
pub(super) const MOST_NETWORKS: usize = 400;

/// Writes a set that is to be made: its networks are its only keys.
pub(super) fn write(message: &mut Writer, family: TableFamily, name: &str) {
    let (kind, length): (u32, u32) = match family {
        TableFamily::Ip6 => (TYPE_IP6ADDR, 16),
        TableFamily::Ip | TableFamily::Inet | TableFamily::Bridge => (TYPE_IPADDR, 4),
    };
    message.text(NFTA_SET_NAME, name);
    for (attribute, value) in [
        (NFTA_SET_FLAGS, NFT_SET_INTERVAL),
        (NFTA_SET_KEY_TYPE, kind),
        (NFTA_SET_KEY_LEN, length),
        (NFTA_SET_ID, 1),
    ] {
        message.attribute(attribute, &value.to_be_bytes());
    }
    // `nft` shows the addresses of a set only if it is told how they are written.
    let order = BYTEORDER_BIG_ENDIAN.to_ne_bytes();
    message.attribute(NFTA_SET_USERDATA, &[&[NFTNL_UDATA_SET_KEYBYTEORDER, 4], &order[..]].concat());
}

/// Writes networks that are to be put into a set: each begins somewhere, and ends before somewhere.
pub(super) fn write_elements(message: &mut Writer, networks: &[IpNet]) {
    message.nest(NFTA_SET_ELEM_LIST_ELEMENTS, |list| {
        for network in networks {
            write_element(list, network.network(), 0);
            if let Some(end) = step(network.broadcast(), 1) {
                write_element(list, end, NFT_SET_ELEM_INTERVAL_END);
            }
        }
    });
}

fn write_element(list: &mut Writer, key: IpAddr, flags: u32) {
    list.nest(NFTA_LIST_ELEM, |element| {
        if flags != 0 {
            element.attribute(NFTA_SET_ELEM_FLAGS, &flags.to_be_bytes());
        }
        element.nest(NFTA_SET_ELEM_KEY, |data| data.ip(NFTA_DATA_VALUE, key));
    });
}

/// The address so many steps away; none before the first and after the last.
fn step(address: IpAddr, by: i8) -> Option<IpAddr> {
    Some(match address {
        IpAddr::V4(address) => Ipv4Addr::from(address.to_bits().checked_add_signed(by.into())?).into(),
        IpAddr::V6(address) => Ipv6Addr::from(address.to_bits().checked_add_signed(by.into())?).into(),
    })
}

/// One end of a network in a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Edge {
    key: IpAddr,
    /// Whether what ends before it is meant; at one address an end comes before a beginning.
    begins: bool,
}

/// Reads the elements that one message tells.
pub(super) fn read_elements(list: &[u8]) -> Vec<Edge> {
    let edge = |(_, element): (u16, &[u8])| {
        let key = Attributes(Attributes(element).get(NFTA_SET_ELEM_KEY)?).get(NFTA_DATA_VALUE)?;
        let flags = Attributes(element).get(NFTA_SET_ELEM_FLAGS).and_then(be32).unwrap_or(0);
        Some(Edge { key: ip(key)?, begins: flags & NFT_SET_ELEM_INTERVAL_END == 0 })
    };
    Attributes(list).filter_map(edge).collect()
}

/// The networks between the ends, sorted.
pub(crate) fn networks(mut edges: Vec<Edge>) -> Vec<IpNet> {
    edges.sort();
    let mut networks = Vec::new();
    let mut begun: Option<IpAddr> = None;
    for edge in edges {
        if let Some((first, last)) = begun.take().zip(step(edge.key, -1)) {
            networks.extend(between(first, last));
        }
        begun = edge.begins.then_some(edge.key);
    }
    if let Some(first) = begun {
        networks.extend(between(first, Family::of(first).everything().broadcast()));
    }
    networks.sort();
    networks
}

fn between(first: IpAddr, last: IpAddr) -> Vec<IpNet> {
    match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => Ipv4Subnets::new(first, last, 0).map(IpNet::V4).collect(),
        (IpAddr::V6(first), IpAddr::V6(last)) => Ipv6Subnets::new(first, last, 0).map(IpNet::V6).collect(),
        _ => vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{Outbox, messages};

    fn round_trip(texts: &[&str]) -> Vec<String> {
        let nets: Vec<IpNet> = texts.iter().map(|text| text.parse().unwrap()).collect();
        let outbox = Outbox::of(0, 0, |message| write_elements(message, &nets));
        let message = messages(outbox.as_bytes()).next().unwrap();
        let (_, list) = Attributes(message.payload).next().unwrap();
        networks(read_elements(list)).iter().map(IpNet::to_string).collect()
    }

    #[test]
    fn networks_survive_being_written_and_read_up_to_the_last_address() {
        for texts in [
            &["10.0.0.0/8", "11.0.0.0/8", "192.168.1.1/32"][..],
            &["0.0.0.0/0"],
            &["128.0.0.0/1"],
            &["0.0.0.0/1", "255.255.255.255/32"],
            &["2001:db8::/32", "fd00::/64", "ff00::/8"],
            &[],
        ] {
            assert_eq!(round_trip(texts), texts);
        }
    }
}
