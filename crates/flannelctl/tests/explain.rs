//! `flannelctl explain snat` by rules that are in a real kernel, on a node of a lab. Needs root.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::io::Write;
use std::process::Stdio;

use flannel_lab::{Flanneld, Lab, LabOptions, Node, Topology, unique_name};
use serde_json::{Value, json};

const FLANNELCTL: &str = env!("CARGO_BIN_EXE_flannelctl");

/// The rules of a node with the pods of 10.244.1.0/24, as Go flannel writes them too.
const IPTABLES: &str = "\
*nat
:FLANNEL-POSTRTG - [0:0]
-A POSTROUTING -m comment --comment \"flanneld masq\" -j FLANNEL-POSTRTG
-A FLANNEL-POSTRTG -m mark --mark 0x4000/0x4000 -m comment --comment \"flanneld masq\" -j RETURN
-A FLANNEL-POSTRTG -s 10.244.1.0/24 -d 10.244.0.0/16 -m comment --comment \"flanneld masq\" -j RETURN
-A FLANNEL-POSTRTG -s 10.244.0.0/16 -d 10.244.1.0/24 -m comment --comment \"flanneld masq\" -j RETURN
-A FLANNEL-POSTRTG ! -s 10.244.0.0/16 -d 10.244.1.0/24 -m comment --comment \"flanneld masq\" -j RETURN
-A FLANNEL-POSTRTG -s 10.244.0.0/16 ! -d 224.0.0.0/4 -m comment --comment \"flanneld masq\" -j MASQUERADE --random-fully
-A FLANNEL-POSTRTG ! -s 10.244.0.0/16 -d 10.244.0.0/16 -m comment --comment \"flanneld masq\" -j MASQUERADE --random-fully
COMMIT
";

const NFTABLES: &str = "\
table ip flannel-ipv4 {
  chain postrtg {
    type nat hook postrouting priority srcnat
    meta mark & 0x4000 == 0x4000 return
    ip saddr 10.244.1.0/24 ip daddr 10.244.0.0/16 return
    ip saddr 10.244.0.0/16 ip daddr 10.244.1.0/24 return
    ip saddr != 10.244.0.0/16 ip daddr 10.244.1.0/24 return
    ip saddr 10.244.0.0/16 ip daddr != 224.0.0.0/4 masquerade fully-random
    ip saddr != 10.244.0.0/16 ip daddr 10.244.0.0/16 masquerade fully-random
  }
}
";

/// A question, what becomes of the packet, and the place of the rule that decides in flannel's chain.
const CASES: [(&str, &str, Option<u64>); 8] = [
    ("10.244.1.2 192.0.2.1 443", "masqueraded", Some(5)),
    ("10.244.1.2 10.244.2.2", "kept", Some(2)),
    ("10.244.2.2 10.244.1.2", "kept", Some(3)),
    ("192.0.2.1 10.244.1.2", "kept", Some(4)),
    ("192.0.2.1 10.244.2.2 53/udp", "masqueraded", Some(6)),
    ("10.244.1.2 192.0.2.1 --mark 0x4001", "kept", Some(1)),
    ("10.244.1.2 239.1.1.1", "kept", None),
    ("192.0.2.1 198.51.100.1", "kept", None),
];

fn lab() -> Lab {
    let options = LabOptions {
        name: unique_name("explain"),
        topology: Topology::flat(1).unwrap(),
        flanneld: Flanneld::NotStarted,
        pods_per_node: 0,
        ..LabOptions::default()
    };
    Lab::up(options).unwrap()
}

fn load(node: &Node, program: &str, arguments: &[&str], rules: &str) {
    let mut child = node.command(program, arguments).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{program}");
}

