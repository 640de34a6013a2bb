//! What Go flannel 0.28 wrote for the same configuration, captured from running programs.

use std::fs;
use std::path::{Path, PathBuf};

use flannel_plan::family::{ByFamily, Family};
use flannel_plan::rules::found::FoundTable;
use flannel_plan::rules::iptables::{saved, text};
use flannel_plan::rules::observed::observed;
use flannel_plan::rules::spec::{PodNet, Spec, desired};
use flannel_plan::rules::{RuleTable, SourcePorts, System};
use flannel_plan::subnet_env::SubnetEnv;

use crate::{INSTANCE, scope};

/// The nodes of all cases, with the folders of what was captured there.
fn nodes() -> Vec<(PathBuf, Spec)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/flanneld");
    let cases = fs::read_dir(folder).unwrap().map(|case| case.unwrap().path());
    let nodes = cases.flat_map(|case| ["w1", "w2", "w3"].map(|node| (case.clone(), case.join(node))));
    nodes.filter_map(|(case, node)| Some((node.clone(), spec(&case, &node)?))).collect()
}

/// What the operator wished for, from the captured net-conf.json and subnet.env.
fn spec(case: &Path, node: &Path) -> Option<Spec> {
    let env = SubnetEnv::parse(&fs::read_to_string(node.join("subnet.env")).ok()?).unwrap();
    let nftables = fs::read_to_string(case.join("net-conf.json")).unwrap().contains("EnableNFTables");
    let networks = ByFamily {
        v4: env.networks.v4.as_ref().map(|_| pods(&env, Family::V4)),
        v6: env.networks.v6.as_ref().map(|_| pods(&env, Family::V6)),
    };
    Some(Spec {
        system: if nftables { System::Nftables } else { System::IptablesNft },
        instance: INSTANCE.into(),
        networks,
        masquerade: if env.ip_masq {
            networks.map(|_, _| SourcePorts::Randomised)
        } else {
            ByFamily::default()
        },
        non_masquerade_cidrs: vec![],
        forward: true,
        untracked: ByFamily::default(),
    })
}

fn pods(env: &SubnetEnv, family: Family) -> PodNet {
    PodNet { cluster: env.networks.get(family).unwrap()[0], node: env.subnets.get(family).unwrap().trunc() }
}

fn captured(node: &Path, family: Family) -> String {
    let name = match family {
        Family::V4 => "iptables.txt",
        Family::V6 => "ip6tables.txt",
    };
    fs::read_to_string(node.join(name)).unwrap_or_default()
}

/// The lines of `iptables-save` that are about our rules.
fn lines(table: &RuleTable) -> Vec<String> {
    let system = table.id.system;
    let jumps = table.chains.iter().map(|chain| (chain.role.base_chain(), chain.role.jump(system)));
    let rules = table
        .chains
        .iter()
        .flat_map(|chain| chain.rules.iter().map(move |rule| (chain.role.chain(system), rule.clone())));
    let lines = jumps.chain(rules).map(|(chain, rule)| format!("-A {chain} {}", text(&rule)));
    [format!("*{}", table.id.name)].into_iter().chain(lines).collect()
}

#[test]
fn in_iptables_mode_the_rules_are_those_of_go_word_by_word() {
    let mut compared = 0;
    for (node, spec) in nodes().into_iter().filter(|(_, spec)| spec.system.is_iptables()) {
        for family in Family::BOTH {
            let captured = captured(&node, family);
            let is_rule = |line: &&str| line.starts_with("-A") || line.starts_with('*');
            let theirs: Vec<&str> = captured.lines().filter(is_rule).collect();
            let of_family = desired(&spec).into_iter().filter(|table| table.id.family == family);
            let ours: Vec<String> = of_family.flat_map(|table| lines(&table)).collect();
            assert_eq!(ours, theirs, "{node:?} {family}");
            compared += theirs.len();
        }
    }
    assert!(compared > 200, "{compared}");
}

#[test]
fn what_go_left_in_iptables_is_adopted_without_a_change() {
    for (node, spec) in nodes().into_iter().filter(|(_, spec)| spec.system.is_iptables()) {
        let found: Vec<FoundTable> = Family::BOTH
            .into_iter()
            .flat_map(|family| saved(spec.system, family, &captured(&node, family)).unwrap().tables)
            .collect();
        assert_eq!(observed(&scope(&spec), &found), desired(&spec), "{node:?}");
    }
}
