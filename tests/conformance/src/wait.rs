//! Waiting for a condition, with a limit; nothing here waits in another way.

use std::thread;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
/// Between two looks: short against what is waited for, long against what a look costs.
const PAUSE: Duration = Duration::from_millis(2);

/// Looks until the condition is true; a minute is enough for everything that a test waits for, beside other work too.
#[track_caller]
pub fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        thread::sleep(PAUSE);
    }
}
