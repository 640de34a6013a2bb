//! Gathers once all that can be known about this node: the daemon's report, its process, the kernel.
//!
//! Takes the path of subnet.env, which tells instances apart; gives [`Evidence`], plain data that every verb
//! decides from. Changes nothing, and needs no privilege beyond reading `state.json`, except to look at rules.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flannel_kernel::stack::Stack;
use flannel_kernel::{Kernel, Linux, NetlinkError, ObserveError};
use flannel_plan::family::ByFamily;
use flannel_plan::finding::Finding;
use flannel_plan::observation::Observation;
use flannel_plan::pod_bridge;
use flannel_plan::report::{NodeReport, report_path};
use flannel_screen::Form;
use flannel_status::{Comparison, Evidence};
use ipnet::IpNet;
use serde::Deserialize;

use crate::daemon;

/// Which node, and for whom its answer is.
#[derive(clap::Args)]
pub struct NodeArguments {
    /// The subnet file of the flanneld in question
    #[arg(long, value_name = "FILE", default_value = DEFAULT_SUBNET_FILE)]
    pub subnet_file: String,
    /// The form of the output
    #[arg(short, long, value_enum, default_value = "text")]
    pub output: Form,
}

/// Where an instance that says nothing else keeps its subnet, as in Go flannel.
pub const DEFAULT_SUBNET_FILE: &str = "/run/flannel/subnet.env";

/// flanneld writes its report at most once a second: a difference that is gone after this was none.
const PATIENCE: Duration = Duration::from_millis(1500);
const PAUSE: Duration = Duration::from_millis(50);

/// Why nothing can be said about this node.
#[derive(Debug, thiserror::Error)]
pub enum EvidenceError {
    #[error(
        "flanneld has not written {path}: is it running? Start it with `systemctl start flanneld`, or look at \
         its pod with `kubectl -n kube-flannel get pods -o wide`; if it runs with another --subnet-file, name \
         the same here"
    )]
    NoReport { path: String },
    #[error("cannot read {path}: {cause}: only root and its group may; run this with sudo")]
    Forbidden { path: String, cause: io::Error },
    #[error("cannot read {path}: {cause}")]
    Unreadable { path: String, cause: io::Error },
    /// The report has a form that is not ours, from a flanneld that is not of our version.
    #[error(
        "{path} was written by flanneld {theirs}, which flannelctl {} does not understand ({cause}): use the \
         flannelctl that came with that flanneld",
        env!("CARGO_PKG_VERSION")
    )]
    OtherVersion { path: String, theirs: String, cause: serde_json::Error },
    #[error(
        "{path} is damaged: {cause}: flanneld writes it anew when something changes, or when it is restarted \
         (which does not disturb any packet)"
    )]
    Damaged { path: String, cause: serde_json::Error },
    #[error("the kernel cannot be looked at: {0}")]
    Kernel(#[from] ObserveError),
    /// The kernel does not tell what hangs on a bridge.
    #[error("the bridge of the pods cannot be looked at: {0}")]
    Bridge(NetlinkError),
}

/// Gathers what is there now.
pub fn gather(subnet_file: &str) -> Result<Evidence, EvidenceError> {
    let (path, report, left_out) = read_report(subnet_file)?;
    let (mut comparison, mut pod_mtus) = (None, BTreeMap::new());
    if let (Some(scope), Some(inputs)) = (&report.scope, &report.inputs) {
        let observation: Observation = Linux::open()?.observe(scope)?;
        comparison = Some(Comparison::of(inputs, scope, &observation));
        pod_mtus = count_mtus(&observation, &inputs.own.subnets)?;
    }
    let daemon = daemon::find(report.pid);
    Ok(Evidence { path, daemon, now: unix_millis(), report, left_out, comparison, pod_mtus })
}

/// How many pods have which MTU: both ends of a pod's cable have the same, and the ends here hang on its bridge.
fn count_mtus(
    observation: &Observation,
    subnets: &ByFamily<IpNet>,
) -> Result<BTreeMap<u32, usize>, EvidenceError> {
    let bridges: BTreeSet<u32> = subnets
        .iter()
        .flat_map(|(_, subnet)| pod_bridge::of(observation, subnet))
        .map(|fact| fact.index)
        .collect();
    let mut stack = Stack::open().map_err(EvidenceError::Bridge)?;
    let mut mtus = BTreeMap::new();
    for bridge in bridges {
        let ports = stack.ports(bridge).map_err(EvidenceError::Bridge)?;
        for pod in ports.iter().filter(|port| &*port.kind == "veth") {
            *mtus.entry(pod.mtu).or_default() += 1;
        }
    }
    Ok(mtus)
}

/// Gathers what is there; if a running daemon seems to be in the middle of something, once it is through.
pub fn gather_settled(subnet_file: &str) -> Result<Evidence, EvidenceError> {
    let start = Instant::now();
    loop {
        let evidence = gather(subnet_file)?;
        if !evidence.is_in_motion() || start.elapsed() >= PATIENCE {
            return Ok(evidence);
        }
        thread::sleep(PAUSE);
    }
}

/// Reads the report beside a subnet.env; gives its path too, and the leases in it that cannot be read.
pub fn read_report(subnet_file: &str) -> Result<(String, NodeReport<'static>, Vec<Finding>), EvidenceError> {
    let path = report_path(subnet_file);
    let text = match flannel_files::read(&path, flannel_files::MOST_BY_PROGRAM) {
        Ok(text) => text,
        Err(cause) => return Err(unreadable(path, cause)),
    };
    match NodeReport::read(&text) {
        Ok((report, left_out)) => Ok((path, report, left_out)),
        Err(cause) => Err(not_understood(path, &text, cause)),
    }
}

fn unreadable(path: String, cause: io::Error) -> EvidenceError {
    match cause.kind() {
        io::ErrorKind::NotFound => EvidenceError::NoReport { path },
        io::ErrorKind::PermissionDenied => EvidenceError::Forbidden { path, cause },
        _ => EvidenceError::Unreadable { path, cause },
    }
}

fn not_understood(path: String, text: &[u8], cause: serde_json::Error) -> EvidenceError {
    #[derive(Deserialize)]
    struct Versioned {
        version: String,
    }
    match serde_json::from_slice::<Versioned>(text) {
        Ok(Versioned { version: theirs }) if theirs != env!("CARGO_PKG_VERSION") => {
            EvidenceError::OtherVersion { path, theirs, cause }
        }
        _ => EvidenceError::Damaged { path, cause },
    }
}

fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(u64::MAX)
}
