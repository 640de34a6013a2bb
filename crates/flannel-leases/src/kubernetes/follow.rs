//! Follows all nodes: lists them once, then watches only their metadata, and reads a node whole when it is new.
//!
//! A heartbeat of a node of 12 KB is 1 KB of metadata. What a node's metadata lack are its subnets, and those
//! never change while the node lives.

use std::sync::Arc;
use std::time::Duration;

use flannel_plan::annotations::AnnotationPrefix;
use http_body_util::BodyExt;
use hyper::body::Bytes;
use tokio::time::timeout;
use tracing::debug;

use super::board::Board;
use super::client::{Call, Client, METADATA, WHOLE};
use super::error::KubernetesError;
use super::identity::Identity;
use super::list::Age;
use super::node::Node;
use super::nodes::News;
use super::pace::Pace;
use super::stream::Frames;
use super::wire::{self, Event, Status};
use crate::timing::any_of;

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
pub(super) struct Place {
    /// The version up to which everything is known; none if the nodes have to be listed.
    version: Option<String>,
    /// How new the next list must be.
    pub age: Age,
    /// Whether a watch has begun since the last trouble.
    has_begun: bool,
    /// Whether anything was heard by it.
    has_moved: bool,
}

impl Follower {
    /// Follows for ever.
    pub(super) async fn run(self, age: Age) {
        let (mut place, mut pace) = (Place { age, ..Place::default() }, Pace::default());
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
                let version = self.list(place).await?;
                place.version.insert(version).clone()
            }
        };
        let watched = self.watch(&version, place).await;
        match watched {
            Err(gone) if gone.code() == Some(GONE) => {
                debug!(%version, "the version is too old to go on from: listing all nodes again");
                place.age = place.version.take().map_or(Age::Newest, Age::NotOlderThan);
                Ok(())
            }
            watched => watched,
        }
    }

    /// Reads one node whole. One that is gone meanwhile will be told of by the watch.
    pub(super) async fn read(&self, name: &str) -> Result<(), KubernetesError> {
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
                    (place.version, place.age) = (None, Age::Newest);
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
            self.board.reach(&node.version);
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
