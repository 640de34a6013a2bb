//! One daemon after the other on the same node and store: what each costs.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use flannel_kernel::watch::{Interest, Notice, Watch};
use flannel_lab::{Node, Relay, Signal, wait_for};

use super::go_flanneld;

const LIMIT: Duration = Duration::from_secs(120);
const CHANGES: u32 = 100;
const SIGNS_OF_LIFE: u32 = 200;
/// So long after a change our daemon looks at everything; a change a little later meets that look, unless it is over.
const UNTIL_A_LOOK: Duration = Duration::from_secs(1);
/// Changes that come 0, 2, 4 … ms after a look was due.
const BESIDE_A_LOOK: u32 = 50;
/// How long nothing must happen until something is over.
const QUIET: Duration = Duration::from_millis(300);
const DEVICE: &str = "flannel.1";

/// A node, its store with peers, and what can be done to those.
pub trait Place {
    /// The node.
    fn node(&self) -> anyhow::Result<&Node>;
    /// The cable to the store.
    fn relay(&self) -> &Relay;
    /// What the daemon is told besides.
    fn arguments(&self) -> Vec<String>;
    /// Gives a peer another MAC; no version is asked for twice, and version 0 is what it says at first.
    fn change(&mut self, peer: u32, version: u32) -> anyhow::Result<()>;
    /// Has a peer say that it lives, and nothing new.
    fn sign_of_life(&mut self, peer: u32, version: u32) -> anyhow::Result<()>;
    /// What that sign is.
    fn sign(&self) -> &'static str;
}

/// What a daemon costs.
#[derive(Debug)]
pub struct Cost {
    /// From its start until all peers are in the kernel.
    pub settle: Duration,
    /// The time on a core until it was idle after that.
    pub cpu: Duration,
    /// Its memory, at the end.
    pub rss_mb: f64,
    /// What came from the store until then.
    pub received_mb: f64,
    /// What comes when a peer says that it lives.
    pub heartbeat_bytes: f64,
    /// What that sign is.
    pub sign: &'static str,
    /// From a change's request to the kernel, one after the other, sorted.
    pub changes: Vec<Duration>,
    /// The same for changes that come when everything is looked at.
    pub beside_looks: Vec<Duration>,
}

impl Cost {
    /// A percentile of the changes, in milliseconds.
    pub fn percentile(&self, percent: usize) -> f64 {
        percentile(&self.changes, percent)
    }
}

/// A percentile of sorted times, in milliseconds.
pub fn percentile(times: &[Duration], percent: usize) -> f64 {
    let last = times.len().saturating_sub(1);
    times.get(last * percent / 100).map_or(f64::NAN, |time| time.as_secs_f64() * 1000.0)
}

/// What our daemon costs, and then Go's if there is one.
pub fn costs(place: &mut impl Place, peers: u32) -> anyhow::Result<Vec<Cost>> {
    let mut costs = vec![cost(place, None, peers, 1).context("ours")?];
    if let Some(go) = go_flanneld() {
        costs.push(
            cost(place, Some(go), peers, 1 + (CHANGES + BESIDE_A_LOOK).max(SIGNS_OF_LIFE)).context("Go's")?,
        );
    }
    Ok(costs)
}

