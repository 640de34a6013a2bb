//! A fight over an object is damped: who keeps undoing it must not cost a core, nor keep it broken.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use flannel_plan::state::Key;

/// How many repairs of one object within [`WINDOW`] make a fight.
const MOST_REPAIRS: usize = 10;
/// A fight is over when nothing had to be repaired for so long.
const WINDOW: Duration = Duration::from_secs(10);
/// So long an object that is fought over is left as it is: pods need it right now and then, whoever is right.
const HOLD: Duration = Duration::from_secs(1);

/// Counts repairs of each object and holds back those that somebody else keeps undoing.
#[derive(Debug, Default)]
pub struct Damper {
    objects: BTreeMap<Key, Repairs>,
}

/// What was repaired lately of one object.
#[derive(Debug)]
enum Repairs {
    /// A few times: when.
    Few(Vec<Instant>),
    /// So often that it is a fight: the last time.
    Fight(Instant),
}

/// What to do about an object that has to be repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    Repair,
    /// Repair it and say that somebody fights for it: told once a fight.
    RepairAndTell,
    /// Leave it until later.
    Hold,
}

impl Damper {
    /// Asks before a repair, and notes it unless the answer is to hold.
    pub fn ask(&mut self, key: &Key, now: Instant) -> Advice {
        let repairs = self.objects.entry(key.clone()).or_insert(Repairs::Few(Vec::new()));
        match repairs {
            Repairs::Fight(last) if now < *last + HOLD => Advice::Hold,
            Repairs::Fight(last) => {
                *last = now;
                Advice::Repair
            }
            Repairs::Few(times) => {
                times.retain(|at| now.duration_since(*at) < WINDOW);
                times.push(now);
                if times.len() < MOST_REPAIRS {
                    return Advice::Repair;
                }
                *repairs = Repairs::Fight(now);
                Advice::RepairAndTell
            }
        }
    }

    /// When the next held object may be repaired.
    pub fn next_release(&self, now: Instant) -> Option<Instant> {
        self.fights().map(|(_, last)| last + HOLD).filter(|release| *release > now).min()
    }

    /// The objects that are being fought over.
    pub fn contested(&self) -> impl Iterator<Item = &Key> {
        self.fights().map(|(key, _)| key)
    }

    fn fights(&self) -> impl Iterator<Item = (&Key, Instant)> {
        self.objects.iter().filter_map(|(key, repairs)| match repairs {
            Repairs::Fight(last) => Some((key, *last)),
            Repairs::Few(_) => None,
        })
    }

    /// Forgets objects that nobody touched for long.
    pub fn forget_old(&mut self, now: Instant) {
        self.objects.retain(|_, repairs| {
            let last = match repairs {
                Repairs::Few(times) => times.last(),
                Repairs::Fight(last) => Some(&*last),
            };
            last.is_some_and(|last| now.duration_since(*last) < WINDOW)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route() -> Key {
        Key::Route("10.244.2.0/24".parse().unwrap())
    }

    /// A damper with a fight that began just now.
    fn fight(now: Instant) -> Damper {
        let mut damper = Damper::default();
        (0..10).for_each(|_| _ = damper.ask(&route(), now));
        damper
    }

    #[test]
    fn the_tenth_repair_within_ten_seconds_is_told_and_the_next_is_held_for_a_second() {
        let (mut damper, start) = (Damper::default(), Instant::now());
        for n in 0..9 {
            assert_eq!(damper.ask(&route(), start + Duration::from_millis(n * 10)), Advice::Repair);
        }
        let now = start + Duration::from_millis(100);
        assert_eq!(damper.ask(&route(), now), Advice::RepairAndTell);
        assert_eq!(damper.ask(&route(), now), Advice::Hold);
        assert_eq!(damper.next_release(now), Some(now + HOLD));
        assert_eq!(damper.contested().collect::<Vec<_>>(), [&route()]);
    }

    #[test]
    fn a_fight_that_goes_on_is_answered_once_a_second_for_ever_and_not_told_again() {
        let start = Instant::now();
        let mut damper = fight(start);
        let moments = (1..=360_000).map(|n| start + Duration::from_millis(n * 10));
        let advice: Vec<Advice> = moments.map(|now| damper.ask(&route(), now)).collect();
        let repairs = advice.iter().filter(|advice| **advice == Advice::Repair).count();
        assert_eq!((repairs, advice.contains(&Advice::RepairAndTell)), (3600, false));
    }

    #[test]
    fn a_held_object_is_looked_at_again_until_it_was_left_alone_for_ten_seconds() {
        let start = Instant::now();
        let mut damper = fight(start);
        damper.forget_old(start + WINDOW / 2);
        assert_eq!(damper.contested().count(), 1);
        damper.forget_old(start + WINDOW);
        assert_eq!((damper.contested().count(), damper.next_release(start)), (0, None));
        assert_eq!(damper.ask(&route(), start + WINDOW), Advice::Repair, "as if nothing had been");
    }

    #[test]
    fn slow_repairs_are_no_fight() {
        let (mut damper, mut now) = (Damper::default(), Instant::now());
        for _ in 0..50 {
            now += Duration::from_millis(1200);
            assert_eq!(damper.ask(&route(), now), Advice::Repair);
        }
    }
}
