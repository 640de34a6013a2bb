//! Waiting for a condition, with a limit and a way to be interrupted; nothing in the lab waits in another way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::{LabError, Result};

/// Between two looks: short against what is measured, long against what a look costs.
const PAUSE: Duration = Duration::from_millis(2);

/// An interrupt, raised by a signal and heeded by every step of a lab. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Asks everything that holds this to stop.
    pub fn raise(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether somebody asked to stop.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// An error if somebody asked to stop: for the space between two steps.
    pub fn check(&self) -> Result<()> {
        if self.is_raised() { Err(LabError::Interrupted) } else { Ok(()) }
    }

    /// Waits like [`wait_for`], but not after it was raised.
    pub fn wait_for<T>(
        &self,
        what: &str,
        limit: Duration,
        mut observe: impl FnMut() -> std::result::Result<T, String>,
    ) -> Result<T> {
        let start = Instant::now();
        loop {
            self.check()?;
            match observe() {
                Ok(found) => return Ok(found),
                Err(last) if start.elapsed() >= limit => {
                    return Err(LabError::Timeout { what: what.to_owned(), limit, last });
                }
                Err(_) => thread::sleep(PAUSE),
            }
        }
    }
}

/// Looks until `observe` finds what it wants; after `limit` the last thing it said instead becomes the error.
pub fn wait_for<T>(
    what: &str,
    limit: Duration,
    observe: impl FnMut() -> std::result::Result<T, String>,
) -> Result<T> {
    Interrupt::default().wait_for(what, limit, observe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_that_comes_true_ends_the_wait_with_its_value() {
        let mut looks = 0;
        let found = wait_for("the third look", Duration::from_secs(5), || {
            looks += 1;
            if looks == 3 { Ok(looks) } else { Err("not yet".to_owned()) }
        });
        assert_eq!(found.unwrap(), 3);
    }

    #[test]
    fn a_condition_that_stays_false_is_named_with_its_last_state() {
        let error = wait_for::<()>("rain", Duration::ZERO, || Err("dry".to_owned())).unwrap_err();
        assert_eq!(error.to_string(), "waited 0ns for rain: dry");
    }

    #[test]
    fn an_interrupt_ends_the_wait_before_the_next_look() {
        let interrupt = Interrupt::default();
        interrupt.clone().raise();
        let waited = interrupt.wait_for("nothing", Duration::MAX, || Ok::<_, String>(()));
        assert!(matches!(waited, Err(LabError::Interrupted)));
    }
}
