//! From the instructions of a rule back to what it says, as far as we know it; the rest is kept in its bytes.

use std::net::IpAddr;

use flannel_plan::family::Family;
use flannel_plan::mac::Mac;
use flannel_plan::rules::ports::PortRange;
use flannel_plan::rules::{Action, Is, Match, Rule, SetMark, Side, SourcePorts};
use ipnet::IpNet;

use super::TableFamily;
use super::compile::{VXLAN_MASK, ether_type, offset, vxlan_header};
use super::extension::read_unknown;
use super::instruction::Instruction::{self, *};
use super::instruction::read_list;
use super::object::family_of;
use crate::firewall::abi::*;
use crate::netlink::{ip, number as native};

/// What the list of instructions of a rule in a table of this family says.
pub(crate) fn decompile(family: TableFamily, list: &[u8]) -> Rule {
    let (instructions, told) = read_list(list);
    let rule = Rule::new(Vec::with_capacity(told.len()), Action::Nothing);
    let mut reader = Reader { family, network: None, rule };
    let mut at = 0;
    while let Some((name, data)) = told.get(at) {
        at += reader.read(&instructions[at..]).unwrap_or_else(|| {
            read_unknown(&mut reader.rule, family, name, data);
            1
        });
    }
    reader.rule
}

/// Knows what earlier instructions have made sure of, and gathers what all of them say.
struct Reader {
    family: TableFamily,
    network: Option<Family>,
    rule: Rule,
}

impl Reader {
    /// Reads what stands first, and tells how many instructions that took; none if we do not know what it says.
    fn read(&mut self, rest: &[Instruction]) -> Option<usize> {
        match rest {
            [Meta(key), Compare(operator, value), following @ ..] => {
                self.meta(*key, is(*operator)?, value, following)
            }
            [Meta(NFT_META_MARK), Bitwise(mask, flip), Compare(operator, value), ..] if zero(flip) => {
                let is = is(*operator)?;
                self.test(3, Match::Mark { is, value: native(value)?, mask: native(mask)? })
            }
            [Meta(NFT_META_MARK), Bitwise(mask, value), MetaSet(NFT_META_MARK), ..] => {
                self.rule.set_mark = Some(SetMark { value: native(value)?, mask: !native(mask)? });
                Some(3)
            }
            [Payload(NFT_PAYLOAD_NETWORK_HEADER, offset, length), following @ ..] => {
                self.network_header(*offset, *length, following)
            }
            [Payload(NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2), Compare(operator, value), ..] => {
                self.test(2, Match::DestinationPort(is(*operator)?, port(value)?))
            }
            [Payload(NFT_PAYLOAD_TRANSPORT_HEADER, 8, 8), following @ ..] => self.vxlan(following),
            [Payload(NFT_PAYLOAD_LL_HEADER, 6, 6), Compare(operator, value), ..] => {
                self.test(2, Match::EtherSource(is(*operator)?, Mac(value.as_slice().try_into().ok()?)))
            }
            [DestinationType, Compare(operator, value), ..] if native(value) == Some(RTN_LOCAL) => {
                self.test(2, Match::DestinationLocal(is(*operator)?))
            }
            [Random(of), ToNetworkOrder, Compare(NFT_CMP_LT, part), ..] => {
                self.test(3, Match::Chance { part: u32::from_be_bytes(*part.first_chunk()?), of: *of })
            }
            [Load(NFT_REG_1, port), following @ ..] if port.len() == 2 => self.masquerade_to(port, following),
            [Load(NFT_REG_1, address), following @ ..] => self.dnat(ip(address)?, following),
            [Instruction::Counter, ..] => self.test(1, Match::Counter),
            [NoTrack, ..] => self.act(1, Action::Untrack),
            [Masquerade(flags, None), ..] => self.act(1, Action::masquerade(source_ports(*flags)?)),
            [Verdict(code, chain), ..] => self.act(1, verdict(*code, chain.as_deref())?),
            _ => None,
        }
    }

    fn meta(&mut self, key: u32, is: Is, value: &[u8], following: &[Instruction]) -> Option<usize> {
        let certain = is == Is::Equal;
        let prepares = certain && matches!(following, [Payload(NFT_PAYLOAD_NETWORK_HEADER, ..), ..]);
        let it = match key {
            NFT_META_MARK => Match::Mark { is, value: native(value)?, mask: u32::MAX },
            NFT_META_IIFNAME => Match::InLink(is, device(value)),
            NFT_META_OIFNAME => Match::OutLink(is, device(value)),
            NFT_META_PKTTYPE => Match::PacketType(is, *value.first()?),
            NFT_META_L4PROTO => Match::Protocol(is, *value.first()?),
            NFT_META_NFPROTO => {
                let family = family_of(*value.first()?)?;
                self.network = certain.then_some(family);
                if prepares {
                    return Some(2);
                }
                Match::Family(is, family)
            }
            NFT_META_PROTOCOL if prepares => {
                self.network = Family::BOTH.into_iter().find(|it| ether_type(*it) == value);
                return self.network.map(|_| 2);
            }
            _ => return None,
        };
        self.test(2, it)
    }

    /// The family that the network header of a packet has by now.
    fn network(&self) -> Option<Family> {
        match self.family {
            TableFamily::Ip => Some(Family::V4),
            TableFamily::Ip6 => Some(Family::V6),
            TableFamily::Inet | TableFamily::Bridge => self.network,
        }
    }

