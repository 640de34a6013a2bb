//! What iptables writes into nftables as it is, in structs of its own, and what others write that we do not judge.

use std::net::IpAddr;

use flannel_plan::family::Family;
use flannel_plan::rules::{Action, Expression, Is, Match, Rule, SetMark};

use super::TableFamily;
use crate::firewall::abi::*;
use crate::firewall::netfilter::text;
use crate::netlink::{Attributes, ip, number};

/// Reads an instruction that is not of nftables itself, or not known.
pub(super) fn read_unknown(rule: &mut Rule, family: TableFamily, name: &str, data: &[u8]) {
    let attribute = |kind| Attributes(data).get(kind).filter(|_| ["match", "target"].contains(&name));
    let extension = attribute(NFTA_EXTENSION_NAME).map(text).zip(attribute(NFTA_EXTENSION_INFO));
    if extension.as_ref().and_then(|(label, info)| read_known(rule, family, label, info)).is_some() {
        return;
    }
    let label = extension.map_or(name.into(), |(label, _)| label.into());
    let it = Expression { label, name: name.into(), data: data.into() };
    match name {
        "masq" | "nat" => rule.action = Action::OtherSource(name.into()),
        "target" | "reject" | "redir" | "queue" | "fwd" | "dup" | "tproxy" | "synproxy" => {
            rule.action = Action::Expression(it);
        }
        _ => rule.matches.push(Match::Expression(it)),
    }
}

fn read_known(rule: &mut Rule, family: TableFamily, label: &str, info: &[u8]) -> Option<()> {
    let at = |offset: usize| number(info.get(offset..)?);
    match label {
        "comment" => {
            rule.comment = Some(text(info).into());
            rule.matches.push(Match::Comment);
        }
        "udp" | "tcp" => rule.matches.push(port(label, info)?),
        "mark" => {
            let is = if *info.get(8)? == 0 { Is::Equal } else { Is::Different };
            rule.matches.push(Match::Mark { is, value: at(0)?, mask: at(4)? });
        }
        "addrtype" => rule.matches.push(local(info)?),
        "MARK" => rule.set_mark = Some(SetMark { value: at(0)?, mask: at(4)? }),
        "MASQUERADE" | "SNAT" | "NETMAP" => rule.action = Action::OtherSource(label.into()),
        "DNAT" => rule.action = dnat(family, info)?,
        _ => return None,
    }
    Some(())
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
