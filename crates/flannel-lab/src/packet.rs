//! Takes one Ethernet frame apart, through a vxlan tunnel if it is in one. Bytes in, layers out; nothing else.

use std::net::IpAddr;

use flannel_plan::mac::Mac;

/// The UDP ports that mean vxlan: Linux's own, which flannel uses, and the one of the standard.
const VXLAN_PORTS: [u16; 2] = [8472, 4789];

/// One header of a packet, with the fields that matter to a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layer {
    /// From card to card.
    Ethernet {
        from: Mac,
        to: Mac,
    },
    /// From host to host, in either family.
    Ip {
        from: IpAddr,
        to: IpAddr,
        /// How many more routers may pass it on.
        hops: u8,
        header: usize,
    },
    /// From program to program.
    Udp {
        from: u16,
        to: u16,
    },
    /// A whole frame follows.
    Vxlan {
        /// The number of the virtual network.
        vni: u32,
    },
    /// A ping or its answer, in either family.
    Echo {
        direction: Echo,
        sequence: u16,
    },
    Other {
        bytes: usize,
    },
}

/// The two halves of a ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Echo {
    Request,
    Reply,
}

impl Layer {
    /// The bytes of this header.
    pub fn size(&self) -> usize {
        match self {
            Self::Ethernet { .. } => 14,
            Self::Ip { header, .. } => *header,
            Self::Udp { .. } | Self::Vxlan { .. } | Self::Echo { .. } => 8,
            Self::Other { bytes } => *bytes,
        }
    }
}

