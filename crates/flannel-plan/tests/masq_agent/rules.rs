//! The rules: as `iptables-save` showed them after the original (v2.12.6) had run, by both flavours.

use flannel_plan::family::{ByFamily, Family};
use flannel_plan::masq_agent::config::{AgentConfig, DefaultNetworks};
use flannel_plan::masq_agent::spec::AgentSpec;
use flannel_plan::rules::edit::edits;
use flannel_plan::rules::found::{FoundTable, RuleObservation};
use flannel_plan::rules::iptables::{saved, script, text};
use flannel_plan::rules::ports::ranges;
use flannel_plan::rules::role::Role;
use flannel_plan::rules::{ChainName, SourcePorts, System, changes, differences};
use ipnet::IpNet;

const DEFAULT: &str = include_str!("golden/default.txt");
const RESERVED_V6: &str = include_str!("golden/reserved-v6.txt");
const FILE: &str = include_str!("golden/file.txt");
const PORTS: &str = include_str!("golden/ports.txt");

fn name(chain: &str) -> ChainName {
    chain.to_owned().try_into().unwrap()
}

fn spec(chain: &str, families: &[Family], config: AgentConfig) -> AgentSpec {
    let on = |family| families.contains(&family).then_some(SourcePorts::Randomised);
    let source_ports = ByFamily { v4: on(Family::V4), v6: on(Family::V6) };
    AgentSpec { system: System::IptablesNft, chain: name(chain), source_ports, to_ports: vec![], config }
}

fn usual(families: &[Family]) -> AgentSpec {
    spec("IP-MASQ-AGENT", families, AgentConfig::without_file(DefaultNetworks::Private))
}

/// What `iptables-save` shows of a wish, one family after the other.
fn shown(spec: &AgentSpec) -> String {
    let mut shown = String::new();
    for table in spec.desired() {
        let chain = &spec.chain;
        shown += &format!(":{chain} - [0:0]\n-A POSTROUTING {}\n", jump(spec));
        table.chains[0].rules.iter().for_each(|rule| shown += &format!("-A {chain} {}\n", text(rule)));
    }
    shown
}

fn jump(spec: &AgentSpec) -> String {
    text(&Role::MasqAgent(spec.chain).jump(spec.system))
}

/// What is read of the table `nat` with these lines.
fn found(lines: &str) -> Option<FoundTable> {
    saved(System::IptablesNft, Family::V4, &format!("*nat\n{lines}COMMIT\n")).unwrap().tables.pop()
}

/// What is not as wanted, in words, and the script that mends it.
fn mended(spec: &AgentSpec, lines: &str) -> (Vec<String>, Option<String>) {
    let table = found(lines);
    let want = spec.desired().into_iter().find(|table| table.id.family == Family::V4);
    let edits = edits(&spec.scope(), want.as_ref(), table.as_ref());
    let observation = RuleObservation { tables: table.into_iter().collect(), unreadable: vec![] };
    let told = changes(&spec.scope(), &spec.desired(), &observation).iter().flat_map(differences).collect();
    (told, (!edits.is_empty()).then(|| script("nat", &edits)))
}

#[test]
fn the_rules_are_those_of_the_original_letter_by_letter() {
    assert_eq!(shown(&usual(&[Family::V4])), DEFAULT);
    let config = AgentConfig::without_file(DefaultNetworks::Reserved);
    let mut reserved = spec("CUSTOM", &Family::BOTH, config);
    reserved.source_ports = ByFamily { v4: Some(SourcePorts::Kept), v6: Some(SourcePorts::Kept) };
    assert_eq!(shown(&reserved), RESERVED_V6);
    let text = r#"{"nonMasqueradeCIDRs":["192.168.0.0/16","10.1.0.0/16","fd00::/8","10.0.0.0/8"],"masqLinkLocal":true}"#;
    let config = AgentConfig::parse(text, DefaultNetworks::Private, &Family::BOTH).unwrap();
    assert_eq!(shown(&spec("IP-MASQ-AGENT", &Family::BOTH, config)), FILE);
    let mut ports = usual(&Family::BOTH);
    ports.to_ports = ranges("1024-29999,32768-49151,61000-65535").unwrap();
    assert_eq!(shown(&ports), PORTS);
}

