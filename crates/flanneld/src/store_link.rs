//! The store's side of the daemon: runs a lease store on the async thread and keeps its last state.
//!
//! The loop says what it wants to have announced; this makes the store say so, for as long as it takes. The
//! store says who is there; this keeps it and rings the alarm.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use flannel_leases::rival::{Stand, said};
use flannel_leases::{LeaseStore, Readiness, Rival, Snapshot, StoreError};
use flannel_plan::backoff::Backoff;
use flannel_plan::config::NetworkConfig;
use flannel_plan::finding::{Code, Finding};
use flannel_plan::lease::Announcement;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::clock;
use crate::corrections::Corrections;
use crate::pace::Pace;
use crate::wake::{Bell, Wake};

const FIRST_RETRY: Duration = Duration::from_millis(200);
/// A store that is back is heard soon, however long it was away.
const LONGEST_READ_RETRY: Duration = Duration::from_millis(1500);
const LONGEST_PUBLISH_RETRY: Duration = Duration::from_secs(30);
/// How long a store that says nothing of this node is waited for, whether it is silent or refuses, before a start goes
/// on with what is remembered: what starts beside it, and a cluster that is made anew, need such a time.
const PATIENCE: Duration = Duration::from_secs(5);

const END_OF_A_FIGHT: &str = "give each node an address and a name of its own (--iface, --public-ip, NODE_NAME), or stop \
                              the flanneld that is not this node's";

/// The last state of the store, for whoever asks.
#[derive(Clone, Debug, Default)]
pub struct SharedState(Arc<Mutex<StoreState>>);

/// What the store said last.
#[derive(Clone, Debug, Default)]
pub struct StoreState {
    /// The last whole snapshot; none before the first.
    pub snapshot: Option<Arc<Snapshot>>,
    /// Whether that is only remembered from an earlier run: the store itself has said nothing yet.
    pub is_remembered: bool,
    pub received: Option<Instant>,
    /// Why the store cannot be read now.
    pub read_trouble: Option<Box<Finding>>,
    /// Why the store does not take our announcement now.
    pub publish_trouble: Option<Box<Finding>>,
    /// Somebody who keeps changing what the store says of this node.
    pub fighter: Option<Rival>,
    /// How often the store had to be put right.
    pub corrections: u64,
}

impl StoreState {
    /// All who write what the store says of this node, besides this node.
    pub fn rivals(&self) -> impl Iterator<Item = &Rival> {
        let found = self.snapshot.as_ref().and_then(|snapshot| snapshot.rival.as_ref());
        found.into_iter().chain(&self.fighter)
    }

    /// Whether what it lacks is gone: it is neither remembered nor old.
    pub fn is_proof(&self) -> bool {
        !self.is_remembered && self.snapshot.as_ref().is_some_and(|snapshot| !snapshot.is_stale)
    }
}

