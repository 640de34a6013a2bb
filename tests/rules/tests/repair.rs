//! Whatever somebody does to flannel's rules is undone, in every system, and whoever keeps doing it is named.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cluster_tests::{Cluster, cpu_time, metrics, options, readyz, state, wait_until};
use flannel_lab::{LabOptions, Node, Topology};
use rule_tests::{Firewalld, Folder, Mode, listing, of_flannel};
use serde_json::json;
use store_tests::{Need, scenarios};

scenarios! {
    &[] => what_is_broken_in_iptables_is_repaired, what_is_broken_in_nftables_is_repaired,
        what_is_broken_in_legacy_iptables_is_repaired_at_the_next_look,
        rules_of_others_are_not_fought_and_do_not_decide_first, a_fight_in_nftables_is_damped_and_named,
        a_fight_in_iptables_is_damped_and_named;
    &[Need::Peers] => a_reload_of_firewalld_that_flushes_iptables_is_repaired,
        a_reload_of_firewalld_in_nftables_takes_nothing_away;
}

/// What an operator or another program does to the rules of iptables.
const IPTABLES: [&str; 9] = [
    "iptables -t nat -F",
    "iptables -F",
    "iptables -t nat -F FLANNEL-POSTRTG",
    "iptables -F FLANNEL-FWD",
    "iptables -t nat -D FLANNEL-POSTRTG 3",
    "iptables -t nat -F POSTROUTING",
    "ip6tables -t nat -F",
    "ip6tables -F FORWARD",
    "nft flush ruleset",
];

const NFTABLES: [&str; 6] = [
    "nft flush ruleset",
    "nft flush table ip flannel-ipv4",
    "nft delete table ip6 flannel-ipv6",
    "nft flush chain ip flannel-ipv4 postrtg",
    "nft delete chain ip flannel-ipv4 forward",
    "nft add table ip flannel-ipv4 { flags dormant; }",
];

const LEGACY: [&str; 3] =
    ["iptables-legacy -t nat -F", "iptables-legacy -F FLANNEL-FWD", "ip6tables-legacy -t nat -F POSTROUTING"];

/// A node with flannel's rules, and a folder that its daemon may need.
fn node_in(mode: Mode) -> (Cluster, Folder) {
    let folder = Folder::new();
    let options = LabOptions {
        topology: Topology::flat(1).unwrap(),
        flanneld_args: ["--ip-masq", "--iptables-resync", "1"].map(str::to_owned).to_vec(),
        flanneld_env: mode.environment(&folder),
        ..options(&mode.net_conf())
    };
    let cluster = Cluster::up("repair", options);
    cluster.start(&["master1"]);
    (cluster, folder)
}

fn run(node: &Node, words: &str) {
    let mut words = words.split_whitespace();
    node.run(words.next().unwrap(), words).unwrap();
}

fn repairs_all(mode: Mode, breaks: &[&str]) {
    let (cluster, _folder) = node_in(mode);
    let node = cluster.node("master1");
    let whole = listing(node);
    assert!(!of_flannel(node).is_empty(), "{whole:#?}");
    for words in breaks {
        run(node, words);
        wait_until(&format!("the rules to be whole after `{words}`"), || {
            let now = listing(node);
            if now == whole { Ok(()) } else { Err(format!("{:#?}\n{}", changes(&whole, &now), node.log())) }
        });
    }
}

/// The lines that differ.
fn changes(before: &[String], after: &[String]) -> Vec<String> {
    let only = |sign: char, one: &[String], other: &[String]| {
        let lines = one.iter().filter(|line| !other.contains(line));
        lines.map(|line| format!("{sign} {line}")).collect::<Vec<_>>()
    };
    [only('-', before, after), only('+', after, before)].concat()
}

fn what_is_broken_in_iptables_is_repaired() {
    repairs_all(Mode::Iptables, &IPTABLES);
}

fn what_is_broken_in_nftables_is_repaired() {
    repairs_all(Mode::Nftables, &NFTABLES);
}

fn what_is_broken_in_legacy_iptables_is_repaired_at_the_next_look() {
    repairs_all(Mode::Legacy, &LEGACY);
}

