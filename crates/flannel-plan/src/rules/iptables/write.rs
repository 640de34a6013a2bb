//! A rule in the words of iptables, in the order in which `iptables-save` prints them.

use ipnet::IpNet;

use crate::family::Family;
use crate::rules::{Action, Is, Match, Rule, SourcePorts};

/// What stands behind the chain in a line of `iptables-save`.
pub fn text(rule: &Rule) -> String {
    let mut matches: Vec<_> = rule.matches().iter().collect();
    matches.sort_by_key(|it| rank(it));
    let mut parts: Vec<String> = matches.into_iter().map(|it| one(rule, it)).collect();
    parts.extend(rule.comment.as_ref().map(|comment| format!("-m comment --comment {}", quoted(comment))));
    parts.extend(target(&rule.action));
    parts.join(" ")
}

/// Addresses, devices and the protocol are not part of any module, and stand first.
fn rank(it: &Match) -> u8 {
    match it {
        Match::Source(..) => 0,
        Match::Destination(..) => 1,
        Match::InLink(..) => 2,
        Match::OutLink(..) => 3,
        Match::Protocol(..) => 4,
        Match::DestinationPort(..) => 5,
        Match::DestinationSet(..) | Match::Mark { .. } | Match::DestinationLocal(_) => 6,
        Match::Vxlan(..) | Match::Other(_) => 7,
    }
}

fn one(rule: &Rule, it: &Match) -> String {
    match it {
        Match::Source(is, net) => format!("{}-s {}", not(*is), network(*net)),
        Match::Destination(is, net) => format!("{}-d {}", not(*is), network(*net)),
        Match::DestinationSet(is, name) => format!("-m set {}--match-set {name} dst", not(*is)),
        Match::InLink(is, name) => format!("{}-i {}", not(*is), name.replace('*', "+")),
        Match::OutLink(is, name) => format!("{}-o {}", not(*is), name.replace('*', "+")),
        Match::Protocol(is, number) => format!("{}-p {}", not(*is), protocol(*number)),
        Match::DestinationPort(is, port) => {
            format!("-m {} {}--dport {port}", protocol(protocol_of(rule)), not(*is))
        }
        Match::Mark { is, value, mask: u32::MAX } => format!("-m mark {}--mark {value:#x}", not(*is)),
        Match::Mark { is, value, mask } => format!("-m mark {}--mark {value:#x}/{mask:#x}", not(*is)),
        Match::DestinationLocal(is) => format!("-m addrtype {}--dst-type LOCAL", not(*is)),
        Match::Vxlan(family, vni) => format!("-m u32 --u32 {}", quoted(&vxlan(*family, *vni))),
        Match::Other(text) => text.to_string(),
    }
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

fn network(net: IpNet) -> String {
    net.trunc().to_string()
}

/// The protocol whose ports a rule is about.
fn protocol_of(rule: &Rule) -> u8 {
    let number = |it: &Match| match it {
        Match::Protocol(Is::Equal, number) => Some(*number),
        _ => None,
    };
    rule.matches().iter().find_map(number).unwrap_or_default()
}

pub(super) const PROTOCOLS: [(u8, &str); 7] =
    [(1, "icmp"), (6, "tcp"), (17, "udp"), (58, "ipv6-icmp"), (132, "sctp"), (136, "udplite"), (33, "dccp")];

fn protocol(number: u8) -> String {
    let known = PROTOCOLS.iter().find(|(known, _)| *known == number);
    known.map_or_else(|| number.to_string(), |(_, name)| (*name).to_owned())
}

fn target(action: &Action) -> Option<String> {
    Some(match action {
        Action::Accept => "-j ACCEPT".to_owned(),
        Action::Drop => "-j DROP".to_owned(),
        Action::Return => "-j RETURN".to_owned(),
        Action::Masquerade(SourcePorts::Kept) => "-j MASQUERADE".to_owned(),
        Action::Masquerade(SourcePorts::Randomised) => "-j MASQUERADE --random-fully".to_owned(),
        Action::Untrack => "-j CT --notrack".to_owned(),
        Action::Jump(chain) => format!("-j {chain}"),
        Action::Goto(chain) => format!("-g {chain}"),
        Action::OtherSource(text) | Action::Other(text) => format!("-j {text}"),
        Action::Nothing => return None,
    })
}

/// A word as `iptables-restore` reads it: in quotes if it has to be.
pub(super) fn quoted(word: &str) -> String {
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
