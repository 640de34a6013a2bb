//! How many labs are up at one time: a machine of two cores runs two of them without mistaking waiting for failing.

use std::sync::{Condvar, Mutex, PoisonError};

const PLACES: usize = 2;
static FREE: Mutex<usize> = Mutex::new(PLACES);
static FREED: Condvar = Condvar::new();

/// A test's right to have a lab.
#[derive(Debug)]
pub(crate) struct LabSlot(usize);

impl LabSlot {
    /// One lab among others; waits until there is room.
    pub(crate) fn shared() -> Self {
        Self::take(1)
    }

    /// The only lab: for tests that measure, or that fill the machine.
    pub(crate) fn whole() -> Self {
        Self::take(PLACES)
    }

    fn take(places: usize) -> Self {
        let free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        let enough = FREED.wait_while(free, |free| *free < places);
        *enough.unwrap_or_else(PoisonError::into_inner) -= places;
        Self(places)
    }
}

impl Drop for LabSlot {
    fn drop(&mut self) {
        *FREE.lock().unwrap_or_else(PoisonError::into_inner) += self.0;
        FREED.notify_all();
    }
}