#[test]
fn what_the_original_made_needs_no_change() {
    assert_eq!(mended(&usual(&[Family::V4]), DEFAULT), (vec![], None));
    let ports =
        AgentSpec { to_ports: ranges("1024-29999,32768-49151,61000-65535").unwrap(), ..usual(&[Family::V4]) };
    let of_v4: String = PORTS.split_inclusive('\n').take(16).collect();
    assert_eq!(mended(&ports, &of_v4), (vec![], None));
}

#[test]
fn what_differs_is_told_and_mended_in_one_transaction() {
    let spec = usual(&[Family::V4]);
    let nothing = ["there is no chain IP-MASQ-AGENT", "nothing in POSTROUTING leads to IP-MASQ-AGENT"];
    assert_eq!(mended(&spec, ":POSTROUTING ACCEPT [0:0]\n").0, nothing);
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
        let (told, script) = mended(&spec, &text);
        let script = script.unwrap();
        assert_eq!(told, [difference]);
        assert_eq!(script.matches("COMMIT").count(), 1, "{script}");
        if told[0].starts_with("chain") {
            let rules = DEFAULT.lines().skip(2).enumerate();
            let rules: Vec<_> = rules
                .map(|(at, line)| line.replace("-A IP-MASQ-AGENT", &format!("-I IP-MASQ-AGENT {}", at + 1)))
                .collect();
            assert_eq!(script, format!("*nat\n-F IP-MASQ-AGENT\n{}\nCOMMIT\n", rules.join("\n")));
        }
    }
}

#[test]
fn all_of_it_goes_but_a_chain_that_others_use_stays_empty() {
    let spec = usual(&[]);
    let jump = jump(&spec);
    let removal = |text: &str| mended(&spec, text).1;
    assert_eq!(
        removal(DEFAULT),
        Some(format!("*nat\n-F IP-MASQ-AGENT\n-D POSTROUTING {jump}\n-X IP-MASQ-AGENT\nCOMMIT\n"))
    );
    let lent = format!("{DEFAULT}-A MINE -j IP-MASQ-AGENT\n");
    assert_eq!(removal(&lent), Some(format!("*nat\n-F IP-MASQ-AGENT\n-D POSTROUTING {jump}\nCOMMIT\n")));
    assert_eq!(removal(":IP-MASQ-AGENT - [0:0]\n-A MINE -j IP-MASQ-AGENT\n"), None);
    assert_eq!(removal(":POSTROUTING ACCEPT [0:0]\n-A POSTROUTING -j MASQUERADE\n"), None);
}

#[test]
fn a_set_holds_no_network_twice() {
    let text =
        r#"{"nonMasqueradeCIDRs":["10.1.0.0/16","10.0.0.0/8","10.0.0.0/8","11.0.0.0/9","11.128.0.0/9"]}"#;
    let config = AgentConfig::parse(text, DefaultNetworks::Private, &[Family::V4]).unwrap();
    let spec = AgentSpec { system: System::Nftables, ..spec("X", &[Family::V4], config) };
    let set = &spec.desired()[0].sets[0].networks;
    assert_eq!(set.iter().map(IpNet::to_string).collect::<Vec<_>>(), ["10.0.0.0/7", "169.254.0.0/16"]);
}

#[test]
fn a_chain_that_jumps_to_itself_goes_in_one_step() {
    let none = usual(&[]);
    let lines = ":POSTROUTING ACCEPT [0:0]\n:IP-MASQ-AGENT - [0:0]\n-A IP-MASQ-AGENT -j IP-MASQ-AGENT\n";
    let (_, mends) = mended(&none, lines);
    assert_eq!(mends.as_deref(), Some("*nat\n-F IP-MASQ-AGENT\n-X IP-MASQ-AGENT\nCOMMIT\n"));
}
