//! Whether the kernel can be taken to be as the last pass left it: then news of peers alone need no look at
//! thousands of objects. A look follows soon all the same, since a notice may be late or lost.

use std::time::{Duration, Instant};

use crate::reconcile::Settlement;

/// A look follows when no change was made for so long,
const QUIET: Duration = Duration::from_secs(1);
/// and when changes were made for so long.
const LONGEST: Duration = Duration::from_secs(10);

/// Trust in the last look.
#[derive(Clone, Copy, Debug, Default)]
pub struct FastPath {
    was_settled: bool,
    /// When changes were first made without a look, and when last.
    drawn_on: Option<(Instant, Instant)>,
}

impl FastPath {
    /// A pass that found everything in place is worth some trust.
    pub fn after(pass: &Settlement) -> Self {
        Self { was_settled: pass.left.is_empty() && pass.failures.is_empty(), drawn_on: None }
    }

    /// Whether changes may be made without a look.
    pub fn holds(&self, now: Instant) -> bool {
        self.was_settled && self.drawn_on.is_none_or(|(first, _)| now < first + LONGEST)
    }

    /// Notes that changes were made without a look.
    pub fn draw_on(&mut self, now: Instant) {
        let (_, last) = self.drawn_on.get_or_insert((now, now));
        *last = now;
    }

    /// Whether changes were made without a look, which follows soon.
    pub fn is_drawn_on(&self) -> bool {
        self.drawn_on.is_some()
    }

    /// When to look, if changes were made without.
    pub fn ends(&self) -> Option<Instant> {
        self.drawn_on.map(|(first, last)| (last + QUIET).min(first + LONGEST))
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
        fast_path.draw_on(now);
        assert_eq!(fast_path.ends(), Some(now + QUIET));
        fast_path.draw_on(now + QUIET / 2);
        assert_eq!(fast_path.ends(), Some(now + QUIET / 2 + QUIET));
        fast_path.draw_on(now + LONGEST - QUIET / 2);
        assert_eq!(fast_path.ends(), Some(now + LONGEST));
        assert!(fast_path.holds(now + LONGEST / 2) && !fast_path.holds(now + LONGEST));
    }
}
