//! Whether the key of this node is held by this run of it: by the etcd lease that the key lives by. Pure.
//!
//! Every run writes its key under an etcd lease of its own. A key under another one is an earlier run's, or that of a
//! rival with the same address; which of them cannot be seen, so it is written over, once. Who is gone does not
//! write again. Who lives does, and whoever then finds an etcd lease that it has written over before, yields. So of
//! any number of rivals one is left, after at most one write for each pair of them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long a node that has yielded waits before it asks again whether the other one lives.
const ASK_AGAIN: Duration = Duration::from_secs(300);

/// The etcd lease of this run, and those of others that it came upon.
#[derive(Clone, Debug, Default)]
pub(super) struct Tenure {
    /// The etcd lease of this run; none before it is granted, or after it was lost.
    pub mine: Option<i64>,
    /// Those that this run has written over, and when.
    replaced: BTreeMap<i64, Instant>,
    /// Since when this node has yielded.
    yielded: Option<Instant>,
    /// Whether it has yielded since it held its key last, and knows of nobody else's end.
    pub is_wary: bool,
}

/// Whose a key of this node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Title {
    /// This run's; or the operator reserved it for this node's address.
    Own,
    /// An earlier run's, or somebody's who has written over ours: to be written over.
    Claimable,
    /// A rival's, who lives.
    Rivals,
}

impl Tenure {
    /// Whose a key is that lives by this etcd lease, or for ever if that is 0.
    pub(super) fn title(&self, lease_id: i64) -> Title {
        if lease_id == 0 || self.mine == Some(lease_id) {
            Title::Own
        } else if self.yielded.is_some() || self.replaced.contains_key(&lease_id) {
            Title::Rivals
        } else {
            Title::Claimable
        }
    }

    /// Notes that a key which lived by another etcd lease lives by that of this run now.
    pub(super) fn note_replaced(&mut self, lease_id: i64, now: Instant) {
        self.replaced.insert(lease_id, now);
    }

    /// Notes that there is no such etcd lease any more.
    pub(super) fn note_lost(&mut self, lease_id: i64) {
        self.mine.take_if(|mine| *mine == lease_id);
    }

    /// Notes that this node holds its key.
    pub(super) fn note_held(&mut self) {
        (self.yielded, self.is_wary) = (None, false);
    }

    /// Gives way to a rival.
    pub(super) fn give_way(&mut self, now: Instant) {
        self.yielded.get_or_insert(now);
        self.is_wary = true;
    }

    /// Begins anew after a long time, as another run would: the other one may be gone by now. If it is not, it knows
    /// our etcd lease as that of somebody who has to yield.
    pub(super) fn forget_old(&mut self, now: Instant) {
        self.replaced.retain(|_, at| now.duration_since(*at) < ASK_AGAIN * 2);
        if self.yielded.is_some_and(|since| now.duration_since(since) >= ASK_AGAIN) {
            *self = Self { is_wary: true, ..Self::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What runs do with a key until nobody wants to write it any more; gives how often it was written.
    fn settle(key: &mut i64, runs: &mut [Tenure], now: Instant) -> usize {
        let (mut writes, mut granted) = (0, *key * 10);
        loop {
            let before = writes;
            for run in &mut *runs {
                run.forget_old(now);
                match run.title(*key) {
                    Title::Own => run.note_held(),
                    Title::Rivals => run.give_way(now),
                    Title::Claimable => {
                        run.note_replaced(*key, now);
                        granted += 1;
                        *key = *run.mine.get_or_insert(granted);
                        writes += 1;
                    }
                }
            }
            if writes == before {
                return writes;
            }
        }
    }

    fn run(mine: i64) -> Tenure {
        Tenure { mine: Some(mine), ..Tenure::default() }
    }

    #[test]
    fn an_earlier_runs_key_is_taken_over_and_a_reservation_is_everybodys() {
        let (mut key, mut runs) = (7, [run(1)]);
        assert_eq!((settle(&mut key, &mut runs, Instant::now()), key), (1, 1));
        assert_eq!(runs[0].title(0), Title::Own);
    }

    #[test]
    fn a_newcomer_yields_to_a_holder_that_lives() {
        let now = Instant::now();
        let (mut key, mut runs) = (1, [run(2), run(1)]);
        assert_eq!((settle(&mut key, &mut runs, now), key), (2, 1), "one try, one answer");
        assert!(runs[0].is_wary && !runs[1].is_wary);
        assert_eq!(settle(&mut key, &mut runs, now), 0);
    }

    #[test]
    fn whoever_has_yielded_leaves_the_key_also_to_the_next_run_of_its_rival() {
        let now = Instant::now();
        let (mut key, mut runs) = (1, [run(2), run(1)]);
        settle(&mut key, &mut runs, now);
        runs[1] = run(3);
        assert_eq!((settle(&mut key, &mut runs, now), key), (1, 3));
    }

    #[test]
    fn of_many_that_start_at_once_one_is_left() {
        let now = Instant::now();
        let (mut key, mut runs) = (9, [1, 2, 3, 4, 5].map(run));
        assert!(settle(&mut key, &mut runs, now) <= 5 * 5);
        assert_eq!(runs.iter().filter(|run| run.title(key) == Title::Own).count(), 1);
        assert_eq!(runs.iter().filter(|run| run.title(key) == Title::Rivals).count(), 4);
    }

    #[test]
    fn after_a_long_time_it_is_asked_again_whether_the_other_one_lives() {
        let now = Instant::now();
        let (mut key, mut runs) = (1, [run(2), run(1)]);
        settle(&mut key, &mut runs, now);
        assert_eq!((settle(&mut key, &mut runs, now + ASK_AGAIN), key), (2, 1), "it does");
        let later = now + ASK_AGAIN * 2;
        assert_eq!(settle(&mut key, &mut runs[..1], later), 1, "it is gone");
        assert_eq!((runs[0].title(key), runs[0].is_wary), (Title::Own, false));
    }

    #[test]
    fn a_lost_etcd_lease_is_no_longer_ones_own() {
        let mut run = run(1);
        run.note_lost(5);
        assert_eq!(run.mine, Some(1));
        run.note_lost(1);
        assert_eq!((run.mine, run.title(1)), (None, Title::Claimable));
    }
}
