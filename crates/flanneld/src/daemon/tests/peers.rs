//! Other nodes come, move, go, and say what cannot be followed.

use flannel_plan::state::Key;

use super::super::*;
use super::memory::*;
use super::stage::*;

/// What the store says of other nodes becomes this.
fn say(stage: &mut Stage, peers: &[Lease]) {
    stage.changes();
    stage.store.say(|snapshot| snapshot.peers = peers.iter().cloned().map(Arc::new).collect());
    stage.listen();
}

#[test]
fn a_peer_that_joins_is_three_creates_in_order_without_a_look() {
    let mut stage = Stage::ready();
    say(&mut stage, &[peer(2), peer(3), peer(4)]);
    let joined = [
        "+ fdb 02:00:00:00:00:04 dev flannel.1 to 10.0.0.24",
        "+ neighbour 10.244.4.0 dev flannel.1 mac 02:00:00:00:00:04",
        "+ route 10.244.4.0/24 via 10.244.4.0 dev flannel.1 onlink",
    ];
    assert_eq!(stage.changes(), joined);
    assert!(stage.daemon.fast_path.is_taken());
    stage.wait(Duration::from_secs(1));
    assert_eq!((stage.changes(), stage.readyz()), (vec![], vec![READY.to_owned()]));
    assert!(!stage.daemon.fast_path.is_taken(), "a look has followed");
}

#[test]
fn a_peer_that_moves_is_one_replace() {
    let mut stage = Stage::ready();
    say(&mut stage, &[lease("worker2", 2, "10.0.0.99"), peer(3)]);
    let old = "fdb 02:00:00:00:00:02 dev flannel.1 to 10.0.0.22";
    assert_eq!(stage.changes(), [format!("~ {old} -> fdb 02:00:00:00:00:02 dev flannel.1 to 10.0.0.99")]);
}

#[test]
fn a_peer_that_leaves_goes_backwards() {
    let mut stage = Stage::ready();
    say(&mut stage, &[peer(3)]);
    let left = [
        "- route 10.244.2.0/24 via 10.244.2.0 dev flannel.1 onlink",
        "- neighbour 10.244.2.0 dev flannel.1 mac 02:00:00:00:00:02",
        "- fdb 02:00:00:00:00:02 dev flannel.1 to 10.0.0.22",
    ];
    assert_eq!((stage.changes(), stage.readyz()), (left.map(str::to_owned).to_vec(), vec![READY.to_owned()]));
}

#[test]
fn a_peer_that_cannot_be_reached_is_named_and_tried_again_and_the_node_stays_ready() {
    let mut stage = Stage::ready();
    stage.kernel().refuses.insert(Key::Route("10.244.4.0/24".parse().unwrap()), denied());
    say(&mut stage, &[peer(2), peer(3), peer(4)]);
    assert_eq!(stage.changes().len(), 2, "all but the route");
    let route = "route 10.244.4.0/24 via 10.244.4.0 dev flannel.1 onlink";
    let [note] = &stage.notes()[..] else { panic!("one note") };
    assert!(note.starts_with(&format!("cannot create {route}: {DENIED}")), "{note}");
    assert_eq!(stage.rests_for(), FIRST_RETRY);
    stage.wait(FIRST_RETRY);
    assert_eq!(stage.rests_for(), 2 * FIRST_RETRY);
    stage.kernel().refuses.clear();
    stage.wait(2 * FIRST_RETRY);
    assert_eq!((stage.changes(), stage.readyz()), (vec![format!("+ {route}")], vec![READY.to_owned()]));
    assert_eq!(stage.rests_for(), SAFETY_INTERVAL);
}

#[test]
fn of_two_nodes_with_one_subnet_the_first_stays_and_the_other_is_named() {
    let mut stage = Stage::ready();
    let thief = Lease { subnets: peer(2).subnets, ..peer(4) };
    say(&mut stage, &[peer(2), peer(3), thief.clone()]);
    let [note] = &stage.notes()[..] else { panic!("one note") };
    assert!(note.contains("worker4") && note.contains("10.244.2.0/24"), "{note}");
    assert_eq!(stage.changes(), [""; 0]);
    let mut stage = stage.restart();
    assert_eq!((stage.changes(), stage.notes().len()), (vec![], 1), "also after a restart");
    say(&mut stage, &[peer(3), thief]);
    let expected = ["~ neighbour 10.244.2.0 dev flannel.1 mac 02:00:00:00:00:02 -> \
         neighbour 10.244.2.0 dev flannel.1 mac 02:00:00:00:00:04"];
    assert!(stage.changes().contains(&expected[0].to_owned()), "nobody else has it any more");
    assert_eq!(stage.readyz(), [READY]);
}

#[test]
fn a_look_for_which_only_time_asked_gives_way_to_the_news_of_the_store() {
    let mut stage = Stage::ready();
    stage.changes();
    stage.kernel().urgent = true;
    stage.kernel().now.routes.retain(|fact| !fact.route.onlink);
    stage.store.say(|snapshot| snapshot.peers.push(Arc::new(peer(4))));
    let handle = stage.handle();
    let within = handle.enter();
    assert_eq!(stage.daemon.turn(Wake::Time), None);
    drop(within);
    stage.listen();
    assert_eq!(stage.changes().len(), 3, "the new peer comes first");
    stage.wake(Wake::Observation);
    let repaired =
        ["10.244.2.0", "10.244.3.0"].map(|net| format!("+ route {net}/24 via {net} dev flannel.1 onlink"));
    assert_eq!(stage.changes(), repaired);
}
