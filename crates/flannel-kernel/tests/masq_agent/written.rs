//! What people list: in iptables letter by letter what the original makes, in nftables a set and a few rules.

use std::time::Instant;

use flannel_kernel::firewall::rules::Rules;
use flannel_plan::masq_agent::config::{AgentConfig, DefaultNetworks};
use flannel_plan::masq_agent::spec::AgentSpec;
use flannel_plan::rules::ports::ranges;
use flannel_plan::rules::{SourcePorts, System};

use crate::sandbox::sh;
use crate::{config, in_a_node, name, open, programs, settle, spec};

/// The wishes that the original was run with, and what it left.
fn originals(system: System) -> Vec<(AgentSpec, &'static str)> {
    let usual = spec(system);
    let mut v4_only = usual.clone();
    v4_only.source_ports.v6 = None;
    let mut reserved = usual.clone();
    reserved.chain = name("CUSTOM");
    reserved.config = AgentConfig::without_file(DefaultNetworks::Reserved);
    reserved.source_ports.v4 = Some(SourcePorts::Kept);
    reserved.source_ports.v6 = Some(SourcePorts::Kept);
    let mut file = usual.clone();
    file.config = config(
        r#"{"nonMasqueradeCIDRs":["192.168.0.0/16","10.1.0.0/16","fd00::/8","10.0.0.0/8"],"masqLinkLocal":true}"#,
    );
    let mut ports = usual;
    ports.to_ports = ranges("1024-29999,32768-49151,61000-65535").unwrap();
    vec![
        (v4_only, include_str!("../../../flannel-plan/tests/masq_agent/golden/default.txt")),
        (reserved, include_str!("../../../flannel-plan/tests/masq_agent/golden/reserved-v6.txt")),
        (file, include_str!("../../../flannel-plan/tests/masq_agent/golden/file.txt")),
        (ports, include_str!("../../../flannel-plan/tests/masq_agent/golden/ports.txt")),
    ]
}

/// What `iptables-save` shows, with the chains of iptables itself left out.
fn saved(system: System) -> String {
    let text = programs(system).map(|program| sh(&format!("{program}-save -t nat"))).concat();
    let ours = |line: &&str| line.starts_with("-A") || line.contains(" - [");
    text.lines().filter(ours).map(|line| format!("{line}\n")).collect()
}

#[test]
fn iptables_lists_what_the_original_made_in_both_flavours_and_families() {
    for system in [System::IptablesNft, System::IptablesLegacy] {
        for (spec, expected) in originals(system) {
            in_a_node(|| {
                settle(&mut Rules::open_for(&spec.scope()), &spec);
                assert_eq!(saved(system), expected, "{system}");
            });
        }
    }
}

#[test]
fn what_the_original_made_is_taken_over_without_a_change() {
    for system in [System::IptablesNft, System::IptablesLegacy] {
        for (spec, golden) in originals(system) {
            in_a_node(|| {
                for (program, part) in programs(system).iter().zip(parts(golden)) {
                    sh(&format!("{program}-restore -n <<'EOF'\n*nat\n{part}COMMIT\nEOF"));
                }
                assert_eq!(settle(&mut Rules::open_for(&spec.scope()), &spec), [""; 0], "{system}");
            });
        }
    }
}

/// The parts of a golden file, one for each family: each begins with its chain.
fn parts(golden: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for line in golden.lines() {
        if line.starts_with(':') {
            parts.push(String::new());
        }
        parts.last_mut().unwrap().push_str(&format!("{line}\n"));
    }
    parts
}

#[test]
fn nft_lists_a_set_and_a_rule_for_it() {
    in_a_node(|| {
        let mut spec = spec(System::Nftables);
        spec.source_ports.v6 = None;
        settle(&mut open(), &spec);
        let expected = "table ip ip-masq-agent {
	comment \"rules of ip-masq-agent\"
	set IP-MASQ-AGENT {
		type ipv4_addr
		flags interval
		elements = { 10.0.0.0/8, 169.254.0.0/16,
			     172.16.0.0/12, 192.168.0.0/16 }
	}

	chain IP-MASQ-AGENT {
		type nat hook postrouting priority srcnat + 10; policy accept;
		fib daddr type local return
		ip daddr @IP-MASQ-AGENT return comment \"ip-masq-agent: local traffic is not subject to MASQUERADE\"
		masquerade fully-random comment \"ip-masq-agent: outbound traffic is subject to MASQUERADE (must be last in chain)\"
	}
}
";
        assert_eq!(sh("nft list ruleset"), expected);
    });
}

#[test]
fn nft_lists_ports_and_their_chances() {
    in_a_node(|| {
        let mut spec = spec(System::Nftables);
        spec.source_ports.v4 = None;
        spec.source_ports.v6 = Some(SourcePorts::Kept);
        spec.to_ports = ranges("1024-29999,32768-49151,65535").unwrap();
        settle(&mut open(), &spec);
        let listed = sh("nft list ruleset");
        let shares = [
            "numgen random mod 45361 < 28976 masquerade to :1024-29999",
            "numgen random mod 16385 < 16384 masquerade to :32768-49151",
            "masquerade to :65535",
        ];
        for (protocol, share) in ["tcp", "udp", "sctp"].iter().flat_map(|it| shares.map(|share| (it, share)))
        {
            assert!(
                listed.contains(&format!("meta l4proto {protocol} {share} comment")),
                "{share}: {listed}"
            );
        }
        assert!(listed.contains("elements = { fe80::/10 }"), "{listed}");
        assert!(listed.contains("\t\tmasquerade comment"), "{listed}");
    });
}

#[test]
fn a_thousand_networks_come_change_and_go_in_every_system() {
    for system in [System::Nftables, System::IptablesNft, System::IptablesLegacy] {
        in_a_node(|| {
            let list = |count: u32| {
                let nets: Vec<_> =
                    (0..count).map(|n| format!("\"11.{}.{}.0/25\"", n / 256, n % 256)).collect();
                config(&format!(r#"{{"cidrLimit":1000,"nonMasqueradeCIDRs":[{}]}}"#, nets.join(",")))
            };
            let mut rules = open();
            let begun = Instant::now();
            let mut spec = spec(system);
            for count in [1000, 999, 3] {
                spec.config = list(count);
                assert!(!settle(&mut rules, &spec).is_empty(), "{system}");
            }
            assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
        });
    }
}
