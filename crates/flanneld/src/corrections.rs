//! How often the store is put right when it says something else of this node than it should: at once at first, ever
//! more rarely while somebody else keeps changing it.

use std::time::{Duration, Instant};

use flannel_plan::backoff::Backoff;

/// So many corrections within [`WINDOW`] are made at once; one more makes a fight.
const AT_ONCE: usize = 3;
const WINDOW: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Counts corrections, and spaces them out during a fight.
#[derive(Debug, Default)]
pub struct Corrections {
    made: Vec<Instant>,
    fight: Option<Fight>,
}

#[derive(Clone, Copy, Debug)]
struct Fight {
    backoff: Backoff,
    /// When the next correction may be made.
    until: Instant,
    /// When it is over, if no correction is needed until then.
    over: Instant,
}

impl Fight {
    fn after(mut backoff: Backoff, now: Instant) -> Self {
        let pause = backoff.grow();
        Self { backoff, until: now + pause, over: now + pause.max(WINDOW) }
    }
}

impl Corrections {
    /// Asks whether a correction may be made now, and counts it if so.
    pub fn admit(&mut self, now: Instant) -> bool {
        self.made.retain(|at| now.duration_since(*at) < WINDOW);
        match self.fight {
            Some(fight) if now < fight.until => return false,
            Some(fight) => self.fight = Some(Fight::after(fight.backoff, now)),
            None if self.made.len() >= AT_ONCE => {
                self.fight = Some(Fight::after(Backoff::new(FIRST_PAUSE, LONGEST_PAUSE), now));
                return false;
            }
            None => self.made.push(now),
        }
        true
    }

    /// Notes that the store says what it should.
    pub fn note_right(&mut self, now: Instant) {
        self.fight.take_if(|fight| fight.over <= now);
    }

    /// Whether somebody else keeps changing what the store says.
    pub fn is_fight(&self) -> bool {
        self.fight.is_some()
    }

    /// When to look again: a correction that was held back may be made, or the fight may be over.
    pub fn due(&self, now: Instant) -> Option<Instant> {
        let fight = self.fight?;
        [fight.until, fight.over].into_iter().find(|moment| *moment > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Three corrections, and a fourth that is held back.
    fn fight(now: Instant) -> Corrections {
        let mut corrections = Corrections::default();
        assert_eq!([(); 4].map(|()| corrections.admit(now)), [true, true, true, false]);
        corrections
    }

    #[test]
    fn the_fourth_correction_within_ten_seconds_makes_a_fight_and_waits_for_a_second() {
        let now = Instant::now();
        let mut corrections = fight(now);
        assert!(corrections.is_fight());
        assert_eq!(corrections.due(now), Some(now + seconds(1)));
        assert!(!corrections.admit(now + Duration::from_millis(999)));
        assert!(corrections.admit(now + seconds(1)));
    }

    #[test]
    fn the_pauses_of_a_fight_grow_to_a_minute() {
        let mut now = Instant::now();
        let mut corrections = fight(now);
        for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert!(!corrections.admit(now), "{pause}");
            now += seconds(pause);
            assert!(corrections.admit(now), "{pause}");
            corrections.note_right(now);
            assert!(corrections.is_fight(), "a correction alone is no peace");
        }
    }

    #[test]
    fn a_fight_is_over_when_nothing_had_to_be_corrected_for_a_pause_and_for_ten_seconds() {
        let now = Instant::now();
        let mut corrections = fight(now);
        assert_eq!(corrections.due(now + seconds(1)), Some(now + seconds(10)));
        corrections.note_right(now + seconds(9));
        assert!(corrections.is_fight());
        corrections.note_right(now + seconds(10));
        assert!(!corrections.is_fight());
        assert_eq!(corrections.due(now + seconds(10)), None);
        assert!(corrections.admit(now + seconds(10)), "the next one is made at once again");
    }

    #[test]
    fn rare_corrections_are_made_at_once_for_ever() {
        let mut corrections = Corrections::default();
        let start = Instant::now();
        assert!((0..100).all(|n| corrections.admit(start + seconds(4 * n))));
    }
}
