//! What iptables writes into nftables as it is, in structs of its own, and what others write that we do not judge.

use std::net::IpAddr;

use flannel_plan::family::Family;
use flannel_plan::rules::{Action, Expression, Is, Match, SetMark};

use super::TableFamily;
use super::decompile::Part;
use crate::firewall::abi::*;
use crate::firewall::netfilter::text;
use crate::netlink::{Attributes, ip, number};

/// What an instruction says that is not of nftables itself, or not known.
pub(super) fn read_unknown(family: TableFamily, name: &str, data: &[u8]) -> Part {
    let attribute = |kind| Attributes(data).get(kind).filter(|_| ["match", "target"].contains(&name));
    let extension = attribute(NFTA_EXTENSION_NAME).map(text).zip(attribute(NFTA_EXTENSION_INFO));
    let known = extension.as_ref().and_then(|(label, info)| known(family, label, info));
    let label = extension.map_or(name.into(), |(label, _)| label.into());
    known.unwrap_or_else(|| unknown(Expression { label, name: name.into(), data: data.into() }))
}

fn known(family: TableFamily, label: &str, info: &[u8]) -> Option<Part> {
    match label {
        "comment" => Some(Part::Comment(text(info).into())),
        "udp" | "tcp" => port(label, info).map(Part::Match),
        "mark" => {
            let [value, mask, not] = numbers(info)?;
            let is = if not.to_ne_bytes()[0] == 0 { Is::Equal } else { Is::Different };
            Some(Part::Match(Match::Mark { is, value, mask }))
        }
        "addrtype" => local(info).map(Part::Match),
        "MARK" => {
            let [value, mask] = numbers(info)?;
            Some(Part::SetMark(SetMark { value, mask }))
        }
        "MASQUERADE" | "SNAT" | "NETMAP" => Some(Part::Action(Action::OtherSource(label.into()))),
        "DNAT" => dnat(family, info).map(Part::Action),
        _ => None,
    }
}

fn unknown(it: Expression) -> Part {
    match &*it.name {
        "masq" | "nat" => Part::Action(Action::OtherSource(it.name)),
        "target" | "reject" | "redir" | "queue" | "fwd" | "dup" | "tproxy" | "synproxy" => {
            Part::Action(Action::Expression(it))
        }
        _ => Part::Match(Match::Expression(it)),
    }
}

/// The numbers that a struct begins with.
fn numbers<const N: usize>(info: &[u8]) -> Option<[u32; N]> {
    let mut numbers = [0; N];
    for (at, place) in numbers.iter_mut().enumerate() {
        *place = number(info.get(4 * at..4 * at + 4)?)?;
    }
    Some(numbers)
}

/// `struct xt_udp` and the beginning of `struct xt_tcp`: the ports that packets come from, those that they go to, and,
/// in another place, which of both are turned round.
fn port(label: &str, info: &[u8]) -> Option<Match> {
    let [_, _, _, _, a, b, c, d] = *info.first_chunk::<8>()?;
    let (first, last) = (u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d]));
    let (at, bit) = if label == "udp" { (8, XT_UDP_INV_DSTPT) } else { (11, XT_TCP_INV_DSTPT) };
    let is = if info.get(at)? & bit == 0 { Is::Equal } else { Is::Different };
    Some(match (first, last) {
        (first, last) if first == last => Match::DestinationPort(is, first),
        (first, last) => Match::Other(format!("-m {label} --dport {first}:{last}").into()),
    })
}

/// `struct xt_addrtype_info_v1`, if only the destination matters, and only whether it is of this host.
fn local(info: &[u8]) -> Option<Match> {
    let [a, b, c, d, flags @ ..] = *info.first_chunk::<8>()?;
    let (source, destination) = (u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d]));
    let is = match u32::from_ne_bytes(flags) {
        0 => Is::Equal,
        XT_ADDRTYPE_INVERT_DEST => Is::Different,
        _ => return None,
    };
    (source == 0 && destination == 1 << RTN_LOCAL).then_some(Match::DestinationLocal(is))
}

/// `struct nf_nat_range2`: flags, addresses and ports, from and to. Before that there was `struct
/// nf_nat_ipv4_multi_range_compat`, which is shorter, begins with a number of ranges, and is only of IPv4.
fn dnat(family: TableFamily, info: &[u8]) -> Option<Action> {
    let (flags, addresses, size) = if info.len() < 40 { (4, 8, 4) } else { (0, 4, 16) };
    let family = if family == TableFamily::Ip { Family::V4 } else { Family::V6 };
    let octets = info.get(addresses..addresses + usize::from(family.bits()) / 8)?;
    let address: IpAddr = ip(octets)?;
    let ports = info.get(addresses + 2 * size..)?.first_chunk().map(|port| u16::from_be_bytes(*port));
    let says_port = number(info.get(flags..flags + 4)?)? & NF_NAT_RANGE_PROTO_SPECIFIED != 0;
    Some(Action::Dnat(address, ports.filter(|_| says_port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_of_a_match_of_iptables_may_be_turned_round() {
        let [low, high] = 8472_u16.to_ne_bytes();
        let udp = |turned| port("udp", &[0, 0, 255, 255, low, high, low, high, turned, 0]);
        assert_eq!(udp(0), Some(Match::DestinationPort(Is::Equal, 8472)));
        assert_eq!(udp(1), Some(Match::DestinationPort(Is::Equal, 8472)), "the source port");
        assert_eq!(udp(2), Some(Match::DestinationPort(Is::Different, 8472)));
    }
}
