//! Whether the kernel can be taken to be as the last pass left it: then news of peers alone need no look at
//! thousands of objects. A look follows soon all the same, since a notice may be late or lost.

use std::time::{Duration, Instant};

use crate::reconcile::Settlement;

/// How long changes may be made without a look.
const LONGEST: Duration = Duration::from_secs(1);

/// Trust in the last look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trust {
    was_settled: bool,
    ends: Option<Instant>,
}

impl Trust {
    /// A pass that found everything in place is worth some trust.
    pub fn after(pass: &Settlement) -> Self {
        Self { was_settled: pass.left.is_empty() && pass.failures.is_empty(), ends: None }
    }

    /// Whether changes may be made without a look.
    pub fn holds(&self, now: Instant) -> bool {
        self.was_settled && self.ends.is_none_or(|ends| now < ends)
    }

    /// Notes that changes were made without a look.
    pub fn draw_on(&mut self, now: Instant) {
        self.ends.get_or_insert(now + LONGEST);
    }

    /// When to look, if changes were made without.
    pub fn ends(&self) -> Option<Instant> {
        self.ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_needs_a_settled_look_and_ends_a_second_after_it_was_drawn_on() {
        let now = Instant::now();
        assert!(!Trust::default().holds(now));
        let mut trust = Trust::after(&Settlement::default());
        assert!(trust.holds(now + 60 * LONGEST) && trust.ends().is_none());
        trust.draw_on(now);
        trust.draw_on(now + LONGEST / 2);
        assert!(trust.holds(now + LONGEST / 2) && !trust.holds(now + LONGEST));
        assert_eq!(trust.ends(), Some(now + LONGEST));
    }
}
