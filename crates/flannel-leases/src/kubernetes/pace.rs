//! How soon to try again: at once, then after growing pauses that are not the same on every node.

use std::ops::Range;
use std::time::Duration;

use super::error::KubernetesError;

const FIRST: Duration = Duration::from_millis(100);
/// A server that comes back is noticed within two seconds: peers wait for it.
const LONGEST: Duration = Duration::from_millis(800);
/// A server that answers with a refusal has work enough.
const LONGEST_REFUSED: Duration = Duration::from_secs(5);

/// How soon to try again.
#[derive(Debug, Default)]
pub(super) struct Pace {
    tries: u32,
    longest: Option<Duration>,
}

impl Pace {
    /// Whether the first try is still to come.
    pub(super) fn is_new(&self) -> bool {
        self.tries == 0
    }

    /// Chooses how long the pauses may get. A server that begins to answer is nearly ready: they begin anew then.
    pub(super) fn slow_down(&mut self, trouble: &KubernetesError) {
        let longest = trouble.code().map(|_| LONGEST_REFUSED);
        if self.longest != longest {
            *self = Self { tries: self.tries.min(1), longest };
        }
    }

    /// Waits for the next try; the first one comes at once.
    pub(super) async fn wait(&mut self) {
        let tries = self.tries;
        self.tries = tries.saturating_add(1);
        if tries > 0 {
            tokio::time::sleep(self.pause(tries)).await;
        }
    }

    fn pause(&self, tries: u32) -> Duration {
        let longest = self.longest.unwrap_or(LONGEST);
        let pause = (FIRST * 2_u32.saturating_pow(tries.min(10) - 1)).min(longest);
        pause.mul_f64(f64::from(any_of(50..150)) / 100.0)
    }
}

/// Any number of these, so that not all nodes do the same at the same moment.
pub(super) fn any_of(range: Range<u32>) -> u32 {
    let mut bytes = [0; 4];
    // Without randomness all nodes do the same, which is a load but no fault.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::NONBLOCK);
    range.start + u32::from_ne_bytes(bytes) % (range.end - range.start).max(1)
}
