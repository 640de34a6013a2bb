//! The condition NetworkUnavailable of this node: false as soon as pods can be started, true when they could not
//! be for a while. Kubernetes keeps pods off a node for as long as it is true.

use std::sync::Arc;
use std::time::{Duration, Instant};

use flannel_plan::backoff::Backoff;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::board::{Board, OwnVersion};
use super::client::{Call, Client};
use super::error::KubernetesError;
use super::event;
use super::identity::Identity;
use super::wire::NodeWithStatus;
use crate::Readiness;
use crate::timing::{jittered, until};

const KIND: &str = "NetworkUnavailable";
/// A kubelet writes its own conditions every few minutes; looking after each of them is enough.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_secs(10);

/// How this node is, and since when it is not ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NodeReadiness {
    Ready,
    NotReady { since: Instant, reason: String },
}

impl NodeReadiness {
    /// How it is after it was otherwise, if there is anything to say: a new reason does not make a node younger.
    pub(super) fn after(before: Option<&NodeReadiness>, readiness: &Readiness, now: Instant) -> Option<Self> {
        match (readiness, before) {
            (Readiness::Ready, _) => Some(Self::Ready),
            (Readiness::Remembered, _) => None,
            (Readiness::NotReady(reason), Some(Self::NotReady { since, .. })) => {
                Some(Self::NotReady { since: *since, reason: reason.clone() })
            }
            (Readiness::NotReady(reason), _) => Some(Self::NotReady { since: now, reason: reason.clone() }),
        }
    }
}

/// What the condition should say.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ConditionSpec {
    status: &'static str,
    reason: &'static str,
    message: String,
}

/// What the condition should say, or how long nothing is to be said yet.
fn spec(readiness: &NodeReadiness, patience: Duration, now: Instant) -> Result<ConditionSpec, Duration> {
    match readiness {
        NodeReadiness::Ready => Ok(ConditionSpec {
            status: "False",
            reason: "FlannelIsUp",
            message: "Flannel is running on this node".to_owned(),
        }),
        NodeReadiness::NotReady { since, reason } => {
            let waited = now.saturating_duration_since(*since);
            if waited < patience {
                return Err(patience - waited);
            }
            Ok(ConditionSpec { status: "True", reason: "FlannelIsDown", message: reason.clone() })
        }
    }
}

/// The task that keeps the condition right.
#[derive(Debug)]
pub(super) struct ConditionKeeper {
    pub client: Arc<Client>,
    pub board: Arc<Board>,
    pub identity: Arc<Identity>,
    pub readiness: watch::Receiver<Option<NodeReadiness>>,
    /// How long a node may be not ready before the condition says so.
    pub patience: Duration,
}

impl ConditionKeeper {
    /// Keeps the condition right until the store is dropped.
    pub(super) async fn run(mut self) {
        let mut own = self.board.own.subscribe();
        let mut seen = own.borrow().clone();
        let mut retry = Backoff::new(FIRST_RETRY, LONGEST_RETRY);
        loop {
            let readiness = self.readiness.borrow_and_update().clone();
            let wanted = readiness.map(|readiness| spec(&readiness, self.patience, Instant::now()));
            // Only what was said can be lost: before, a node that changes is no reason to do anything.
            let (pause, is_said) = match wanted {
                None => (None, false),
                Some(Err(pause)) => (Some(pause), false),
                Some(Ok(spec)) => {
                    seen = own.borrow().clone();
                    match self.tell(&spec).await {
                        Ok(()) => {
                            retry.reset();
                            (None, true)
                        }
                        Err(trouble) => (Some(note(&trouble, &mut retry)), false),
                    }
                }
            };
            tokio::select! {
                changed = self.readiness.changed() => if changed.is_err() { return },
                () = until(pause.map(|pause| Instant::now() + pause)) => {}
                () = is_worth_a_look(&mut own, &seen), if is_said => {}
            }
        }
    }

