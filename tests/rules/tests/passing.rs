//! A pod opens 500 connections a second to the world while flanneld is restarted, upgraded and told to keep its rules
//! elsewhere: none is lost, and none is seen with another source than the node's.

use cluster_tests::{is_ready, wait_until};
use flannel_lab::{Node, Signal, Store};
use rule_tests::{Connections, Family, Mode, Outcome, Site, of_flannel};
use store_tests::{Need, Program, scenarios, start, tell};

scenarios! {
    &[] => a_restart_in_iptables_mode_is_not_noticed, a_restart_in_nftables_mode_is_not_noticed,
        a_restart_with_legacy_iptables_is_not_noticed,
        a_switch_of_modes_is_not_noticed_and_leaves_nothing_behind, what_is_lost_or_has_a_wrong_source_is_noticed;
    &[Need::GoFlanneld] => an_upgrade_from_go_in_iptables_mode_is_not_noticed,
        an_upgrade_from_go_in_nftables_mode_is_not_noticed, an_upgrade_from_go_to_another_mode_is_not_noticed;
}

/// So many connections after each change: those of half a second.
const AFTER: u64 = 250;

fn a_restart_in_iptables_mode_is_not_noticed() {
    restart(Mode::Iptables, Family::V4);
}

fn a_restart_in_nftables_mode_is_not_noticed() {
    restart(Mode::Nftables, Family::V6);
}

fn a_restart_with_legacy_iptables_is_not_noticed() {
    restart(Mode::Legacy, Family::V4);
}

/// The others would prove nothing if the stream could not fail.
fn what_is_lost_or_has_a_wrong_source_is_noticed() {
    let site = Site::up("noticed", Program::Ours, Mode::Nftables);
    let node = site.node("one");
    node.flanneld().stop(Signal::TERM).unwrap();
    let stream = Connections::begin(&site, Family::V4);
    site.load(node, "flush chain ip flannel-ipv4 postrtg");
    site.load(
        node,
        "table ip lossy { chain c { type filter hook forward priority 0; numgen random mod 20 0 drop; }; }",
    );
    stream.wait_more(60);
    let Outcome { lost, sources, .. } = stream.end(&site);
    let names: Vec<_> = sources.keys().collect();
    assert!(!lost.is_empty() && names == ["one", "one.a"], "{lost:?} {sources:?}");
}

fn restart(mode: Mode, family: Family) {
    let site = Site::up("restart", Program::Ours, mode);
    if mode == Mode::Iptables {
        drop_what_nobody_accepts(&site);
    }
    let (node, stream) = (site.node("one"), Connections::begin(&site, family));
    for signal in [Signal::TERM, Signal::KILL] {
        replace(node, signal);
        stream.wait_more(AFTER);
    }
    assert_unnoticed(&stream.end(&site));
}

/// As Docker does: what no rule accepts is not forwarded, so a moment without flannel's would be noticed.
fn drop_what_nobody_accepts(site: &Site) {
    for program in ["iptables", "ip6tables"] {
        site.node("one").run(program, ["-P", "FORWARD", "DROP"]).unwrap();
    }
}

fn replace(node: &Node, signal: Signal) {
    node.flanneld().stop(signal).unwrap();
    start(node, Program::Ours);
    is_ready(node);
}

fn a_switch_of_modes_is_not_noticed_and_leaves_nothing_behind() {
    let site = Site::up("switch", Program::Ours, Mode::Iptables);
    let (node, stream) = (site.node("one"), Connections::begin(&site, Family::V4));
    for mode in [Mode::Nftables, Mode::Iptables] {
        site.cluster().write_net_conf(&mode.net_conf()).unwrap();
        wait_kept_in(node, mode);
        stream.wait_more(AFTER);
    }
    // The same between two runs of the daemon.
    node.flanneld().stop(Signal::TERM).unwrap();
    site.cluster().write_net_conf(&Mode::Nftables.net_conf()).unwrap();
    start(node, Program::Ours);
    wait_kept_in(node, Mode::Nftables);
    stream.wait_more(AFTER);
    assert_unnoticed(&stream.end(&site));
    node.flanneld().stop(Signal::TERM).unwrap();
    let off = ["--ip-masq=false", "--iptables-forward-rules=false", "--vxlan-notrack=false"];
    node.start_flanneld(off).unwrap();
    wait_until("no rule of flannel to be left", || match of_flannel(node) {
        lines if lines.is_empty() => Ok(()),
        lines => Err(format!("{lines:#?}")),
    });
}

