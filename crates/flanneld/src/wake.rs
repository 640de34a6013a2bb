//! Wake-ups: they only say "look again". Many at once are one, and a fight over an object is damped.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use flannel_plan::state::Key;

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
    /// Something may have changed in the kernel, or just time passed.
    Look,
    /// The daemon is to end.
    Stop,
}

/// Waits for wake-ups and merges them.
#[derive(Debug)]
pub struct Alarm {
    receiver: Receiver<Wake>,
    rested_at: Instant,
}

impl Alarm {
    /// Listens to the receiving end of a channel that every source of wake-ups sends to.
    pub fn new(receiver: Receiver<Wake>) -> Self {
        Self { receiver, rested_at: Instant::now() }
    }

    /// Notes how long a pass took, so that passes never eat a whole core. One without a look is short, and somebody
    /// waits for the next.
    pub fn note_pass(&mut self, took: Duration, looks: u32) {
        let rest = if looks > 0 { took * REST } else { took };
        self.rested_at = Instant::now() + rest.min(LONGEST_REST);
    }

    /// Waits for the next wake-up; a burst of wake-ups is one. None if `latest` comes before.
    pub fn wait(&mut self, latest: Instant) -> Option<Wake> {
        let now = Instant::now();
        match self.receiver.recv_timeout(latest.saturating_duration_since(now)) {
            Ok(Wake::Stop) | Err(RecvTimeoutError::Disconnected) => Some(Wake::Stop),
            Err(RecvTimeoutError::Timeout) => None,
            Ok(wake) => Some(self.wait_for_quiet(wake)),
        }
    }

    fn wait_for_quiet(&mut self, mut greatest: Wake) -> Wake {
        let begun = Instant::now();
        loop {
            let now = Instant::now();
            let rest = self.rested_at.saturating_duration_since(now);
            let burst_left = (begun + LONGEST_BURST).saturating_duration_since(now);
            // Notices of the kernel come in bursts; the store tells many news at once, and somebody waits for them.
            let quiet = if greatest == Wake::Store { Duration::ZERO } else { QUIET.min(burst_left) };
            match self.receiver.recv_timeout(quiet.max(rest)) {
                Ok(Wake::Stop) | Err(RecvTimeoutError::Disconnected) => return Wake::Stop,
                Err(RecvTimeoutError::Timeout) => return greatest,
                Ok(wake) => greatest = greatest.max(wake),
            }
            if rest.is_zero() && burst_left.is_zero() {
                return greatest;
            }
        }
    }
}

/// How many repairs of one object within [`WINDOW`] make a fight.
const MOST_REPAIRS: usize = 10;
const WINDOW: Duration = Duration::from_secs(10);
const FIRST_HOLD: Duration = Duration::from_secs(1);
const LONGEST_HOLD: Duration = Duration::from_secs(60);

/// Counts repairs of each object and holds back those that somebody else keeps undoing.
#[derive(Debug, Default)]
pub struct Damper {
    fights: BTreeMap<Key, Fight>,
}

#[derive(Debug)]
struct Fight {
    repairs: Vec<Instant>,
    hold: Option<Hold>,
}

#[derive(Clone, Copy, Debug)]
struct Hold {
    length: Duration,
    until: Instant,
}

/// What to do about an object that has to be repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Repair it.
    Repair,
    /// Repair it and say that somebody fights for it: told once a fight.
    RepairAndTell,
    /// Leave it until later.
    Hold,
}

impl Damper {
    /// Asks before a repair, and notes it unless the answer is to hold.
    pub fn ask(&mut self, key: &Key, now: Instant) -> Advice {
        let fight = self.fights.entry(key.clone()).or_insert(Fight { repairs: Vec::new(), hold: None });
        fight.repairs.retain(|at| now.duration_since(*at) < WINDOW);
        match &mut fight.hold {
            Some(hold) if now < hold.until => return Advice::Hold,
            Some(hold) => {
                hold.length = (hold.length * 2).min(LONGEST_HOLD);
                hold.until = now + hold.length;
                return Advice::Repair;
            }
            None => {}
        }
        fight.repairs.push(now);
        if fight.repairs.len() < MOST_REPAIRS {
            return Advice::Repair;
        }
        fight.hold = Some(Hold { length: FIRST_HOLD, until: now + FIRST_HOLD });
        fight.repairs = Vec::new();
        Advice::RepairAndTell
    }

