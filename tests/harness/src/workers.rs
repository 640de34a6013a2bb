//! Several scenarios at a time.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::Outcome;

/// Does all tasks, so many at a time, and gives their outcomes in the order of the tasks.
pub fn side_by_side<T: Sync>(
    workers: usize,
    tasks: &[T],
    work: impl Fn(&T) -> Outcome + Sync,
) -> Vec<Outcome> {
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let take = || {
        let place = next.fetch_add(1, Ordering::SeqCst);
        tasks.get(place).map(|task| (place, task))
    };
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((place, task)) = take() {
                    let outcome = work(task);
                    outcomes.lock().unwrap().insert(place, outcome);
                }
            });
        }
    });
    outcomes.into_inner().unwrap().into_values().collect()
}
