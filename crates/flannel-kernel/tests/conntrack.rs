//! Tracked connections: those that are meant are forgotten, all others stay.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod sandbox;

use std::net::UdpSocket;

use flannel_kernel::firewall::conntrack::forget_udp;
use sandbox::*;

/// Every tracked flow: its protocol and the port that it was first sent to.
fn flows() -> Vec<String> {
    let port = |line: &str| {
        let word = line.split_whitespace().find(|word| word.starts_with("dport=")).unwrap().to_owned();
        format!("{} {word}", line.split_whitespace().nth(2).unwrap())
    };
    let mut flows: Vec<_> = sh("cat /proc/thread-self/net/nf_conntrack").lines().map(port).collect();
    flows.sort();
    flows
}

fn send(to: &str) {
    let local = if to.starts_with('[') { "[::1]:0" } else { "127.0.0.1:0" };
    UdpSocket::bind(local).unwrap().send_to(b"hello", to).unwrap();
}

#[test]
fn udp_flows_to_the_ports_are_forgotten_in_both_families_and_others_stay() {
    in_a_namespace(|| {
        // A rule that looks at connections makes the kernel track them.
        sh("ip link set lo up
            nft 'add table inet t; add chain inet t c { type filter hook output priority 0; }
                 add rule inet t c ct state new accept'");
        for to in
            ["127.0.0.1:8081", "127.0.0.5:8081", "127.0.0.1:8082", "127.0.0.1:9", "[::1]:8081", "[::1]:9"]
        {
            send(to);
        }
        let before = flows();
        assert_eq!(before.iter().filter(|flow| flow.contains("udp")).count(), 6, "{before:?}");
        assert_eq!(forget_udp(&[]), Ok(0));
        assert_eq!(forget_udp(&[8081, 8082, 7]), Ok(4));
        let after: Vec<_> = flows().into_iter().filter(|flow| flow.contains("udp")).collect();
        assert_eq!(after, ["udp dport=9", "udp dport=9"]);
        assert_eq!(forget_udp(&[8081, 8082, 7]), Ok(0));
    });
}
