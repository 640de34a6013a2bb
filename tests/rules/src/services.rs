//! A stand-in for kube-proxy on the first node: ports and virtual addresses that lead to pods, and marks.
//!
//! A table of its own in nftables, before flannel's chains; what real kube-proxy does is tried with the real one.

use std::net::SocketAddr;

use crate::site::Site;
use flannel_plan::family::Family;

/// Where a port of the first node leads: its number, where to, and whether kube-proxy would translate the source.
const NODE_PORTS: [(u16, &str, Source); 4] = [
    (30080, "one.a", Source::Left),
    (30081, "two.a", Source::Left),
    (30082, "two.a", Source::Masqueraded),
    (30083, "one.a", Source::Masqueraded),
];

/// Where a virtual address leads, at the port of services.
const VIRTUAL: [(&str, &str, Source); 6] = [
    ("vip.one.a", "one.a", Source::Left),
    ("vip.one.b", "one.b", Source::Left),
    ("vip.two.a", "two.a", Source::Left),
    ("vip.hairpin", "one.a", Source::Masqueraded),
    ("vip.cluster", "two.a", Source::Masqueraded),
    ("vip.far", "far.lo", Source::Left),
];

/// A port to which packets get a mark on the first node.
pub(crate) const MARKED: [(u16, u32); 4] = [(7100, 0x4000), (7101, 0x4001), (7102, 0x8000), (7103, 0xc000)];

/// The port that everybody listens on.
pub(crate) const OPEN: u16 = 7000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// The service leaves the source to others.
    Left,
    /// The service marks the packet and translates it itself.
    Masqueraded,
}

/// The number of a virtual address within the services' network.
pub(crate) fn number_of(name: &str) -> Option<u16> {
    VIRTUAL.iter().position(|(known, ..)| *known == name).and_then(|at| u16::try_from(at + 1).ok())
}

/// The table for a family, as `nft -f` reads it.
pub(crate) fn table(site: &Site, family: Family) -> String {
    let ip = match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    };
    let address = |name: &str| site.address(name, family);
    let marks: String = MARKED
        .iter()
        .map(|(port, mark)| format!("    udp dport {port} meta mark set meta mark | {mark:#x}\n"))
        .collect();
    let lead = |door: &str, port: u16, pod: &str, source: Source| {
        let mark = if source == Source::Masqueraded { "meta mark set meta mark | 0x4000 " } else { "" };
        let (door, pod) = (address(door), SocketAddr::new(address(pod), OPEN));
        format!("    {ip} daddr {door} meta l4proto {{ tcp, udp }} th dport {port} {mark}dnat to {pod}\n")
    };
    let ports = NODE_PORTS.iter().map(|(port, name, source)| lead("one", *port, name, *source));
    let virtual_ = VIRTUAL.iter().map(|(vip, name, source)| lead(vip, OPEN, name, *source));
    let leads: String = ports.chain(virtual_).collect();
    format!(
        "table {ip} truth {{\n\
         \x20 chain marks {{ type filter hook prerouting priority mangle\n{marks}  }}\n\
         \x20 chain marks-own {{ type route hook output priority mangle\n{marks}  }}\n\
         \x20 chain services {{ type nat hook prerouting priority dstnat\n{leads}  }}\n\
         \x20 chain services-own {{ type nat hook output priority -100\n{leads}  }}\n\
         \x20 chain sources {{ type nat hook postrouting priority srcnat - 5\n\
         \x20   ct status dnat meta mark & 0x4000 == 0x4000 masquerade fully-random\n  }}\n}}\n"
    )
}
