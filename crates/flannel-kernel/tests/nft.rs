//! nftables: what we write is what `nft` writes, what we read is what `nft` lists.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod sandbox;

use std::io::Write;
use std::net::IpAddr;
use std::process::{Command, Stdio};

use flannel_kernel::firewall::nft::*;
use flannel_plan::family::Family;
use flannel_plan::rules::chain::{Chain, ChainType, Hook};
use flannel_plan::rules::edit::Edit;
use flannel_plan::rules::*;
use ipnet::IpNet;
use sandbox::*;

const IPV4: Table = Table { family: TableFamily::Ip, name: "golden" };
const IPV6: Table = Table { family: TableFamily::Ip6, name: "golden" };
const INET: Table = Table { family: TableFamily::Inet, name: "golden" };
const BRIDGE: Table = Table { family: TableFamily::Bridge, name: "golden" };

fn net(text: &str) -> IpNet {
    text.parse().unwrap_or_else(|_| text.parse::<IpAddr>().unwrap().into())
}

fn source(text: &str) -> Match {
    Match::source(net(text))
}

fn destination(text: &str) -> Match {
    Match::destination(net(text))
}

fn not_destination(text: &str) -> Match {
    Match::Destination(Is::Different, net(text))
}

fn dnat(address: &str, port: u16) -> Action {
    Action::Dnat(ip(address), Some(port))
}

fn mark(is: Is, value: u32, mask: u32) -> Match {
    Match::Mark { is, value, mask }
}

const MASQUERADE: Action = Action::Masquerade(SourcePorts::Kept, None);
const RANDOMLY: Action = Action::Masquerade(SourcePorts::Randomised, None);

/// The base chains that the rules below stand in, and one to jump to.
fn chains(table: Table) -> Vec<Chain> {
    let bridge = table.family == TableFamily::Bridge;
    let mut chains = vec![Chain::plain("side").comment("a side chain")];
    if bridge {
        chains.push(Chain::base("pre", ChainType::Filter, Hook::Prerouting, -300));
    } else {
        chains.push(Chain::base("pre", ChainType::Nat, Hook::Prerouting, -100));
        chains.push(Chain::base("out", ChainType::Nat, Hook::Output, -100));
        chains.push(Chain::base("post", ChainType::Nat, Hook::Postrouting, 100));
        chains.push(Chain::base("forward", ChainType::Filter, Hook::Forward, 0));
    }
    chains
}

/// Chain, rule as `nft` is told it, and the same in our words.
type Case = (&'static str, &'static str, Rule);

fn ipv4_cases() -> Vec<Case> {
    [ipv4_destinations(), ipv4_sources(), ipv4_marks(), ipv4_filters()].concat()
}

fn ipv4_destinations() -> Vec<Case> {
    let to = |address: &str, port: [Match; 2], action| {
        let mut matches = vec![destination(address)];
        matches.extend(port);
        Rule::new(matches, action)
    };
    vec![
        (
            "pre",
            "fib daddr type local jump side",
            Rule::new([Match::DestinationLocal(Is::Equal)], Action::jump("side")),
        ),
        (
            "pre",
            "tcp dport 80 dnat to 10.0.0.2:8080",
            Rule::new(Match::port(TCP, 80), dnat("10.0.0.2", 8080)),
        ),
        (
            "pre",
            "ip daddr 127.0.0.5 sctp dport 82 dnat to 10.0.0.2:82",
            to("127.0.0.5", Match::port(SCTP, 82), dnat("10.0.0.2", 82)),
        ),
        (
            "out",
            "udp dport != 53 dnat to 10.0.0.2",
            Rule::new(
                [Match::Protocol(Is::Equal, UDP), Match::DestinationPort(Is::Different, 53)],
                Action::Dnat(ip("10.0.0.2"), None),
            ),
        ),
    ]
}

