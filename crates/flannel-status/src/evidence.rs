//! All that can be known about a node, gathered by somebody else.

use std::collections::BTreeMap;

use flannel_plan::backend::BackendError;
use flannel_plan::finding::Finding;
use flannel_plan::report::NodeReport;

use crate::comparison::Comparison;
use crate::daemon::{DaemonProcess, Life};

/// All that can be known about a node.
#[derive(Debug)]
pub struct Evidence {
    pub path: String,
    pub report: NodeReport<'static>,
    /// The leases in it that cannot be read.
    pub left_out: Vec<Finding>,
    pub daemon: DaemonProcess,
    /// When this was gathered, in milliseconds since 1970.
    pub now: u64,
    /// What should be against what is; none before the daemon has planned anything.
    pub comparison: Option<Result<Comparison, BackendError>>,
    /// How many pods have which MTU.
    pub pod_mtus: BTreeMap<u32, usize>,
}

impl Evidence {
    /// Whether there is a difference that the daemon does not know of and so may be about to settle.
    pub fn is_in_motion(&self) -> bool {
        let differs = matches!(&self.comparison, Some(Ok(comparison)) if !comparison.changes.is_empty());
        let is_known = self.report.outcome.as_ref().is_some_and(|outcome| !outcome.settled);
        differs && !is_known && self.daemon.life == Life::Running
    }
}
