//! From the instructions of a rule back to what it says, as far as we know it; the rest is kept in its bytes.

use std::net::IpAddr;

use flannel_plan::mac::Mac;
use ipnet::IpNet;

use super::Family;
use super::compile::{VXLAN_MASK, ether_type, vxlan_header};
use super::instruction::Instruction::{self, *};
use super::instruction::read_list;
use super::statement::{Direction, Is, Protocol, Side, SourcePorts, Statement, Verdict};
use crate::firewall::abi::*;
use crate::netlink::{ip, number as native};

/// What the list of instructions of a rule in a table of this family says.
pub(super) fn decompile(family: Family, list: &[u8]) -> Vec<Statement> {
    let (instructions, told) = read_list(list);
    let mut reader = Reader { family, network: None, transport: None };
    let mut statements = Vec::with_capacity(told.len());
    let mut at = 0;
    while let Some((name, data)) = told.get(at) {
        let (taken, statement) = match reader.next(&instructions[at..]) {
            Some(found) => found,
            None => (1, Some(Statement::Unknown(name.to_string(), data.to_vec()))),
        };
        statements.extend(statement);
        at += taken;
    }
    statements
}

/// Knows what earlier instructions have made sure of.
struct Reader {
    family: Family,
    network: Option<u8>,
    transport: Option<Protocol>,
}

/// How many instructions were read, and what they say; those that only prepare the next say nothing.
type Found = (usize, Option<Statement>);

impl Reader {
    fn next(&mut self, rest: &[Instruction]) -> Option<Found> {
        let statement = match rest {
            [Meta(key), Compare(operator, value), following @ ..] => {
                return self.meta(*key, is(*operator)?, value, following);
            }
            [Meta(NFT_META_MARK), Bitwise(mask, flip), Compare(operator, value), ..] if zero(flip) => {
                let statement = Statement::Mark(is(*operator)?, native(value)?, native(mask)?);
                return Some((3, Some(statement)));
            }
            [Meta(NFT_META_MARK), Bitwise(mask, value), MetaSet(NFT_META_MARK), ..] => {
                return Some((3, Some(Statement::SetMark(native(value)?, !native(mask)?))));
            }
            [Payload(NFT_PAYLOAD_NETWORK_HEADER, offset, length), following @ ..] => {
                return self.network_header(*offset, *length, following);
            }
            [Payload(NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2), Compare(operator, value), ..] => {
                let port = u16::from_be_bytes(*value.first_chunk()?);
                return Some((2, Some(Statement::DestinationPort(self.transport?, is(*operator)?, port))));
            }
            [Payload(NFT_PAYLOAD_TRANSPORT_HEADER, 8, 8), following @ ..] => return vxlan(following),
            [Payload(NFT_PAYLOAD_LL_HEADER, 6, 6), Compare(operator, value), ..] => {
                let mac = Mac(value.as_slice().try_into().ok()?);
                return Some((2, Some(Statement::EtherSource(is(*operator)?, mac))));
            }
            [DestinationType, Compare(operator, value), ..] => {
                return Some((2, Some(Statement::DestinationType(is(*operator)?, native(value)?))));
            }
            [Random(of), following @ ..] => return chance(*of, following),
            [Load(NFT_REG_1, port), following @ ..] if port.len() == 2 => {
                return masquerade_to(port, following);
            }
            [Load(NFT_REG_1, address), following @ ..] => return dnat(ip(address)?, following),
            [Instruction::Counter, ..] => Statement::Counter,
            [Instruction::NoTrack, ..] => Statement::NoTrack,
            [Instruction::Masquerade(flags), ..] => masquerade(*flags)?,
            [Instruction::Verdict(code, chain), ..] => verdict(*code, chain.as_deref())?,
            _ => return None,
        };
        Some((1, Some(statement)))
    }

    fn meta(&mut self, key: u32, is: Is, value: &[u8], following: &[Instruction]) -> Option<Found> {
        let certain = is == Is::Equal;
        let statement = match key {
            NFT_META_MARK => Statement::Mark(is, native(value)?, u32::MAX),
            NFT_META_IIFNAME => Statement::Device(Direction::In, is, device(value)),
            NFT_META_OIFNAME => Statement::Device(Direction::Out, is, device(value)),
            NFT_META_PKTTYPE => Statement::PacketType(is, *value.first()?),
            NFT_META_L4PROTO => {
                let protocol = Protocol(*value.first()?);
                self.transport = certain.then_some(protocol);
                let prepares = matches!(
                    following,
                    [Payload(NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2), Compare(NFT_CMP_EQ | NFT_CMP_NEQ, _), ..]
                );
                return Some((2, (!(certain && prepares)).then_some(Statement::Protocol(is, protocol))));
            }
            NFT_META_NFPROTO => {
                let family = *value.first()?;
                self.network = certain.then_some(family);
                let prepares = matches!(following, [Payload(NFT_PAYLOAD_NETWORK_HEADER, ..), ..]);
                return Some((2, (!(certain && prepares)).then_some(Statement::Family(is, family))));
            }
            NFT_META_PROTOCOL
                if certain && matches!(following, [Payload(NFT_PAYLOAD_NETWORK_HEADER, ..), ..]) =>
            {
                self.network = [NFPROTO_IPV4, NFPROTO_IPV6].into_iter().find(|it| ether_type(*it) == value);
                return self.network.map(|_| (2, None));
            }
            _ => return None,
        };
        Some((2, Some(statement)))
    }

    /// `ip protocol`: how iptables said `-p` before it said `meta l4proto`.
    fn ip_protocol(&mut self, following: &[Instruction]) -> Option<Found> {
        let [Compare(operator, value), ..] = following else { return None };
        let (is, protocol) = (is(*operator)?, Protocol(*value.first()?));
        self.transport = (is == Is::Equal).then_some(protocol);
        Some((2, Some(Statement::Protocol(is, protocol))))
    }