fn ipv4_sources() -> Vec<Case> {
    vec![
        (
            "post",
            "ip saddr 10.0.0.2 ip daddr != 10.0.0.0/24 masquerade",
            Rule::new([source("10.0.0.2"), not_destination("10.0.0.0/24")], MASQUERADE),
        ),
        (
            "post",
            "ip saddr 10.0.0.0/12 ip daddr != 224.0.0.0/4 masquerade fully-random",
            Rule::new([source("10.0.0.0/12"), not_destination("224.0.0.0/4")], RANDOMLY),
        ),
        (
            "post",
            "ip saddr != 10.244.0.0/16 ip daddr 10.244.0.0/16 counter masquerade",
            Rule::new(
                [
                    Match::Source(Is::Different, net("10.244.0.0/16")),
                    destination("10.244.0.0/16"),
                    Match::Counter,
                ],
                MASQUERADE,
            ),
        ),
        ("post", "ip daddr 0.0.0.0/0 return", Rule::new([destination("0.0.0.0/0")], Action::Return)),
    ]
}

fn ipv4_marks() -> Vec<Case> {
    vec![
        (
            "forward",
            "meta mark 0x4000 return",
            Rule::new([mark(Is::Equal, 0x4000, u32::MAX)], Action::Return),
        ),
        (
            "forward",
            "meta mark & 0x2000 == 0x2000 meta mark & 0x1 != 0x1 accept",
            Rule::new([mark(Is::Equal, 0x2000, 0x2000), mark(Is::Different, 1, 1)], Action::Accept),
        ),
        (
            "forward",
            "meta mark set meta mark | 0x2000",
            Rule::new([], Action::Nothing).set_mark(0x2000, 0x2000),
        ),
    ]
}

fn ipv4_filters() -> Vec<Case> {
    vec![
        (
            "forward",
            "ip saddr 10.0.0.1-10.0.0.9 ip daddr != 10.1.0.1-10.1.0.9 drop",
            Rule::new(
                [
                    Match::Range(Side::Source, Is::Equal, ip("10.0.0.1"), ip("10.0.0.9")),
                    Match::Range(Side::Destination, Is::Different, ip("10.1.0.1"), ip("10.1.0.9")),
                ],
                Action::Drop,
            ),
        ),
        (
            "forward",
            "iifname \"eth0\" oifname != \"veth*\" goto side",
            Rule::new(
                [Match::InLink(Is::Equal, "eth0".into()), Match::OutLink(Is::Different, "veth*".into())],
                Action::Goto("side".into()),
            ),
        ),
        (
            "forward",
            "meta pkttype host meta l4proto != udp accept",
            Rule::new([Match::PacketType(Is::Equal, 0), Match::Protocol(Is::Different, UDP)], Action::Accept),
        ),
        ("forward", "meta l4proto tcp accept", Rule::new([Match::Protocol(Is::Equal, TCP)], Action::Accept)),
    ]
}

fn ipv6_cases() -> Vec<Case> {
    vec![
        (
            "pre",
            "ip6 daddr fd00::1 udp dport 53 dnat to [fd00::2]:5353",
            Rule::new([&[destination("fd00::1")], &Match::port(UDP, 53)[..]].concat(), dnat("fd00::2", 5353)),
        ),
        (
            "post",
            "ip6 saddr fd00::/61 ip6 daddr != ff00::/8 masquerade",
            Rule::new([source("fd00::/61"), not_destination("ff00::/8")], MASQUERADE),
        ),
        (
            "forward",
            "ip6 saddr fd00::1-fd00::9 fib daddr type != local return",
            Rule::new(
                [
                    Match::Range(Side::Source, Is::Equal, ip("fd00::1"), ip("fd00::9")),
                    Match::DestinationLocal(Is::Different),
                ],
                Action::Return,
            ),
        ),
    ]
}