/// A frame that ends too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the frame ends inside its {0} header")]
pub struct TooShort(&'static str);

/// What follows a header.
#[derive(Clone, Copy)]
enum Next {
    Ethernet,
    Ip,
    Udp,
    Vxlan,
    Icmp,
    Other,
}

/// The layers of a frame, outermost first. The payload of a ping is left out.
pub fn decode(frame: &[u8]) -> Result<Vec<Layer>, TooShort> {
    let (mut rest, mut next, mut layers) = (frame, Next::Ethernet, Vec::new());
    while !rest.is_empty() {
        let (layer, after) = match next {
            Next::Ethernet => ethernet(rest).ok_or(TooShort("Ethernet"))?,
            Next::Ip if rest[0] >> 4 == 4 => ipv4(rest).ok_or(TooShort("IPv4"))?,
            Next::Ip => ipv6(rest).ok_or(TooShort("IPv6"))?,
            Next::Udp => udp(rest).ok_or(TooShort("UDP"))?,
            Next::Vxlan => vxlan(rest).ok_or(TooShort("vxlan"))?,
            Next::Icmp => (echo(rest), Next::Other),
            Next::Other => (Layer::Other { bytes: rest.len() }, Next::Other),
        };
        let is_last = matches!(layer, Layer::Echo { .. });
        rest = rest.get(layer.size()..).unwrap_or_default();
        next = after;
        layers.push(layer);
        if is_last {
            break;
        }
    }
    Ok(layers)
}

fn ethernet(bytes: &[u8]) -> Option<(Layer, Next)> {
    let (to, from) = (Mac(array(bytes, 0)?), Mac(array(bytes, 6)?));
    let next = match number(bytes, 12)? {
        0x0800 | 0x86dd => Next::Ip,
        _ => Next::Other,
    };
    Some((Layer::Ethernet { from, to }, next))
}

fn ipv4(bytes: &[u8]) -> Option<(Layer, Next)> {
    let header = usize::from(bytes.first()? & 0x0f) * 4;
    let bytes = bytes.get(..header.max(20))?;
    let (from, to) = (array::<4>(bytes, 12)?.into(), array::<4>(bytes, 16)?.into());
    Some((Layer::Ip { from, to, hops: bytes[8], header: bytes.len() }, after_ip(bytes[9], 1)))
}

fn ipv6(bytes: &[u8]) -> Option<(Layer, Next)> {
    let (from, to) = (array::<16>(bytes, 8)?.into(), array::<16>(bytes, 24)?.into());
    Some((Layer::Ip { from, to, hops: bytes[7], header: 40 }, after_ip(bytes[6], 58)))
}

fn after_ip(protocol: u8, icmp: u8) -> Next {
    match protocol {
        17 => Next::Udp,
        protocol if protocol == icmp => Next::Icmp,
        _ => Next::Other,
    }
}

fn udp(bytes: &[u8]) -> Option<(Layer, Next)> {
    let bytes = bytes.get(..8)?;
    let (from, to) = (number(bytes, 0)?, number(bytes, 2)?);
    let next = if VXLAN_PORTS.contains(&to) { Next::Vxlan } else { Next::Other };
    Some((Layer::Udp { from, to }, next))
}

fn vxlan(bytes: &[u8]) -> Option<(Layer, Next)> {
    Some((Layer::Vxlan { vni: u32::from_be_bytes(array(bytes, 4)?) >> 8 }, Next::Ethernet))
}

/// ICMP counts pings from 8 and 0, ICMPv6 from 128 and 129; no other message of either has these numbers.
fn echo(bytes: &[u8]) -> Layer {
    let direction = match bytes.first() {
        Some(8 | 128) => Echo::Request,
        Some(0 | 129) => Echo::Reply,
        _ => return Layer::Other { bytes: bytes.len() },
    };
    match number(bytes, 6) {
        Some(sequence) => Layer::Echo { direction, sequence },
        None => Layer::Other { bytes: bytes.len() },
    }
}

fn array<const N: usize>(bytes: &[u8], start: usize) -> Option<[u8; N]> {
    bytes.get(start..start + N)?.try_into().ok()
}

fn number(bytes: &[u8], start: usize) -> Option<u16> {
    array(bytes, start).map(u16::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTER: &str = "02001e000017 02000a000015 0800 \
        45000086 00000000 40110000 0a000015 1e000017 d431 2118 0072 0000 0800000000000100";
    const INNER: &str = "b29447d5c2a2 6ecfc30b13d0 0800 \
        45000054 00004000 3f010000 0af40102 0af40302 0800 0000 0001 0007 6162636465666768";

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<_> = hex.chars().filter(|c| !c.is_whitespace()).collect();
        digits.chunks(2).map(|pair| u8::from_str_radix(&String::from_iter(pair), 16).unwrap()).collect()
    }

    fn mac(text: &str) -> Mac {
        text.parse().unwrap()
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn inner() -> Vec<Layer> {
        vec![
            Layer::Ethernet { from: mac("6e:cf:c3:0b:13:d0"), to: mac("b2:94:47:d5:c2:a2") },
            Layer::Ip { from: address("10.244.1.2"), to: address("10.244.3.2"), hops: 63, header: 20 },
            Layer::Echo { direction: Echo::Request, sequence: 7 },
        ]
    }

    #[test]
    fn a_ping_in_a_tunnel_shows_the_nodes_outside_and_the_pods_inside() {
        let mut expected = vec![
            Layer::Ethernet { from: mac("02:00:0a:00:00:15"), to: mac("02:00:1e:00:00:17") },
            Layer::Ip { from: address("10.0.0.21"), to: address("30.0.0.23"), hops: 64, header: 20 },
            Layer::Udp { from: 54321, to: 8472 },
            Layer::Vxlan { vni: 1 },
        ];
        assert_eq!(expected.iter().map(Layer::size).sum::<usize>(), 50);
        expected.extend(inner());
        assert_eq!(decode(&bytes(&format!("{OUTER}{INNER}"))), Ok(expected));
    }

    #[test]
    fn a_ping_without_a_tunnel_has_no_outer_header() {
        assert_eq!(decode(&bytes(INNER)), Ok(inner()));
    }

    #[test]
    fn a_ping_of_ipv6_is_read_alike() {
        let frame = "020000000002 020000000001 86dd 60000000 0010 3a40 \
            fd000244000000010000000000000002 fd000244000000030000000000000002 8100 0000 0001 0002 0000000000000000";
        let expected = [
            Layer::Ethernet { from: mac("02:00:00:00:00:01"), to: mac("02:00:00:00:00:02") },
            Layer::Ip {
                from: address("fd00:244:0:1::2"),
                to: address("fd00:244:0:3::2"),
                hops: 64,
                header: 40,
            },
            Layer::Echo { direction: Echo::Reply, sequence: 2 },
        ];
        assert_eq!(decode(&bytes(frame)).unwrap(), expected);
    }

    #[test]
    fn a_frame_cut_anywhere_is_an_error_or_fewer_layers_and_never_a_panic() {
        let frame = bytes(&format!("{OUTER}{INNER}"));
        for end in 0..frame.len() {
            let _ = decode(&frame[..end]);
        }
        assert_eq!(decode(&frame[..30]), Err(TooShort("IPv4")));
        assert_eq!(
            decode(&bytes("ffffffffffff 020000000001 0806 0001")).unwrap().last(),
            Some(&Layer::Other { bytes: 2 })
        );
    }
}
