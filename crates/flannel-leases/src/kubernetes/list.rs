//! Lists all nodes, packed, and from the API server's own memory: what it must ask its store for is dear for both, and
//! all daemons of a cluster may start at once. That memory may be old, so a list is asked for that is as new as what
//! is known already; without that, it is no proof that anything is gone before the watch has caught up.

use std::collections::BTreeSet;

use super::client::{Call, METADATA_LIST, WHOLE};
use super::error::KubernetesError;
use super::follow::{Bookmark, Follower};
use super::node::Node;
use super::nodes::{NodeChange, Nodes, number};
use super::stream::ListReader;

/// From here on, a list of whole nodes costs less than reading each.
const MANY: usize = 100;
/// What is asked, after "cannot".
const ACT: &str = "list nodes";

/// How new a list must be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Age {
    /// What the API server has in its memory will do.
    #[default]
    Any,
    /// The same, but not older than this version.
    NotOlderThan(String),
    /// As its store has it now.
    Newest,
}

impl Age {
    fn path(&self) -> String {
        match self {
            Self::Any => "/api/v1/nodes?resourceVersion=0".to_owned(),
            Self::NotOlderThan(version) => format!("/api/v1/nodes?resourceVersion={version}"),
            Self::Newest => "/api/v1/nodes".to_owned(),
        }
    }
}

impl Follower {
    /// Learns of all nodes, and gives the version of that knowledge.
    pub(super) async fn list(&self, bookmark: &mut Bookmark) -> Result<String, KubernetesError> {
        self.recognize(bookmark).await?;
        let fence = match bookmark.age {
            Age::Any => Some(self.newest_version().await?),
            _ => None,
        };
        let version = self.list_at(&bookmark.age).await.inspect_err(|trouble| {
            // The store of the API server was restored from a backup, perhaps: no list is as new as that.
            if matches!(trouble.code(), Some(400 | 410 | 504)) {
                bookmark.age = Age::Newest;
            }
        })?;
        let mut state = self.board.lock();
        state.is_whole = true;
        state.fence = match bookmark.age {
            Age::Any => fence,
            Age::NotOlderThan(_) => state.fence,
            Age::Newest => None,
        };
        drop(state);
        self.board.reach(&version);
        self.board.regain(&self.client.server());
        self.board.ring();
        Ok(version)
    }

    /// Learns who this node is, before anything is made of what is remembered.
    async fn recognize(&self, bookmark: &mut Bookmark) -> Result<(), KubernetesError> {
        let name = self.identity.name(&self.client).await?;
        let must_be_recognized = {
            let mut state = self.board.lock();
            let memory = std::mem::take(&mut state.memory);
            let nodes = state.nodes.get_or_insert_with(|| Nodes::new(name, self.prefix.clone(), memory));
            nodes.must_be_recognized()
        };
        if must_be_recognized {
            self.read(name).await?;
            self.board.change(|nodes| {
                if let Some(version) = nodes.recognize() {
                    bookmark.age = Age::NotOlderThan(String::from(&*version));
                }
                NodeChange::Nothing
            });
        }
        Ok(())
    }

    /// The version of the API server's store: what a list of one node says of itself.
    async fn newest_version(&self) -> Result<u64, KubernetesError> {
        let one = format!("{}?limit=1", Age::Newest.path());
        let version = self.read_list(&Call::get(ACT, one, METADATA_LIST), |_| ()).await?;
        Ok(number(&version))
    }

    async fn list_at(&self, age: &Age) -> Result<String, KubernetesError> {
        let mut form = WHOLE;
        self.board.change(|nodes| {
            nodes.begin_list();
            // Whose subnets are known already need not be read whole again: after a restart of the API server
            // all daemons of the cluster list at once.
            if nodes.know_subnets() {
                form = METADATA_LIST;
            }
            NodeChange::Nothing
        });
        let (version, unknown) = self.list_as(form, age).await?;
        if unknown.len() > MANY {
            return Ok(self.list_as(WHOLE, age).await?.0);
        }
        for name in unknown {
            self.read(&name).await?;
        }
        Ok(version)
    }

    /// Lists in this form; gives the version, and the names of those that have to be read whole.
    ///
    /// All in one: what is asked for in pages, the API server reads from its own store again and again.
    async fn list_as(&self, form: &'static str, age: &Age) -> Result<(String, Vec<String>), KubernetesError> {
        let (mut listed, mut unknown) = (BTreeSet::new(), Vec::new());
        let take = |message| {
            let node = match form {
                WHOLE => Node::whole(message, &self.prefix),
                _ => Node::metadata(message, &self.prefix),
            };
            let name = node.name.clone();
            if self.board.change(|nodes| quietly(nodes.put(node))) == NodeChange::Incomplete {
                unknown.push(name.clone());
            }
            listed.insert(name);
        };
        let version = self.read_list(&Call::get(ACT, age.path(), form), take).await?;
        self.board.change(|nodes| {
            nodes.retain(|name| listed.contains(name));
            NodeChange::Nothing
        });
        Ok((version, unknown))
    }

    /// Reads a list node by node; gives its version if all of it has come.
    async fn read_list(
        &self,
        call: &Call,
        mut take: impl FnMut(super::wire::Node),
    ) -> Result<String, KubernetesError> {
        let garbled = |cause: prost::DecodeError| self.client.garbled(ACT, &cause);
        let (mut body, mut reader) = (self.client.list(call).await?, ListReader::default());
        while let Some(part) = body.part(&self.client, ACT).await? {
            reader.push(&part);
            while let Some(message) = reader.next().map_err(garbled)? {
                take(message);
            }
        }
        reader.finish().map_err(garbled)
    }
}

/// A list is told of when it is whole.
fn quietly(change: NodeChange) -> NodeChange {
    if change == NodeChange::Changed { NodeChange::Nothing } else { change }
}
