//! Time and chance: what a process has used of a core, and numbers that nobody chose.

use std::fmt;
use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The clock of /proc ticks so often a second on every Linux that we know.
const TICKS_A_SECOND: u64 = 100;

/// The time that a process has spent on a core, for itself and in the kernel.
pub fn cpu_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The name may hold spaces; it ends at the last bracket.
    let (_, rest) = stat.rsplit_once(')').unwrap();
    let ticks: u64 =
        rest.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 1000 / TICKS_A_SECOND)
}

/// A row of numbers that differs from run to run; print it, and a run can be repeated.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// A new row: `$CHANCE` where set, else the clock decides.
    pub fn new() -> Self {
        let given = std::env::var("CHANCE").ok().and_then(|text| text.parse().ok());
        let clock = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos().into();
        Self(given.unwrap_or_else(clock))
    }

    /// The next number below a limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        // Knuth's MMIX; the high half is the better one.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

impl fmt::Display for Chance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Default for Chance {
    fn default() -> Self {
        Self::new()
    }
}
