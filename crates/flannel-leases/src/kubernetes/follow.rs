//! Follows all nodes: lists them once, then watches only their metadata, and reads a node whole when it is new.
//!
//! A heartbeat of a node of 12 KB is 1 KB of metadata. What a node's metadata lack are its subnets, and those
//! never change while the node lives.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use flannel_plan::annotations::AnnotationPrefix;
use http_body_util::BodyExt;
use hyper::body::Bytes;
use tokio::time::timeout;
use tracing::debug;

use super::board::Board;
use super::client::{Call, Client, METADATA, METADATA_LIST, WHOLE};
use super::error::KubernetesError;
use super::identity::Identity;
use super::node::Node;
use super::nodes::{News, Nodes};
use super::pace::{Pace, any_of};
use super::stream::{Frames, ListReader};
use super::wire::{self, Event, Status};

/// From here on, a list of whole nodes costs less than reading each.
const MANY: usize = 100;
/// A bookmark comes every minute.
pub(super) const SILENCE: Duration = Duration::from_secs(100);
/// A watch that begins is told at once if it cannot go on from where it should.
const QUIET: Duration = Duration::from_millis(300);
const GONE: u16 = 410;

/// The task that keeps the board up to date.
#[derive(Debug)]
pub(super) struct Follower {
    pub client: Arc<Client>,
    pub board: Arc<Board>,
    pub identity: Arc<Identity>,
    pub prefix: AnnotationPrefix,
    /// How long a watch may say nothing, not even that nothing happens.
    pub silence: Duration,
}

/// How far the follower has come.
#[derive(Debug, Default)]
struct Place {
    /// The version up to which everything is known; none if the nodes have to be listed.
    version: Option<String>,
    /// Whether a watch has begun since the last trouble.
    has_begun: bool,
    /// Whether anything was heard by it.
    has_moved: bool,
}

impl Follower {
    /// Follows for ever.
    pub(super) async fn run(self) {
        let (mut place, mut pace) = (Place::default(), Pace::default());
        loop {
            let answer = self.follow(&mut place).await;
            if std::mem::take(&mut place.has_moved) {
                pace = Pace::default();
            }
            let has_begun = std::mem::take(&mut place.has_begun);
            match answer {
                Ok(()) => {}
                // One failure is nothing to tell of, if the next try works.
                Err(trouble) if pace.is_new() || (has_begun && !is_garbled(&trouble)) => {
                    debug!(error = %trouble, "the watch broke; going on");
                }
                Err(trouble) => {
                    pace.slow_down(&trouble);
                    self.board.lose(trouble);
                }
            }
            pace.wait().await;
        }
    }

    /// Lists if that is needed, and watches until the watch ends.
    async fn follow(&self, place: &mut Place) -> Result<(), KubernetesError> {
        let version = match place.version.clone() {
            Some(version) => version,
            None => {
                let version = self.list().await?;
                place.version.insert(version).clone()
            }
        };
        let watched = self.watch(&version, place).await;
        match watched {
            Err(gone) if gone.code() == Some(GONE) => {
                debug!(%version, "the version is too old to go on from: listing all nodes again");
                place.version = None;
                Ok(())
            }
            watched => watched,
        }
    }

    /// Learns of all nodes, and gives the version of that knowledge.
    async fn list(&self) -> Result<String, KubernetesError> {
        self.recognize().await?;
        let mut form = WHOLE;
        self.board.change(|nodes| {
            nodes.begin_list();
            // Whose subnets are known already need not be read whole again: after a restart of the API server
            // all daemons of the cluster list at once.
            if nodes.know_subnets() {
                form = METADATA_LIST;
            }
            News::Nothing
        });
        let (version, unknown) = self.list_as(form).await?;
        let version = if unknown.len() > MANY { self.list_as(WHOLE).await?.0 } else { version };
        if unknown.len() <= MANY {
            for name in unknown {
                self.read(&name).await?;
            }
        }
        self.board.look().is_whole = true;
        self.board.regain(&self.client.server());
        self.board.ring();
        Ok(version)
    }

    /// Learns who this node is, before anything is made of what is remembered.
    async fn recognize(&self) -> Result<(), KubernetesError> {
        let name = self.identity.name(&self.client).await?;
        let must_be_recognized = {
            let mut state = self.board.look();
            let memory = std::mem::take(&mut state.memory);
            let nodes = state.nodes.get_or_insert_with(|| Nodes::new(name, self.prefix.clone(), memory));
            nodes.must_be_recognized()
        };
        if must_be_recognized {
            self.read(name).await?;
            self.board.change(|nodes| {
                nodes.recognize();
                News::Nothing
            });
        }
        Ok(())
    }

