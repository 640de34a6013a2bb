//! Starts the threads of the daemon and runs the loop until the end is rung.

use std::convert::Infallible;
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, RwLock};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use flannel_files::{MOST_BY_HAND, MOST_BY_PROGRAM, Survives};
use flannel_kernel::Linux;
use flannel_kernel::firewall::rules::watch::RuleWatch;
use flannel_kernel::watch::{Interest, Watch, WatchError};
use flannel_leases::{Readiness, Server, Snapshot};
use flannel_plan::family::ByFamily;
use flannel_plan::observation::Scope;
use flannel_plan::report::report_path;
use flannel_plan::subnet_env::{previous_networks, previous_subnets};
use flannel_plan::underlay::Underlay;
use ipnet::IpNet;
use serde::Deserialize;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tracing::{debug, error, info, warn};

use crate::any_store::AnyStore;
use crate::culprits::Culprits;
use crate::daemon::{Before, Daemon, Parts};
use crate::file_watch;
use crate::http::{self, Health};
use crate::in_force::InForce;
use crate::instance;
use crate::metrics::Failures;
use crate::notify::Supervisor;
use crate::options::Options;
use crate::remembered::{Belongs, Remembered};
use crate::report::Reporter;
use crate::store_link::{self, LastWord, Link};
use crate::throttled_file::ThrottledFile;
use crate::wake::{Alarm, Bell, Wake};
use crate::watching::{self, Named};

/// `state.json` is read by people and probes: a second old is new enough.
const REPORT_PAUSE: Duration = Duration::from_secs(1);

/// Runs the daemon until the end is rung.
pub fn run(options: Options, bell: &Bell) -> anyhow::Result<()> {
    info!(version = env!("CARGO_PKG_VERSION"), node = %options.owner, "flanneld starts");
    options.warnings.iter().for_each(|warning| warn!("{warning}"));
    let health = Arc::new(Health::default());
    let listener = options.healthz.map(http::bind).transpose()?;
    let mut kernel = Linux::open().context("no netlink socket to the kernel")?;
    kernel.give_way_to(bell.urgency());
    let interest =
        Arc::new(RwLock::new(Interest { own_ports: vec![kernel.port_id()], ..Interest::default() }));
    let failures = &health.metrics.watch_failures;
    watch_kernel(Arc::clone(&interest), bell.clone(), failures.clone());
    let culprits = Culprits::default();
    let own_ports: Vec<u32> = kernel.rules().port_id().into_iter().collect();
    let open = move || RuleWatch::open(own_ports.clone());
    let named = Named { name: "rule-watch", without: "changes to rules are repaired once a minute only" };
    watching::keep_rules(named, failures.clone(), open, (bell.clone(), culprits.clone()));
    file_watch::start(Path::new(&options.subnet_file), bell.clone(), failures.clone());
    let word = LastWord::default();
    let (wanted, wish) = watch::channel(None);
    let (standing, readiness) = watch::channel(Readiness::NotReady("flanneld starts".to_owned()));
    let (runtime, mut store) = open_store(&options)?;
    let mut remembered = Remembered::new(belongs(&options, store.server()));
    let recalled = remembered.recall();
    if let Some(recalled) = &recalled {
        store = store.remembering(recalled);
    }
    let (origin, in_force) = recalled.as_ref().map(held_before).unwrap_or_default();
    let link = Link { wanted: wish, readiness, remembered: recalled, word: word.clone(), bell: bell.clone() };
    start_edge(runtime, Edge { health: Arc::clone(&health), listener, link, store })?;
    let state_file = report_path(&options.subnet_file);
    let report = last_report(Path::new(&state_file));
    let earlier = earlier_networks(&report, Path::new(&options.subnet_file));
    let before = Before { origin, in_force, underlay: report.inputs.map(|inputs| inputs.underlay) };
    let state_file = ThrottledFile::new(state_file, Survives::Crash, REPORT_PAUSE);
    let reporter = Reporter::new(health, Supervisor::from_environment(), state_file, standing, culprits);
    let node = instance::node_options(&options);
    let _alive = instance::give_sign_of_life(&node);
    let options = Arc::new(options);
    let parts =
        Parts { options, node, kernel, word, wanted, interest, reporter, remembered, earlier, before };
    Daemon::new(parts).run(&mut Alarm::new(bell.clone()));
    Ok(())
}

