//! A store that goes away, comes back, refuses, or is written by others.

use flannel_leases::rival::Stand;
use flannel_leases::{Readiness, Rival};

use super::super::*;
use super::memory::*;
use super::stage::*;

const REMEMBERED: &str =
    "the lease store has not been heard since this start: what it said before is in force";

#[test]
fn a_store_that_is_away_leaves_everything_in_force_and_removals_wait_for_its_return() {
    let mut stage = Stage::ready();
    let before = stage.objects();
    stage.changes();
    stage.store.be_away(Some(refusal));
    stage.store.say(|snapshot| drop(snapshot.peers.remove(0)));
    stage.wait(Duration::from_secs(60));
    assert_eq!((stage.changes(), stage.objects()), (vec![], before));
    assert_eq!(stage.notes(), [REFUSAL]);
    stage.store.be_away(None);
    stage.wait(Duration::from_secs(2));
    assert_eq!((stage.changes().len(), stage.readyz()), (3, vec![READY.to_owned()]));
}

#[test]
fn drift_is_repaired_while_the_store_is_away() {
    let mut stage = Stage::ready();
    let before = stage.objects();
    stage.store.be_away(Some(refusal));
    stage.wait(Duration::from_secs(60));
    stage.kernel().lose_link("flannel.1".parse().unwrap());
    stage.wake(Wake::Observation);
    assert_eq!((stage.objects(), stage.notes()), (before, vec![REFUSAL.to_owned()]));
}

#[test]
fn a_start_without_the_store_goes_on_with_what_is_remembered_and_removes_nothing() {
    let mut stage = Stage::ready();
    let before = stage.objects();
    // A peer that only the kernel remembers: it may have come after the snapshot was written.
    let late = route(
        "10.244.9.0/24",
        Some("10.244.9.0"),
        "flannel.1".parse().unwrap(),
        flannel_plan::state::PROTOCOL,
    );
    stage.kernel().now.routes.push(late);
    stage.store.be_away(Some(refusal));
    let mut stage = stage.restart();
    assert_eq!(stage.reasons(), [format!("waiting for the lease store: {REFUSAL}")]);
    assert_eq!(stage.findings().iter().map(|(_, count)| count).sum::<u64>(), 1);
    stage.wait(Duration::from_secs(6));
    assert_eq!((stage.changes(), stage.notes()), (vec![], vec![REFUSAL.to_owned(), REMEMBERED.to_owned()]));
    assert_eq!(stage.store.heard(), Some(Readiness::Remembered));
    stage.store.be_away(None);
    stage.wait(Duration::from_secs(2));
    assert_eq!(stage.changes(), ["- route 10.244.9.0/24 via 10.244.9.0 dev flannel.1"]);
    assert_eq!((stage.objects(), stage.readyz()), (before, vec![READY.to_owned()]));
    assert_eq!(stage.store.heard(), Some(READY_IN_STORE));
}

#[test]
fn a_reboot_without_the_store_builds_what_is_remembered() {
    let mut stage = Stage::ready();
    let before = stage.objects();
    *stage.kernel() = host();
    stage.store.be_away(Some(refusal));
    let mut stage = stage.restart();
    stage.wait(Duration::from_secs(6));
    assert_eq!((stage.objects(), stage.notes().len()), (before, 2));
}

#[test]
fn a_rival_that_holds_the_lease_makes_the_node_unready_at_once_and_is_named() {
    let mut stage = Stage::ready();
    let rival = |stand| Rival {
        object: "node worker1".to_owned(),
        says: "10.0.0.99".to_owned(),
        way_out: "stop one of them".into(),
        stand,
    };
    let way_out = "the other says 10.0.0.99; stop one of them";
    stage.store.say(|snapshot| snapshot.rival = Some(rival(Stand::Yields)));
    stage.listen();
    let yields = "node worker1 is written by another flanneld as well, so that this node must not use it";
    assert_eq!(stage.reasons(), [format!("{yields}: {way_out}")]);
    stage.store.say(|snapshot| snapshot.rival = Some(rival(Stand::Holds)));
    stage.listen();
    let holds = "node worker1 is written by another flanneld as well, which this node has put right";
    assert_eq!(stage.notes(), [format!("{holds}: {way_out}")]);
    stage.store.say(|snapshot| snapshot.rival = None);
    stage.listen();
    assert_eq!(stage.readyz(), [READY]);
}

#[test]
fn who_keeps_changing_the_lease_of_this_node_is_put_right_ever_more_rarely_and_named() {
    let mut stage = Stage::ready();
    for corrections in 1..=3 {
        stage.store.say(|snapshot| snapshot.own = Some(Arc::new(lease("worker1", 1, "10.0.0.99"))));
        stage.listen();
        assert_eq!(stage.store.published(), corrections);
    }
    stage.store.say(|snapshot| snapshot.own = Some(Arc::new(lease("worker1", 1, "10.0.0.99"))));
    stage.listen();
    assert_eq!(stage.store.published(), 3, "not at once any more");
    let reasons = stage.reasons();
    assert!(
        reasons[0].starts_with("the lease of worker1 is written by another flanneld as well"),
        "{reasons:?}"
    );
    stage.wait(Duration::from_secs(1));
    assert_eq!(stage.store.published(), 4);
    assert_eq!(stage.store.own().map(|own| own.announcement.public.v4), Some("10.0.0.21".parse().ok()));
}
