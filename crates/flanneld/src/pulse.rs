//! Whether the loop still comes round: it beats at each turn, others ask how long ago that was.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A loop that has nothing to do comes round once a minute; one that has not for so long hangs.
const LONGEST_TURN: Duration = Duration::from_secs(90);

/// When the loop came round last.
#[derive(Clone, Debug)]
pub struct Pulse(Arc<Mutex<Instant>>);

impl Default for Pulse {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }
}

impl Pulse {
    /// Notes that the loop comes round now.
    pub fn beat(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// As if the loop had come round last so long ago.
    #[cfg(test)]
    pub fn beat_before(&self, age: Duration) {
        *self.0.lock().unwrap() = Instant::now().checked_sub(age).unwrap();
    }

    /// How long ago it came round.
    pub fn age(&self) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// How long it has been hanging; none if it is not.
    pub fn hangs_for(&self) -> Option<Duration> {
        Some(self.age()).filter(|age| *age > LONGEST_TURN)
    }
}
