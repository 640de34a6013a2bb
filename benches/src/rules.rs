//! The rules of a node: how soon broken ones are whole again, and how many programs are run while nothing changes.
//! With `GO_FLANNELD`, Go's daemon is counted in the same minute.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use flannel_lab::{Flanneld, Lab, LabOptions, Store, Topology, unique_name, wait_for};

use crate::cluster::{Cluster, Eye, LIMIT};
use crate::figure::Figure;

const TIMES: usize = 20;
/// Ten repairs of one object within ten seconds would be a fight, so each daemon has few.
const ROUNDS: usize = 5;
/// What the issue promises.
const GOAL_MS: f64 = 100.0;
const WATCHED: Duration = Duration::from_secs(60);

/// What somebody does, and to a daemon in which mode.
const BREAKS: [(&str, &str, &str); 5] = [
    ("nftables", "nft flush ruleset", NFTABLES),
    ("nftables", "nft flush chain ip flannel-ipv4 postrtg", NFTABLES),
    ("iptables", "iptables -t nat -F", IPTABLES),
    ("iptables", "iptables -F", IPTABLES),
    ("iptables", "nft flush ruleset", IPTABLES),
];

const NFTABLES: &str =
    r#"{"Network":"11.0.0.0/8","SubnetMin":"11.1.0.0","EnableNFTables":true,"Backend":{"Type":"vxlan"}}"#;
const IPTABLES: &str = r#"{"Network":"11.0.0.0/8","SubnetMin":"11.1.0.0","Backend":{"Type":"vxlan"}}"#;
/// The programs that a daemon could run for its rules.
const PROGRAMS: [&str; 7] = [
    "iptables",
    "ip6tables",
    "iptables-save",
    "ip6tables-save",
    "iptables-restore",
    "ip6tables-restore",
    "nft",
];

/// Breaks and waits, then counts.
pub fn measure() -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (mode, words, net_conf) in BREAKS {
        let mut times = Vec::new();
        while times.len() < TIMES {
            let cluster = Cluster::with(0, options(net_conf))?;
            times.extend(cluster.inside(|eye| repairs(eye, words))?);
        }
        figures.push(Figure::median(format!("{mode}: repair after `{words}`"), times).at_most(GOAL_MS));
    }
    figures.extend(count_programs()?);
    Ok(figures)
}

fn options(net_conf: &str) -> LabOptions {
    LabOptions {
        net_conf: net_conf.to_owned(),
        flanneld_args: vec!["--ip-masq".to_owned()],
        ..LabOptions::default()
    }
}

fn repairs(eye: &mut Eye, words: &str) -> anyhow::Result<Vec<Duration>> {
    (0..ROUNDS).map(|_| repair(eye, words)).collect()
}

fn repair(eye: &mut Eye, words: &str) -> anyhow::Result<Duration> {
    let mut words = words.split_whitespace();
    let program = words.next().context("no program")?;
    // A thread's namespace is that of the programs it starts.
    ensure!(Command::new(program).args(words).status()?.success(), "{program} fails");
    eye.until_healed(Instant::now())
}

/// A folder of programs that are counted before they become the real ones.
struct Counted {
    folder: PathBuf,
}

impl Counted {
    fn new() -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(unique_name("counted"));
        fs::create_dir(&folder)?;
        let counted = Self { folder };
        fs::write(counted.tally(), "")?;
        for program in PROGRAMS {
            counted.wrap(program)?;
        }
        Ok(counted)
    }

    fn wrap(&self, program: &str) -> anyhow::Result<()> {
        let path = self.folder.join(program);
        let real = ["/usr/sbin", "/sbin"].map(|folder| Path::new(folder).join(program));
        let real =
            real.iter().find(|path| path.exists()).with_context(|| format!("there is no {program}"))?;
        let tally = self.tally();
        let script = format!("#!/bin/sh\necho x >> {}\nexec {} \"$@\"\n", tally.display(), real.display());
        fs::write(&path, script)?;
        Ok(fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?)
    }

    fn tally(&self) -> PathBuf {
        self.folder.join("tally")
    }

    fn count(&self) -> anyhow::Result<u32> {
        Ok(u32::try_from(fs::read_to_string(self.tally())?.lines().count())?)
    }

    fn environment(&self) -> Vec<(String, String)> {
        let path = std::env::var("PATH").unwrap_or_default();
        vec![("PATH".to_owned(), format!("{}:{path}", self.folder.display()))]
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A daemon at rest, whose programs are counted.
struct Resting {
    name: String,
    goal: Option<f64>,
    counted: Counted,
    /// Kept up while it is watched.
    _lab: Lab,
}

/// Counts the programs of all daemons in the same minute.
fn count_programs() -> anyhow::Result<Vec<Figure>> {
    let mut resting = vec![rest("nftables", NFTABLES, None)?, rest("iptables", IPTABLES, None)?];
    if let Some(go) = crate::stores::go_flanneld() {
        resting.push(rest("iptables", IPTABLES, Some(&go))?);
    }
    let before = resting.iter().map(|daemon| daemon.counted.count()).collect::<anyhow::Result<Vec<_>>>()?;
    std::thread::sleep(WATCHED);
    let figure = |(daemon, before): (&Resting, u32)| {
        let run = daemon.counted.count()? - before;
        let figure = Figure::new(format!("{}: programs run in a quiet minute", daemon.name), run.into(), "");
        Ok(match daemon.goal {
            Some(goal) => figure.at_most(goal),
            None => figure,
        })
    };
    resting.iter().zip(before).map(figure).collect()
}

fn rest(mode: &str, net_conf: &str, go: Option<&Path>) -> anyhow::Result<Resting> {
    let counted = Counted::new()?;
    let options = LabOptions {
        name: unique_name("bench"),
        topology: Topology::flat(1)?,
        flanneld: Flanneld::NotStarted,
        pods_per_node: 0,
        store: if go.is_some() { Store::etcd(1) } else { Store::Directory },
        flanneld_env: counted.environment(),
        ..options(net_conf)
    };
    let lab = Lab::up(options)?;
    let node = lab.nodes().first().context("the lab has no node")?;
    match go {
        Some(go) => node.start_as("flanneld", go, ["-v", "0"])?,
        None => node.start_flanneld(["-v", "0"])?,
    }
    match go {
        Some(_) => wait_healthy(&lab)?,
        None => node.wait_ready(LIMIT)?,
    }
    let name = if go.is_some() { format!("Go, {mode}") } else { mode.to_owned() };
    Ok(Resting { name, goal: go.is_none().then_some(0.0), counted, _lab: lab })
}

/// Go's daemon answers on another path.
fn wait_healthy(lab: &Lab) -> anyhow::Result<()> {
    let node = lab.nodes().first().context("the lab has no node")?;
    let subnet_file = node.path("/run/flannel/subnet.env");
    let observation = || subnet_file.exists().then_some(()).ok_or_else(|| node.log());
    Ok(wait_for("Go's flanneld", LIMIT, observation)?)
}
