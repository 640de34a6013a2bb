//! What a lab is to be: its name, its shape, its net-conf and what runs on it.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::net_conf::{Backend, Families};
use crate::store::Store;
use crate::topology::Topology;
use crate::wait::Interrupt;

/// Whether the nodes run flanneld.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flanneld {
    /// On every node, and the lab is up when all are ready.
    Started,
    /// The test starts it itself, or wants only the underlay.
    NotStarted,
}

/// What a lab is to be.
#[derive(Clone, Debug)]
pub struct LabOptions {
    /// Its name; labs of different names live side by side.
    pub name: String,
    pub topology: Topology,
    pub store: Store,
    pub net_conf: String,
    /// Arguments for every flanneld, besides the lab's own.
    pub flanneld_args: Vec<String>,
    pub flanneld_env: Vec<(String, String)>,
    pub flanneld: Flanneld,
    /// How many pods each node gets once flanneld is ready: pod1, pod2 and so on.
    pub pods_per_node: usize,
    /// An interrupt, heeded between the steps.
    pub interrupt: Interrupt,
}

impl Default for LabOptions {
    fn default() -> Self {
        Self {
            name: "default".to_owned(),
            topology: Topology::default(),
            store: Store::default(),
            net_conf: Backend::Vxlan.net_conf(Families::V4),
            flanneld_args: Vec::new(),
            flanneld_env: Vec::new(),
            flanneld: Flanneld::Started,
            pods_per_node: 1,
            interrupt: Interrupt::default(),
        }
    }
}

/// A name that no other lab of this machine has: for tests.
pub fn unique_name(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{prefix}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst))
}
