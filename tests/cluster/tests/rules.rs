//! The rules of a node: as Go's, in every system, switched on and off, and side by side with those of others.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use cluster_tests::{
    Cluster, Daemon, VXLAN, VXLAN_DUAL, is_ready, metrics, options, readyz, state, wait_until,
};
use flannel_lab::{LabOptions, Node, Signal, Topology};

use crate::golden::{Families, Golden, saved};

/// The same as [`VXLAN_DUAL`] in nftables.
const NFT: &str = r#"{"Network":"10.244.0.0/16","EnableIPv6":true,"IPv6Network":"fd00:244::/48","EnableNFTables":true,"Backend":{"Type":"vxlan"}}"#;
const OFF: [&str; 3] = ["--ip-masq=false", "--iptables-forward-rules=false", "--vxlan-notrack=false"];

/// A folder with the programs of iptables of one flavour under their plain names; gone with the test.
struct Programs(PathBuf);

impl Programs {
    fn legacy() -> Self {
        let folder = Self::none();
        for family in ["iptables", "ip6tables"] {
            for verb in ["", "-save", "-restore"] {
                let program = Path::new("/usr/sbin").join(format!("{family}-legacy{verb}"));
                symlink(program, folder.0.join(format!("{family}{verb}"))).unwrap();
            }
        }
        folder
    }

