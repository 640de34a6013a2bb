//! The stream of changes. Takes the revision of a whole read, gives what happened since; never a decision.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use tonic::{Status, Streaming};

use super::channel::{Call, said};
use super::client::Client;
use super::error::EtcdError;
use super::keys::end_of;
use super::messages::{Event, Header, WATCH, WatchCreateRequest, WatchRequest, WatchResponse};
use super::table::Table;

const CALL: Call = Call { path: WATCH, act: "tell of changes", stays_open: true };
// Whoever cuts a watch sooner will likely do it again: the caller should pause.
const YOUNG: Duration = Duration::from_secs(1);

/// A watch of the config and of all leases.
pub(super) struct Watch {
    stream: Streaming<WatchResponse>,
    /// What has come but was not told yet.
    waiting: Option<Watched>,
    since: Instant,
}

/// What a watch has to tell.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Watched {
    /// This has changed.
    Events(Option<Header>, Vec<Event>),
    /// Revisions that were not watched are compacted: only a whole read helps.
    Compacted,
    /// It has ended, for this reason.
    Ended(Ending),
}

/// Why a watch ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ending {
    pub why: String,
    /// Whether etcd said so; else the connection broke.
    pub is_said: bool,
    /// Whether it had only just begun.
    pub is_young: bool,
}

impl Watch {
    /// Begins behind the table's last whole read.
    pub(super) async fn open(client: &mut Client, table: &Table) -> Result<Self, EtcdError> {
        let create = |key: &str, range_end| WatchRequest {
            create: Some(WatchCreateRequest {
                key: key.as_bytes().to_vec(),
                range_end,
                start_revision: table.revision + 1,
            }),
        };
        let keys = &table.keys;
        let requests = vec![create(&keys.config, Vec::new()), create(&keys.subnets, end_of(&keys.subnets))];
        let (first, stream) = client.open(CALL, requests).await?;
        let mut watch = Self { stream, waiting: None, since: Instant::now() };
        watch.waiting = Some(watch.judged(Ok(Some(first))));
        Ok(watch)
    }

    /// The next events, and with them all that has come meanwhile. May be dropped at any moment.
    pub(super) async fn next(&mut self) -> Watched {
        let (mut header, mut events) = match self.answer().await {
            Watched::Events(header, events) => (header, events),
            end => return end,
        };
        // Thousands of nodes that start together should cost one snapshot, not thousands.
        while let Some(answer) = at_once(self.stream.message()).await {
            match self.judged(answer) {
                Watched::Events(newer, more) => {
                    header = newer.or(header);
                    events.extend(more);
                }
                end => {
                    self.waiting = Some(end);
                    break;
                }
            }
        }
        Watched::Events(header, events)
    }

    async fn answer(&mut self) -> Watched {
        if let Some(waiting) = self.waiting.take() {
            return waiting;
        }
        let answer = self.stream.message().await;
        self.judged(answer)
    }

    fn judged(&self, answer: Result<Option<WatchResponse>, Status>) -> Watched {
        judged(answer, self.since.elapsed() < YOUNG)
    }
}

pub(super) fn judged(answer: Result<Option<WatchResponse>, Status>, is_young: bool) -> Watched {
    let cut = |why| Watched::Ended(Ending { why, is_said: false, is_young });
    match answer {
        Ok(Some(answer)) if answer.compact_revision != 0 => Watched::Compacted,
        Ok(Some(answer)) if answer.canceled => {
            Watched::Ended(Ending { why: answer.cancel_reason, is_said: true, is_young })
        }
        Ok(Some(answer)) => Watched::Events(answer.header, answer.events),
        Ok(None) => cut("it ended".to_owned()),
        Err(status) => cut(said(&status)),
    }
}

/// What a future gives without being waited for. Never waits, so that nothing is lost by dropping it: `select!` does,
/// when a task has run for long.
async fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn what_is_there_at_once_is_not_waited_for_though_the_task_has_run_for_long() {
        while tokio::task::coop::has_budget_remaining() {
            tokio::task::coop::consume_budget().await;
        }
        let mut none = pin!(at_once(pending::<()>()));
        let polled = poll_fn(|context| Poll::Ready(none.as_mut().poll(context))).await;
        assert_eq!(polled, Poll::Ready(None));
    }

    #[test]
    fn what_ends_a_watch_is_told_from_what_it_says() {
        let answer = WatchResponse::default();
        assert_eq!(judged(Ok(Some(answer.clone())), false), Watched::Events(None, Vec::new()));
        let compacted = WatchResponse { canceled: true, compact_revision: 7, ..answer.clone() };
        assert_eq!(judged(Ok(Some(compacted)), true), Watched::Compacted);
        let ending =
            |why: &str, is_said| Watched::Ended(Ending { why: why.to_owned(), is_said, is_young: true });
        let cancelled = WatchResponse { canceled: true, cancel_reason: "no leader".to_owned(), ..answer };
        assert_eq!(judged(Ok(Some(cancelled)), true), ending("no leader", true));
        assert_eq!(judged(Ok(None), true), ending("it ended", false));
        assert_eq!(judged(Err(Status::unavailable("broken")), true), ending("broken", false));
    }
}