fn inet_cases() -> Vec<Case> {
    vec![
        (
            "post",
            "ip saddr 10.0.0.2 ip daddr != 10.0.0.0/24 masquerade",
            Rule::new([source("10.0.0.2"), not_destination("10.0.0.0/24")], MASQUERADE),
        ),
        ("post", "ip6 daddr ff00::/8 return", Rule::new([destination("ff00::/8")], Action::Return)),
        (
            "post",
            "meta nfproto ipv4 goto side",
            Rule::new([Match::Family(Is::Equal, Family::V4)], Action::Goto("side".into())),
        ),
        (
            "pre",
            "ip daddr 10.0.0.1 tcp dport 80 accept",
            Rule::new([&[destination("10.0.0.1")], &Match::port(TCP, 80)[..]].concat(), Action::Accept),
        ),
    ]
}

fn bridge_cases() -> Vec<Case> {
    vec![
        (
            "pre",
            "iifname \"veth0\" jump side",
            Rule::new([Match::InLink(Is::Equal, "veth0".into())], Action::jump("side")),
        ),
        (
            "side",
            "ether saddr 02:00:00:00:00:01 return",
            Rule::new([Match::EtherSource(Is::Equal, mac(1))], Action::Return),
        ),
        ("side", "ip saddr 10.0.0.0/9 drop", Rule::new([source("10.0.0.0/9")], Action::Drop)),
        ("side", "ip6 daddr fd00::/64 accept", Rule::new([destination("fd00::/64")], Action::Accept)),
        ("side", "drop", Rule::new([], Action::Drop)),
    ]
}

fn cases() -> Vec<(Table, Vec<Case>)> {
    vec![(IPV4, ipv4_cases()), (IPV6, ipv6_cases()), (INET, inet_cases()), (BRIDGE, bridge_cases())]
}

fn comment(place: usize) -> String {
    format!("rule {place}, by \"nobody\"").replace('"', "'")
}

/// All cases as one transaction of ours.
fn ours() -> Transaction {
    let mut transaction = Transaction::default();
    for (table, cases) in cases() {
        transaction.push(table, Edit::AddTable(Some("made by a test".into())));
        transaction.extend(table, chains(table).into_iter().map(Edit::AddChain));
        for (place, (chain, _, rule)) in cases.into_iter().enumerate() {
            transaction.push(table, Edit::AppendRule(chain.into(), rule.comment(comment(place))));
        }
    }
    transaction
}

/// All cases as one script for `nft`.
fn theirs() -> String {
    let mut script = String::new();
    for (table, cases) in cases() {
        script += &format!("add table {table} {{ comment \"made by a test\" ; }}\n");
        for chain in chains(table) {
            let inside = match (chain.base, chain.comment) {
                (Some(base), _) => {
                    let kind = format!("{:?}", base.kind).to_lowercase();
                    let hook = format!("{:?}", base.hook).to_lowercase();
                    format!("type {kind} hook {hook} priority {} ;", base.priority)
                }
                (None, Some(comment)) => format!("comment \"{comment}\" ;"),
                (None, None) => String::new(),
            };
            script += &format!("add chain {table} {} {{ {inside} }}\n", chain.name);
        }
        for (place, (chain, rule, _)) in cases.into_iter().enumerate() {
            script += &format!("add rule {table} {chain} {rule} comment \"{}\"\n", comment(place));
        }
    }
    script
}

fn nft(script: &str) {
    let mut nft = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    nft.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(nft.wait().unwrap().success(), "{script}");
}

/// Everything that there is, as a person and as a program reads it.
fn listing() -> (String, String) {
    let without_handles = |text: String| {
        text.split(", ").filter(|part| !part.contains("\"handle\"")).collect::<Vec<_>>().join(", ")
    };
    (sh("nft list ruleset"), without_handles(sh("nft -j list ruleset")))
}

fn read_back() -> Vec<(Table, Vec<(String, Rule)>)> {
    let mut nft = Nft::open().unwrap();
    let mut rules = |table| {
        let listed = nft.all_rules(table).unwrap();
        (table, listed.into_iter().map(|listed| (listed.chain, listed.rule)).collect::<Vec<_>>())
    };
    cases().into_iter().map(|(table, _)| rules(table)).collect()
}

