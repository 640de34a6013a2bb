//! Starts the threads of the daemon and runs the loop until the end is rung.

use std::convert::Infallible;
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, RwLock};
use std::thread;

use anyhow::Context;
use flannel_files::MOST_BY_HAND;
use flannel_kernel::Linux;
use flannel_kernel::firewall::rules::watch::RuleWatch;
use flannel_kernel::watch::{Interest, Watch, WatchError};
use flannel_plan::family::ByFamily;
use flannel_plan::rules::observed::RuleScope;
use flannel_plan::subnet_env::previous_subnets;
use ipnet::IpNet;
use tokio::runtime::Runtime;
use tracing::{debug, error, info, warn};

use crate::any_store::AnyStore;
use crate::assemble::{Shared, assemble};
use crate::culprits::Culprits;
use crate::daemon::Daemon;
use crate::file_watch;
use crate::http::{self, Health};
use crate::instance;
use crate::metrics::Failures;
use crate::options::Options;
use crate::remembered::LASTING;
use crate::store_link::{self, Link};
use crate::wake::{Alarm, Bell, Wake};
use crate::watching::{self, Named};

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
    let open = move || RuleWatch::open(own_ports.clone(), &RuleScope::default());
    let named = Named { name: "rule-watch", without: "changes to rules are repaired once a minute only" };
    watching::keep_rules(named, failures.clone(), open, (bell.clone(), culprits.clone()));
    file_watch::start(Path::new(&options.subnet_file), bell.clone(), failures.clone());
    let (runtime, mut store) = open_store(&options)?;
    let shared = Shared { health: Arc::clone(&health), interest, culprits, bell: bell.clone() };
    let (parts, link) = assemble(options, kernel, (store.server(), Path::new(LASTING)), shared);
    if let Some(recalled) = &link.remembered {
        store = store.remembering(recalled);
    }
    start_edge(runtime, Edge { health, listener, link, store })?;
    let _alive = instance::give_sign_of_life(&parts.node);
    Daemon::new(parts).run(&mut Alarm::new(bell.clone()));
    Ok(())
}

/// The subnets that this node had before; they are asked for again.
fn previous(subnet_file: &Path) -> ByFamily<IpNet> {
    flannel_files::read_text(subnet_file, MOST_BY_HAND)
        .map(|text| previous_subnets(&text))
        .unwrap_or_default()
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
