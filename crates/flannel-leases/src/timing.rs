//! When to do something: at a moment, and not at the same one as all other nodes.

use std::ops::Range;
use std::time::{Duration, Instant};

use rustix::rand::{GetRandomFlags, getrandom};

/// Waits until a moment; for ever if there is none.
pub(crate) async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}

/// Any number, so that not all nodes do the same at the same moment.
pub(crate) fn random() -> u64 {
    let mut bytes = [0; 8];
    // Without randomness all nodes do the same, which is a load but no fault.
    let _ = getrandom(&mut bytes, GetRandomFlags::NONBLOCK);
    u64::from_ne_bytes(bytes)
}

/// Any number of these.
pub(crate) fn any_of(range: Range<u32>) -> u32 {
    let above = random() % u64::from(range.end - range.start).max(1);
    range.start + u32::try_from(above).unwrap_or_default()
}

/// So many percent of a pause.
pub(crate) fn jittered(pause: Duration, percent: Range<u32>) -> Duration {
    pause * any_of(percent) / 100
}