fn expected() -> Vec<(Table, Vec<(String, Rule)>)> {
    let mut all = Vec::new();
    for (table, cases) in cases() {
        let mut rules = Vec::new();
        for chain in chains(table) {
            for (place, (_, _, rule)) in cases.iter().enumerate().filter(|(_, case)| *case.0 == *chain.name) {
                rules.push((chain.name.to_string(), rule.clone().comment(comment(place))));
            }
        }
        all.push((table, rules));
    }
    all
}

#[test]
fn every_rule_is_listed_as_the_same_rule_of_nft_is() {
    let (mut by_us, mut by_nft) = Default::default();
    in_a_namespace(|| {
        Nft::open().unwrap().commit(&ours()).unwrap();
        by_us = listing();
    });
    in_a_namespace(|| {
        nft(&theirs());
        by_nft = listing();
    });
    assert_eq!(by_us.0, by_nft.0);
    assert_eq!(by_us.1, by_nft.1);
}

#[test]
fn every_rule_is_read_back_as_it_was_meant_whoever_wrote_it() {
    in_a_namespace(|| {
        Nft::open().unwrap().commit(&ours()).unwrap();
        assert_eq!(read_back(), expected());
    });
    in_a_namespace(|| {
        nft(&theirs());
        assert_eq!(read_back(), expected());
    });
}

