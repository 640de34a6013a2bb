//! Starts the threads of the daemon and runs the loop until the end is rung.

use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, RwLock};
use std::thread;

use anyhow::Context;
use flannel_files::MOST_BY_HAND;
use flannel_kernel::Linux;
use flannel_kernel::firewall::rules::watch::RuleWatch;
use flannel_kernel::watch::{Interest, Watch};
use flannel_leases::etcd::Etcd;
use flannel_leases::kubernetes::Kubernetes;
use flannel_leases::{Directory, LeaseStore, StoreError};
use flannel_plan::family::ByFamily;
use flannel_plan::rules::observed::RuleScope;
use flannel_plan::subnet_env::previous_subnets;
use ipnet::IpNet;
use tokio::runtime::Runtime;
use tracing::{debug, error, info, warn};

use crate::assemble::{Shared, assemble};
use crate::culprits::Culprits;
use crate::daemon::Daemon;
use crate::file_watch;
use crate::http::{self, Health};
use crate::instance;
use crate::options::{Options, Store};
use crate::remembered::LASTING;
use crate::store_link;
use crate::wake::{Alarm, Bell};
use crate::watching::{self, Named};

/// Runs the daemon until the end is rung.
pub fn run(options: Options, bell: &Bell) -> anyhow::Result<()> {
    info!(version = env!("CARGO_PKG_VERSION"), node = %options.owner, "flanneld starts");
    options.warnings.iter().for_each(|warning| warn!("{warning}"));
    let listener = options.healthz.map(http::bind).transpose()?;
    let mut kernel = Linux::open().context("no netlink socket to the kernel")?;
    kernel.give_way_to(bell.urgency());
    let interest = Interest { own_ports: vec![kernel.port_id()], ..Interest::default() };
    let interest = Arc::new(RwLock::new(interest));
    let shared =
        Shared { health: Arc::default(), interest, culprits: Culprits::default(), bell: bell.clone() };
    let subnet_file = Path::new(&options.subnet_file);
    watch(&mut kernel, &shared, subnet_file);
    let (owner, previous) = (options.owner.clone(), previous(subnet_file));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("no async runtime")?;
    let store = options.store.clone();
    let start = Start { options, kernel, shared, runtime, listener };
    match store {
        Store::Directory(dir) => start.with(|| Directory::open(dir, owner, previous)),
        Store::Etcd(options) => start.with(|| Etcd::open(options, previous)),
        Store::Kubernetes(options) => start.with(|| Kubernetes::open(options)),
    }
}

/// The subnets that this node had before; they are asked for again.
fn previous(subnet_file: &Path) -> ByFamily<IpNet> {
    flannel_files::read_text(subnet_file, MOST_BY_HAND)
        .map(|text| previous_subnets(&text))
        .unwrap_or_default()
}

/// Rings whenever something may have changed: the kernel, its rules, the subnet file.
fn watch(kernel: &mut Linux, shared: &Shared, subnet_file: &Path) {
    let (bell, failures) = (&shared.bell, &shared.health.metrics.watch_failures);
    let interest = Arc::clone(&shared.interest);
    let named = Named { name: "kernel-watch", without: "drift is repaired once a minute only" };
    let open = move || Watch::open(Arc::clone(&interest));
    watching::keep(named, failures.clone(), bell.clone(), open, |watch| {
        watch.wait().map(|notice| debug!(%notice, "the kernel changed"))
    });
    let own_ports: Vec<u32> = kernel.rules().port_id().into_iter().collect();
    let named = Named { name: "rule-watch", without: "changes to rules are repaired once a minute only" };
    let open = move || RuleWatch::open(own_ports.clone(), &RuleScope::default());
    watching::keep_rules(named, failures.clone(), open, (bell.clone(), shared.culprits.clone()));
    file_watch::start(subnet_file, bell.clone(), failures.clone());
}

/// What a daemon starts with, but for its store.
struct Start {
    options: Options,
    kernel: Linux,
    shared: Shared,
    runtime: Runtime,
    listener: Option<TcpListener>,
}

impl Start {
    /// Opens the store, runs it and HTTP on the async thread, and the loop on this one.
    fn with<S>(self, open: impl FnOnce() -> Result<S, StoreError>) -> anyhow::Result<()>
    where
        S: LeaseStore + Send + 'static,
    {
        let Self { options, kernel, shared, runtime, listener } = self;
        let within = runtime.enter();
        let mut store = open()?;
        drop(within);
        let (health, bell) = (Arc::clone(&shared.health), shared.bell.clone());
        let (parts, link) = assemble(options, kernel, (store.server(), Path::new(LASTING)), shared);
        if let Some(recalled) = &link.remembered {
            store = store.remembering(recalled);
        }
        let edge = async move {
            if let Some(listener) = listener {
                tokio::spawn(serve(listener, health));
            }
            store_link::run(store, link).await;
        };
        let work = move || runtime.block_on(edge);
        thread::Builder::new().name("edge".into()).spawn(work).context("no thread for the lease store")?;
        let _alive = instance::give_sign_of_life(&parts.node);
        Daemon::new(parts).run(&mut Alarm::new(bell));
        Ok(())
    }
}

async fn serve(listener: TcpListener, health: Arc<Health>) {
    if let Err(error) = http::serve(http::LIMITS, listener, health).await {
        error!(%error, "health and metrics are no longer served");
    }
}
