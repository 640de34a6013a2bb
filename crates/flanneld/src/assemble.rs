//! Joins a kernel, a store and what an earlier run left on disk: what the loop runs with, and what the store runs with.

use std::path::Path;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use flannel_files::{MOST_BY_HAND, MOST_BY_PROGRAM, Survives};
use flannel_kernel::watch::Interest;
use flannel_leases::{Readiness, Server};
use flannel_plan::observation::Scope;
use flannel_plan::report::report_path;
use flannel_plan::subnet_env::previous_networks;
use flannel_plan::underlay::Underlay;
use ipnet::IpNet;
use serde::Deserialize;
use tokio::sync::watch;
use tracing::debug;

use crate::culprits::Culprits;
use crate::daemon::{Before, Parts};
use crate::http::Health;
use crate::in_force::InForce;
use crate::instance;
use crate::notify::Supervisor;
use crate::options::Options;
use crate::remembered::{Belongs, Remembered};
use crate::report::Reporter;
use crate::store_link::{Link, SharedState};
use crate::throttled_file::ThrottledFile;
use crate::wake::Bell;

/// `state.json` is read by people and probes: a second old is new enough.
const REPORT_PAUSE: Duration = Duration::from_secs(1);

/// What the threads of the daemon share.
pub struct Shared {
    pub health: Arc<Health>,
    /// What the watch of the kernel is told to mind.
    pub interest: Arc<RwLock<Interest>>,
    pub culprits: Culprits,
    pub bell: Bell,
}

/// Puts together what the loop and the store run with. What the server is known by, and a folder that survives a reboot,
/// tell whether an earlier run remembered anything.
pub fn assemble<K>(
    options: Options,
    kernel: K,
    (server, lasting): (Server, &Path),
    shared: Shared,
) -> (Parts<K>, Link) {
    let Shared { health, interest, culprits, bell } = shared;
    let (subnet_file, node) = (options.subnet_file.clone(), options.owner.clone());
    let of = Belongs { subnet_file, node, store: options.store.to_string(), server };
    let mut remembered = Remembered::new(of, lasting);
    let recalled = remembered.recall();
    let origin = recalled.as_ref().and_then(|recalled| recalled.origin.clone());
    let in_force = recalled.as_ref().and_then(|recalled| InForce::of_store(recalled).ok());
    let (state, (wanted, wanted_here)) = (SharedState::default(), watch::channel(None));
    let (standing, readiness) = watch::channel(Readiness::NotReady("flanneld starts".to_owned()));
    let link = Link { wanted: wanted_here, readiness, remembered: recalled, state: state.clone(), bell };
    let state_file = report_path(&options.subnet_file);
    let report = last_report(Path::new(&state_file));
    let earlier = earlier_networks(&report, Path::new(&options.subnet_file));
    let before = Before { origin, in_force, underlay: report.inputs.map(|inputs| inputs.underlay) };
    let state_file = ThrottledFile::new(state_file, Survives::Crash, REPORT_PAUSE);
    let reporter = Reporter::new(health, Supervisor::from_environment(), state_file, standing, culprits);
    let (node, options) = (instance::node_options(&options), Arc::new(options));
    let parts = Parts {
        options,
        node,
        kernel,
        store: state,
        wanted,
        interest,
        reporter,
        remembered,
        earlier,
        before,
    };
    (parts, link)
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