    fn none() -> Self {
        let folder = std::env::temp_dir().join(flannel_lab::unique_name("programs"));
        fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    /// For `env`, so that only flanneld finds no others.
    fn path(&self) -> String {
        format!("PATH={}", self.0.display())
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a node has of flannel's rules in one system: the lines that name it.
fn in_system(node: &Node, system: usize) -> Vec<String> {
    let saved = |program: &str| node.run(program, [] as [&str; 0]).unwrap();
    let text = match system {
        0 => saved("iptables-nft-save") + &saved("ip6tables-nft-save"),
        1 => node.run("nft", ["list", "ruleset"]).unwrap(),
        _ => saved("iptables-legacy-save") + &saved("ip6tables-legacy-save"),
    };
    // What nft shows of iptables is shown by iptables, too.
    let mut in_own = false;
    let names_it = |line: &&str| match system {
        1 => {
            in_own = if line.starts_with("table ") { line.contains(" flannel-ipv") } else { in_own };
            in_own
        }
        _ => line.contains("FLANNEL") || line.contains("flanneld"),
    };
    text.lines().filter(names_it).map(str::to_owned).collect()
}

/// The same in all of them.
fn of_flannel(node: &Node) -> Vec<String> {
    (0..3).flat_map(|system| in_system(node, system)).collect()
}

/// Two daemons put their rules in the order in which they come.
fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

fn sh(node: &Node, script: &str) -> String {
    node.run("sh", ["-ec", script]).unwrap()
}

/// A daemon with these arguments and programs that is ready.
fn start(node: &Node, arguments: &[&str], programs: &str) -> Daemon {
    let daemon = Daemon::start_under(node, &["env", programs], arguments, &[]);
    is_ready(node);
    daemon
}

#[test]
fn legacy_iptables_shows_what_go_made_in_both_families() {
    let golden = Golden::new("vxlan-dual", Families::AsCaptured);
    let cluster = Cluster::up("legacy", options(&golden.net_conf()));
    golden.leases().iter().for_each(|lease| cluster.leases().write(lease));
    let (node, programs) = (cluster.node("worker1"), Programs::legacy());
    let _daemon = start(node, &["--ip-masq"], &programs.path());
    for (program, output) in [("iptables", "iptables.txt"), ("ip6tables", "ip6tables.txt")] {
        let text = node.run(&format!("{program}-legacy-save"), [] as [&str; 0]).unwrap();
        assert_eq!(saved(&text), golden.lines("worker1", output), "{program}");
    }
    assert_eq!(state(node)["inputs"]["firewall"]["system"], "iptables_legacy");
}

#[test]
fn every_switch_and_every_mode_over_restarts_leaves_nothing_of_the_one_before() {
    let cluster = Cluster::flat("switches", 1, VXLAN_DUAL);
    let node = cluster.node("master1");
    let config = cluster.store().join("config.json");
    let (legacy, usual) = (Programs::legacy(), std::env::var("PATH").unwrap());
    let own = format!("PATH={usual}");
    let legacy = format!("{}:{usual}", legacy.path());
    let modes = [(VXLAN_DUAL, &own), (NFT, &own), (VXLAN_DUAL, &legacy)];
    // Every step from each mode to each other, and to nothing.
    for (from, to) in (0..3).flat_map(|from| (0..3).map(move |to| (from, to))) {
        for (mode, arguments) in [(from, &["--ip-masq"][..]), (to, &["--ip-masq"][..]), (to, &OFF[..])] {
            let (net_conf, programs) = modes[mode];
            fs::write(&config, net_conf).unwrap();
            let _daemon = start(node, arguments, programs);
            let has = (0..3).filter(|system| !in_system(node, *system).is_empty()).collect::<Vec<_>>();
            let expected = if arguments == OFF { vec![] } else { vec![mode] };
            assert_eq!(has, expected, "{from} {to} {mode}: {:#?}", of_flannel(node));
        }
    }
}

#[test]
fn a_live_change_of_mode_moves_the_rules_and_leaves_nothing_behind() {
    let cluster = Cluster::flat("live", 1, VXLAN_DUAL);
    let node = cluster.node("master1");
    let _daemon = Daemon::start(node, &["--ip-masq"]);
    is_ready(node);
    for (net_conf, has, lacks) in [(NFT, "flannel-ipv6", "FLANNEL-"), (VXLAN_DUAL, "FLANNEL-", "flannel-ipv")]
    {
        fs::write(cluster.store().join("config.json"), net_conf).unwrap();
        wait_until("the rules to move", || {
            let found = of_flannel(node);
            let moved =
                found.iter().any(|line| line.contains(has)) && !found.iter().any(|line| line.contains(lacks));
            if moved { Ok(()) } else { Err(found.join("\n")) }
        });
    }
}

/// What Go made, as `iptables-restore` and `nft` take it.
fn captured(case: &str, output: &str) -> String {
    let plan = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/flannel-plan/tests/golden/flanneld");
    plan.join(case).join("w1").join(output).display().to_string()
}

#[test]
fn rules_of_go_are_taken_over_without_a_change_and_removed_when_nothing_is_wanted() {
    let golden = Golden::new("vxlan-dual", Families::AsCaptured);
    let cluster = Cluster::up("takeover", options(&golden.net_conf()));
    golden.leases().iter().for_each(|lease| cluster.leases().write(lease));
    let node = cluster.node("worker1");
    for program in ["iptables", "ip6tables"] {
        let counted = format!(
            "sed 's/^\\(:.*[A-Z-]\\) *$/\\1 [0:0]/' {}",
            captured("vxlan-dual", &format!("{program}.txt"))
        );
        sh(node, &format!("{counted} | {program}-restore"));
    }
    let daemon = Daemon::start(node, &["--ip-masq", "--vxlan-notrack=false"]);
    is_ready(node);
    let changed = metrics(node).labelled("flannel_changes_total");
    assert!(!changed.keys().any(|labels| labels.contains("rules")), "{changed:?}");
    drop(daemon);

    sh(node, &format!("nft -f {}", captured("vxlan-dual-nft", "nft.txt")));
    let _daemon = Daemon::start(node, &OFF);
    is_ready(node);
    assert_eq!(of_flannel(node), [] as [&str; 0]);
}

#[test]
fn rules_of_a_network_that_go_served_before_go_with_it() {
    let cluster = Cluster::flat("before", 1, VXLAN);
    let node = cluster.node("master1");
    sh(node, "iptables -t nat -N FLANNEL-POSTRTG
        iptables -t nat -A POSTROUTING -m comment --comment 'flanneld masq' -j FLANNEL-POSTRTG
        iptables -t nat -A FLANNEL-POSTRTG -s 10.7.1.0/24 -d 10.7.0.0/16 -m comment --comment 'flanneld masq' -j RETURN
        mkdir -p /run/flannel
        printf 'FLANNEL_NETWORK=10.7.0.0/16\nFLANNEL_SUBNET=10.7.1.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n' > /run/flannel/subnet.env");
    let _daemon = Daemon::start(node, &["--vxlan-notrack=false"]);
    is_ready(node);
    let found = of_flannel(node);
    assert!(!found.iter().any(|line| line.contains("10.7.") || line.contains("POSTRTG")), "{found:#?}");
}

#[test]
fn two_daemons_keep_their_rules_side_by_side_and_one_takes_away_only_its_own() {
    for nftables in ["false", "true"] {
        let net_conf = |network: &str, vni: u8| {
            format!(
                r#"{{"Network":"{network}","EnableNFTables":{nftables},"Backend":{{"Type":"vxlan","VNI":{vni}}}}}"#
            )
        };
        let cluster = Cluster::flat("two-rules", 1, &net_conf("10.244.0.0/16", 1));
        let node = cluster.node("master1");
        fs::create_dir(cluster.store().join("blue")).unwrap();
        fs::write(cluster.store().join("blue/config.json"), net_conf("10.99.0.0/16", 9)).unwrap();
        let blue = |arguments: &[&'static str]| {
            let own =
                ["--lease-dir", "/var/lib/flannel-store/blue", "--subnet-file", "/run/flannel/blue.env"];
            let daemon = Daemon::start(node, &[&own[..], &["--healthz-port", "8082"], arguments].concat());
            wait_until("the second daemon to be ready", || match node.http_get(8082, "/readyz") {
                Ok((200, _)) => Ok(()),
                answer => Err(format!("{answer:?}")),
            });
            daemon
        };
        let _red = Daemon::start(node, &["--ip-masq"]);
        is_ready(node);
        let alone = of_flannel(node);
        let both = blue(&["--ip-masq"]);
        let together = of_flannel(node);
        assert!(together.iter().any(|line| line.contains("10.99.0.0/16")), "{together:#?}");
        assert!(together.iter().any(|line| line.contains("10.244.0.0/16")), "{together:#?}");
        sh(node, "nft flush ruleset");
        wait_until("both to repair", || {
            let (found, whole) = (sorted(of_flannel(node)), sorted(together.clone()));
            if found == whole { Ok(()) } else { Err(format!("{found:#?}\nis not\n{whole:#?}")) }
        });
        drop(both);
        let _none = blue(&OFF);
        assert_eq!(sorted(of_flannel(node)), sorted(alone), "nftables {nftables}");
    }
}

#[test]
fn without_any_program_of_iptables_nftables_is_used_and_said() {
    let cluster = Cluster::flat("no-programs", 1, VXLAN);
    let (node, none) = (cluster.node("master1"), Programs::none());
    let daemon = start(node, &["--ip-masq"], &none.path());
    assert!(of_flannel(node).iter().any(|line| line.contains("flannel-ipv4")));
    let said = "EnableNFTables is false, but this host has no iptables program: nftables is used";
    assert!(daemon.log().contains(said), "{}", daemon.log());
    assert_eq!(state(node)["inputs"]["firewall"]["notes"][0]["text"], said);
}

/// A native rule in a table of iptables, before the start and while the daemon runs: iptables refuses the table.
#[test]
fn a_table_that_iptables_cannot_read_makes_the_node_ready_by_nftables() {
    for table in ["nat", "filter"] {
        let cluster = Cluster::flat("native", 1, VXLAN_DUAL);
        let node = cluster.node("master1");
        let native = format!(
            "iptables -t {table} -A OUTPUT -s 192.0.2.9; nft add rule ip {table} OUTPUT ct state established accept"
        );
        sh(node, &native);
        let foreign = sh(node, &format!("nft list table ip {table}"));
        let daemon = Daemon::start(node, &["--ip-masq"]);
        is_ready(node);
        assert!(!in_system(node, 1).is_empty() && in_system(node, 0).is_empty(), "{:#?}", of_flannel(node));
        let said = format!("iptables cannot read its table ip {table}");
        assert!(daemon.log().contains(&said), "{}", daemon.log());
        assert!(
            state(node)["inputs"]["firewall"]["notes"][0].to_string().contains(&said),
            "{}",
            daemon.log()
        );
        assert_eq!(sh(node, &format!("nft list table ip {table}")), foreign);
        drop(daemon);

        sh(node, "nft flush ruleset");
        let daemon = Daemon::start(node, &["--ip-masq"]);
        is_ready(node);
        assert!(in_system(node, 1).is_empty() && !in_system(node, 0).is_empty(), "{:#?}", of_flannel(node));
        // What keeps the table from being read comes together with a reason to read it.
        sh(
            node,
            &format!(
                "{native}; iptables-nft-save -t raw > /dev/null; nft flush chain ip nat FLANNEL-POSTRTG"
            ),
        );
        sh(node, "nft flush chain ip filter FLANNEL-FWD");
        wait_until("the rules to move", || {
            let moved = !in_system(node, 1).is_empty() && in_system(node, 0).is_empty();
            if moved && readyz(node).0 == 200 {
                Ok(())
            } else {
                Err(format!("{:#?}\n{}", of_flannel(node), daemon.log()))
            }
        });
    }
}

#[test]
fn without_the_capability_the_node_says_why_it_is_not_ready_and_lives() {
    let cluster = Cluster::flat("no-cap", 1, NFT);
    let node = cluster.node("master1");
    let under = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"];
    let mut daemon = Daemon::start_under(node, &under, &[], &[]);
    wait_until("a reason", || {
        let reasons = state(node)["reasons"].to_string();
        let says_why =
            reasons.contains("rules nftables ip flannel-ipv4") && reasons.contains("CAP_NET_ADMIN");
        if says_why { Ok(()) } else { Err(format!("{reasons}\n{}", daemon.log())) }
    });
    assert!(daemon.lives());
    assert_eq!(readyz(node).0, 503);
    assert!(!node.path("/run/flannel/subnet.env").exists());
}

#[test]
fn a_rule_that_translates_the_port_of_the_tunnel_keeps_it_tracked() {
    let cluster = Cluster::flat("translated", 1, VXLAN);
    let node = cluster.node("master1");
    sh(node, "iptables -t nat -A PREROUTING -p udp --dport 8472 -j DNAT --to-destination 10.0.0.99");
    let daemon = Daemon::start(node, &[]);
    is_ready(node);
    assert!(!of_flannel(node).iter().any(|line| line.contains("NOTRACK")), "{}", daemon.log());
    let note =
        "IPv4 tunnel packets stay in connection tracking: rule 1 of PREROUTING in nftables ip nat translates";
    assert!(daemon.log().contains(note), "{}", daemon.log());
}

#[test]
fn a_blackhole_route_is_made_kept_out_of_the_way_of_a_bridge_and_removed_when_switched_off() {
    let topology = Topology::flat(1).unwrap();
    let cluster = Cluster::up("blackhole", LabOptions { topology, ..options(VXLAN_DUAL) });
    let node = cluster.node("master1");
    let blackholes = || {
        let text =
            ["-4", "-6"].map(|family| node.ip(&format!("{family} route show type blackhole")).unwrap());
        text.concat()
            .lines()
            .map(|line| line.split_whitespace().nth(1).unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    let daemon = Daemon::start(node, &["--ip-blackhole-route"]);
    is_ready(node);
    let subnets = vec![cluster.leases().subnet_of("master1"), cluster.leases().subnet6_of("master1")];
    assert_eq!(blackholes(), subnets);
    node.ip(&format!("route del blackhole {}", subnets[0])).unwrap();
    wait_until("the route to be back", || if blackholes() == subnets { Ok(()) } else { Err(daemon.log()) });

    // A bridge with the pods' gateway: its own route is all that is needed.
    let gateway = subnets[0].replace(".0/24", ".1/24");
    sh(
        node,
        &format!("ip link add cni0 type bridge; ip address add {gateway} dev cni0; ip link set cni0 up"),
    );
    wait_until("the bridge to have its route alone", || {
        if blackholes() == subnets[1..] { Ok(()) } else { Err(daemon.log()) }
    });
    drop(daemon);
    let daemon = Daemon::start(node, &[]);
    is_ready(node);
    assert_eq!(blackholes(), [] as [&str; 0], "{}", daemon.log());
}

#[test]
fn a_restart_with_the_same_switches_changes_no_rule() {
    for net_conf in [VXLAN_DUAL, NFT] {
        let cluster = Cluster::flat("same", 1, net_conf);
        let node = cluster.node("master1");
        let mut daemon = Daemon::start(node, &["--ip-masq"]);
        is_ready(node);
        daemon.signal(Signal::TERM);
        daemon.ended();
        let _again = Daemon::start(node, &["--ip-masq"]);
        is_ready(node);
        assert_eq!(metrics(node).labelled("flannel_changes_total"), BTreeMap::new());
    }
}

#[test]
fn a_host_without_ip6tables_is_asked_for_it_only_if_it_has_ipv6() {
    let cluster = Cluster::flat("half", 1, VXLAN);
    let (node, programs) = (cluster.node("master1"), Programs::none());
    for verb in ["", "-save", "-restore"] {
        let name = format!("iptables{verb}");
        symlink(Path::new("/usr/sbin").join(&name), programs.0.join(name)).unwrap();
    }
    let daemon = start(node, &["--ip-masq"], &programs.path());
    assert_eq!(state(node)["notes"], serde_json::json!([]), "{}", daemon.log());
    assert!(in_system(node, 0).iter().any(|line| line.contains("FLANNEL-POSTRTG")));
    fs::write(cluster.store().join("config.json"), VXLAN_DUAL).unwrap();
    wait_until("a reason", || {
        let (code, lines) = readyz(node);
        let says_why = lines.iter().any(|line| line.contains("ip6tables") && line.contains("install"));
        if code == 503 && says_why { Ok(()) } else { Err(lines.join("\n")) }
    });
}
