//! Etcd leases: has them granted and keeps alive the one that this node's key lives by. Knows when that is due.

use std::time::{Duration, Instant};

use super::channel::Call;
use super::client::Client;
use super::error::EtcdError;
use super::messages::{
    LEASE_GRANT, LEASE_KEEP_ALIVE, LeaseGrantRequest, LeaseGrantResponse, LeaseRequest, LeaseResponse,
};

const GRANT: Call = Call { path: LEASE_GRANT, act: "grant a lease", stays_open: false };
const KEEP_ALIVE: Call = Call { path: LEASE_KEEP_ALIVE, act: "keep a lease alive", stays_open: false };

// How long an etcd lease lives that somebody else gave our key, only the first renewal tells.
const FIRST: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_secs(60);

/// The etcd lease of this node.
pub(super) struct Keeper {
    margin: Duration,
    followed: Option<Followed>,
    /// Why it could not be kept alive at the last try.
    pub trouble: Option<String>,
}

struct Followed {
    lease_id: i64,
    due: Instant,
    /// How long after the last success the next try is due.
    interval: Duration,
}

impl Keeper {
    pub(super) fn new(margin: Duration) -> Self {
        Self { margin, followed: None, trouble: None }
    }

    pub(super) async fn grant(&self, client: &mut Client, ttl: Duration) -> Result<i64, EtcdError> {
        let ttl = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX);
        let answer: LeaseGrantResponse = client.ask(GRANT, LeaseGrantRequest { ttl }).await?;
        Ok(answer.id)
    }

    /// From now on this is the lease to keep alive; none if it is 0.
    pub(super) fn follow(&mut self, lease_id: i64) {
        if lease_id == 0 {
            self.followed = None;
        } else if self.followed() != Some(lease_id) {
            self.followed = Some(Followed { lease_id, due: Instant::now() + FIRST, interval: RETRY });
        }
    }

    pub(super) fn followed(&self) -> Option<i64> {
        self.followed.as_ref().map(|followed| followed.lease_id)
    }

    /// The last try failed: the next one is due soon.
    pub(super) fn put_off(&mut self, trouble: String) {
        self.trouble = Some(trouble);
        if let Some(followed) = &mut self.followed {
            followed.due = Instant::now() + followed.interval.min(RETRY);
        }
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.followed.as_ref().map(|followed| followed.due)
    }

    /// Begins the life of a lease anew, and gives its length: nothing if there is no such lease.
    pub(super) async fn keep_alive(
        &mut self,
        client: &mut Client,
        lease_id: i64,
    ) -> Result<Duration, EtcdError> {
        let answer: LeaseResponse = client.ask(KEEP_ALIVE, LeaseRequest { id: lease_id }).await?;
        let ttl = Duration::from_secs(u64::try_from(answer.ttl).unwrap_or_default());
        if ttl.is_zero() {
            self.followed.take_if(|followed| followed.lease_id == lease_id);
        } else {
            let interval = interval(ttl, self.margin);
            self.followed = Some(Followed { lease_id, due: Instant::now() + interval, interval });
            self.trouble = None;
        }
        Ok(ttl)
    }
}

/// How long to wait until a lease is kept alive again: a third of its life, so that a day without etcd is the
/// exception and not the rule, and never so long that less than the margin is left.
fn interval(ttl: Duration, margin: Duration) -> Duration {
    (ttl / 3).min(ttl.saturating_sub(margin)).max(ttl / 24)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_renewed_when_a_third_is_over_or_the_margin_is_reached() {
        let day = Duration::from_secs(86_400);
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        assert_eq!(interval(day, hours(1)), hours(8));
        assert_eq!(interval(day, hours(20)), hours(4));
        assert_eq!(
            interval(day, hours(24)),
            hours(1),
            "a margin of a whole life is no reason to ask all the time"
        );
        assert_eq!(interval(day, hours(99)), hours(1));
    }
}
