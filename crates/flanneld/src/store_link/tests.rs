//! What becomes of what is remembered, against stores that are silent, refuse, or turn out to be others.

use flannel_plan::family::ByFamily;
use flannel_plan::lease::Lease;

use super::*;

/// A store that never gives a snapshot.
struct Away {
    /// What it answers; nothing for ever if there is none.
    refusal: Option<fn() -> StoreError>,
}

impl LeaseStore for Away {
    async fn publish(&mut self, _: &Announcement) -> Result<Lease, StoreError> {
        Err(StoreError::NoOwner)
    }

    async fn next(&mut self) -> Result<Snapshot, StoreError> {
        match self.refusal {
            Some(refusal) => Err(refusal()),
            None => std::future::pending().await,
        }
    }
}

/// A link and all that keeps it going.
struct Stage {
    link: Link,
    _rest: (watch::Sender<Option<Wanted>>, watch::Sender<Readiness>),
}

pub(super) fn snapshot(origin: Option<&str>) -> Snapshot {
    Snapshot {
        origin: origin.map(Into::into),
        config: Ok(NetworkConfig::parse(r#"{"Network":"10.244.0.0/16"}"#).unwrap()),
        own: None,
        version: None,
        is_stale: false,
        own_is_damaged: false,
        rival: None,
        announced: ByFamily::default(),
        public: ByFamily::default(),
        peers: Vec::new(),
        faults: Vec::new(),
    }
}

fn remembering(origin: Option<&str>) -> Stage {
    let ((wants, wanted), (stands, readiness)) =
        (watch::channel(None), watch::channel(Readiness::NotReady(String::new())));
    let (remembered, state, bell) = (Some(snapshot(origin)), SharedState::default(), Bell::default());
    Stage { link: Link { wanted, readiness, remembered, state, bell }, _rest: (wants, stands) }
}

/// How long it takes until what is remembered is in force.
async fn time_to_fall_back(store: Away) -> Duration {
    let Stage { link, _rest } = remembering(None);
    let (state, begun) = (link.state.clone(), Instant::now());
    let running = tokio::spawn(run(store, link));
    while !state.get().is_remembered {
        assert!(begun.elapsed() < PATIENCE * 20, "what is remembered is never used");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    running.abort();
    begun.elapsed()
}

#[tokio::test]
async fn a_store_that_refuses_is_given_as_much_time_as_a_silent_one() {
    assert!(PATIENCE >= Duration::from_secs(5));
    let (silent, refusing) = tokio::join!(
        time_to_fall_back(Away { refusal: None }),
        time_to_fall_back(Away { refusal: Some(|| StoreError::NoOwner) })
    );
    assert!(silent >= PATIENCE && refusing >= PATIENCE, "{silent:?} {refusing:?}");
}

#[test]
fn what_is_remembered_of_another_cluster_is_never_used_once_that_is_known() {
    let is_used = |remembered: Option<&str>, told: Option<&str>| {
        let mut stage = remembering(remembered);
        stage.link.fall_back(told);
        stage.link.state.get().snapshot.is_some()
    };
    assert!(is_used(Some("a"), None), "nobody knows");
    assert!(is_used(Some("a"), Some("a")));
    assert!(!is_used(Some("a"), Some("b")));
    assert!(!is_used(None, Some("b")), "one that says nothing of itself is not believed");
    assert!(is_used(None, None), "a folder is known by its path");
}

#[test]
fn what_is_remembered_and_in_force_is_given_up_when_it_turns_out_to_be_anothers() {
    let mut stage = remembering(Some("a"));
    stage.link.fall_back(None);
    stage.link.disown(Some("a"));
    assert!(stage.link.state.get().is_remembered);
    stage.link.disown(Some("b"));
    let state = stage.link.state.get();
    assert_eq!((state.snapshot, state.is_remembered), (None, false));
    // What the store itself says is not judged by it.
    stage.link.take(snapshot(Some("b")), &mut Pace::default());
    stage.link.disown(Some("c"));
    assert!(stage.link.state.get().snapshot.is_some());
}
