//! What becomes of announcements against a store in which somebody else changes them.

use flannel_plan::family::ByFamily;
use flannel_plan::lease::Lease;

use super::tests::snapshot;
use super::*;

/// A store that counts what it is told, and takes it or not.
#[derive(Default)]
struct Counter {
    published: usize,
    refuses: bool,
}

impl LeaseStore for Counter {
    async fn publish(&mut self, announcement: &Announcement) -> Result<Lease, StoreError> {
        self.published += 1;
        if self.refuses { Err(StoreError::NoOwner) } else { Ok(lease(announcement)) }
    }

    async fn next(&mut self) -> Result<Snapshot, StoreError> {
        std::future::pending().await
    }
}

fn announcement(address: &str) -> Announcement {
    let public = ByFamily { v4: Some(address.parse().unwrap()), v6: None };
    Announcement { public, ..Announcement::default() }
}

fn lease(announcement: &Announcement) -> Lease {
    let subnets = ByFamily { v4: Some("10.244.3.0/24".parse().unwrap()), v6: None };
    Lease { owner: "worker1".to_owned(), subnets, announcement: announcement.clone(), since: 5 }
}

fn wanted(address: &str) -> Option<Wanted> {
    Some(Wanted { announcement: announcement(address), config: snapshot(None).config.unwrap() })
}

/// A node that wants 10.0.0.1 to be announced.
struct Stage {
    link: Link,
    wishes: watch::Sender<Option<Wanted>>,
    store: Counter,
    publishing: Publishing,
}

impl Stage {
    fn new() -> Self {
        let (wishes, wish) = watch::channel(wanted("10.0.0.1"));
        let readiness = watch::channel(Readiness::Ready).1;
        let (state, bell) = (SharedState::default(), Bell::default());
        let link = Link { wanted: wish, readiness, remembered: None, state, bell };
        Self { link, wishes, store: Counter::default(), publishing: Publishing::default() }
    }

    /// The store says this address of the node; what does the node do?
    async fn receive(&mut self, address: &str, occasion: Occasion) {
        let own = Some(lease(&announcement(address)).into());
        self.link.take(Snapshot { own, ..snapshot(None) }, &mut Pace::default());
        self.link.announce(&mut self.store, &mut self.publishing, occasion).await;
    }

    /// Announced once, and changed so often since.
    async fn changed(mut self, times: usize) -> Self {
        self.receive("10.0.0.9", Occasion::Requested).await;
        for _ in 0..times {
            self.receive("10.0.0.9", Occasion::Changed).await;
        }
        self
    }
}

#[tokio::test]
async fn somebody_who_keeps_changing_our_lease_is_named_and_answered_three_times() {
    let quiet = Stage::new().changed(3).await;
    assert_eq!((quiet.store.published, quiet.link.state.get().fighter), (4, None));
    let fight = Stage::new().changed(9).await;
    let state = fight.link.state.get();
    assert_eq!((fight.store.published, state.corrections), (4, 3));
    let rival = state.fighter.unwrap();
    assert_eq!(
        (&*rival.object, &*rival.says, rival.stand),
        ("the lease of worker1", "10.0.0.9", Stand::Yields)
    );
}

#[tokio::test]
async fn the_one_who_is_named_stays_so_while_our_last_answer_stands() {
    let mut fight = Stage::new().changed(9).await;
    fight.receive("10.0.0.1", Occasion::Changed).await;
    assert!(fight.link.state.get().fighter.is_some_and(|rival| rival.says == "10.0.0.9"));
}

#[tokio::test]
async fn a_new_wish_of_our_own_is_no_correction_and_does_not_wait() {
    let mut fight = Stage::new().changed(9).await;
    fight.wishes.send_replace(wanted("10.0.0.2"));
    fight.receive("10.0.0.9", Occasion::Requested).await;
    assert_eq!((fight.store.published, fight.link.state.get().corrections), (5, 3));
}

#[tokio::test]
async fn a_store_that_refuses_is_asked_as_rarely_but_that_is_no_fight() {
    let mut stage = Stage::new();
    stage.store.refuses = true;
    let refused = stage.changed(9).await;
    let state = refused.link.state.get();
    assert_eq!((refused.store.published, state.corrections, state.fighter), (4, 0, None));
    assert!(state.publish_trouble.is_some());
}