impl SharedState {
    /// A copy of it; a snapshot is shared, not copied.
    pub fn get(&self) -> StoreState {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change(&self, change: impl FnOnce(&mut StoreState)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// What the store should say of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub announcement: Announcement,
    /// The net-conf that it was made for: by another one, nothing may be claimed before the loop has judged it.
    pub config: NetworkConfig,
}

/// What joins a store and the loop.
pub struct Link {
    /// What the store should say of this node.
    pub wanted: watch::Receiver<Option<Wanted>>,
    pub readiness: watch::Receiver<Readiness>,
    pub remembered: Option<Snapshot>,
    /// Where the store's state is kept.
    pub state: SharedState,
    pub bell: Bell,
}

/// What came of an answer of the store.
enum Received {
    /// News, for the loop and for what is to be announced.
    Change,
    /// It cannot be read.
    Trouble,
    /// Nothing that anybody has to know now.
    Nothing,
}

/// Runs a store until the loop has gone.
pub async fn run(mut store: impl LeaseStore, mut link: Link) {
    let (mut reading, mut publishing) = (Retry::up_to(LONGEST_READ_RETRY), Publishing::default());
    let (mut pace, patience) = (Pace::default(), tokio::time::sleep(PATIENCE));
    tokio::pin!(patience);
    loop {
        // Whatever is new is a reason to announce at once what is not yet; trouble is not.
        let occasion = tokio::select! {
            answer = store.next(), if reading.at.is_none() => match link.receive(answer, &mut reading, &mut pace) {
                Received::Change => Some(Occasion::Changed),
                Received::Trouble => None,
                Received::Nothing => continue,
            },
            () = until(pace.due()) => { link.pass_on(&mut pace); None }
            () = until(reading.at) => {
                // The end of the wait, not of its growth.
                reading.at = None;
                continue;
            }
            () = &mut patience, if link.remembered.is_some() => {
                link.fall_back(store.origin().as_deref());
                None
            }
            changed = link.readiness.changed() => {
                if changed.is_err() { return }
                store.tell(&link.readiness.borrow_and_update());
                continue;
            }
            changed = link.wanted.changed() => {
                if changed.is_err() { return }
                Some(Occasion::Requested)
            }
            () = until(publishing.retry.at) => Some(Occasion::Requested),
            () = until(publishing.corrections.due(clock::now())) => Some(Occasion::Changed),
        };
        link.disown(store.origin().as_deref());
        if let Some(occasion) = occasion {
            link.announce(&mut store, &mut publishing, occasion).await;
        }
        link.bell.ring(Wake::Store);
    }
}

impl Link {
    /// Takes an answer of the store, and says what came of it.
    fn receive(
        &mut self,
        answer: Result<Snapshot, StoreError>,
        retry: &mut Retry,
        pace: &mut Pace,
    ) -> Received {
        match answer {
            Ok(snapshot) => {
                retry.reset();
                self.take(snapshot, pace)
            }
            Err(error) => {
                self.receive_trouble(&error);
                retry.again();
                Received::Trouble
            }
        }
    }

    fn take(&mut self, snapshot: Snapshot, pace: &mut Pace) -> Received {
        self.remembered = None;
        let now = clock::now();
        let passed = pace.receive(snapshot, now);
        let mut received = if passed.is_some() { Received::Change } else { Received::Nothing };
        self.state.change(|state| {
            if state.is_remembered || state.read_trouble.is_some() {
                info!("the lease store is heard again");
                received = Received::Change;
            }
            state.snapshot = passed.or(state.snapshot.take());
            state.is_remembered = false;
            state.received = Some(now);
            state.read_trouble = None;
        });
        received
    }

    /// Passes on what was held back and may be told now.
    fn pass_on(&self, pace: &mut Pace) {
        if let Some(passed) = pace.pass_on(clock::now()) {
            self.state.change(|state| state.snapshot = Some(passed));
        }
    }

    fn receive_trouble(&mut self, error: &StoreError) {
        let trouble = Box::new(error.finding());
        if self.state.get().read_trouble.as_ref() != Some(&trouble) {
            warn!(error = %trouble, code = %trouble.code, "the lease store cannot be read; what is known stays in force");
        }
        self.state.change(|state| state.read_trouble = Some(trouble));
    }

    /// Gives up what is remembered as soon as the store is known to speak of another cluster or node.
    fn disown(&mut self, origin: Option<&str>) {
        let is_anothers = |snapshot: &Snapshot| origin.is_some() && snapshot.origin.as_deref() != origin;
        let is_unused = self.remembered.take_if(|snapshot| is_anothers(snapshot)).is_some();
        self.state.change(|state| {
            let is_used = state.is_remembered && state.snapshot.as_deref().is_some_and(is_anothers);
            if is_used {
                (state.snapshot, state.is_remembered) = (None, false);
            }
            if is_used || is_unused {
                warn!("what was remembered is of another cluster, or of another node of this name: not used");
            }
        });
    }

    /// Goes on with what is remembered, once, unless the store speaks of another cluster or node.
    fn fall_back(&mut self, origin: Option<&str>) {
        self.disown(origin);
        let Some(remembered) = self.remembered.take() else { return };
        let peers = remembered.peers.len();
        let why = self.state.get().read_trouble;
        let why = why.map_or_else(|| "it has not answered yet".to_owned(), |trouble| trouble.text);
        warn!(peers, code = %Code::Remembered, "going on with what the lease store said before this start: {why}");
        self.state.change(|state| {
            state.snapshot = Some(Arc::new(remembered));
            state.is_remembered = true;
        });
    }

    fn is_to_be_published(&self, wanted: &Wanted) -> bool {
        self.state.get().snapshot.is_some_and(|snapshot| {
            let is_said = snapshot.own.as_ref().is_some_and(|own| own.announcement == wanted.announcement);
            let is_judged = snapshot.config.as_ref().ok() == Some(&wanted.config);
            is_judged && (snapshot.own_is_damaged || !is_said)
        })
    }

    /// Makes the store say what it should, if it does not.
    async fn announce(
        &mut self,
        store: &mut impl LeaseStore,
        publishing: &mut Publishing,
        occasion: Occasion,
    ) {
        let wanted = self.wanted.borrow_and_update().clone();
        let Some(wanted) = wanted.filter(|wanted| self.is_to_be_published(wanted)) else {
            publishing.retry.reset();
            publishing.corrections.note_right(clock::now());
            return self.note_fight(publishing, None);
        };
        let found = self.found(publishing, &wanted.announcement);
        if occasion == Occasion::Requested || publishing.corrections.admit(clock::now()) {
            self.publish(store, &wanted.announcement, publishing).await;
        }
        self.note_fight(publishing, found);
    }

    /// What the store says in place of what it was told; nothing if it was not told.
    fn found(&self, publishing: &Publishing, wanted: &Announcement) -> Option<Rival> {
        publishing.said.as_ref().filter(|said| *said == wanted)?;
        let own = self.state.get().snapshot.and_then(|snapshot| snapshot.own.clone());
        let owner = own.as_ref().map_or("this node", |own| &own.owner);
        Some(Rival {
            object: format!("the lease of {owner}"),
            says: own
                .as_ref()
                .map_or_else(|| "nothing, and removes it".to_owned(), |own| said(&own.announcement)),
            way_out: END_OF_A_FIGHT.into(),
            stand: Stand::Yields,
        })
    }

    /// Names who keeps changing what the store says, for as long as that is so. A store that does not take it says why.
    fn note_fight(&self, publishing: &Publishing, found: Option<Rival>) {
        self.state.change(|state| {
            match publishing.corrections.is_fight() && state.publish_trouble.is_none() {
                true => state.fighter = found.or_else(|| state.fighter.take()),
                false => state.fighter = None,
            }
        });
    }

    async fn publish(&self, store: &mut impl LeaseStore, wanted: &Announcement, publishing: &mut Publishing) {
        match store.publish(wanted).await {
            Ok(lease) => {
                info!(owner = %lease.owner, subnets = %lease, "lease held");
                let is_correction = publishing.said.replace(wanted.clone()).as_ref() == Some(wanted);
                self.state.change(|state| {
                    state.publish_trouble = None;
                    state.corrections += u64::from(is_correction);
                });
                publishing.retry.reset();
            }
            Err(error) => {
                let trouble = Box::new(error.finding());
                if self.state.get().publish_trouble.as_ref() != Some(&trouble) {
                    warn!(error = %trouble, code = %trouble.code, "no lease; trying again");
                }
                self.state.change(|state| state.publish_trouble = Some(trouble));
                publishing.retry.again();
            }
        }
    }
}

/// Why the store may have to be told something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Occasion {
    /// This node wants something new of it, or it is time to try again.
    Requested,
    /// It says something new; answered ever more rarely if somebody else keeps changing it.
    Changed,
}

/// What became of announcing so far.
#[derive(Debug)]
struct Publishing {
    retry: Retry,
    corrections: Corrections,
    /// What the store took last.
    said: Option<Announcement>,
}

impl Default for Publishing {
    fn default() -> Self {
        Self { retry: Retry::up_to(LONGEST_PUBLISH_RETRY), corrections: Corrections::default(), said: None }
    }
}

/// Growing delays between tries.
#[derive(Debug)]
struct Retry {
    backoff: Backoff,
    at: Option<Instant>,
}

impl Retry {
    fn up_to(longest: Duration) -> Self {
        Self { backoff: Backoff::new(FIRST_RETRY, longest), at: None }
    }

    fn again(&mut self) {
        self.at = Some(clock::now() + self.backoff.grow());
    }

    fn reset(&mut self) {
        self.backoff.reset();
        self.at = None;
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod fights;
#[cfg(test)]
mod tests;
