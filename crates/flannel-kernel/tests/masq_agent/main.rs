//! The rules of ip-masq-agent in the real kernel, with `nft` and both flavours of iptables as witnesses.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod repair;
#[path = "../sandbox/mod.rs"]
mod sandbox;
mod traffic;
mod written;

use flannel_kernel::firewall::masq_agent::{AgentFirewall, AgentLook, Depth};
use flannel_plan::family::{ByFamily, Family};
use flannel_plan::masq_agent::config::{AgentConfig, DefaultNetworks};
use flannel_plan::masq_agent::spec::AgentSpec;
use flannel_plan::rules::{SourcePorts, System};
use sandbox::{in_a_node, sh};

const SYSTEMS: [System; 3] = [System::Nftables, System::IptablesNft, System::IptablesLegacy];
const CHAIN: &str = "IP-MASQ-AGENT";

/// Both families with what holds without a file.
fn spec(system: System) -> AgentSpec {
    AgentSpec {
        system,
        chain: CHAIN.into(),
        source_ports: ByFamily { v4: Some(SourcePorts::Randomised), v6: Some(SourcePorts::Randomised) },
        to_ports: vec![],
        config: AgentConfig::without_file(DefaultNetworks::Private),
    }
}

fn config(text: &str) -> AgentConfig {
    AgentConfig::parse(text, DefaultNetworks::Private, &Family::BOTH).unwrap()
}

fn in_every_system(test: impl Fn(System) + Send + Sync) {
    for system in SYSTEMS {
        in_a_node(|| test(system));
    }
}

/// What differs, in words.
fn differences(firewall: &mut AgentFirewall, spec: &AgentSpec) -> Vec<String> {
    let AgentLook { differences, unreadable } = firewall.observe(spec, Depth::Thorough);
    assert_eq!(unreadable, [""; 0]);
    differences.iter().map(|it| format!("{}: {}", it.id, it.words.join(", "))).collect()
}

/// Makes the rules what a wish wants: one pass of changes, after which nothing is left to do. Tells what differed.
fn settle(firewall: &mut AgentFirewall, spec: &AgentSpec) -> Vec<String> {
    let told = differences(firewall, spec);
    let observation = firewall.observe(spec, Depth::Thorough);
    let failures: Vec<String> =
        firewall.apply(spec, &observation.differences).iter().map(ToString::to_string).collect();
    assert_eq!(failures, [""; 0]);
    assert_eq!(differences(firewall, spec), [""; 0]);
    told
}

/// The programs of iptables of a system.
fn programs(system: System) -> [&'static str; 2] {
    match system {
        System::IptablesLegacy => ["iptables-legacy", "ip6tables-legacy"],
        System::Nftables | System::IptablesNft => ["iptables-nft", "ip6tables-nft"],
    }
}

/// Everything of every system, without counters and without empty chains of iptables itself.
fn everything() -> String {
    let mut text = sh("nft list ruleset");
    for program in programs(System::IptablesLegacy) {
        let saved = sh(&format!("{program}-save -t nat"));
        let told = saved.lines().filter(|line| line.starts_with("-A") || line.contains(" - ["));
        text += &told.collect::<Vec<_>>().join("\n");
    }
    text
}
