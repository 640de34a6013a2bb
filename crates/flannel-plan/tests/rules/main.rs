//! Masquerade and forwarding rules: what Go flannel wrote, what packets meet, and laws that hold for any table.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod golden;
mod laws;
mod leftovers;
mod reading;
mod truth;

use flannel_plan::family::{ByFamily, Family};
use flannel_plan::rules::edit::{applied, edits};
use flannel_plan::rules::found::FoundTable;
use flannel_plan::rules::observed::RuleScope;
use flannel_plan::rules::spec::{PodNet, Spec, Tunnel, desired};
use flannel_plan::rules::{RuleTable, SourcePorts, System};
use ipnet::IpNet;

const SYSTEMS: [System; 3] = [System::Nftables, System::IptablesNft, System::IptablesLegacy];
const INSTANCE: &str = "/run/flannel/subnet.env";

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

/// Both families, everything switched on.
fn spec(system: System) -> Spec {
    let pods = |cluster, node| PodNet { cluster: net(cluster), node: net(node) };
    Spec {
        system,
        instance: INSTANCE.into(),
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

/// A second daemon of the same host.
fn other_wish(system: System) -> Spec {
    let pods = |cluster, node| PodNet { cluster: net(cluster), node: net(node) };
    Spec {
        instance: "/run/flannel/blue.env".into(),
        networks: ByFamily { v4: Some(pods("10.99.0.0/16", "10.99.7.0/24")), v6: None },
        untracked: ByFamily { v4: Some(Tunnel { port: 8473, vni: 7 }), v6: None },
        ..spec(system)
    }
}

fn scope(spec: &Spec) -> RuleScope {
    let networks = spec.networks.iter().map(|(_, net)| net.cluster).collect();
    RuleScope { instance: spec.instance.clone(), networks, ..RuleScope::default() }
}

/// Makes every table what a wish wants, starting from what was found; the way of the kernel.
fn settle(spec: &Spec, found: &[FoundTable]) -> Vec<FoundTable> {
    let want = desired(spec);
    let ids = want.iter().map(|table| &table.id).chain(found.iter().map(|table| &table.id));
    let ids: std::collections::BTreeSet<_> = ids.collect();
    let made = ids.into_iter().filter_map(|id| {
        let have = found.iter().find(|table| table.id == *id);
        let edits = edits(&scope(spec), want.iter().find(|table| table.id == *id), have);
        applied(have, id, &edits)
    });
    made.collect()
}

fn table<'a>(tables: &'a [RuleTable], family: Family, name: &str) -> &'a RuleTable {
    tables.iter().find(|table| table.id.family == family && &*table.id.name == name).unwrap()
}
