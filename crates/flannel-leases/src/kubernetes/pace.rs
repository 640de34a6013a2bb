//! How soon to try again: at once, then after growing pauses that are not the same on every node.

use std::time::Duration;

use flannel_plan::backoff::Backoff;

use super::error::KubernetesError;
use crate::timing::jittered;

const FIRST: Duration = Duration::from_millis(100);
/// A server that comes back is noticed within two seconds: peers wait for it.
const LONGEST: Duration = Duration::from_millis(800);
/// A server that answers with a refusal has work enough.
const LONGEST_REFUSED: Duration = Duration::from_secs(5);

/// How soon to try again.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// None while the first try is still to come.
    backoff: Option<Backoff>,
}

impl Pace {
    /// Whether the first try is still to come.
    pub(super) fn is_new(&self) -> bool {
        self.backoff.is_none()
    }

    /// Chooses how long the pauses may get. A server that begins to answer is nearly ready: they begin anew then.
    pub(super) fn slow_down(&mut self, trouble: &KubernetesError) {
        let longest = trouble.code().map_or(LONGEST, |_| LONGEST_REFUSED);
        if self.backoff.is_some_and(|backoff| backoff.longest() != longest) {
            self.backoff = Some(Backoff::new(FIRST, longest));
        }
    }

    /// Waits for the next try; the first one comes at once.
    pub(super) async fn wait(&mut self) {
        match &mut self.backoff {
            None => self.backoff = Some(Backoff::new(FIRST, LONGEST)),
            Some(backoff) => tokio::time::sleep(jittered(backoff.grow(), 50..150)).await,
        }
    }
}
