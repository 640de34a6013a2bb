//! The tables of legacy iptables without its programs: whether anything of ours is there, and whether it changed.

use std::time::{Duration, Instant};

use flannel_plan::family::Family;
use flannel_plan::rules::System;
use flannel_plan::rules::role::Role;

use super::programs::fingerprint;
use crate::NetlinkError;
use crate::firewall::iptables::legacy_table;

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
    TABLES.iter().filter_map(|table| legacy_table(family, table).ok().flatten()).any(|bytes| {
        let contains = |text: &&str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        needles.iter().any(contains)
    })
}

/// A number for each table that stays the same while its rules do; none for one that is not there.
pub(super) fn fingerprints(family: Family) -> Result<Vec<Option<u64>>, NetlinkError> {
    let of = |bytes| fingerprint(&without_counts(family, bytes));
    TABLES.iter().map(|table| Ok(legacy_table(family, table)?.map(of))).collect()
}

/// What rules count is not part of them.
fn without_counts(family: Family, mut bytes: Vec<u8>) -> Vec<u8> {
    // Where `struct ipt_entry` and `struct ip6t_entry` say how long they are, and where they count.
    let (next, counters) = match family {
        Family::V4 => (90, 92..112),
        Family::V6 => (142, 144..168),
    };
    let mut start = 0;
    while let Some(entry) = bytes.get_mut(start..) {
        let Some(length) = entry.get(next..).and_then(<[u8]>::first_chunk) else { break };
        let length = usize::from(u16::from_ne_bytes(*length));
        let Some(counters) = entry.get_mut(counters.clone()).filter(|_| length > 0) else { break };
        counters.fill(0);
        start += length;
    }
    bytes
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
