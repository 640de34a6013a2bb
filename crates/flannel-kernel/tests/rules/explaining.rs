//! The live rules of a host, everybody's, read for questions about them.

use std::net::IpAddr;

use flannel_kernel::firewall::rules::Rules;
use flannel_plan::family::Family;
use flannel_plan::rules::System;
use flannel_plan::rules::explain::{Fate, Packet, explain_snat};

use crate::sandbox::{ip, sh};
use crate::{SYSTEMS, in_a_node, in_every_system, settle, spec};

fn packet(source: &str, destination: &str, mark: u32) -> Packet {
    let (source, destination): (IpAddr, IpAddr) = (ip(source), ip(destination));
    Packet {
        source,
        destination,
        protocol: Some(17),
        port: Some(53),
        mark,
        out_link: Some("nic".into()),
        to_host: None,
    }
}

#[test]
fn the_fate_of_a_packet_is_told_from_the_live_rules() {
    in_every_system(|system| {
        let mut rules = Rules::open();
        settle(&mut rules, &spec(system));
        for (from, to, mark, fate) in [
            ("10.244.1.5", "198.51.100.9", 0, Fate::Masqueraded),
            ("10.244.1.5", "10.244.2.7", 0, Fate::Kept),
            ("10.0.0.21", "10.244.2.7", 0, Fate::Masqueraded),
            ("10.0.0.21", "10.244.2.7", 0x4001, Fate::Kept),
            ("198.51.100.9", "10.244.1.5", 0, Fate::Kept),
            ("fd00:244:0:1::5", "2001:db8::9", 0, Fate::Masqueraded),
            ("fd00:244:0:1::5", "ff02::fb", 0, Fate::Kept),
        ] {
            let observation = rules.observe_everything(Family::of(ip(from)));
            assert_eq!(observation.unreadable, []);
            let explanation = explain_snat(&observation.tables, &packet(from, to, mark));
            assert_eq!(explanation.fate, fate, "{system}: {explanation}");
            assert!(explanation.perhaps.is_empty(), "{system}: {explanation}");
        }
    });
}

#[test]
fn rules_of_kube_proxy_and_of_cni_plugins_in_nftables_are_followed() {
    in_a_node(|| {
        let mut rules = Rules::open();
        settle(&mut rules, &spec(System::Nftables));
        sh("nft add table ip kube-proxy
            nft add chain ip kube-proxy masquerading
            nft add rule ip kube-proxy masquerading meta mark '&' 0x4000 == 0 return
            nft add rule ip kube-proxy masquerading meta mark set mark xor 0x4000
            nft add rule ip kube-proxy masquerading masquerade fully-random
            nft add chain ip kube-proxy nat-postrouting '{ type nat hook postrouting priority 100 ; }'
            nft add rule ip kube-proxy nat-postrouting jump masquerading
            nft add table inet cni
            nft add chain inet cni post '{ type nat hook postrouting priority 90 ; }'
            nft add rule inet cni post ip6 saddr != fd00::1 masquerade
            nft add rule inet cni post ip saddr 192.0.2.77 ip daddr != 192.0.2.0/24 masquerade");
        let observation = rules.observe_everything(Family::V4);
        let decided = |source: &str, mark| {
            let explanation = explain_snat(&observation.tables, &packet(source, "10.244.2.7", mark));
            let by =
                explanation.decisive().map(|step| format!("{} {} {}", step.table, step.chain, step.place));
            (explanation.fate, by.unwrap_or_default())
        };
        assert_eq!(decided("10.0.0.21", 0x4000).0, Fate::Masqueraded);
        assert_eq!(decided("10.0.0.21", 0x4000).1, "nftables ip kube-proxy masquerading 3");
        let by_cni = (Fate::Masqueraded, "nftables ip cni post 2".to_owned());
        assert_eq!(decided("192.0.2.77", 0), by_cni);
    });
}

#[test]
fn a_rule_that_translates_the_port_of_the_tunnel_is_found_in_every_system() {
    for system in SYSTEMS {
        in_a_node(|| {
            let mut rules = Rules::open();
            settle(&mut rules, &spec(system));
            let found = |rules: &mut Rules| {
                rules.translation_of(Family::V4, 8472).unwrap().map(|step| step.chain.to_string())
            };
            assert_eq!(found(&mut rules), None, "{system}");
            sh(match system {
                System::Nftables => {
                    "nft add table ip theirs
                     nft add chain ip theirs pre '{ type nat hook prerouting priority -100 ; }'
                     nft add chain ip theirs ports
                     nft add rule ip theirs pre jump ports
                     nft add rule ip theirs ports udp dport 8472 dnat to 10.244.1.5:53"
                }
                System::IptablesNft => {
                    "iptables-nft -t nat -A PREROUTING -p udp --dport 8472 -j DNAT --to-destination 10.244.1.5:53"
                }
                System::IptablesLegacy => {
                    "iptables-legacy -t nat -A PREROUTING -p udp --dport 8472 -j DNAT --to-destination 10.244.1.5:53"
                }
            });
            let chain = if system == System::Nftables { "ports" } else { "PREROUTING" };
            assert_eq!(found(&mut rules).as_deref(), Some(chain), "{system}");
        });
    }
}

/// A rule that translates the port stands in chain `hidden`, which packets of TCP and of other ports are sent to.
#[test]
fn a_rule_is_found_three_jumps_deep_and_not_where_only_other_packets_come_to() {
    in_a_node(|| {
        let mut rules = Rules::open();
        let mut found = || {
            let step = rules.translation_of(Family::V4, 8472).unwrap();
            step.map(|step| format!("{} {} {}", step.table, step.chain, step.place))
        };
        sh("iptables-nft -t nat -N HIDDEN
            iptables-nft -t nat -A PREROUTING -p tcp -j HIDDEN
            iptables-nft -t nat -A PREROUTING -p tcp -m tcp --dport 80 -j HIDDEN
            iptables-nft -t nat -A OUTPUT -p udp -m udp --dport 53 -g HIDDEN
            iptables-nft -t nat -A HIDDEN -p udp -m udp --dport 8472 -j DNAT --to-destination 10.244.1.5:53");
        sh("nft add table inet theirs
            nft add chain inet theirs pre '{ type nat hook prerouting priority -100 ; }'
            for chain in hidden one two; do nft add chain inet theirs $chain; done
            nft add rule inet theirs hidden tcp dport 8472 dnat ip to 10.244.1.5:53
            nft add rule inet theirs hidden udp dport 8472 dnat ip to 10.244.1.5:53
            for packets in 'meta l4proto tcp' 'ip protocol tcp' 'meta l4proto != udp' 'tcp dport 80' \
                'tcp dport 80-8472' 'tcp dport { 80, 8472 }' 'udp dport 53' 'udp dport != 8472'; do
                nft add rule inet theirs pre $packets jump hidden
            done");
        assert_eq!(found(), None);
        sh("nft add rule inet theirs pre jump one
            nft add rule inet theirs one meta l4proto udp goto two
            nft add rule inet theirs two udp dport != 53 jump hidden");
        assert_eq!(found().as_deref(), Some("nftables ip theirs hidden 2"));
        sh("iptables-nft -t nat -A PREROUTING -m addrtype --dst-type LOCAL -j HIDDEN");
        assert_eq!(found().as_deref(), Some("nftables ip nat HIDDEN 1"));
    });
}