/// Exit code, standard output, standard error.
fn ask(node: &Node, words: &str) -> (i32, String, String) {
    let words = ["explain", "snat"].into_iter().chain(words.split_whitespace());
    let output = node.command(FLANNELCTL, words).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn assert_cases(node: &Node, chain: &str) {
    for (question, fate, place) in CASES {
        let (code, text, errors) = ask(node, &format!("{question} -o json"));
        assert_eq!((code, errors.as_str()), (0, ""), "{question}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&answer["fate"], &answer["certain"]), (&json!(fate), &json!(true)), "{answer}");
        let decisive = &answer["decisive"];
        assert_eq!(decisive["place"].as_u64(), place, "{question}: {answer}");
        assert!(place.is_none() || decisive["chain"] == chain, "{answer}");
    }
}

#[test]
fn the_rule_that_decides_is_named_from_the_live_rules_of_either_system() {
    let lab = lab();
    let node = lab.node("master1").unwrap();
    assert_eq!(
        ask(node, "10.244.1.2 192.0.2.1"),
        (
            0,
            "A packet from 10.244.1.2 to 192.0.2.1 keeps its source address.\n  No rule is about it.\n"
                .to_owned(),
            String::new()
        )
    );
    load(node, "nft", &["-f", "-"], NFTABLES);
    assert_cases(node, "postrtg");
    load(node, "nft", &["-f", "-"], "flush ruleset\n");
    load(node, "iptables-nft-restore", &["-n"], IPTABLES);
    assert_cases(node, "FLANNEL-POSTRTG");
    let expected = "\
A packet from 10.244.1.2 to 192.0.2.1 gets the node's address (masquerade).
  Decided by rule 5 of FLANNEL-POSTRTG in iptables nat: -s 10.244.0.0/16 ! -d 224.0.0.0/4 -m comment --comment \
                    \"flanneld masq\" -j MASQUERADE --random-fully
  It leaves the pod network, where nobody would know the way back to a pod.
";
    assert_eq!(ask(node, "10.244.1.2 192.0.2.1"), (0, expected.to_owned(), String::new()));
}

#[test]
fn a_packet_to_the_node_itself_is_told_to_meet_no_rule() {
    let lab = lab();
    let node = lab.node("master1").unwrap();
    load(node, "nft", &["-f", "-"], NFTABLES);
    let (_, text, _) = ask(node, &format!("10.244.1.2 {}", node.v4()));
    assert!(text.contains("keeps its source address.\n  It goes to this node itself"), "{text}");
    // What a program of the node sends to the node goes round by the loopback device, past the rules.
    let (_, text, _) = ask(node, "127.0.0.1 127.0.0.1 -o json");
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["ends_here"], json!(false));
}

#[test]
fn a_question_that_makes_no_sense_is_refused_with_the_reason() {
    let lab = lab();
    let node = lab.node("master1").unwrap();
    let (code, text, errors) = ask(node, "10.244.1.2 fd00::1");
    let why = "flannelctl: 10.244.1.2 and fd00::1 are of different families: no packet has both\n".to_owned();
    assert_eq!((code, text, errors), (1, String::new(), why));
    let (code, _, errors) = ask(node, "10.244.1.2 192.0.2.1 http");
    assert!(code == 2 && errors.contains("http is no port: say 443, or 53/udp"), "{errors}");
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", FLANNELCTL, "explain", "snat"];
    let output =
        node.command("setpriv", nobody.into_iter().chain(["10.244.1.2", "192.0.2.1"])).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.starts_with("flannelctl: no rules can be read: "), "{errors}");
}

#[test]
fn tables_of_both_families_are_seen_whatever_they_are_called_and_addresses_are_asked_of_the_kernel() {
    let lab = lab();
    let node = lab.node("master1").unwrap();
    let table = |family: &str, rule: &str| {
        format!(
            "table {family} nat {{ chain POSTROUTING {{ type nat hook postrouting priority 100; {rule}; }}; }}\n"
        )
    };
    load(node, "nft", &["-f", "-"], &table("inet", "ip saddr 10.244.1.2 masquerade"));
    let (_, text, _) = ask(node, "10.244.1.2 192.0.2.1");
    assert!(text.contains("gets the node's address (masquerade)"), "{text}");
    // A table of iptables that iptables cannot read is told as nftables sees it.
    load(node, "nft", &["-f", "-"], "flush ruleset\n");
    load(
        node,
        "nft",
        &["-f", "-"],
        &table("ip", "ct state new ip saddr 10.244.1.3 masquerade; ip saddr 10.244.1.2 masquerade"),
    );
    let (_, text, _) = ask(node, "10.244.1.2 192.0.2.1");
    assert!(text.contains("gets the node's address (masquerade)"), "{text}");
    // With this any address can be bound to.
    node.run("sysctl", ["-qw", "net.ipv4.ip_nonlocal_bind=1"]).unwrap();
    let (_, text, _) = ask(node, &format!("10.244.1.2 {}", node.v4()));
    assert!(text.contains("It goes to this node itself"), "{text}");
}
