//! The rules of a node in the real kernel, with `nft` and both flavours of iptables as witnesses.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod explaining;
mod golden;
mod kernel;
mod leftovers;
mod repair;
#[path = "../sandbox/mod.rs"]
mod sandbox;
mod sets;
mod traffic;
mod tunnel;
mod watch;

use flannel_kernel::firewall::rules::Rules;
use flannel_plan::diff::Change;
use flannel_plan::family::ByFamily;
use flannel_plan::rules::found::RuleObservation;
use flannel_plan::rules::observed::{RuleScope, observed};
use flannel_plan::rules::spec::{PodNet, Spec, Tunnel, desired};
use flannel_plan::rules::{SourcePorts, System, changes};
use ipnet::IpNet;
use sandbox::*;

const SYSTEMS: [System; 3] = [System::Nftables, System::IptablesNft, System::IptablesLegacy];

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn spec(system: System) -> Spec {
    let pods = |cluster, node| PodNet { cluster: net(cluster), node: net(node) };
    Spec {
        system,
        instance: "/run/flannel/subnet.env".into(),
        networks: ByFamily {
            v4: Some(pods("10.244.0.0/16", "10.244.1.0/24")),
            v6: Some(pods("fd00:244::/48", "fd00:244:0:1::/64")),
        },
        masquerade: ByFamily { v4: Some(SourcePorts::Randomised), v6: Some(SourcePorts::Randomised) },
        non_masquerade_cidrs: vec![],
        forward: true,
        untracked: ByFamily {
            v4: Some(Tunnel { port: 8472, vni: 1 }),
            v6: Some(Tunnel { port: 8472, vni: 1 }),
        },
    }
}

/// Everything switched off.
fn nothing(system: System) -> Spec {
    let (masquerade, untracked) = (ByFamily::default(), ByFamily::default());
    Spec { forward: false, masquerade, untracked, ..spec(system) }
}

fn scope(spec: &Spec) -> RuleScope {
    let networks = spec.networks.iter().map(|(_, net)| net.cluster).collect();
    RuleScope { instance: spec.instance.clone(), networks, ..RuleScope::default() }
}

/// The same once in each system.
fn in_every_system(test: impl Fn(System) + Send + Sync) {
    for system in SYSTEMS {
        in_a_node(|| test(system));
    }
}

fn observe(rules: &mut Rules, system: System) -> RuleObservation {
    let observation = rules.observe(system);
    assert_eq!(observation.unreadable, []);
    observation
}

/// What a look asks for.
fn due(rules: &mut Rules, spec: &Spec) -> Vec<Change> {
    changes(&scope(spec), &desired(spec), &observe(rules, spec.system))
}

/// Makes the rules what a wish wants: one pass of changes, after which nothing is left to do.
fn settle(rules: &mut Rules, spec: &Spec) -> usize {
    let due = due(rules, spec);
    let failures: Vec<String> = rules.apply(&scope(spec), &due).iter().map(ToString::to_string).collect();
    assert_eq!(failures, [""; 0]);
    let now = observe(rules, spec.system);
    assert_eq!(observed(&scope(spec), &now.tables), desired(spec));
    due.len()
}

/// The programs of iptables of a system: of nftables none.
fn programs(system: System) -> [&'static str; 2] {
    match system {
        System::IptablesLegacy => ["iptables-legacy", "ip6tables-legacy"],
        System::Nftables | System::IptablesNft => ["iptables-nft", "ip6tables-nft"],
    }
}

/// What a person lists of a system, without what changes by itself.
fn listing(system: System) -> Vec<String> {
    let text = match system {
        System::Nftables => sh("nft -a list ruleset"),
        _ => programs(system).map(|program| sh(&format!("{program}-save"))).concat(),
    };
    let counts = |line: &&str| !line.starts_with('#') && !line.trim().is_empty();
    let without_counters = |line: &str| match line.split_once(" [") {
        Some((chain, _)) if line.starts_with(':') => chain.to_owned(),
        _ => line.to_owned(),
    };
    text.lines().filter(counts).map(without_counters).collect()
}