    /// Makes the condition say so, if it does not.
    async fn tell(&self, spec: &ConditionSpec) -> Result<(), KubernetesError> {
        let node = self.identity.name(&self.client).await?;
        let found: NodeWithStatus = self.client.read(&Call::get_node(node)).await?;
        let conditions = found.status.unwrap_or_default().conditions;
        let found = conditions.iter().find(|condition| condition.kind == KIND);
        let is_said = found.is_some_and(|found| {
            found.status == spec.status && found.reason == spec.reason && found.message == spec.message
        });
        if is_said {
            return Ok(());
        }
        let is_transition = found.is_none_or(|found| found.status != spec.status);
        let since = is_transition.then(event::now);
        self.client.call(&patch(node, spec, since)).await?;
        if is_transition {
            info!(node, status = spec.status, reason = spec.message, "condition NetworkUnavailable set");
        }
        Ok(())
    }
}

/// The patch that Go flannel sends; with the time of the transition, if it is one.
fn patch(node: &str, spec: &ConditionSpec, since: Option<String>) -> Call {
    let mut condition = json!({
        "type": KIND,
        "status": spec.status,
        "reason": spec.reason,
        "message": spec.message,
        "lastHeartbeatTime": event::now(),
    });
    if let Some(since) = since {
        condition["lastTransitionTime"] = since.into();
    }
    let patch = json!({ "status": { "conditions": [condition] } });
    Call::patch_node(format!("set condition {KIND} of node {node}"), node, &patch)
}

/// Tells of the first failure, and gives the pause before the next try.
fn note(trouble: &KubernetesError, retry: &mut Backoff) -> Duration {
    if retry.pause().is_none() {
        warn!(error = %trouble, "condition NetworkUnavailable is not set; trying again");
    } else {
        debug!(error = %trouble, "condition NetworkUnavailable is not set; trying again");
    }
    jittered(retry.grow(), 80..120)
}

/// Waits until this node is made anew, or has changed some time after it was seen: it changes whenever the kubelet
/// has something to say.
async fn is_worth_a_look(own: &mut watch::Receiver<OwnVersion>, seen: &OwnVersion) {
    let mut later = own.clone();
    let changed = async {
        sleep(LOOK_AGAIN).await;
        drop(later.wait_for(|own| own != seen).await);
    };
    tokio::select! {
        _ = own.wait_for(|own| own.uid != seen.uid) => {}
        () = changed => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_called_down_a_minute_after_it_was_last_ready_whatever_the_reasons() {
        let (begin, minute) = (Instant::now(), Duration::from_secs(60));
        let at = |seconds| begin + Duration::from_secs(seconds);
        let not_ready = |reason: &str| Readiness::NotReady(reason.to_owned());
        let after = |before, readiness: &_, now| NodeReadiness::after(before, readiness, now).unwrap();
        let first = after(None, &not_ready("a"), at(0));
        let second = after(Some(&first), &not_ready("b"), at(50));
        assert_eq!(spec(&second, minute, at(50)), Err(Duration::from_secs(10)));
        let down = ConditionSpec { status: "True", reason: "FlannelIsDown", message: "b".to_owned() };
        assert_eq!(spec(&second, minute, at(60)), Ok(down));
        let ready = after(Some(&second), &Readiness::Ready, at(61));
        assert_eq!(spec(&ready, minute, at(61)).unwrap().reason, "FlannelIsUp");
        let again = after(Some(&ready), &not_ready("c"), at(70));
        assert_eq!(spec(&again, minute, at(70)), Err(minute));
    }

    #[test]
    fn what_is_only_remembered_is_no_reason_to_say_anything() {
        let down = NodeReadiness::NotReady { since: Instant::now(), reason: "a".to_owned() };
        assert_eq!(NodeReadiness::after(Some(&down), &Readiness::Remembered, Instant::now()), None);
        assert_eq!(
            NodeReadiness::after(Some(&NodeReadiness::Ready), &Readiness::Remembered, Instant::now()),
            None
        );
    }
}