/// What one daemon costs; versions count from `first`.
fn cost(place: &mut impl Place, program: Option<PathBuf>, peers: u32, first: u32) -> anyhow::Result<Cost> {
    let before = place.relay().received();
    let start = Instant::now();
    match program {
        Some(go) => place.node()?.start_as("flanneld", &go, place.arguments())?,
        None => place.node()?.start_flanneld(place.arguments())?,
    }
    let settle = until_settled(place.node()?, peers, start)?;
    let pid = place.node()?.flanneld().pid().context("flanneld has ended")?;
    let received = until_quiet(place.relay())? - before;
    let cpu = until_idle(pid)?;
    let mut changes = (0..CHANGES)
        .map(|number| one_change(place, number * 7, first + number))
        .collect::<anyhow::Result<Vec<_>>>()?;
    changes.sort();
    let mut beside_looks = (0..BESIDE_A_LOOK)
        .map(|number| {
            thread::sleep(UNTIL_A_LOOK + Duration::from_millis(2) * number);
            one_change(place, number * 11, first + CHANGES + number)
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    beside_looks.sort();
    let heartbeat_bytes = one_sign_of_life(place, first)?;
    let cost = Cost {
        settle,
        cpu,
        rss_mb: resident_mb(pid)?,
        received_mb: megabytes(received),
        heartbeat_bytes,
        sign: place.sign(),
        changes,
        beside_looks,
    };
    let node = place.node()?;
    node.flanneld().stop(Signal::KILL)?;
    // Everything of a vxlan goes with its device.
    node.ip(&format!("link del {DEVICE}"))?;
    Ok(cost)
}

/// Waits until the kernel has a route for every peer.
fn until_settled(node: &Node, peers: u32, start: Instant) -> anyhow::Result<Duration> {
    let routes = || -> Result<u32, String> {
        let text = node.inside(|| fs::read_to_string("/proc/thread-self/net/fib_triestat"));
        let text = text.map_err(|why| why.to_string())?.map_err(|why| why.to_string())?;
        let main = text.split_once("Main:").map_or(&*text, |(_, main)| main);
        let main = main.split_once("Local:").map_or(main, |(main, _)| main);
        let prefixes = main.lines().find_map(|line| line.trim().strip_prefix("Prefixes:"));
        prefixes.and_then(|number| number.trim().parse().ok()).ok_or_else(|| "no Prefixes".to_owned())
    };
    let before = 2; // the default route and that of the card
    wait_for("all routes", LIMIT, || match routes()? {
        count if count >= peers + before => Ok(()),
        count => Err(format!("{count} routes\n{}", last_words(node))),
    })?;
    Ok(start.elapsed())
}

fn last_words(node: &Node) -> String {
    let log = node.log();
    log.lines().rev().take(5).map(|line| line.chars().take(200).collect::<String>() + "\n").collect()
}

/// Changes a peer and waits for the kernel's notice of its new neighbour.
fn one_change(place: &mut impl Place, peer: u32, version: u32) -> anyhow::Result<Duration> {
    let interest = Interest { links: vec![DEVICE.parse()?], ..Interest::default() };
    let watch = place.node()?.inside(|| Watch::open(Arc::new(RwLock::new(interest))))?;
    let mut watch = watch?;
    let start = Instant::now();
    place.change(peer, version)?;
    while watch.wait_at_most(LIMIT)? != Some(Notice::Neighbour(DEVICE.parse()?)) {
        ensure!(start.elapsed() < LIMIT, "version {version} of peer {peer} is not in the kernel");
    }
    let took = start.elapsed();
    while watch.wait_at_most(Duration::from_millis(20))?.is_some() {}
    Ok(took)
}

/// How many bytes come when a peer says that it lives.
fn one_sign_of_life(place: &mut impl Place, first: u32) -> anyhow::Result<f64> {
    let before = until_quiet(place.relay())?;
    for peer in 0..SIGNS_OF_LIFE {
        place.sign_of_life(peer, first + peer)?;
    }
    let after = until_quiet(place.relay())?;
    Ok(megabytes(after - before) * 1024.0 * 1024.0 / f64::from(SIGNS_OF_LIFE))
}

/// Waits until a process has nothing left to do, and tells what it has used.
fn until_idle(pid: u32) -> anyhow::Result<Duration> {
    let (mut last, mut since) = (cpu_time(pid)?, Instant::now());
    wait_for("the daemon to be idle", LIMIT, || {
        let now = cpu_time(pid).map_err(|why| why.to_string())?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
        if since.elapsed() > QUIET { Ok(last) } else { Err(format!("{now:?}")) }
    })
    .map_err(Into::into)
}

fn until_quiet(relay: &Relay) -> anyhow::Result<u64> {
    let (mut last, mut since) = (relay.received(), Instant::now());
    wait_for("the store to be quiet", LIMIT, || {
        let now = relay.received();
        if now != last {
            (last, since) = (now, Instant::now());
        }
        if since.elapsed() > QUIET { Ok(()) } else { Err(format!("{now} bytes")) }
    })?;
    Ok(last)
}

fn megabytes(bytes: u64) -> f64 {
    f64::from(u32::try_from(bytes).unwrap_or(u32::MAX)) / (1024.0 * 1024.0)
}

fn cpu_time(pid: u32) -> anyhow::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, rest) = stat.rsplit_once(')').context("no name in stat")?;
    let ticks = rest.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    let ticks = ticks.sum::<Result<u64, _>>()?;
    Ok(Duration::from_millis(ticks * 10))
}

fn resident_mb(pid: u32) -> anyhow::Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib / 1024.0)
}
