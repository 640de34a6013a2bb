//! A rule in the words of iptables, in the order in which `iptables-save` prints them.

use std::net::SocketAddr;

use crate::family::Family;
use crate::rules::ports::PortRange;
use crate::rules::{Action, Is, Match, Rule, SetMark, Side, SourcePorts};

/// What stands behind the chain in a line of `iptables-save`.
pub fn text(rule: &Rule) -> String {
    let mut words = Vec::new();
    // Rank by rank: sorting would weigh in the CNI program.
    for place in [Some(0), Some(1), Some(2), Some(3), Some(4), None] {
        let of_rank = rule.matches.iter().filter(|it| rank(it) == place);
        words.extend(of_rank.filter_map(|it| one(rule, it)));
    }
    let said = rule.matches.contains(&Match::Comment);
    words.extend((!said).then(|| one(rule, &Match::Comment)).flatten());
    words.extend(target(rule));
    words.join(" ")
}

/// Addresses, devices and the protocol are not part of any module, and stand first.
fn rank(it: &Match) -> Option<u8> {
    match it {
        Match::Source(..) => Some(0),
        Match::Destination(..) => Some(1),
        Match::InLink(..) => Some(2),
        Match::OutLink(..) => Some(3),
        Match::Protocol(..) => Some(4),
        _ => None,
    }
}

fn one(rule: &Rule, it: &Match) -> Option<String> {
    Some(match it {
        Match::Source(is, net) => format!("{}-s {}", not(*is), net.trunc()),
        Match::Destination(is, net) => format!("{}-d {}", not(*is), net.trunc()),
        Match::Range(side, is, first, last) => {
            format!("-m iprange {}--{}-range {first}-{last}", not(*is), side_name(*side))
        }
        Match::Set(side, is, name) => format!("-m set {}--match-set {name} {}", not(*is), side_name(*side)),
        Match::EtherSource(is, mac) => format!("-m mac {}--mac-source {mac}", not(*is)),
        Match::InLink(is, name) => format!("{}-i {}", not(*is), name.replace('*', "+")),
        Match::OutLink(is, name) => format!("{}-o {}", not(*is), name.replace('*', "+")),
        Match::Protocol(is, number) => format!("{}-p {}", not(*is), protocol(*number)),
        Match::DestinationPort(is, port) => {
            format!("-m {} {}--dport {port}", protocol(rule.protocol().unwrap_or_default()), not(*is))
        }
        Match::DestinationPorts(is, ports) => format!("-m multiport {}--dports {}", not(*is), list(ports)),
        Match::Mark { is, value, mask } => format!("-m mark {}--mark {}", not(*is), masked(*value, *mask)),
        Match::PacketType(is, kind) => format!("-m pkttype {}--pkt-type {kind}", not(*is)),
        Match::DestinationLocal(is) => format!("-m addrtype {}--dst-type LOCAL", not(*is)),
        Match::Vxlan(family, vni) => format!("-m u32 --u32 {}", quoted(&vxlan(*family, *vni))),
        Match::Chance { part, of } => {
            format!("-m statistic --mode random --probability {}", probability(*part, *of))
        }
        Match::Comment => format!("-m comment --comment {}", quoted(rule.comment.as_ref()?)),
        Match::Expression(expression) => expression.label.to_string(),
        Match::Other(text) => text.to_string(),
        Match::Family(..) | Match::Counter => return None,
    })
}

/// Eleven digits behind the point; what lies in the middle of two goes to the even one, as C prints it.
fn probability(part: u32, of: u32) -> String {
    let (part, of) = (u128::from(part) * 100_000_000_000, u128::from(of.max(1)));
    let (digits, rest) = (part / of, 2 * (part % of));
    let digits = digits + u128::from(rest > of || rest == of && digits % 2 == 1);
    format!("{}.{:011}", digits / 100_000_000_000, digits % 100_000_000_000)
}

fn side_name(side: Side) -> &'static str {
    match side {
        Side::Source => "src",
        Side::Destination => "dst",
    }
}

fn list(ports: &[PortRange]) -> String {
    let ranges: Vec<_> = ports.iter().map(|range| range.to_string().replace('-', ":")).collect();
    ranges.join(",")
}

fn masked(value: u32, mask: u32) -> String {
    if mask == u32::MAX { format!("{value:#x}") } else { format!("{value:#x}/{mask:#x}") }
}

/// What the first eight bytes of a vxlan packet are: a flag that says that the number is valid, and the number.
/// They stand behind the header of UDP; that of IPv4 says itself how long it is.
pub(super) fn vxlan(family: Family, vni: u32) -> String {
    let number = u64::from(vni) << 8;
    match family {
        Family::V4 => {
            format!("0x0>>0x16&0x3c@0x8&0x8000000=0x8000000&&0x0>>0x16&0x3c@0xc={number:#x}")
        }
        Family::V6 => format!("0x30&0x8000000=0x8000000&&0x34={number:#x}"),
    }
}

fn not(is: Is) -> &'static str {
    match is {
        Is::Equal => "",
        Is::Different => "! ",
    }
}

pub(super) const PROTOCOLS: [(u8, &str); 7] =
    [(1, "icmp"), (6, "tcp"), (17, "udp"), (58, "ipv6-icmp"), (132, "sctp"), (136, "udplite"), (33, "dccp")];

fn protocol(number: u8) -> String {
    let known = PROTOCOLS.iter().find(|(known, _)| *known == number);
    known.map_or_else(|| number.to_string(), |(_, name)| (*name).to_owned())
}

fn target(rule: &Rule) -> Option<String> {
    Some(match &rule.action {
        Action::Accept => "-j ACCEPT".to_owned(),
        Action::Drop => "-j DROP".to_owned(),
        Action::Return => "-j RETURN".to_owned(),
        Action::Masquerade(source_ports, to_ports) => {
            let to_ports = to_ports.map(|range| format!(" --to-ports {range}")).unwrap_or_default();
            let random = if *source_ports == SourcePorts::Randomised { " --random-fully" } else { "" };
            format!("-j MASQUERADE{to_ports}{random}")
        }
        Action::Dnat(address, None) => format!("-j DNAT --to-destination {address}"),
        Action::Dnat(address, Some(port)) => {
            format!("-j DNAT --to-destination {}", SocketAddr::new(*address, *port))
        }
        Action::Untrack => "-j CT --notrack".to_owned(),
        Action::Jump(chain) => format!("-j {chain}"),
        Action::Goto(chain) => format!("-g {chain}"),
        Action::OtherSource(text) | Action::Other(text) => format!("-j {text}"),
        Action::Expression(expression) => format!("-j {}", expression.label),
        Action::Nothing => {
            let SetMark { value, mask } = rule.set_mark?;
            format!("-j MARK --set-xmark {value:#x}/{mask:#x}")
        }
    })
}

/// A word as `iptables-restore` reads it: in quotes if it has to be.
pub fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:,!+@%=[]".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    // A line is a rule: what would end it cannot be part of one.
    let letters = word.chars().filter(|letter| !letter.is_control());
    let escaped = letters.flat_map(|letter| {
        let slash = matches!(letter, '"' | '\\').then_some('\\');
        slash.into_iter().chain([letter])
    });
    ['"'].into_iter().chain(escaped).chain(['"']).collect()
}