    fn network_header(&mut self, offset: u32, length: u32, following: &[Instruction]) -> Option<Found> {
        let family = match self.family {
            Family::Ipv4 => NFPROTO_IPV4,
            Family::Ipv6 => NFPROTO_IPV6,
            Family::Inet | Family::Bridge => self.network?,
        };
        let (size, side) = match (family, offset) {
            (NFPROTO_IPV4, 9) if length == 1 => return self.ip_protocol(following),
            (NFPROTO_IPV4, 12) => (4, Side::Source),
            (NFPROTO_IPV4, 16) => (4, Side::Destination),
            (NFPROTO_IPV6, 8) => (16, Side::Source),
            (NFPROTO_IPV6, 24) => (16, Side::Destination),
            _ => return None,
        };
        let length = usize::try_from(length).ok().filter(|length| *length <= size)?;
        let bits = |bytes: usize| u8::try_from(bytes * 8).ok();
        match following {
            [Bitwise(mask, flip), Compare(operator, value), ..] if length == size && zero(flip) => {
                let network = IpNet::with_netmask(ip(value)?, ip(mask)?).ok()?;
                Some((3, Some(Statement::Address(side, is(*operator)?, network))))
            }
            [Compare(NFT_CMP_GTE, first), Compare(NFT_CMP_LTE, last), ..] if length == size => {
                Some((3, Some(Statement::AddressRange(side, Is::Equal, ip(first)?, ip(last)?))))
            }
            [Range(NFT_RANGE_NEQ, first, last), ..] if length == size => {
                Some((2, Some(Statement::AddressRange(side, Is::Different, ip(first)?, ip(last)?))))
            }
            [Lookup(set, inverted), ..] if length == size => {
                let is = if *inverted { Is::Different } else { Is::Equal };
                Some((2, Some(Statement::AddressIn(side, is, set.clone()))))
            }
            [Compare(operator, value), ..] => {
                let mut octets = value.clone();
                octets.resize(size, 0);
                let network = IpNet::new(ip(&octets)?, bits(length)?).ok()?;
                Some((2, Some(Statement::Address(side, is(*operator)?, network))))
            }
            _ => None,
        }
    }
}

/// The number of the network that a packet of vxlan has to carry.
fn vxlan(following: &[Instruction]) -> Option<Found> {
    let [Bitwise(mask, flip), Compare(NFT_CMP_EQ, value), ..] = following else { return None };
    let [.., high, middle, low, _] = *value.first_chunk::<8>()?;
    let vni = u32::from_be_bytes([0, high, middle, low]);
    let plain = *mask == VXLAN_MASK && zero(flip) && *value == vxlan_header(vni);
    plain.then_some((3, Some(Statement::Vxlan(vni))))
}

fn dnat(address: IpAddr, following: &[Instruction]) -> Option<Found> {
    match following {
        [Load(NFT_REG_2, port), Dnat { port: true, .. }, ..] => {
            let port = u16::from_be_bytes(*port.first_chunk()?);
            Some((3, Some(Statement::Dnat(address, Some(port)))))
        }
        [Dnat { port: false, .. }, ..] => Some((2, Some(Statement::Dnat(address, None)))),
        _ => None,
    }
}

fn chance(of: u32, following: &[Instruction]) -> Option<Found> {
    let [ToNetworkOrder, Compare(NFT_CMP_LT, part), ..] = following else { return None };
    Some((3, Some(Statement::Chance(u32::from_be_bytes(*part.first_chunk()?), of))))
}

/// The ports that masquerade may choose.
fn masquerade_to(port: &[u8], following: &[Instruction]) -> Option<Found> {
    let first = u16::from_be_bytes(*port.first_chunk()?);
    let (taken, last, flags) = match following {
        [MasqueradeTo { flags, range: false }, ..] => (2, first, *flags),
        [Load(NFT_REG_2, port), MasqueradeTo { flags, range: true }, ..] => {
            (3, u16::from_be_bytes(*port.first_chunk()?), *flags)
        }
        _ => return None,
    };
    match masquerade(flags & !NF_NAT_RANGE_PROTO_SPECIFIED)? {
        Statement::Masquerade(ports) => Some((taken, Some(Statement::MasqueradeTo(ports, first, last)))),
        _ => None,
    }
}

fn is(operator: u32) -> Option<Is> {
    match operator {
        NFT_CMP_EQ => Some(Is::Equal),
        NFT_CMP_NEQ => Some(Is::Different),
        _ => None,
    }
}

fn masquerade(flags: u32) -> Option<Statement> {
    match flags {
        0 => Some(Statement::Masquerade(SourcePorts::Kept)),
        NF_NAT_RANGE_PROTO_RANDOM_FULLY => Some(Statement::Masquerade(SourcePorts::Randomised)),
        _ => None,
    }
}

fn verdict(code: i32, chain: Option<&str>) -> Option<Statement> {
    let verdict = match (code, chain) {
        (NF_ACCEPT, None) => Verdict::Accept,
        (NF_DROP, None) => Verdict::Drop,
        (NFT_RETURN, None) => Verdict::Return,
        (NFT_JUMP, Some(chain)) => Verdict::Jump(chain.to_owned()),
        (NFT_GOTO, Some(chain)) => Verdict::Goto(chain.to_owned()),
        _ => return None,
    };
    Some(Statement::Verdict(verdict))
}

/// The name of a device: padded with zeros if it is whole, else the beginning of one.
fn device(value: &[u8]) -> String {
    let name = crate::firewall::netfilter::text(value);
    if value.len() == 16 { name } else { name + "*" }
}

fn zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}
