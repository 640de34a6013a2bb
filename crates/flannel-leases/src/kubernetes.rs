//! The Kubernetes store: a node's lease is its podCIDR and the annotations of its Node object, as Go flannel
//! writes them. Takes announcements, gives snapshots; the net-conf is a file, as a ConfigMap is mounted.
//!
//! One task follows the nodes, one keeps the condition NetworkUnavailable right; the store itself publishes and
//! puts snapshots together.

mod access;
mod board;
mod client;
mod condition;
mod connection;
mod error;
mod event;
#[cfg(test)]
mod fake;
mod follow;
#[cfg(fuzzing)]
pub mod fuzz;
mod identity;
mod kubeconfig;
mod list;
mod net_conf;
mod node;
mod nodes;
mod own;
mod publish;
mod rivalry;
mod stream;
#[cfg(test)]
mod tests;
mod wire;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flannel_plan::annotations::AnnotationPrefix;
use flannel_plan::lease::{Announcement, Lease};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::proxy::Proxies;
use crate::timing::until;
use crate::{Fault, LeaseStore, Readiness, Server, Snapshot, StoreError};
use access::{Access, Trust};
use board::{Board, State};
use client::Client;
use condition::{ConditionKeeper, NodeReadiness};
use follow::Follower;
use identity::Identity;
use list::Age;
use net_conf::NetConfFile;
use nodes::{Memory, Nodes};
use own::{Own, OwnLease};
use publish::Complaint;
use rivalry::Rivalry;

pub use error::{CallFault, KubernetesError, NoPodCidr};

/// How long a node may be not ready before Kubernetes is told.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the operator says about the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesOptions {
    /// The address of the API server, in place of that of the kubeconfig.
    pub api_url: Option<String>,
    /// A kubeconfig; without one and without an address, what Kubernetes gives every pod is used.
    pub kubeconfig: Option<PathBuf>,
    /// The name of this node's object.
    pub node_name: Option<String>,
    /// The name and the namespace of the daemon's pod, which tell the node's name where it is not given.
    pub pod: Option<(String, String)>,
    /// What the names of the annotations begin with.
    pub prefix: AnnotationPrefix,
    pub net_conf: PathBuf,
    /// Whether the condition NetworkUnavailable is kept.
    pub set_condition: bool,
}

/// A lease store in a Kubernetes cluster.
pub struct Kubernetes {
    prefix: AnnotationPrefix,
    client: Arc<Client>,
    identity: Arc<Identity>,
    board: Arc<Board>,
    changes: watch::Receiver<()>,
    net_conf: NetConfFile,
    readiness: Option<watch::Sender<Option<NodeReadiness>>>,
    /// How long a node may be not ready before Kubernetes is told.
    patience: Duration,
    silence: Duration,
    age: Age,
    tasks: JoinSet<()>,
    /// The last announcement that is on the node.
    published: Option<Announcement>,
    complaint: Complaint,
    rivalry: Rivalry,
    has_told: bool,
}

impl Kubernetes {
    /// Opens the store. Asks nobody yet: only what can be judged at once is.
    pub fn open(options: KubernetesOptions) -> Result<Self, StoreError> {
        let of_pod = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let (host, port) = (of_pod("KUBERNETES_SERVICE_HOST"), of_pod("KUBERNETES_SERVICE_PORT"));
        let access = Access::find(
            options.kubeconfig.as_deref().filter(|path| !path.as_os_str().is_empty()),
            options.api_url.as_deref().filter(|url| !url.is_empty()),
            host.as_deref().zip(port.as_deref()),
        )?
        .through(&Proxies::of_environment())?;
        if let Some(proxy) = &access.proxy {
            info!(server = %access.server, "the API server is reached by {proxy}");
        }
        if access.trust == Trust::Anybody {
            warn!(server = %access.server, "insecure-skip-tls-verify: whoever answers there is believed");
        }
        let board = Arc::new(Board::default());
        Ok(Self {
            prefix: options.prefix,
            client: Arc::new(Client::new(access)),
            identity: Arc::new(Identity::new(options.node_name, options.pod)?),
            changes: board.changes.subscribe(),
            board,
            net_conf: NetConfFile::new(options.net_conf),
            readiness: options.set_condition.then(|| watch::Sender::new(None)),
            patience: PATIENCE,
            silence: follow::SILENCE,
            age: Age::default(),
            tasks: JoinSet::new(),
            published: None,
            complaint: Complaint::default(),
            rivalry: Rivalry::default(),
            has_told: false,
        })
    }