#[test]
fn what_we_do_not_know_is_kept_in_its_bytes_and_can_be_written_again() {
    in_a_namespace(|| {
        nft("add table ip golden\nadd chain ip golden a\nadd chain ip golden b
             add rule ip golden a ct state established meta skuid 0 ip ttl 1 tcp sport 5 limit rate 1/second accept");
        let mut nft = Nft::open().unwrap();
        let rule = nft.rules(IPV4, "a").unwrap().remove(0).rule;
        let mut transaction = Transaction::default();
        transaction.push(IPV4, Edit::AppendRule("b".into(), rule.clone()));
        nft.commit(&transaction).unwrap();
        assert_eq!(nft.rules(IPV4, "b").unwrap().remove(0).rule, rule);
        let listed = |chain: &str| lines(&format!("nft list chain ip golden {chain}"))[2].clone();
        assert_eq!(listed("a"), listed("b"));
    });
}

#[test]
fn a_tag_is_ours_alone_and_nft_does_not_show_it() {
    in_a_namespace(|| {
        let mut transaction = Transaction::default();
        transaction.push(IPV4, Edit::AddTable(None));
        transaction.push(IPV4, Edit::AddChain(Chain::plain("a")));
        let rule = Rule::new([], Action::Accept).comment("c0ffee").tag("eth0 mynet");
        transaction.push(IPV4, Edit::AppendRule("a".into(), rule.clone()));
        let mut nft = Nft::open().unwrap();
        nft.commit(&transaction).unwrap();
        assert_eq!(nft.rules(IPV4, "a").unwrap().remove(0).rule, rule);
        assert_eq!(lines("nft list chain ip golden a")[2], "accept comment \"c0ffee\"");
        let json = sh("nft -j list chain ip golden a");
        assert!(json.contains(r#""comment": "c0ffee""#), "{json}");
    });
}

#[test]
fn what_does_not_exist_has_no_rules_and_no_chains() {
    in_a_namespace(|| {
        let mut nft = Nft::open().unwrap();
        assert_eq!(nft.rules(IPV4, "nowhere"), Ok(vec![]));
        assert_eq!(nft.all_rules(INET), Ok(vec![]));
        assert_eq!(nft.has_chain(BRIDGE, "side"), Ok(false));
        assert_eq!(nft.has_chain(IPV6, "nowhere"), Ok(false));
        nft.commit(&ours()).unwrap();
        assert_eq!(nft.rules(IPV4, "nowhere"), Ok(vec![]));
        assert_eq!(nft.has_chain(IPV4, "nowhere"), Ok(false));
        assert_eq!(nft.has_chain(IPV4, "side"), Ok(true));
        assert_eq!(nft.has_chain(BRIDGE, "side"), Ok(true));
        let too_long = "x".repeat(256);
        assert_eq!(nft.has_chain(IPV4, &too_long), Ok(false));
        assert_eq!(nft.rules(IPV4, &too_long), Ok(vec![]));
    });
}

#[test]
fn rules_are_deleted_by_handle_chains_are_flushed_and_all_goes() {
    in_a_namespace(|| {
        let mut nft = Nft::open().unwrap();
        nft.commit(&ours()).unwrap();
        let rules = nft.rules(BRIDGE, "side").unwrap();
        let mut transaction = Transaction::default();
        transaction.push(BRIDGE, rules[1].deletion());
        transaction.push(BRIDGE, Edit::FlushChain("pre".into()));
        nft.commit(&transaction).unwrap();
        assert_eq!(
            nft.rules(BRIDGE, "side").unwrap(),
            [rules[0].clone(), rules[2].clone(), rules[3].clone()]
        );
        assert_eq!(nft.rules(BRIDGE, "pre").unwrap(), []);

        let mut transaction = Transaction::default();
        transaction.push(BRIDGE, Edit::FlushChain("side".into()));
        transaction.push(BRIDGE, Edit::DeleteChain("side".into()));
        for table in [IPV4, IPV6, INET] {
            transaction.push(table, Edit::DeleteTable);
        }
        nft.commit(&transaction).unwrap();
        assert_eq!(
            lines("nft list ruleset"),
            [
                "table bridge golden {",
                "comment \"made by a test\"",
                "chain pre {",
                "type filter hook prerouting priority dstnat; policy accept;",
                "}",
                "}"
            ]
        );
    });
}

#[test]
fn a_rule_is_inserted_before_all_others() {
    in_a_namespace(|| {
        let mut nft = Nft::open().unwrap();
        nft.commit(&ours()).unwrap();
        let rule = Rule::new([], Action::Return);
        let mut transaction = Transaction::default();
        transaction.push(BRIDGE, Edit::InsertRules("side".into(), vec![rule.clone()]));
        nft.commit(&transaction).unwrap();
        assert_eq!(nft.rules(BRIDGE, "side").unwrap()[0].rule, rule);
    });
}

#[test]
fn a_refused_step_is_named_and_nothing_of_the_transaction_is_done() {
    in_a_namespace(|| {
        let mut nft = Nft::open().unwrap();
        let mut transaction = Transaction::default();
        transaction.push(IPV4, Edit::AddTable(None));
        transaction.push(IPV4, Edit::AddChain(Chain::plain("a")));
        let rule = Rule::new([], Action::jump("nowhere")).comment("me");
        transaction.push(IPV4, Edit::AppendRule("a".into(), rule));
        transaction.push(IPV4, Edit::AddChain(Chain::plain("b")));
        let error = nft.commit(&transaction).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot add a rule in chain ip golden a for \"me\": No such file or directory"
        );
        assert!(error.is_a_race());
        assert_eq!(sh("nft list ruleset"), "");
    });
}

#[test]
fn a_transaction_for_another_generation_is_refused_as_a_race() {
    in_a_namespace(|| {
        let mut nft = Nft::open().unwrap();
        let before = nft.generation().unwrap();
        nft.commit_at(&ours(), Some(before)).unwrap();
        let error = nft.commit_at(&ours(), Some(before)).unwrap_err();
        assert!(error.is_a_race(), "{error}");
        let now = nft.generation().unwrap();
        nft.commit_at(&ours(), Some(now)).unwrap();
    });
}

#[test]
fn a_transaction_of_thousands_of_rules_fits() {
    in_a_namespace(|| {
        let mut nft = Nft::open().unwrap();
        let mut transaction = Transaction::default();
        transaction.push(IPV4, Edit::AddTable(None));
        transaction.extend(IPV4, chains(IPV4).into_iter().map(Edit::AddChain));
        for port in 1..=4000 {
            let rule = Rule::new(Match::port(TCP, port), dnat("10.0.0.2", port)).comment("me");
            transaction.push(IPV4, Edit::AppendRule("pre".into(), rule));
        }
        nft.commit(&transaction).unwrap();
        assert_eq!(nft.rules(IPV4, "pre").unwrap().len(), 4000);
    });
}
