//! Wake-ups: they only say "look again". Many at once are one.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use flannel_kernel::Urgent;

use crate::fast_path::FastPath;

/// How long it must be quiet before a burst counts as over.
const QUIET: Duration = Duration::from_millis(2);
/// How long a burst is waited for at most.
const LONGEST_BURST: Duration = Duration::from_millis(20);
/// After a look, this many times the length of the pass passes before the next, so that a storm of notices cannot
/// take a whole core; but no longer than a repair may take.
const REST: u32 = 3;
const LONGEST_REST: Duration = Duration::from_millis(50);

/// Why to look again; of several, the greatest counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wake {
    /// Something may have changed in the store.
    Store,
    /// Nothing: it is time for a look all the same.
    Time,
    /// Something may have changed in the kernel.
    Observation,
    Stop,
}

/// What every source of wake-ups rings. It holds one wake-up, however many come: the loop may be busy for long.
#[derive(Clone, Debug, Default)]
pub struct Bell(Arc<Rung>);

#[derive(Debug, Default)]
struct Rung {
    greatest: Mutex<Option<Wake>>,
    changed: Condvar,
}

impl Bell {
    /// Rings.
    pub fn ring(&self, wake: Wake) {
        let mut greatest = self.lock();
        if greatest.is_none_or(|before| before < wake) {
            *greatest = Some(wake);
            self.0.changed.notify_one();
        }
    }

    /// Whether something was rung that an observation gives way to, for those who observe.
    pub fn urgency(&self) -> Urgent {
        let bell = self.clone();
        Arc::new(move || matches!(*bell.lock(), Some(Wake::Store | Wake::Stop)))
    }

    /// Takes what was rung so far.
    #[cfg(test)]
    pub fn take(&self) -> Option<Wake> {
        self.take_until(Instant::now())
    }

    /// Takes what was rung; waits for it until a moment. The end stays rung.
    fn take_until(&self, end: Instant) -> Option<Wake> {
        let left = end.saturating_duration_since(Instant::now());
        let waited = self.0.changed.wait_timeout_while(self.lock(), left, |rung| rung.is_none());
        let (mut greatest, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if *greatest == Some(Wake::Stop) { *greatest } else { greatest.take() }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Wake>> {
        self.0.greatest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for wake-ups and merges them.
#[derive(Debug)]
pub struct Alarm {
    bell: Bell,
    /// Before this, nothing is done about the kernel's notices,
    rested_at: Instant,
    /// and before this nothing about the store's news.
    store_at: Instant,
}

impl Alarm {
    /// Listens to the bell that every source of wake-ups rings.
    pub fn new(bell: Bell) -> Self {
        let now = Instant::now();
        Self { bell, rested_at: now, store_at: now }
    }

    /// Notes how long a pass took, so that passes never eat a whole core. News of the store for which nobody has to
    /// look are short work, and somebody waits for them: a look keeps them from nothing.
    pub fn note_pass(&mut self, took: Duration, observations: u32, fast_path: &FastPath) {
        let now = Instant::now();
        let rest = if observations > 0 { took * REST } else { took };
        self.rested_at = now + rest.min(LONGEST_REST);
        self.store_at = if observations > 0 && fast_path.holds(now) { now } else { self.rested_at };
    }

    /// Waits for the next wake-up; a burst of wake-ups is one. None if `latest` comes before.
    pub fn wait(&mut self, latest: Instant) -> Option<Wake> {
        self.bell.take_until(latest).map(|wake| self.wait_for_quiet(wake))
    }

    fn wait_for_quiet(&mut self, mut greatest: Wake) -> Wake {
        let begun = Instant::now();
        while greatest != Wake::Stop {
            let now = Instant::now();
            let rested_at = if greatest == Wake::Store { self.store_at } else { self.rested_at };
            let rest = rested_at.saturating_duration_since(now);
            let burst_left = (begun + LONGEST_BURST).saturating_duration_since(now);
            // Notices of the kernel come in bursts; the store tells many news at once, and somebody waits for them.
            let quiet = if greatest == Wake::Store { Duration::ZERO } else { QUIET.min(burst_left) };
            match self.bell.take_until(now + quiet.max(rest)) {
                None => break,
                Some(wake) => greatest = greatest.max(wake),
            }
            if rest.is_zero() && burst_left.is_zero() {
                break;
            }
        }
        greatest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile::Settlement;

    fn alarm() -> (Bell, Alarm) {
        let bell = Bell::default();
        (bell.clone(), Alarm::new(bell))
    }

    #[test]
    fn a_burst_of_wake_ups_is_one_and_the_end_is_never_forgotten() {
        let (bell, mut alarm) = alarm();
        (0..100).for_each(|_| bell.ring(Wake::Observation));
        let soon = || Instant::now() + Duration::from_millis(50);
        assert_eq!(alarm.wait(soon()), Some(Wake::Observation));
        assert_eq!(alarm.wait(soon()), None);
        bell.ring(Wake::Stop);
        bell.ring(Wake::Observation);
        assert_eq!([alarm.wait(soon()), alarm.wait(soon())], [Some(Wake::Stop); 2]);
    }

    #[test]
    fn news_of_the_store_alone_give_no_reason_to_look_at_the_kernel() {
        let (bell, mut alarm) = alarm();
        let later = Instant::now() + Duration::from_secs(60);
        for (burst, greatest) in [
            (&[Wake::Store, Wake::Store][..], Wake::Store),
            (&[Wake::Store, Wake::Observation, Wake::Store][..], Wake::Observation),
        ] {
            burst.iter().for_each(|wake| bell.ring(*wake));
            assert_eq!(alarm.wait(later), Some(greatest));
        }
    }

    #[test]
    fn a_look_keeps_news_waiting_only_if_they_need_another_look() {
        let (_bell, mut alarm) = alarm();
        alarm.note_pass(LONGEST_REST, 1, &FastPath::after(&Settlement::default()));
        assert!(alarm.store_at <= Instant::now() && alarm.rested_at > alarm.store_at);
        alarm.note_pass(LONGEST_REST, 1, &FastPath::default());
        assert_eq!(alarm.store_at, alarm.rested_at);
    }

    #[test]
    fn a_look_gives_way_to_news_and_to_the_end_but_not_to_notices() {
        let bell = Bell::default();
        let is_urgent = bell.urgency();
        for (wake, expected) in [(Wake::Store, true), (Wake::Observation, false), (Wake::Stop, true)] {
            bell.ring(wake);
            assert_eq!(is_urgent(), expected, "{wake:?}");
        }
    }

    #[test]
    fn a_loop_that_sleeps_is_woken_by_another_thread() {
        let (bell, mut alarm) = alarm();
        let later = Instant::now() + Duration::from_secs(60);
        let ringer = std::thread::spawn(move || bell.ring(Wake::Observation));
        assert_eq!(alarm.wait(later), Some(Wake::Observation));
        ringer.join().unwrap();
    }
}
