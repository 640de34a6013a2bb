//! While nobody touches flannel's rules, flanneld runs no program to look at them.

use std::fs;

use cluster_tests::{Cluster, PeerLease, options, wait_until};
use flannel_lab::{LabOptions, Node, Topology};
use rule_tests::{Folder, Mode};
use store_tests::scenarios;

scenarios! {
    &[] => no_program_is_run_in_nftables_mode_while_rules_of_others_change,
        no_program_is_run_in_iptables_mode_while_rules_of_others_change,
        no_program_is_run_at_the_timer_of_legacy_iptables_while_nothing_changes;
}

fn no_program_is_run_in_nftables_mode_while_rules_of_others_change() {
    stays_alone(Mode::Nftables, "nft flush chain ip flannel-ipv4 postrtg", Programs::None);
}

fn no_program_is_run_in_iptables_mode_while_rules_of_others_change() {
    stays_alone(Mode::Iptables, "iptables -t nat -F FLANNEL-POSTRTG", Programs::ForRepairs);
}

fn no_program_is_run_at_the_timer_of_legacy_iptables_while_nothing_changes() {
    stays_alone(Mode::Legacy, "iptables-legacy -t nat -F FLANNEL-POSTRTG", Programs::ForRepairs);
}

/// What a daemon runs when it has something to do.
#[derive(PartialEq, Eq)]
enum Programs {
    /// It needs none.
    None,
    /// Those of iptables.
    ForRepairs,
}

fn stays_alone(mode: Mode, damage: &str, programs: Programs) {
    let folder = Folder::new();
    let lab = LabOptions {
        topology: Topology::flat(1).unwrap(),
        flanneld_args: ["--ip-masq", "--iptables-resync", "1"].map(str::to_owned).to_vec(),
        flanneld_env: mode.environment(&folder),
        ..options(&mode.net_conf())
    };
    let cluster = Cluster::up("quiet", lab);
    cluster.start(&["master1"]);
    let node = cluster.node("master1");
    let mut peers = made_up_peers(&cluster).into_iter();
    let pid = node.flanneld().pid().unwrap();
    // The first looks may run programs: until one has passed that ran none.
    wait_until("a look without a program", || {
        let before = faults_of_children(pid);
        stir(node, &peers.next().unwrap());
        if faults_of_children(pid) == before { Ok(()) } else { Err(node.log()) }
    });
    let before = faults_of_children(pid);
    peers.take(20).for_each(|peer| stir(node, &peer));
    assert_eq!(faults_of_children(pid), before, "a program was run: {}", node.log());
    let mut words = damage.split_whitespace();
    let program = words.next().unwrap();
    node.run(program, words).unwrap();
    if programs == Programs::ForRepairs {
        wait_until("a program to repair", || {
            if faults_of_children(pid) > before { Ok(()) } else { Err(node.log()) }
        });
    }
}

/// Peers that are not there, each good for one repair: whoever breaks one object again and again is put off.
fn made_up_peers(cluster: &Cluster) -> Vec<String> {
    let peers: Vec<u8> = (100..140).collect();
    for number in &peers {
        let (key, mac) = (format!("10.244.{number}.0-24"), format!("0e:00:00:00:00:{number:02x}"));
        let lease = PeerLease::vxlan(&key, &format!("peer{number}"), &format!("10.0.1.{number}"), &mac);
        cluster.leases().write(&lease);
    }
    let subnets: Vec<_> = peers.iter().map(|number| format!("10.244.{number}.0/24")).collect();
    let node = cluster.node("master1");
    wait_until("routes to all peers", || subnets.iter().try_for_each(|subnet| has_route(node, subnet)));
    subnets
}

/// Rules of somebody else come and go, and a route of ours is repaired: after that, all was looked at.
fn stir(node: &Node, peer: &str) {
    for words in [
        "add table ip others",
        "add chain ip others c",
        "add rule ip others c accept",
        "delete table ip others",
    ] {
        node.run("nft", words.split_whitespace()).unwrap();
    }
    node.ip(&format!("route del {peer}")).unwrap();
    wait_until("the route to be repaired", || has_route(node, peer));
}

fn has_route(node: &Node, subnet: &str) -> Result<(), String> {
    let routes = node.ip(&format!("route show {subnet}")).unwrap();
    if routes.contains("flannel.1") { Ok(()) } else { Err(node.log()) }
}

/// The page faults of all programs that a process has run and waited for: none is so small that it has none.
fn faults_of_children(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The name may hold spaces; it ends at the last bracket.
    let (_, rest) = stat.rsplit_once(')').unwrap();
    rest.split_whitespace().nth(8).unwrap().parse().unwrap()
}
