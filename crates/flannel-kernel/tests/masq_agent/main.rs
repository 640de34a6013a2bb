//! The rules of ip-masq-agent in the real kernel, with `nft` and both flavours of iptables as witnesses.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod repair;
#[path = "../sandbox/mod.rs"]
mod sandbox;
mod traffic;
mod written;

use flannel_kernel::firewall::rules::Rules;
use flannel_plan::diff::Change;
use flannel_plan::family::{ByFamily, Family};
use flannel_plan::masq_agent::config::{AgentConfig, DefaultNetworks};
use flannel_plan::masq_agent::spec::AgentSpec;
use flannel_plan::rules::{ChainName, SourcePorts, System};
use sandbox::{in_a_node, sh};

const SYSTEMS: [System; 3] = [System::Nftables, System::IptablesNft, System::IptablesLegacy];
const CHAIN: &str = "IP-MASQ-AGENT";

fn name(chain: &str) -> ChainName {
    chain.to_owned().try_into().unwrap()
}

/// The rules of the agent.
fn open() -> Rules {
    Rules::open_for(&spec(System::Nftables).scope())
}

/// Both families with what holds without a file.
fn spec(system: System) -> AgentSpec {
    AgentSpec {
        system,
        chain: name(CHAIN),
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

/// What has to change.
fn due(rules: &mut Rules, spec: &AgentSpec) -> Vec<Change> {
    let observation = rules.observe(spec.system);
    assert_eq!(observation.unreadable, []);
    flannel_plan::rules::changes(&spec.scope(), &spec.desired(), &observation)
}

/// What differs, in words.
fn differences(rules: &mut Rules, spec: &AgentSpec) -> Vec<String> {
    let words = |change: &Change| flannel_plan::rules::differences(change).join(", ");
    due(rules, spec).iter().map(|change| format!("{}: {}", change.key(), words(change))).collect()
}

/// Makes the rules what a wish wants: one pass of changes, after which nothing is left to do. Tells what differed.
fn settle(rules: &mut Rules, spec: &AgentSpec) -> Vec<String> {
    let told = differences(rules, spec);
    let due = due(rules, spec);
    let failures: Vec<String> = rules.apply(&spec.scope(), &due).iter().map(ToString::to_string).collect();
    assert_eq!(failures, [""; 0]);
    assert_eq!(differences(rules, spec), [""; 0]);
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
