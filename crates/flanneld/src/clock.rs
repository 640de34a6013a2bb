//! What time it is: asked here, so that a test can stop the clock and set it forward.

use std::time::Instant;

/// The time by the clock of the async runtime: the host's, unless a test has stopped it.
pub fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
