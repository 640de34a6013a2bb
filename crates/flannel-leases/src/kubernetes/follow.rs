//! Follows all nodes: lists them once, then watches only their metadata, and reads a node whole when it is new.
//!
//! A heartbeat of a node of 12 KB is 1 KB of metadata. What a node's metadata lack are its subnets, and those
//! never change while the node lives.

use std::sync::Arc;
use std::time::Duration;

use flannel_plan::annotations::AnnotationPrefix;
use flannel_plan::backoff::Backoff;
use http_body_util::BodyExt;
use hyper::body::Bytes;
use tokio::time::timeout;
use tracing::debug;

use super::board::Board;
use super::client::{Call, Client, METADATA};
use super::error::{CallFault, KubernetesError};
use super::identity::Identity;
use super::list::Age;
use super::node::Node;
use super::nodes::NodeChange;
use super::stream::Frames;
use super::wire::{self, Event, Status};
use crate::timing::{any_of, jittered};

/// A bookmark comes every minute.
pub(super) const SILENCE: Duration = Duration::from_secs(100);
/// A watch that begins is told at once if it cannot go on from where it should.
const QUIET: Duration = Duration::from_millis(300);
const GONE: u16 = 410;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// A server that comes back is noticed within two seconds: peers wait for it.
const LONGEST_PAUSE: Duration = Duration::from_millis(800);
/// A server that answers with a refusal has work enough.
const LONGEST_PAUSE_REFUSED: Duration = Duration::from_secs(5);

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

/// How far the watch has come.
#[derive(Debug, Default)]
pub(super) struct Bookmark {
    /// The resourceVersion up to which everything is known; none if the nodes have to be listed.
    version: Option<String>,
    /// How new the next list must be.
    pub age: Age,
    /// Whether a watch has begun since the last trouble.
    has_begun: bool,
    /// Whether it has given an event.
    has_moved: bool,
}

impl Follower {
    pub(super) async fn run(self, age: Age) {
        let (mut bookmark, mut pace) = (Bookmark { age, ..Bookmark::default() }, Pace::default());
        loop {
            let answer = self.follow(&mut bookmark).await;
            if std::mem::take(&mut bookmark.has_moved) {
                pace = Pace::default();
            }
            let has_begun = std::mem::take(&mut bookmark.has_begun);
            match answer {
                Ok(()) => {}
                // One failure is nothing to tell of, if the next try works.
                Err(trouble) if pace.backoff.is_none() || (has_begun && !is_garbled(&trouble)) => {
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
    async fn follow(&self, bookmark: &mut Bookmark) -> Result<(), KubernetesError> {
        let version = match bookmark.version.clone() {
            Some(version) => version,
            None => {
                let version = self.list(bookmark).await?;
                bookmark.version.insert(version).clone()
            }
        };
        let watched = self.watch(&version, bookmark).await;
        match watched {
            Err(gone) if gone.code() == Some(GONE) => {
                debug!(%version, "the version is too old to go on from: listing all nodes again");
                bookmark.age = bookmark.version.take().map_or(Age::Newest, Age::NotOlderThan);
                Ok(())
            }
            watched => watched,
        }
    }

    /// Reads one node whole. One that is gone meanwhile will be told of by the watch.
    pub(super) async fn read(&self, name: &str) -> Result<(), KubernetesError> {
        match self.client.read(&Call::get_node(name)).await {
            Ok(message) => {
                let node = Node::whole(message, &self.prefix);
                self.board.change(|nodes| nodes.put(node));
                Ok(())
            }
            Err(gone) if gone.code() == Some(404) => Ok(()),
            Err(trouble) => Err(trouble),
        }
    }

    async fn watch(&self, version: &str, bookmark: &mut Bookmark) -> Result<(), KubernetesError> {
        let act = "watch nodes";
        let limit = any_of(300..600);
        let path = format!(
            "/api/v1/nodes?watch=true&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={limit}"
        );
        let mut body = self.client.stream(&Call::get(act, path, METADATA)).await?;
        bookmark.has_begun = true;
        let mut frames = Frames::default();
        let mut limit = QUIET;
        loop {
            let part = match timeout(limit, body.frame()).await {
                Ok(Some(part)) => part.map_err(|cause| self.client.broken(act, &cause))?,
                Ok(None) => return Ok(()),
                Err(_) if limit == self.silence => {
                    // Perhaps the store of the API server was restored from a backup, and our version lies in
                    // its future: no event would ever come.
                    (bookmark.version, bookmark.age) = (None, Age::Newest);
                    return Err(self.client.failed(act, CallFault::Slow(limit)));
                }
                Err(_) => {
                    self.board.regain(&self.client.server());
                    limit = self.silence;
                    continue;
                }
            };
            frames.push(part.data_ref().map(|bytes| &**bytes).unwrap_or_default());
            let garbled = |cause: prost::DecodeError| self.client.garbled(act, &cause);
            while let Some(frame) = frames.next().map_err(garbled)? {
                self.take_event(frame, bookmark).await?;
                bookmark.has_moved = true;
                self.board.regain(&self.client.server());
            }
        }
    }

    /// Takes one event. The bookmark moves on only when all of it is known, so nothing is lost by an error.
    async fn take_event(&self, frame: Bytes, bookmark: &mut Bookmark) -> Result<(), KubernetesError> {
        let event = wire::decode_event(frame);
        let event = event.map_err(|cause| self.client.garbled("watch nodes", &cause))?;
        let node = match event {
            Event::Error(Status { code, message }) => {
                let fault = CallFault::Refused(u16::try_from(code).unwrap_or(0), message);
                return Err(self.client.failed("watch nodes", fault));
            }
            Event::Bookmark(message) => Node::metadata(message, &self.prefix),
            Event::Deleted(message) => {
                let node = Node::metadata(message, &self.prefix);
                self.board.change(|nodes| nodes.remove(&node));
                node
            }
            Event::Put(message) => {
                let node = Node::metadata(message, &self.prefix);
                if self.board.change(|nodes| nodes.put(node.clone())) == NodeChange::Incomplete {
                    self.read(&node.name).await?;
                }
                node
            }
        };
        if !node.version.is_empty() {
            self.board.reach(&node.version);
            bookmark.version = Some(node.version);
        }
        Ok(())
    }
}

fn is_garbled(trouble: &KubernetesError) -> bool {
    matches!(trouble, KubernetesError::Call { fault: CallFault::Garbled(_), .. })
}

/// How soon to try again: at once, then after growing pauses that are not the same on every node.
#[derive(Debug, Default)]
struct Pace {
    /// None while the first try is still to come.
    backoff: Option<Backoff>,
}

impl Pace {
    /// Chooses how long the pauses may get. A server that begins to answer is nearly ready: they begin anew then.
    fn slow_down(&mut self, trouble: &KubernetesError) {
        let longest = trouble.code().map_or(LONGEST_PAUSE, |_| LONGEST_PAUSE_REFUSED);
        if self.backoff.is_some_and(|backoff| backoff.longest() != longest) {
            self.backoff = Some(Backoff::new(FIRST_PAUSE, longest));
        }
    }

    /// Waits for the next try; the first one comes at once.
    async fn wait(&mut self) {
        match &mut self.backoff {
            None => self.backoff = Some(Backoff::new(FIRST_PAUSE, LONGEST_PAUSE)),
            Some(backoff) => tokio::time::sleep(jittered(backoff.grow(), 50..150)).await,
        }
    }
}
