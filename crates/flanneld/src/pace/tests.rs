use flannel_leases::Fault;
use flannel_plan::config::NetworkConfig;
use flannel_plan::finding::Code;
use flannel_plan::lease::Announcement;

use super::*;

/// What a peer at 10.0.0.N says of itself.
fn lease(subnet: u8, address: u8) -> Arc<Lease> {
    let subnets = ByFamily { v4: format!("10.244.{subnet}.0/24").parse().ok(), v6: None };
    let public = ByFamily { v4: Some([10, 0, 0, address].into()), v6: None };
    let announcement = Announcement { public, ..Announcement::default() };
    Arc::new(Lease { owner: format!("node{subnet}"), subnets, announcement, since: 0 })
}

fn snapshot(peers: &[Arc<Lease>]) -> Snapshot {
    Snapshot {
        origin: None,
        version: None,
        is_stale: false,
        config: NetworkConfig::parse(r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}"#)
            .map_err(|_| Fault::new(Code::NetConfUnusable, "config", "")),
        own: None,
        own_is_damaged: false,
        rival: None,
        public: ByFamily::default(),
        announced: ByFamily::default(),
        peers: peers.to_vec(),
        faults: Vec::new(),
    }
}

/// The addresses of the peers that are passed on; none if nothing is.
fn addresses(passed: Option<Arc<Snapshot>>) -> Option<Vec<String>> {
    let address = |lease: &Arc<Lease>| lease.announcement.public.v4.unwrap().to_string();
    passed.map(|snapshot| snapshot.peers.iter().map(address).collect())
}

fn after(start: Instant, millis: u64) -> Instant {
    start + Duration::from_millis(millis)
}

/// A pace that has passed on a toggling peer's burst: 10.244.2.0/24 at 10.0.0.5, beside one at 10.0.0.1.
fn spent(start: Instant) -> Pace {
    let mut pace = Pace::default();
    pace.receive(snapshot(&[lease(1, 1), lease(2, 100)]), start);
    for n in 1..=5 {
        let passed = pace.receive(snapshot(&[lease(1, 1), lease(2, n)]), start);
        assert_eq!(addresses(passed).unwrap(), ["10.0.0.1".to_owned(), format!("10.0.0.{n}")]);
    }
    pace
}

#[test]
fn after_a_burst_the_newest_word_of_a_peer_is_passed_on_once_a_second() {
    let start = Instant::now();
    let mut pace = spent(start);
    for n in 6..=9 {
        assert_eq!(addresses(pace.receive(snapshot(&[lease(1, 1), lease(2, n)]), after(start, 100))), None);
        assert_eq!(pace.due(), Some(after(start, 1000)));
    }
    assert_eq!(addresses(pace.pass_on(after(start, 1000))).unwrap(), ["10.0.0.1", "10.0.0.9"]);
    assert_eq!((pace.due(), addresses(pace.pass_on(after(start, 1500)))), (None, None));
    assert_eq!(addresses(pace.receive(snapshot(&[lease(1, 1), lease(2, 10)]), after(start, 1500))), None);
    assert_eq!(pace.due(), Some(after(start, 2000)));
}

#[test]
fn others_are_passed_on_at_once_while_one_is_held_back() {
    let start = Instant::now();
    let mut pace = spent(start);
    let toggled = lease(2, 6);
    assert_eq!(addresses(pace.receive(snapshot(&[lease(1, 1), toggled.clone()]), start)), None);
    let passed = pace.receive(snapshot(&[lease(1, 11), toggled.clone(), lease(3, 3)]), start);
    assert_eq!(addresses(passed).unwrap(), ["10.0.0.11", "10.0.0.5", "10.0.0.3"]);
    let mut damaged = snapshot(&[lease(1, 11), toggled, lease(3, 3)]);
    damaged.own_is_damaged = true;
    let passed = pace.receive(damaged, start).unwrap();
    assert!(passed.own_is_damaged);
    assert_eq!(addresses(Some(passed)).unwrap(), ["10.0.0.11", "10.0.0.5", "10.0.0.3"]);
}

#[test]
fn a_peer_that_goes_or_is_back_as_it_was_is_held_to_the_same_pace() {
    let start = Instant::now();
    let mut pace = spent(start);
    assert_eq!(addresses(pace.receive(snapshot(&[lease(1, 1)]), after(start, 10))), None);
    assert_eq!(addresses(pace.receive(snapshot(&[lease(1, 1), lease(2, 5)]), after(start, 20))), None);
    assert_eq!(pace.due(), None, "nothing is held back any more");
    assert_eq!(addresses(pace.receive(snapshot(&[lease(1, 1)]), after(start, 30))), None);
    assert_eq!(addresses(pace.pass_on(after(start, 1000))).unwrap(), ["10.0.0.1"]);
}

#[test]
fn a_peer_that_was_quiet_for_five_seconds_has_its_burst_again() {
    let start = Instant::now();
    let mut pace = spent(start);
    for n in 20..25 {
        let passed = pace.receive(snapshot(&[lease(1, 1), lease(2, n)]), after(start, 5000));
        assert_eq!(addresses(passed).unwrap(), ["10.0.0.1".to_owned(), format!("10.0.0.{n}")]);
    }
    assert_eq!(addresses(pace.receive(snapshot(&[lease(1, 1)]), after(start, 5000))), None);
}

#[test]
fn faults_that_keep_changing_are_passed_on_once_a_second_and_peers_beside_them_at_once() {
    let start = Instant::now();
    let mut pace = Pace::default();
    let faulty = |n: u8, peers: &[Arc<Lease>]| Snapshot {
        faults: vec![Fault::new(Code::LeaseUnreadable, "node a", n.to_string())],
        ..snapshot(peers)
    };
    let told = |passed: Arc<Snapshot>| passed.faults[0].reason.clone();
    for n in 0..=5 {
        assert_eq!(pace.receive(faulty(n, &[]), start).map(told), Some(n.to_string()));
    }
    assert_eq!(pace.receive(faulty(6, &[]), start).map(told), None);
    let passed = pace.receive(faulty(7, &[lease(1, 1)]), start).unwrap();
    assert_eq!((passed.faults[0].reason.as_str(), passed.peers.len()), ("5", 1));
    assert_eq!(pace.pass_on(after(start, 1000)).map(told), Some("7".to_owned()));
}
