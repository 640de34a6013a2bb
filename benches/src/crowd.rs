//! A node whose kernel holds what kube-proxy makes of 5,000 services, 20,000 chains and 60,000 rules: what a pass costs
//! when somebody's rules changed, and the search for rules that translate the tunnel's port.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use flannel_kernel::firewall::nft::{Nft, Table, TableFamily, Transaction};
use flannel_kernel::firewall::rules::Rules;
use flannel_lab::{LabOptions, Node};
use flannel_plan::family;
use flannel_plan::rules::edit::Edit;

use crate::cluster::{Cluster, Eye};
use crate::figure::Figure;

const SERVICES: u16 = 5000;
const ENDPOINTS: u8 = 3;
const ROUNDS: usize = 20;
const SEARCHES: usize = 5;
const GOAL_MS: f64 = 10.0;
const SEARCH_GOAL_MS: f64 = 50.0;
const PORT: u16 = 8472;
/// A table of a stranger: it comes and goes, and each time the kernel counts a change.
const STRANGER: Table = Table { family: TableFamily::Ip, name: "stranger" };

const MODES: [(&str, &str); 2] = [
    ("nftables", r#"{"Network":"11.0.0.0/8","EnableNFTables":true,"Backend":{"Type":"vxlan"}}"#),
    ("iptables", r#"{"Network":"11.0.0.0/8","Backend":{"Type":"vxlan"}}"#),
];

/// Fills the kernel, changes a rule, and lets the daemon look.
pub fn measure() -> anyhow::Result<Vec<Figure>> {
    let rules = rules()?;
    let mut figures = Vec::new();
    for (mode, net_conf) in MODES {
        let flanneld_args = vec!["--ip-masq".to_owned()];
        let options = LabOptions { net_conf: net_conf.to_owned(), flanneld_args, ..LabOptions::default() };
        let cluster = Cluster::with(0, options)?;
        load(cluster.node()?, &rules)?;
        let name = format!("{mode}: pass beside 60,000 rules of others, which changed");
        figures.push(Figure::median(name, cluster.inside(passes)?).at_most(GOAL_MS));
        if mode == "nftables" {
            let times = cluster.inside(|_| (0..SEARCHES).map(|_| search()).collect())?;
            let name = "60,000 rules of others: search for one that translates the port, once a minute";
            figures.push(Figure::median(name, times).at_most(SEARCH_GOAL_MS));
        }
    }
    Ok(figures)
}

/// What kube-proxy gives to `iptables-restore`: for each service a chain, and one for each of its endpoints.
fn rules() -> anyhow::Result<String> {
    let (mut chains, mut rules) =
        (String::from("*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n"), String::new());
    for number in 0..SERVICES {
        let [a, b] = number.to_be_bytes();
        let (service, to) =
            (format!("KUBE-SVC-{number:016X}"), format!("-d 10.96.{a}.{b}/32 -p tcp -m tcp --dport 80"));
        writeln!(chains, ":{service} - [0:0]")?;
        writeln!(
            rules,
            "-A KUBE-SERVICES {to} -m comment --comment \"default/s{number} cluster IP\" -j {service}"
        )?;
        writeln!(rules, "-A {service} ! -s 11.0.0.0/8 {to} -j KUBE-MARK-MASQ")?;
        writeln!(rules, "-A {service} -s 127.0.0.1/32 {to} -j KUBE-MARK-MASQ")?;
        for endpoint in 0..ENDPOINTS {
            let (chain, pod) =
                (format!("KUBE-SEP-{number:014X}{endpoint:02X}"), format!("11.{a}.{b}.{}", endpoint + 2));
            writeln!(chains, ":{chain} - [0:0]")?;
            writeln!(rules, "-A {service} -m statistic --mode random --probability 0.33 -j {chain}")?;
            writeln!(
                rules,
                "-A {chain} -s {pod}/32 -m comment --comment default/s{number} -j KUBE-MARK-MASQ"
            )?;
            writeln!(rules, "-A {chain} -p tcp -m tcp -j DNAT --to-destination {pod}:8080")?;
        }
    }
    for base_chain in ["PREROUTING", "OUTPUT"] {
        writeln!(
            rules,
            "-A {base_chain} -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES"
        )?;
    }
    Ok(chains + &rules + "COMMIT\n")
}

fn load(node: &Node, rules: &str) -> anyhow::Result<()> {
    let mut child = node.command("iptables-restore", ["-n"]).stdin(Stdio::piped()).spawn()?;
    child.stdin.take().context("no standard input")?.write_all(rules.as_bytes())?;
    ensure!(child.wait()?.success(), "iptables-restore refuses the rules of kube-proxy");
    Ok(())
}

/// The time of a pass that finds the kernel's count of changes moved, and nothing to do.
fn passes(eye: &mut Eye) -> anyhow::Result<Vec<Duration>> {
    ensure!(eye.changes()?.is_empty(), "the node is not as it should be");
    let pass = |_| {
        change_something()?;
        let begun = Instant::now();
        ensure!(eye.changes()?.is_empty(), "the rules of others changed ours");
        Ok(begun.elapsed())
    };
    (0..ROUNDS).map(pass).collect()
}

fn change_something() -> anyhow::Result<()> {
    let mut nft = Nft::open()?;
    for edit in [Edit::AddTable(None), Edit::DeleteTable] {
        let mut change = Transaction::default();
        change.push(STRANGER, edit);
        nft.commit(&change)?;
    }
    Ok(())
}

fn search() -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let found = Rules::open().translation_of(family::Family::V4, PORT)?;
    ensure!(found.is_none(), "no rule translates the port, but {found:?} was found");
    Ok(begun.elapsed())
}
