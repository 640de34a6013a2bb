//! Whether the kernel can be taken to be as the last pass left it: then a delta of peers alone needs no look at
//! thousands of objects. A look follows soon all the same, since a notice may be late or lost.

use std::time::{Duration, Instant};

use crate::reconcile::Settlement;

/// A look follows when no change was made for so long,
const QUIET: Duration = Duration::from_secs(1);
/// and when changes were made for so long.
const LONGEST: Duration = Duration::from_secs(10);

/// The fast path, as the last pass left it.
#[derive(Clone, Copy, Debug, Default)]
pub struct FastPath {
    was_settled: bool,
    /// When changes were first made without an observation, and when last.
    taken: Option<(Instant, Instant)>,
}

impl FastPath {
    /// Open after a pass that found everything in place.
    pub fn after(pass: &Settlement) -> Self {
        Self { was_settled: pass.left.is_empty() && pass.failures.is_empty(), taken: None }
    }

    /// Whether changes may be made without an observation.
    pub fn holds(&self, now: Instant) -> bool {
        self.was_settled && self.taken.is_none_or(|(first, _)| now < first + LONGEST)
    }

    /// Notes that changes were made without an observation.
    pub fn take(&mut self, now: Instant) {
        let (_, last) = self.taken.get_or_insert((now, now));
        *last = now;
    }

    /// Whether changes were made without an observation, which follows soon.
    pub fn is_taken(&self) -> bool {
        self.taken.is_some()
    }

    /// When to observe, if changes were made without.
    pub fn ends(&self) -> Option<Instant> {
        self.taken.map(|(first, last)| (last + QUIET).min(first + LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_needs_a_settled_look_and_ends_soon_after_it_was_drawn_on() {
        let now = Instant::now();
        assert!(!FastPath::default().holds(now));
        let mut fast_path = FastPath::after(&Settlement::default());
        assert!(fast_path.holds(now + 60 * LONGEST) && fast_path.ends().is_none());
        fast_path.take(now);
        assert_eq!(fast_path.ends(), Some(now + QUIET));
        fast_path.take(now + QUIET / 2);
        assert_eq!(fast_path.ends(), Some(now + QUIET / 2 + QUIET));
        fast_path.take(now + LONGEST - QUIET / 2);
        assert_eq!(fast_path.ends(), Some(now + LONGEST));
        assert!(fast_path.holds(now + LONGEST / 2) && !fast_path.holds(now + LONGEST));
    }
}