    /// When the next held object may be repaired.
    pub fn next_release(&self, now: Instant) -> Option<Instant> {
        self.fights
            .values()
            .filter_map(|fight| fight.hold)
            .map(|hold| hold.until)
            .filter(|until| *until > now)
            .min()
    }

    /// The objects that are being fought over.
    pub fn contested(&self) -> impl Iterator<Item = &Key> {
        self.fights.iter().filter(|(_, fight)| fight.hold.is_some()).map(|(key, _)| key)
    }

    /// Forgets objects that nobody touched for long: a fight is over after twice its hold.
    pub fn forget_old(&mut self, now: Instant) {
        self.fights.retain(|_, fight| match fight.hold {
            Some(hold) => now < hold.until + hold.length.max(WINDOW),
            None => fight.repairs.last().is_some_and(|last| now.duration_since(*last) < WINDOW),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    fn route() -> Key {
        Key::Route("10.244.2.0/24".parse().unwrap())
    }

    #[test]
    fn the_tenth_repair_within_ten_seconds_is_told_and_the_next_is_held() {
        let (mut damper, start) = (Damper::default(), Instant::now());
        for n in 0..9 {
            assert_eq!(damper.ask(&route(), start + Duration::from_millis(n * 10)), Advice::Repair);
        }
        let now = start + Duration::from_millis(100);
        assert_eq!(damper.ask(&route(), now), Advice::RepairAndTell);
        assert_eq!(damper.ask(&route(), now), Advice::Hold);
        assert_eq!(damper.next_release(now), Some(now + FIRST_HOLD));
        assert_eq!(damper.contested().collect::<Vec<_>>(), [&route()]);
    }

    #[test]
    fn a_fight_that_goes_on_is_repaired_ever_more_rarely_and_not_told_again() {
        let (mut damper, mut now) = (Damper::default(), Instant::now());
        (0..10).for_each(|_| _ = damper.ask(&route(), now));
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(damper.ask(&route(), now), Advice::Hold, "{seconds}");
            now += Duration::from_secs(seconds);
            assert_eq!(damper.ask(&route(), now), Advice::Repair, "{seconds}");
        }
    }

    #[test]
    fn slow_repairs_are_no_fight_and_a_fight_is_forgotten_when_it_ends() {
        let (mut damper, mut now) = (Damper::default(), Instant::now());
        for _ in 0..50 {
            now += Duration::from_millis(1200);
            assert_eq!(damper.ask(&route(), now), Advice::Repair);
        }
        (0..10).for_each(|_| _ = damper.ask(&route(), now));
        damper.forget_old(now + Duration::from_secs(12));
        assert_eq!(damper.contested().count(), 0);
    }

    #[test]
    fn a_burst_of_wake_ups_is_one() {
        let (sender, receiver) = channel();
        let mut alarm = Alarm::new(receiver);
        (0..100).for_each(|_| sender.send(Wake::Look).unwrap());
        let later = Instant::now() + Duration::from_millis(50);
        assert_eq!(alarm.wait(later), Some(Wake::Look));
        assert_eq!(alarm.receiver.try_recv().ok(), None);
        sender.send(Wake::Look).unwrap();
        sender.send(Wake::Stop).unwrap();
        assert_eq!(alarm.wait(later), Some(Wake::Stop));
    }

    #[test]
    fn news_of_the_store_alone_give_no_reason_to_look_at_the_kernel() {
        let (sender, receiver) = channel();
        let mut alarm = Alarm::new(receiver);
        let later = Instant::now() + Duration::from_secs(5);
        for (burst, greatest) in [
            (&[Wake::Store, Wake::Store][..], Wake::Store),
            (&[Wake::Store, Wake::Look, Wake::Store][..], Wake::Look),
        ] {
            burst.iter().for_each(|wake| sender.send(*wake).unwrap());
            assert_eq!(alarm.wait(later), Some(greatest));
        }
    }
}