/// What others append stays and is no reason to do anything; what they put first goes behind ours.
fn rules_of_others_are_not_fought_and_do_not_decide_first() {
    let (cluster, _folder) = node_in(Mode::Iptables);
    let node = cluster.node("master1");
    let before = metrics(node).sum("flannel_repairs_total");
    for number in 1..=50 {
        run(node, &format!("iptables -t nat -A POSTROUTING -s 198.51.100.{number} -j RETURN"));
        run(node, &format!("iptables -t nat -A FLANNEL-POSTRTG -s 198.51.100.{number} -j RETURN"));
    }
    run(node, "iptables -t nat -I FLANNEL-POSTRTG -j ACCEPT");
    wait_until("the stranger's rule to be last", || {
        let chain = node.run("iptables", ["-t", "nat", "-S", "FLANNEL-POSTRTG"]).unwrap();
        let rules: Vec<_> = chain.lines().collect();
        let ours = rules.iter().rposition(|line| line.contains("flanneld masq"));
        let theirs = rules.iter().position(|line| line.ends_with("-j ACCEPT"));
        if ours < theirs && rules.len() == 58 { Ok(()) } else { Err(chain) }
    });
    wait_until("the one repair to be counted", || {
        match metrics(node).sum("flannel_repairs_total") - before {
            1.0 => Ok(()),
            other => Err(format!("{other}\n{}", node.log())),
        }
    });
    assert!(
        listing(node).contains(&"iptables-nft-save: -A POSTROUTING -s 198.51.100.50/32 -j RETURN".to_owned())
    );
}

fn a_fight_in_nftables_is_damped_and_named() {
    fight(Mode::Nftables, "nft flush chain ip flannel-ipv4 postrtg", "rules nftables ip flannel-ipv4");
}

fn a_fight_in_iptables_is_damped_and_named() {
    fight(Mode::Iptables, "iptables -t nat -F FLANNEL-POSTRTG", "rules iptables nat");
}

const FIGHT: Duration = Duration::from_secs(12);

/// A program that flushes our chain again and again.
fn fight(mode: Mode, damage: &str, table: &str) {
    let (cluster, _folder) = node_in(mode);
    let (node, over) = (cluster.node("master1"), AtomicBool::new(false));
    let whole = listing(node);
    let (pid, start) = (node.flanneld().pid().unwrap(), Instant::now());
    let before = cpu_time(pid);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                run(node, damage);
                thread::sleep(Duration::from_millis(10));
            }
        });
        wait_until("state.json to name what is fought over", || {
            let found = state(node)["contested"].clone();
            if found == json!([table]) { Ok(()) } else { Err(format!("{found}\n{}", node.log())) }
        });
        let (program, _) = damage.split_once(' ').unwrap();
        let who = format!("{table}: {program} keeps undoing it");
        wait_until("/readyz to name who fights", || match readyz(node) {
            (200, lines) if lines.contains(&who) => Ok(()),
            other => Err(format!("{other:#?}")),
        });
        thread::sleep((start + FIGHT).saturating_duration_since(Instant::now()));
        over.store(true, Ordering::SeqCst);
    });
    let (spent, took) = (cpu_time(pid) - before, start.elapsed());
    assert!(spent < took / 10, "{spent:?} of {took:?}");
    wait_until("the rules to be whole after the fight", || {
        let now = listing(node);
        if now == whole { Ok(()) } else { Err(format!("{:#?}", changes(&whole, &now))) }
    });
    let repairs = metrics(node).sum("flannel_repairs_total");
    assert!((15.0..40.0).contains(&repairs), "ten repairs, then one a second: {repairs}");
    let log = node.log();
    let told: Vec<_> = log.lines().filter(|line| line.contains("keeps undoing")).collect();
    assert!(told.len() == 1 && told[0].contains(table), "{told:#?}");
}

/// With that backend firewalld deletes every rule of iptables, whoever made it.
fn a_reload_of_firewalld_that_flushes_iptables_is_repaired() {
    survives_reloads(Mode::Iptables, "iptables");
}

fn a_reload_of_firewalld_in_nftables_takes_nothing_away() {
    survives_reloads(Mode::Nftables, "nftables");
}

fn survives_reloads(mode: Mode, backend: &str) {
    let (cluster, _folder) = node_in(mode);
    let node = cluster.node("master1");
    let ours = || {
        let mut lines = of_flannel(node);
        // The words of nft for what iptables keeps are longer than our patience with their order.
        lines.retain(|line| mode == Mode::Nftables || !line.starts_with("nft: "));
        lines
    };
    let whole = ours();
    let firewalld = Firewalld::start(node, backend);
    for time in 1..=3 {
        firewalld.reload();
        wait_until(&format!("the rules to be whole after reload {time}"), || {
            let now = ours();
            if now == whole { Ok(()) } else { Err(format!("{:#?}\n{}", changes(&whole, &now), node.log())) }
        });
    }
}
