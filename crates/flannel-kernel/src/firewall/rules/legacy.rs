//! The tables of legacy iptables without its programs: whether anything of ours is there, and whether it changed.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use flannel_plan::family::Family;
use flannel_plan::rules::System;
use flannel_plan::rules::role::Role;

use crate::NetlinkError;
use crate::firewall::iptables::legacy_table;

/// Where `struct ipt_entry` and `struct ip6t_entry` say how long they are, and where they count.
struct Layout {
    next: usize,
    counters: std::ops::Range<usize>,
}

impl Layout {
    fn of(family: Family) -> Self {
        match family {
            Family::V4 => Self { next: 90, counters: 92..112 },
            Family::V6 => Self { next: 142, counters: 144..168 },
        }
    }
}

const SEARCH_EVERY: Duration = Duration::from_secs(60);
const TABLES: [&str; 3] = ["nat", "filter", "raw"];

/// Whether any table is used at all: looking at one that is not would make it.
pub(super) fn is_used(family: Family) -> bool {
    TABLES.iter().any(|table| matches!(legacy_table(family, table), Ok(Some(_))))
}

/// Whether a table names a chain or a comment of ours.
pub(super) fn has_ours(roles: &[Role], family: Family) -> bool {
    let needles = roles.iter().flat_map(|role| [role.comment_of_rules(), role.chain(System::IptablesLegacy)]);
    let needles: Vec<_> = needles.collect();
    TABLES
        .iter()
        .filter_map(|table| legacy_table(family, table).ok().flatten())
        .any(|bytes| needles.iter().any(|needle| contains(&bytes, needle.as_bytes())))
}

fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}

/// A number for each table that stays the same while its rules do; none for one that is not there.
pub(super) fn marks(family: Family) -> Result<Vec<Option<u64>>, NetlinkError> {
    TABLES.iter().map(|table| Ok(legacy_table(family, table)?.map(|bytes| mark(family, bytes)))).collect()
}

/// What rules count is not part of them.
fn mark(family: Family, mut bytes: Vec<u8>) -> u64 {
    let layout = Layout::of(family);
    let mut start = 0;
    while let Some(entry) = bytes.get_mut(start..) {
        let Some(next) = entry.get(layout.next..layout.next + 2) else { break };
        let length = usize::from(u16::from_ne_bytes([next[0], next[1]]));
        let Some(counters) = entry.get_mut(layout.counters.clone()).filter(|_| length > 0) else { break };
        counters.fill(0);
        start += length;
    }
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// When tables of legacy iptables were last searched for what an earlier mode left. They may be large, nobody
/// tells of changes, and leftovers do not come by themselves.
#[derive(Default)]
pub(super) struct Leftovers {
    searched: Option<(System, Instant)>,
}

impl Leftovers {
    pub(super) fn are_due(&mut self, system: System) -> bool {
        let now = Instant::now();
        let recent = |(before, at): (System, Instant)| before == system && now - at < SEARCH_EVERY;
        let due = !self.searched.is_some_and(recent);
        if due {
            self.searched = Some((system, now));
        }
        due
    }

    /// They are to go, and it is to be seen that they went.
    pub(super) fn found_some(&mut self, system: System) {
        self.searched = self.searched.filter(|_| system == System::IptablesLegacy);
    }
}
