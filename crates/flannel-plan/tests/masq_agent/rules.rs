//! The rules: as `iptables-save` showed them after the original (v2.12.6) had run, by both flavours.

use flannel_plan::family::{ByFamily, Family};
use flannel_plan::masq_agent::config::{AgentConfig, DefaultNetworks};
use flannel_plan::masq_agent::iptables::{AgentFound, found, jump, lines};
use flannel_plan::masq_agent::spec::AgentSpec;
use flannel_plan::rules::ports::ranges;
use flannel_plan::rules::{SourcePorts, System};
use ipnet::IpNet;

const DEFAULT: &str = include_str!("golden/default.txt");
const RESERVED_V6: &str = include_str!("golden/reserved-v6.txt");
const FILE: &str = include_str!("golden/file.txt");
const PORTS: &str = include_str!("golden/ports.txt");

fn spec(chain: &str, families: &[Family], config: AgentConfig) -> AgentSpec {
    let on = |family| families.contains(&family).then_some(SourcePorts::Randomised);
    let source_ports = ByFamily { v4: on(Family::V4), v6: on(Family::V6) };
    AgentSpec { system: System::IptablesNft, chain: chain.into(), source_ports, to_ports: vec![], config }
}

fn usual(families: &[Family]) -> AgentSpec {
    spec("IP-MASQ-AGENT", families, AgentConfig::without_file(DefaultNetworks::Private))
}

/// What `iptables-save` shows of a wish, one family after the other.
fn saved(spec: &AgentSpec) -> String {
    let mut text = String::new();
    for rules in Family::BOTH.into_iter().filter_map(|family| spec.rules(family)) {
        let chain = &spec.chain;
        text += &format!(":{chain} - [0:0]\n-A POSTROUTING {}\n", jump(chain));
        lines(&rules).iter().for_each(|line| text += &format!("-A {chain} {line}\n"));
    }
    text
}

#[test]
fn the_rules_are_those_of_the_original_letter_by_letter() {
    assert_eq!(saved(&usual(&[Family::V4])), DEFAULT);
    let config = AgentConfig::without_file(DefaultNetworks::Reserved);
    let mut reserved = spec("CUSTOM", &Family::BOTH, config);
    reserved.source_ports = ByFamily { v4: Some(SourcePorts::Kept), v6: Some(SourcePorts::Kept) };
    assert_eq!(saved(&reserved), RESERVED_V6);
    let text = r#"{"nonMasqueradeCIDRs":["192.168.0.0/16","10.1.0.0/16","fd00::/8","10.0.0.0/8"],"masqLinkLocal":true}"#;
    let config = AgentConfig::parse(text, DefaultNetworks::Private, &Family::BOTH).unwrap();
    assert_eq!(saved(&spec("IP-MASQ-AGENT", &Family::BOTH, config)), FILE);
    let mut ports = usual(&Family::BOTH);
    ports.to_ports = ranges("1024-29999,32768-49151,61000-65535").unwrap();
    assert_eq!(saved(&ports), PORTS);
}

#[test]
fn what_the_original_made_needs_no_change() {
    let original = found("IP-MASQ-AGENT", &format!("*nat\n{DEFAULT}COMMIT\n"));
    assert_eq!(original.script(&usual(&[Family::V4]), Family::V4), None);
    let elsewhere = found("IP-MASQ-AGENT", &format!("*filter\n{DEFAULT}COMMIT\n"));
    assert_eq!(elsewhere, AgentFound::default());
}

#[test]
fn what_differs_is_told_and_mended_in_one_transaction() {
    let spec = usual(&[Family::V4]);
    let rules = spec.rules(Family::V4).unwrap();
    let told = |text: &str| {
        found("IP-MASQ-AGENT", &format!("*nat\n{text}COMMIT\n")).differences("IP-MASQ-AGENT", &rules)
    };
    assert_eq!(told(DEFAULT), [""; 0]);
    assert_eq!(
        told(":POSTROUTING ACCEPT [0:0]\n"),
        ["there is no chain IP-MASQ-AGENT", "nothing in POSTROUTING leads to IP-MASQ-AGENT"]
    );
    let jump = DEFAULT.lines().nth(1).unwrap();
    let cases = [
        (
            DEFAULT.replace("10.0.0.0/8", "11.0.0.0/8"),
            "chain IP-MASQ-AGENT has 5 rules that are not the agent's",
        ),
        (format!("{DEFAULT}-A IP-MASQ-AGENT -j ACCEPT\n"), "chain IP-MASQ-AGENT has 6 rules, not 5"),
        (DEFAULT.replace(jump, ""), "nothing in POSTROUTING leads to IP-MASQ-AGENT"),
        (format!("{DEFAULT}{jump}\n"), "2 rules of POSTROUTING lead to IP-MASQ-AGENT"),
    ];
    for (text, difference) in cases {
        assert_eq!(told(&text), [difference]);
        let script =
            found("IP-MASQ-AGENT", &format!("*nat\n{text}COMMIT\n")).script(&spec, Family::V4).unwrap();
        let expected: String = DEFAULT.lines().skip(2).map(|line| format!("{line}\n")).collect();
        assert!(script.starts_with(&format!("*nat\n:IP-MASQ-AGENT - [0:0]\n{expected}")), "{script}");
        assert_eq!(script.matches("COMMIT").count(), 1, "{script}");
    }
}

#[test]
fn all_of_it_goes_but_a_chain_that_others_use_stays_empty() {
    let jump = jump("IP-MASQ-AGENT");
    let removal =
        |text: &str| found("IP-MASQ-AGENT", &format!("*nat\n{text}COMMIT\n")).removal("IP-MASQ-AGENT");
    assert_eq!(
        removal(DEFAULT),
        Some(format!("*nat\n-D POSTROUTING {jump}\n-F IP-MASQ-AGENT\n-X IP-MASQ-AGENT\nCOMMIT\n"))
    );
    let lent = format!("{DEFAULT}-A MINE -j IP-MASQ-AGENT\n");
    assert_eq!(removal(&lent), Some(format!("*nat\n-D POSTROUTING {jump}\n-F IP-MASQ-AGENT\nCOMMIT\n")));
    assert_eq!(removal(":IP-MASQ-AGENT - [0:0]\n-A MINE -j IP-MASQ-AGENT\n"), None);
    assert_eq!(removal(":POSTROUTING ACCEPT [0:0]\n-A POSTROUTING -j MASQUERADE\n"), None);
}

#[test]
fn a_set_holds_no_network_twice() {
    let text =
        r#"{"nonMasqueradeCIDRs":["10.1.0.0/16","10.0.0.0/8","10.0.0.0/8","11.0.0.0/9","11.128.0.0/9"]}"#;
    let config = AgentConfig::parse(text, DefaultNetworks::Private, &[Family::V4]).unwrap();
    let set = spec("X", &[Family::V4], config).rules(Family::V4).unwrap().set();
    assert_eq!(set.iter().map(IpNet::to_string).collect::<Vec<_>>(), ["10.0.0.0/7", "169.254.0.0/16"]);
}