/// What tells this daemon's memory from that of others.
fn belongs(options: &Options, server: Server) -> Belongs {
    let (subnet_file, node) = (options.subnet_file.clone(), options.owner.clone());
    Belongs { subnet_file, node, store: options.store.to_string(), server }
}

/// What held by a snapshot that is remembered, and of which cluster and node that is.
fn held_before(recalled: &Snapshot) -> (Option<Arc<str>>, Option<InForce>) {
    (recalled.origin.clone(), InForce::of_store(recalled).ok())
}

/// The subnets that this node had before; they are asked for again.
fn previous(subnet_file: &Path) -> ByFamily<IpNet> {
    flannel_files::read_text(subnet_file, MOST_BY_HAND)
        .map(|text| previous_subnets(&text))
        .unwrap_or_default()
}

/// The pod networks that this instance served before, or Go flannel in its place: what was left there is its own.
fn earlier_networks(report: &Reported, subnet_file: &Path) -> Vec<IpNet> {
    let mut networks = report.scope.as_ref().map(|scope| scope.networks.clone()).unwrap_or_default();
    let text = flannel_files::read_text(subnet_file, MOST_BY_HAND).unwrap_or_default();
    networks.extend(previous_networks(&text));
    networks.sort();
    networks.dedup();
    networks
}

/// The parts of an earlier run's report that count here, whatever the rest of it is.
#[derive(Default, Deserialize)]
struct Reported {
    scope: Option<Scope>,
    inputs: Option<ReportedInputs>,
}

#[derive(Deserialize)]
struct ReportedInputs {
    underlay: Underlay,
}

fn last_report(state_file: &Path) -> Reported {
    let Ok(text) = flannel_files::read(state_file, MOST_BY_PROGRAM) else { return Reported::default() };
    let report = serde_json::from_slice(&text).inspect_err(
        |error| debug!(file = %state_file.display(), %error, "the last state report cannot be read"),
    );
    report.unwrap_or_default()
}

/// Rings whenever the kernel says that something may have changed.
fn watch_kernel(interest: Arc<RwLock<Interest>>, bell: Bell, failures: Failures) {
    let named = Named { name: "kernel-watch", without: "drift is repaired once a minute only" };
    watching::keep(named, failures, move || -> Result<Infallible, WatchError> {
        let mut watch = Watch::open(Arc::clone(&interest))?;
        loop {
            // The first time for what happened before the watch was open.
            bell.ring(Wake::Observation);
            let notice = watch.wait()?;
            debug!(%notice, "the kernel changed");
        }
    });
}

/// What runs on the async thread.
struct Edge {
    health: Arc<Health>,
    listener: Option<TcpListener>,
    link: Link,
    store: AnyStore,
}

/// Opens the store, and what it is to run on.
fn open_store(options: &Options) -> anyhow::Result<(Runtime, AnyStore)> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("no async runtime")?;
    let previous = previous(Path::new(&options.subnet_file));
    let store = runtime.block_on(async { AnyStore::open(&options.store, &options.owner, previous) })?;
    Ok((runtime, store))
}

fn start_edge(runtime: Runtime, edge: Edge) -> anyhow::Result<()> {
    let work = move || runtime.block_on(run_edge(edge));
    thread::Builder::new().name("edge".into()).spawn(work).context("no thread for the lease store")?;
    Ok(())
}

async fn run_edge(edge: Edge) {
    let Edge { health, listener, link, store } = edge;
    if let Some(listener) = listener {
        tokio::spawn(async move {
            if let Err(error) = http::serve(listener, health).await {
                error!(%error, "health and metrics are no longer served");
            }
        });
    }
    store_link::run(store, link).await;
}
