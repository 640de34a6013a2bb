//! Sixty packets, and what becomes of their source address: the same in every system.

use std::net::IpAddr;

use flannel_plan::family::Family;
use flannel_plan::rules::System;
use flannel_plan::rules::explain::{Fate, Packet, explain_snat};
use flannel_plan::rules::found::FoundTable;
use flannel_plan::rules::iptables::saved;

use ipnet::IpNet;
use proptest::prelude::*;

use crate::{SYSTEMS, net, settle, spec};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn packet(source: &str, destination: &str, mark: u32) -> Packet {
    let (source, destination) = (ip(source), ip(destination));
    Packet { source, destination, protocol: Some(6), port: Some(80), mark, out_link: None, to_host: None }
}

/// Where packets come from and go to, for a node with pods 10.244.1.0/24 of 10.244.0.0/16.
const ENDS: [(&str, &str, &str); 5] = [
    ("pod of this node", "10.244.1.5", "fd00:244:0:1::5"),
    ("pod of another node", "10.244.2.7", "fd00:244:0:2::7"),
    ("this node", "10.0.0.21", "fd00:10::21"),
    ("outside", "198.51.100.9", "2001:db8::9"),
    ("multicast", "224.0.0.251", "ff02::fb"),
];

/// From, to, and whether the source is kept.
const TRUTH: [(usize, usize, Fate); 15] = [
    (0, 0, Fate::Kept),
    (0, 1, Fate::Kept),
    (0, 2, Fate::Masqueraded),
    (0, 3, Fate::Masqueraded),
    (0, 4, Fate::Kept),
    (1, 0, Fate::Kept),
    (1, 1, Fate::Masqueraded), // passes through a node that has neither of them
    (1, 2, Fate::Masqueraded),
    (1, 3, Fate::Masqueraded),
    (1, 4, Fate::Kept),
    (2, 0, Fate::Kept),
    (2, 1, Fate::Masqueraded),
    (2, 3, Fate::Kept),
    (3, 0, Fate::Kept),
    (3, 1, Fate::Masqueraded),
];

/// Fifteen ways in two families, plain and with the mark of kube-proxy among others: sixty packets.
fn packets() -> Vec<(String, Packet, Fate)> {
    let mut packets = Vec::new();
    for (from, to, fate) in TRUTH {
        for (mark, note) in [(0x1, "plain"), (0x4001, "marked by kube-proxy")] {
            let fate = if mark & 0x4000 == 0 { fate } else { Fate::Kept };
            let name = format!("{note}: {} to {}", ENDS[from].0, ENDS[to].0);
            packets.push((format!("{name}, v4"), packet(ENDS[from].1, ENDS[to].1, mark), fate));
            packets.push((format!("{name}, v6"), packet(ENDS[from].2, ENDS[to].2, mark), fate));
        }
    }
    packets
}

/// iptables has the chain that leads to ours even if nobody looked at it yet.
fn with_policies(mut tables: Vec<FoundTable>) -> Vec<FoundTable> {
    let empty = "*nat\n:POSTROUTING ACCEPT [0:0]\nCOMMIT\n";
    let base = saved(System::IptablesNft, Family::V4, empty).unwrap().tables[0].chains[0].base;
    let base_chains = tables.iter_mut().flat_map(|table| &mut table.chains);
    base_chains.filter(|chain| &*chain.name == "POSTROUTING").for_each(|chain| chain.base = base);
    tables
}

#[test]
fn sixty_packets_get_the_same_source_in_every_system() {
    assert_eq!(packets().len(), 60);
    for system in SYSTEMS {
        let tables = with_policies(settle(&spec(system), &[]));
        for (name, packet, fate) in packets() {
            let explanation = explain_snat(&tables, &packet);
            assert_eq!((explanation.fate, explanation.perhaps.is_empty()), (fate, true), "{system}: {name}");
        }
    }
}

#[test]
fn without_masquerade_every_source_is_kept() {
    for system in SYSTEMS {
        let mut spec = spec(system);
        spec.masquerade = Default::default();
        let tables = with_policies(settle(&spec, &[]));
        for (name, packet, _) in packets() {
            assert_eq!(explain_snat(&tables, &packet).fate, Fate::Kept, "{system}: {name}");
        }
    }
}

#[test]
fn pods_keep_their_address_to_networks_that_are_not_to_be_masqueraded() {
    for system in SYSTEMS {
        let mut spec = spec(system);
        spec.non_masquerade_cidrs =
            vec![net("198.51.100.0/24"), net("10.0.0.0/8"), net("10.1.0.0/16"), net("2001:db8::/32")];
        let tables = with_policies(settle(&spec, &[]));
        let fate = |from, to| explain_snat(&tables, &packet(from, to, 0)).fate;
        assert_eq!(fate("10.244.1.5", "198.51.100.9"), Fate::Kept, "{system}");
        assert_eq!(fate("10.244.1.5", "10.0.0.21"), Fate::Kept, "{system}");
        assert_eq!(fate("fd00:244:0:1::5", "2001:db8::9"), Fate::Kept, "{system}");
        assert_eq!(fate("10.244.1.5", "203.0.113.1"), Fate::Masqueraded, "{system}");
        // The answer of a pod of another node has to come back here, whatever the list says.
        assert_eq!(fate("10.0.0.21", "10.244.2.7"), Fate::Masqueraded, "{system}");
    }
}