/// Waits until flannel's rules of both families are in one system, and nothing of them is in another.
fn wait_kept_in(node: &Node, mode: Mode) {
    let native = |line: &String| line.starts_with("nft: table ip") && line.contains(" flannel-ipv");
    let jumps = match mode {
        Mode::Nftables => {
            ["nft: table ip flannel-ipv4 chain postrtg", "nft: table ip6 flannel-ipv6 chain postrtg"]
        }
        _ => ["iptables-nft-save: -A POSTROUTING", "ip6tables-nft-save: -A POSTROUTING"],
    };
    // `nft` shows what iptables keeps in nftables, too.
    let own = |line: &String| native(line) == (mode == Mode::Nftables);
    wait_until(&format!("the rules to be in {mode:?}"), || {
        let lines = of_flannel(node);
        let both = jumps.iter().all(|jump| lines.iter().any(|line| line.starts_with(jump)));
        if both && lines.iter().all(own) { Ok(()) } else { Err(format!("{lines:#?}\n{}", node.log())) }
    });
}

fn an_upgrade_from_go_in_iptables_mode_is_not_noticed() {
    upgrade(Mode::Iptables);
}

fn an_upgrade_from_go_in_nftables_mode_is_not_noticed() {
    upgrade(Mode::Nftables);
}

/// Go's own clean-up would leave the jumps and the chains of forwarding.
fn an_upgrade_from_go_to_another_mode_is_not_noticed() {
    for (old, new) in [(Mode::Iptables, Mode::Nftables), (Mode::Nftables, Mode::Iptables)] {
        let site = Site::on("upgrade", Store::etcd(1), Program::Go, old);
        let (node, stream) = (site.node("one"), Connections::begin(&site, Family::V6));
        site.cluster().write_net_conf(&new.net_conf()).unwrap();
        replace(node, Signal::TERM);
        wait_kept_in(node, new);
        stream.wait_more(AFTER);
        assert_unnoticed(&stream.end(&site));
    }
}

fn upgrade(mode: Mode) {
    let site = Site::on("upgrade", Store::etcd(1), Program::Go, mode);
    let (node, before) = (site.node("one"), gos_lines(site.node("one"), mode));
    if mode == Mode::Iptables {
        drop_what_nobody_accepts(&site);
    }
    let stream = Connections::begin(&site, Family::V4);
    replace(node, Signal::TERM);
    wait_kept_in(node, mode);
    stream.wait_more(2 * AFTER);
    assert_unnoticed(&stream.end(&site));
    assert_eq!(gos_lines(node, mode), before, "the rules are the same, word for word");
}

/// What Go writes too, without the two rules of nftables that are mended.
fn gos_lines(node: &Node, mode: Mode) -> Vec<String> {
    let mut lines = of_flannel(node);
    let is_mended = |line: &String| {
        let words: Vec<&str> = line.split_whitespace().collect();
        line.contains(": meta mark ") || matches!(words[..], [.., "saddr", "!=", _, _, "daddr", _, "return"])
    };
    lines.retain(|line| match mode {
        Mode::Nftables => !line.contains("notrack-") && !is_mended(line),
        _ => !line.contains("NOTRACK") && !line.starts_with("nft: "),
    });
    lines
}

#[track_caller]
fn assert_unnoticed(outcome: &Outcome) {
    let Outcome { made, took, lost, sources } = outcome;
    tell(format!("{made} connections in {took:.1?}, {} lost, seen from {sources:?}", lost.len()));
    let seen: Vec<_> = sources.keys().collect();
    assert_eq!((lost, &seen[..]), (&Vec::new(), &[&"one".to_owned()][..]));
}