    /// Lists in this form; gives the version, and the names of those that have to be read whole.
    ///
    /// All in one: what is asked for in pages, the API server reads from its own store again and again.
    async fn list_as(&self, form: &'static str) -> Result<(String, Vec<String>), KubernetesError> {
        let act = "list nodes";
        let garbled = |cause: prost::DecodeError| self.client.garbled(act, &cause.to_string());
        let (mut listed, mut unknown) = (BTreeSet::new(), Vec::new());
        let mut body = self.client.stream(&Call::get(act, "/api/v1/nodes", form)).await?;
        let mut reader = ListReader::default();
        while let Some(part) = self.client.part(act, &mut body).await? {
            reader.push(&part);
            while let Some(message) = reader.next().map_err(garbled)? {
                let node = match form {
                    WHOLE => Node::whole(message, &self.prefix),
                    _ => Node::metadata(message, &self.prefix),
                };
                let name = node.name.clone();
                if self.board.change(|nodes| quietly(nodes.put(node))) == News::Incomplete {
                    unknown.push(name.clone());
                }
                listed.insert(name);
            }
        }
        let version = reader.finish().map_err(garbled)?;
        self.board.change(|nodes| {
            nodes.retain(|name| listed.contains(name));
            News::Nothing
        });
        Ok((version, unknown))
    }

    /// Reads one node whole. One that is gone meanwhile will be told of by the watch.
    async fn read(&self, name: &str) -> Result<(), KubernetesError> {
        let call = Call::get(format!("read node {name}"), format!("/api/v1/nodes/{name}"), WHOLE);
        match self.client.read(&call).await {
            Ok(message) => {
                let node = Node::whole(message, &self.prefix);
                self.board.change(|nodes| nodes.put(node));
                Ok(())
            }
            Err(gone) if gone.code() == Some(404) => Ok(()),
            Err(trouble) => Err(trouble),
        }
    }

    async fn watch(&self, version: &str, place: &mut Place) -> Result<(), KubernetesError> {
        let act = "watch nodes";
        let limit = any_of(300..600);
        let path = format!(
            "/api/v1/nodes?watch=true&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={limit}"
        );
        let mut body = self.client.stream(&Call::get(act, path, METADATA)).await?;
        place.has_begun = true;
        let mut frames = Frames::default();
        let mut limit = QUIET;
        loop {
            let part = match timeout(limit, body.frame()).await {
                Ok(Some(part)) => part.map_err(|cause| self.client.broken(act, &cause))?,
                Ok(None) => return Ok(()),
                Err(_) if limit == self.silence => {
                    // Perhaps the store of the API server was restored from a backup, and our version lies in
                    // its future: no event would ever come.
                    place.version = None;
                    return Err(self.client.silent(act, limit));
                }
                Err(_) => {
                    self.board.regain(&self.client.server());
                    limit = self.silence;
                    continue;
                }
            };
            frames.push(part.data_ref().map(|bytes| &**bytes).unwrap_or_default());
            let garbled = |cause: prost::DecodeError| self.client.garbled(act, &cause.to_string());
            while let Some(frame) = frames.next().map_err(garbled)? {
                self.hear(frame, place).await?;
                place.has_moved = true;
                self.board.regain(&self.client.server());
            }
        }
    }

    /// Takes one event. The place moves on only when all of it is known, so nothing is lost by an error.
    async fn hear(&self, frame: Bytes, place: &mut Place) -> Result<(), KubernetesError> {
        let event = wire::decode_event(frame);
        let event = event.map_err(|cause| self.client.garbled("watch nodes", &cause.to_string()))?;
        let node = match event {
            Event::Refused(status) => return Err(self.refusal(status)),
            Event::Bookmark(message) => Node::metadata(message, &self.prefix),
            Event::Deleted(message) => {
                let node = Node::metadata(message, &self.prefix);
                self.board.change(|nodes| nodes.remove(&node));
                node
            }
            Event::Put(message) => {
                let node = Node::metadata(message, &self.prefix);
                if self.board.change(|nodes| nodes.put(node.clone())) == News::Incomplete {
                    self.read(&node.name).await?;
                }
                node
            }
        };
        if !node.version.is_empty() {
            place.version = Some(node.version);
        }
        Ok(())
    }

    fn refusal(&self, status: Status) -> KubernetesError {
        KubernetesError::Refused {
            act: "watch nodes".to_owned(),
            server: self.client.server(),
            code: u16::try_from(status.code).unwrap_or(0),
            message: status.message,
        }
    }
}

fn is_garbled(trouble: &KubernetesError) -> bool {
    matches!(trouble, KubernetesError::Garbled { .. })
}

/// A list is told of when it is whole.
fn quietly(news: News) -> News {
    if news == News::Changed { News::Nothing } else { news }
}