    /// Changes how long a node may be not ready before Kubernetes is told; a minute unless something else is said.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Has the nodes listed as they are, however dear that is for the API server: for whoever looks once.
    #[must_use]
    pub fn asking_for_the_newest(self) -> Self {
        Self { age: Age::Newest, ..self }
    }

    /// Starts the tasks, once; they end with the store.
    fn start(&mut self) {
        if !self.tasks.is_empty() {
            return;
        }
        let (client, board, identity) =
            (Arc::clone(&self.client), Arc::clone(&self.board), Arc::clone(&self.identity));
        if let Some(readiness) = &self.readiness {
            let (client, board, identity) = (Arc::clone(&client), Arc::clone(&board), Arc::clone(&identity));
            let (readiness, patience) = (readiness.subscribe(), self.patience);
            self.tasks.spawn(ConditionKeeper { client, board, identity, readiness, patience }.run());
        }
        let (prefix, silence) = (self.prefix.clone(), self.silence);
        self.tasks.spawn(Follower { client, board, identity, prefix, silence }.run(self.age.clone()));
    }

    /// All that is known now; none before all nodes were listed.
    fn snapshot(&self, state: &State) -> Option<Snapshot> {
        let nodes = state.nodes.as_ref().filter(|_| state.is_whole)?;
        let config = self.net_conf.in_force.config();
        let mut faults: Vec<Fault> = self.net_conf.in_force.fault().cloned().into_iter().collect();
        let (mut own, mut rival, mut public) = (OwnLease::default(), None, Default::default());
        match &nodes.own {
            None => faults.push(nodes.no_own()),
            Some(node) => {
                own = node.lease(config.as_ref().ok().copied(), self.published.as_ref(), &self.prefix);
                public = node.public;
                rival = self.rivalry.rival(&node.name, node.says(&self.prefix).as_ref(), Instant::now());
                faults.extend(node.faults());
            }
        }
        faults.extend(nodes.faults());
        Some(Snapshot {
            origin: nodes.origin(),
            version: state.version.clone(),
            is_stale: state.fence.is_some(),
            config: config.cloned(),
            own: own.lease,
            own_is_damaged: own.is_damaged,
            rival,
            public,
            announced: nodes.own.as_ref().map(Own::announced).unwrap_or_default(),
            peers: nodes.peers(),
            faults,
        })
    }
}

impl LeaseStore for Kubernetes {
    async fn publish(&mut self, announcement: &Announcement) -> Result<Lease, StoreError> {
        self.start();
        self.net_conf.read();
        let published = self.put(announcement).await;
        if published.is_ok() {
            self.published = Some(announcement.clone());
            // What we wrote ourselves is worth a snapshot, also if the node has not changed by it.
            self.board.ring();
        }
        published
    }

    fn origin(&self) -> Option<Arc<str>> {
        self.board.lock().nodes.as_ref().and_then(Nodes::origin)
    }

    fn server(&self) -> Server {
        self.client.identity()
    }

    /// A node that has the same name and was made at the same time has the same subnets, so that the first list need
    /// not hold whole nodes: an eighth of the bytes. It is used only if this node's object is still the one that it was.
    fn remembering(self, before: &Snapshot) -> Self {
        self.board.lock().memory = Memory::of(before);
        self
    }

    async fn next(&mut self) -> Result<Snapshot, StoreError> {
        self.start();
        let mut is_new = !self.has_told;
        loop {
            is_new |= self.net_conf.read();
            {
                let board = Arc::clone(&self.board);
                let mut state = board.lock();
                if let Some(trouble) = state.trouble.take() {
                    self.has_told = false;
                    return Err(trouble.into());
                }
                is_new |= self.changes.has_changed().unwrap_or(false);
                if is_new
                    && state.away.is_none()
                    && let Some(snapshot) = self.snapshot(&state)
                {
                    self.changes.mark_unchanged();
                    self.has_told = true;
                    return Ok(snapshot);
                }
            }
            tokio::select! {
                _ = self.changes.changed() => is_new = true,
                () = until(self.rivalry.due(Instant::now())) => is_new = true,
                () = self.net_conf.noticed() => {}
            }
        }
    }

    fn tell(&mut self, readiness: &Readiness) {
        if let Some(told) = &self.readiness {
            told.send_modify(|told| *told = NodeReadiness::after(told.as_ref(), readiness, Instant::now()));
        }
    }
}
