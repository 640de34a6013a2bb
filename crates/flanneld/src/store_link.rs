//! The store's side of the daemon: runs a lease store on the async thread and keeps its last word.
//!
//! The loop says what it wants to have announced; this makes the store say so, for as long as it takes. The
//! store says who is there; this keeps it and rings the alarm.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use flannel_leases::{LeaseStore, Snapshot, StoreError};
use flannel_plan::lease::Announcement;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::wake::Wake;

const FIRST_RETRY: Duration = Duration::from_millis(200);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// The last word of the store, for whoever asks.
#[derive(Clone, Debug, Default)]
pub struct LastWord {
    inner: Arc<Mutex<Word>>,
}

/// What the store said last.
#[derive(Clone, Debug, Default)]
pub struct Word {
    /// The last whole snapshot; none before the first.
    pub snapshot: Option<Arc<Snapshot>>,
    /// When it came.
    pub heard: Option<Instant>,
    /// Why the store cannot be read now.
    pub read_trouble: Option<String>,
    /// Why the store does not take our announcement now.
    pub publish_trouble: Option<String>,
}

impl LastWord {
    /// A copy of it; a snapshot is shared, not copied.
    pub fn get(&self) -> Word {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change(&self, change: impl FnOnce(&mut Word)) {
        change(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Runs a store until the loop has gone.
pub async fn run(
    mut store: impl LeaseStore,
    mut wanted: watch::Receiver<Option<Announcement>>,
    word: LastWord,
    wakes: Sender<Wake>,
) {
    let mut retry = Retry::default();
    loop {
        tokio::select! {
            answer = store.next() => {
                let failed = answer.is_err();
                hear(&word, answer);
                if failed {
                    // Waiting blocks publishing too; a store that cannot be read takes nothing either.
                    tokio::time::sleep(retry.next_delay()).await;
                    continue;
                }
            }
            changed = wanted.changed() => if changed.is_err() { return },
            () = retry.due() => {}
        }
        let announcement = wanted.borrow_and_update().clone();
        match announcement.filter(|new| !is_published(&word, new)) {
            Some(announcement) => publish(&mut store, &announcement, &word, &mut retry).await,
            None => retry.reset(),
        }
        if wakes.send(Wake::Look).is_err() {
            return;
        }
    }
}

fn hear(word: &LastWord, answer: Result<Snapshot, StoreError>) {
    match answer {
        Ok(snapshot) => word.change(|word| {
            word.snapshot = Some(Arc::new(snapshot));
            word.heard = Some(Instant::now());
            word.read_trouble = None;
        }),
        Err(error) => {
            let trouble = error.to_string();
            if word.get().read_trouble.as_ref() != Some(&trouble) {
                warn!(error = %trouble, "the lease store cannot be read; what is known stays in force");
            }
            word.change(|word| word.read_trouble = Some(trouble));
        }
    }
}

fn is_published(word: &LastWord, wanted: &Announcement) -> bool {
    word.get().snapshot.is_some_and(|snapshot| {
        !snapshot.own_is_damaged && snapshot.own.as_ref().is_some_and(|own| own.announcement == *wanted)
    })
}

async fn publish(store: &mut impl LeaseStore, wanted: &Announcement, word: &LastWord, retry: &mut Retry) {
    match store.publish(wanted).await {
        Ok(lease) => {
            info!(owner = %lease.owner, subnets = %lease, "lease held");
            word.change(|word| word.publish_trouble = None);
            retry.reset();
        }
        Err(error) => {
            let trouble = error.to_string();
            if word.get().publish_trouble.as_ref() != Some(&trouble) {
                warn!(error = %trouble, "no lease; trying again");
            }
            word.change(|word| word.publish_trouble = Some(trouble));
            retry.again();
        }
    }
}

/// Growing delays between tries.
#[derive(Debug, Default)]
struct Retry {
    delay: Option<Duration>,
    at: Option<Instant>,
}

impl Retry {
    fn next_delay(&mut self) -> Duration {
        let delay = self.delay.map_or(FIRST_RETRY, |delay| (delay * 2).min(LONGEST_RETRY));
        *self.delay.insert(delay)
    }

    fn again(&mut self) {
        let delay = self.next_delay();
        self.at = Some(Instant::now() + delay);
    }

    fn reset(&mut self) {
        *self = Self::default();
    }

    async fn due(&self) {
        match self.at {
            Some(at) => tokio::time::sleep_until(at.into()).await,
            None => std::future::pending().await,
        }
    }
}
