//! A fight over an object is damped: who keeps undoing it must not cost a core, nor keep it broken.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use flannel_plan::state::Key;

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
}
