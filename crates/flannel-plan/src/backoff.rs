//! Ever longer pauses between tries that fail. Takes the first pause and the longest, gives one after the other; whose
//! clock they are measured by, and whether they are spread, is the caller's business.

use std::time::Duration;

/// Pauses that grow: each twice as long as the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    pause: Option<Duration>,
}

impl Backoff {
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, pause: None }
    }

    /// The pause after one more failure.
    pub fn grow(&mut self) -> Duration {
        let pause = self.pause.map_or(self.first, |pause| pause * 2).min(self.longest);
        *self.pause.insert(pause)
    }

    /// The pause that was given last; none before the first failure.
    pub fn pause(&self) -> Option<Duration> {
        self.pause
    }

    /// The longest pause that it gives.
    pub fn longest(&self) -> Duration {
        self.longest
    }

    /// Begins anew, after a success.
    pub fn reset(&mut self) {
        self.pause = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_anew_after_a_success() {
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_millis(1500));
        let mut pauses = || [(); 6].map(|()| backoff.grow().as_millis());
        assert_eq!(pauses(), [200, 400, 800, 1500, 1500, 1500]);
        backoff.reset();
        assert_eq!(backoff.pause(), None);
        assert_eq!((backoff.grow(), backoff.pause()), (Duration::from_millis(200), Some(backoff.first)));
    }
}
