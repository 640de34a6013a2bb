//! What the task that follows the API server has found, for the store that hands it out.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tracing::{debug, info};

use super::error::KubernetesError;
use super::nodes::{Memory, NodeChange, Nodes, number};
use super::own::Own;
use crate::in_force::replace;

/// What is known of the cluster, and whether it is up to date.
#[derive(Debug, Default)]
pub(super) struct Board {
    state: Mutex<State>,
    /// Rings when something is worth a new snapshot.
    pub changes: watch::Sender<()>,
    /// The version of this node's object.
    pub own: watch::Sender<OwnVersion>,
}

/// Which object is this node's, and in which version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OwnVersion {
    pub uid: String,
    version: String,
}

/// What is known of the cluster.
#[derive(Debug, Default)]
pub(super) struct State {
    /// What is remembered from before the start, until there are nodes.
    pub memory: Memory,
    /// The nodes; none before this node's name is known.
    pub nodes: Option<Nodes>,
    /// Whether all nodes have been listed once.
    pub is_whole: bool,
    /// Up to which version the nodes are known.
    pub version: Option<Arc<str>>,
    /// Which version they must be known up to before they are a proof that others are gone.
    pub fence: Option<u64>,
    /// Why the API server cannot be read now, until somebody has taken it.
    pub trouble: Option<KubernetesError>,
    /// The words of that, for as long as it lasts.
    pub away: Option<String>,
}

impl Board {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the nodes, and tells whoever listens.
    pub(super) fn change(&self, change: impl FnOnce(&mut Nodes) -> NodeChange) -> NodeChange {
        let mut state = self.lock();
        let Some(nodes) = &mut state.nodes else { return NodeChange::Nothing };
        let came_of_it = change(nodes);
        let own = nodes.own.as_ref();
        let own = own.map(|own| OwnVersion { uid: own.uid.clone(), version: own.version.clone() });
        drop(state);
        self.own.send_if_modified(|seen| replace(seen, own.unwrap_or_default()));
        if came_of_it == NodeChange::Changed {
            self.ring();
        }
        came_of_it
    }

    /// Notes what this node's object says after we have changed it.
    pub(super) fn note_own(&self, own: Own) {
        self.change(|nodes| {
            nodes.note_own(own);
            NodeChange::Changed
        });
    }

    /// Notes up to which version the nodes are known.
    pub(super) fn reach(&self, version: &str) {
        let mut state = self.lock();
        state.version = Some(version.into());
        if state.fence.take_if(|fence| number(version) >= *fence).is_some() {
            drop(state);
            self.ring();
        }
    }

    /// Tells whoever listens that a snapshot is due.
    pub(super) fn ring(&self) {
        self.changes.send_replace(());
    }

    /// Notes that the API server cannot be read; whoever listens hears of it once for each reason.
    pub(super) fn lose(&self, trouble: KubernetesError) {
        let words = trouble.to_string();
        debug!(error = %words, "the API server cannot be read; trying again");
        let mut state = self.lock();
        if state.away.as_ref() != Some(&words) {
            state.away = Some(words);
            state.trouble = Some(trouble);
            drop(state);
            self.ring();
        }
    }

    /// Notes that the API server can be read.
    pub(super) fn regain(&self, server: &str) {
        let mut state = self.lock();
        if state.away.take().is_some() {
            state.trouble = None;
            drop(state);
            info!(server, "the API server can be read again");
            self.ring();
        }
    }
}
