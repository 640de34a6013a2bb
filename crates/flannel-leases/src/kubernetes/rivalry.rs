//! Another daemon that writes on this node's object, told from a person who did so once, and from a run that is gone.
//!
//! Whoever finds again what it has just written over knows that its author lives, and yields. So the one that was
//! there first corrects once and stays; the one that came later writes once and leaves it at that.

use std::time::{Duration, Instant};

use flannel_plan::lease::Announcement;

use crate::rival::{Rival, Stand, said};

/// What is found again within this time was put back by somebody who lives.
const WINDOW: Duration = Duration::from_secs(10);
/// How long a node yields before it tries again, as a new run would.
const YIELD: Duration = Duration::from_secs(300);
/// How long an intruder is named by the one that stays.
const NAMED: Duration = Duration::from_secs(60);

const WAY_OUT: &str = "give each node a name of its own (NODE_NAME), or stop the flanneld that is not this node's; if no \
                       other is left, restart this one";

/// What this run has written over, and to whom it yields.
#[derive(Debug, Default)]
pub(super) struct Rivalry {
    written_over: Vec<(Announcement, Instant)>,
    /// Who has changed what this run had said, last.
    intruder: Option<(Announcement, Instant)>,
    yields: Option<(Announcement, Instant)>,
}

impl Rivalry {
    /// Whether what somebody else says there must be left, because he lives.
    pub(super) fn must_yield(&mut self, found: &Announcement, now: Instant) -> bool {
        self.written_over.retain(|(_, at)| now.duration_since(*at) < WINDOW);
        self.yields.take_if(|(rival, until)| *until <= now || rival != found);
        if self.yields.is_none() && self.written_over.iter().any(|(before, _)| before == found) {
            self.yields = Some((found.clone(), now + YIELD));
        }
        self.yields.is_some()
    }

    /// Notes what is written over now.
    pub(super) fn write_over(&mut self, found: Announcement, now: Instant) {
        self.written_over.retain(|(before, _)| *before != found);
        self.written_over.push((found, now));
    }

    /// Notes that what this run had said was changed, and is put right now.
    pub(super) fn put_right(&mut self, found: Announcement, now: Instant) {
        self.intruder = Some((found, now));
    }

    /// When there is less to tell: an intruder has been named for long enough.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        let (_, at) = self.intruder.as_ref()?;
        Some(*at + NAMED).filter(|due| *due > now)
    }

    /// Who else writes on a node whose object says this now.
    pub(super) fn rival(&self, node: &str, found: Option<&Announcement>, now: Instant) -> Option<Rival> {
        let holder = self.yields.as_ref().filter(|(rival, _)| Some(rival) == found);
        let intruder = || self.intruder.as_ref().filter(|(_, at)| now.duration_since(*at) < NAMED);
        let (other, stand) = match holder {
            Some((other, _)) => (other, Stand::Yields),
            None => (&intruder()?.0, Stand::Holds),
        };
        let (object, says) = (format!("node {node}"), said(other));
        Some(Rival { object, says, way_out: WAY_OUT.into(), stand })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announcement(n: u8) -> Announcement {
        let mut said = Announcement::from_etcd("", "{}").unwrap();
        said.public.v4 = Some([10, 0, 0, n].into());
        said
    }

    fn stand(rivalry: &Rivalry, found: &Announcement, now: Instant) -> Option<Stand> {
        rivalry.rival("worker1", Some(found), now).map(|rival| rival.stand)
    }

    #[test]
    fn of_two_daemons_the_first_corrects_once_and_the_second_yields() {
        let (now, first, second) = (Instant::now(), announcement(1), announcement(2));
        let (mut incumbent, mut newcomer) = (Rivalry::default(), Rivalry::default());
        assert!(!newcomer.must_yield(&first, now));
        newcomer.write_over(first.clone(), now);
        assert!(!incumbent.must_yield(&second, now));
        incumbent.write_over(second.clone(), now);
        incumbent.put_right(second.clone(), now);
        assert_eq!(stand(&newcomer, &second, now), None, "what an earlier run said is nobody's");
        assert!(newcomer.must_yield(&first, now));
        assert_eq!(stand(&newcomer, &first, now), Some(Stand::Yields));
        assert_eq!(stand(&incumbent, &first, now), Some(Stand::Holds));
        let later = now + NAMED;
        assert_eq!(stand(&incumbent, &first, later), None);
        assert_eq!(stand(&newcomer, &first, later), Some(Stand::Yields));
        assert_eq!(stand(&newcomer, &second, later), None, "the other says it no more");
        assert!(!newcomer.must_yield(&first, now + YIELD), "it asks again as a new run would");
    }

    #[test]
    fn what_comes_back_after_a_while_is_another_run_and_corrected() {
        let (now, other) = (Instant::now(), announcement(2));
        let mut rivalry = Rivalry::default();
        rivalry.write_over(other.clone(), now);
        assert!(!rivalry.must_yield(&other, now + WINDOW));
        rivalry.write_over(other.clone(), now + WINDOW);
        assert!(!rivalry.must_yield(&announcement(3), now + WINDOW));
        assert!(rivalry.must_yield(&other, now + WINDOW));
        // When it says something else, it is no longer yielded to.
        assert!(!rivalry.must_yield(&announcement(4), now + WINDOW));
    }
}