    fn network_header(&mut self, at: u32, length: u32, following: &[Instruction]) -> Option<usize> {
        let family = self.network()?;
        if (family, at, length) == (Family::V4, 9, 1) {
            // `ip protocol`: how iptables said `-p` before it said `meta l4proto`.
            let [Compare(operator, value), ..] = following else { return None };
            return self.test(2, Match::Protocol(is(*operator)?, *value.first()?));
        }
        let side = [Side::Source, Side::Destination].into_iter().find(|side| offset(*side, family) == at)?;
        let size = usize::from(family.bits()) / 8;
        let length = usize::try_from(length).ok().filter(|length| *length <= size)?;
        match following {
            [Bitwise(mask, flip), Compare(operator, value), ..] if length == size && zero(flip) => {
                let network = IpNet::with_netmask(ip(value)?, ip(mask)?).ok()?;
                self.test(3, address(side, is(*operator)?, network))
            }
            [Compare(NFT_CMP_GTE, first), Compare(NFT_CMP_LTE, last), ..] if length == size => {
                self.test(3, Match::Range(side, Is::Equal, ip(first)?, ip(last)?))
            }
            [Range(NFT_RANGE_NEQ, first, last), ..] if length == size => {
                self.test(2, Match::Range(side, Is::Different, ip(first)?, ip(last)?))
            }
            [Lookup(set, inverted), ..] if length == size => {
                let is = if *inverted { Is::Different } else { Is::Equal };
                self.test(2, Match::Set(side, is, set.as_str().into()))
            }
            [Compare(operator, value), ..] => {
                let mut octets = value.clone();
                octets.resize(size, 0);
                let network = IpNet::new(ip(&octets)?, u8::try_from(length * 8).ok()?).ok()?;
                self.test(2, address(side, is(*operator)?, network))
            }
            _ => None,
        }
    }

    /// The number of the network that a packet of vxlan has to carry.
    fn vxlan(&mut self, following: &[Instruction]) -> Option<usize> {
        let [Bitwise(mask, flip), Compare(NFT_CMP_EQ, value), ..] = following else { return None };
        let [.., high, middle, low, _] = *value.first_chunk::<8>()?;
        let vni = u32::from_be_bytes([0, high, middle, low]);
        let plain = *mask == VXLAN_MASK && zero(flip) && *value == vxlan_header(vni);
        let family = self.network()?;
        if plain { self.test(3, Match::Vxlan(family, vni)) } else { None }
    }

    fn dnat(&mut self, address: IpAddr, following: &[Instruction]) -> Option<usize> {
        match following {
            [Load(NFT_REG_2, value), Dnat { port: true, .. }, ..] => {
                self.act(3, Action::Dnat(address, Some(port(value)?)))
            }
            [Dnat { port: false, .. }, ..] => self.act(2, Action::Dnat(address, None)),
            _ => None,
        }
    }

    /// The ports that masquerade may choose.
    fn masquerade_to(&mut self, value: &[u8], following: &[Instruction]) -> Option<usize> {
        let first = port(value)?;
        let (taken, last, flags) = match following {
            [Masquerade(flags, Some(NFT_REG_1)), ..] => (2, first, *flags),
            [Load(NFT_REG_2, value), Masquerade(flags, Some(NFT_REG_2)), ..] => (3, port(value)?, *flags),
            _ => return None,
        };
        let source_ports = source_ports(flags & !NF_NAT_RANGE_PROTO_SPECIFIED)?;
        self.act(taken, Action::Masquerade(source_ports, Some(PortRange { first, last })))
    }

    fn test(&mut self, taken: usize, it: Match) -> Option<usize> {
        self.rule.matches.push(it);
        Some(taken)
    }

    fn act(&mut self, taken: usize, action: Action) -> Option<usize> {
        self.rule.action = action;
        Some(taken)
    }
}

fn address(side: Side, is: Is, network: IpNet) -> Match {
    match side {
        Side::Source => Match::Source(is, network),
        Side::Destination => Match::Destination(is, network),
    }
}

fn port(value: &[u8]) -> Option<u16> {
    value.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

fn is(operator: u32) -> Option<Is> {
    match operator {
        NFT_CMP_EQ => Some(Is::Equal),
        NFT_CMP_NEQ => Some(Is::Different),
        _ => None,
    }
}

fn source_ports(flags: u32) -> Option<SourcePorts> {
    match flags {
        0 => Some(SourcePorts::Kept),
        NF_NAT_RANGE_PROTO_RANDOM_FULLY => Some(SourcePorts::Randomised),
        _ => None,
    }
}

fn verdict(code: i32, chain: Option<&str>) -> Option<Action> {
    Some(match (code, chain) {
        (NF_ACCEPT, None) => Action::Accept,
        (NF_DROP, None) => Action::Drop,
        (NFT_RETURN, None) => Action::Return,
        (NFT_JUMP, Some(chain)) => Action::Jump(chain.into()),
        (NFT_GOTO, Some(chain)) => Action::Goto(chain.into()),
        _ => return None,
    })
}

/// The name of a device: padded with zeros if it is whole, else the beginning of one.
fn device(value: &[u8]) -> Box<str> {
    let name = crate::firewall::netfilter::text(value);
    if value.len() == 16 { name.into() } else { (name + "*").into() }
}

fn zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}