#[test]
fn the_words_name_the_rule_and_what_it_is_for() {
    let tables = with_policies(settle(&spec(System::IptablesNft), &[]));
    let explanation = explain_snat(&tables, &packet("10.244.1.5", "198.51.100.9", 0));
    let expected = "A packet from 10.244.1.5 to 198.51.100.9 gets the node's address (masquerade).
  Decided by rule 5 of FLANNEL-POSTRTG in iptables nat: -s 10.244.0.0/16 ! -d 224.0.0.0/4 -m comment --comment \"flanneld masq\" -j MASQUERADE --random-fully
  It leaves the pod network, where nobody would know the way back to a pod.
";
    assert_eq!(explanation.to_string(), expected);
    let nowhere = explain_snat(&[], &packet("10.244.1.5", "198.51.100.9", 0));
    assert_eq!(
        nowhere.to_string(),
        "A packet from 10.244.1.5 to 198.51.100.9 keeps its source address.\n  No rule is about it.\n"
    );
}

#[test]
fn rules_of_others_decide_too_and_what_is_not_known_is_said() {
    let output = r#"*nat
:POSTROUTING ACCEPT [0:0]
:FLANNEL-POSTRTG - [0:0]
:KUBE-POSTROUTING - [0:0]
:CNI-abc - [0:0]
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A POSTROUTING -s 10.244.1.9/32 -m comment --comment "name: \"cbr0\"" -j CNI-abc
-A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully
-A CNI-abc -d 10.244.1.0/24 -j ACCEPT
-A CNI-abc -m statistic --mode random --probability 0.50000000000 -j SNAT --to-source 192.0.2.1
-A FLANNEL-POSTRTG -m mark --mark 0x4000/0x4000 -m comment --comment "flanneld masq" -j RETURN
COMMIT
"#;
    let tables = saved(System::IptablesNft, Family::V4, output).unwrap().tables;
    let marked = explain_snat(&tables, &packet("10.0.0.21", "10.244.2.7", 0x4000));
    assert_eq!(marked.fate, Fate::Masqueraded);
    assert_eq!(&*marked.decisive().unwrap().chain, "KUBE-POSTROUTING");
    let local = explain_snat(&tables, &packet("10.244.1.9", "10.244.1.5", 0));
    assert_eq!((local.fate, &*local.decisive().unwrap().chain), (Fate::Kept, "CNI-abc"));
    let unsure = explain_snat(&tables, &packet("10.244.1.9", "198.51.100.9", 0));
    assert_eq!((unsure.fate, unsure.perhaps.is_empty()), (Fate::Kept, false));
    let words = "Unless it fits rule 2 of CNI-abc in iptables nat: -m statistic --mode random --probability 0.50000000000 \
                 -j SNAT --to-source 192.0.2.1";
    assert!(unsure.to_string().contains(words), "{unsure}");
}

#[test]
fn what_goes_elsewhere_meets_rules_for_all_but_the_host() {
    let text = "*nat\n:POSTROUTING ACCEPT [0:0]\n:IP-MASQ-AGENT - [0:0]\n\
        -A POSTROUTING -m addrtype ! --dst-type LOCAL -j IP-MASQ-AGENT\n-A IP-MASQ-AGENT -j MASQUERADE\nCOMMIT\n";
    let tables = saved(System::IptablesNft, Family::V4, text).unwrap().tables;
    let fate = |to_host| {
        let packet = Packet { to_host, ..packet("10.244.1.5", "198.51.100.9", 0) };
        let explanation = explain_snat(&tables, &packet);
        (explanation.fate, explanation.perhaps.is_empty())
    };
    assert_eq!(fate(Some(false)), (Fate::Masqueraded, true));
    assert_eq!(fate(Some(true)), (Fate::Kept, true));
    assert_eq!(fate(None), (Fate::Kept, false));
}

proptest! {
    #[test]
    fn any_packet_gets_the_same_source_in_every_system(
        source in address(), destination in address(), mark in any::<u32>(), kept in prop::collection::vec(address(), 0..3)
    ) {
        let fates = SYSTEMS.map(|system| {
            let mut spec = spec(system);
            spec.non_masquerade_cidrs = kept.iter().map(|ip| IpNet::new(*ip, 20).unwrap()).collect();
            let tables = with_policies(settle(&spec, &[]));
            let packet = Packet { source, destination, protocol: None, port: None, mark, out_link: None, to_host: None };
            explain_snat(&tables, &packet).fate
        });
        prop_assert_eq!([fates[0], fates[0]], [fates[1], fates[2]]);
    }
}

/// Addresses near the edges of the networks that rules name.
fn address() -> impl Strategy<Value = IpAddr> {
    let second = prop::sample::select(vec![243, 244, 245]);
    let near = (second, any::<u8>(), any::<u8>()).prop_map(|(b, c, d)| IpAddr::from([10, b, c, d]));
    let own = any::<u8>().prop_map(|d| IpAddr::from([10, 244, 1, d]));
    prop_oneof![
        near,
        own,
        (220_u8..=240).prop_map(|a| IpAddr::from([a, 0, 0, 1])),
        any::<[u8; 4]>().prop_map(IpAddr::from)
    ]
}
