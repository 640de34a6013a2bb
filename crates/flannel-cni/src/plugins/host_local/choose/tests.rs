use std::collections::BTreeSet;

use super::super::range::RawRange;
use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn set(subnets: &[&str]) -> RangeSet {
    let raw = |subnet: &&str| RawRange { subnet: Some(subnet.parse().unwrap()), ..RawRange::default() };
    RangeSet::check(&subnets.iter().map(raw).collect::<Vec<_>>()).unwrap()
}

fn chosen(subnets: &[&str], question: Question<'_>, taken: &[&str]) -> Result<String, NoAddress> {
    let taken: BTreeSet<IpAddr> = taken.iter().copied().map(ip).collect();
    choose(&set(subnets), question, |address| taken.contains(&address))
        .map(|(address, _)| address.to_string())
}

const NOTHING: Question<'_> = Question { requested: None, last: None, held: &[] };

#[test]
fn addresses_are_given_in_turn() {
    let v4: &[&str] = &["10.0.0.0/29"];
    for (subnets, taken, last, expected) in [
        (v4, &[][..], None, "10.0.0.2"),
        (&["2001:db8:1::/64"], &[], None, "2001:db8:1::2"),
        (&["10.0.0.0/30"], &[], None, "10.0.0.2"),
        (v4, &["10.0.0.2"], None, "10.0.0.3"),
        (v4, &[], Some("10.0.0.5"), "10.0.0.6"),
        (v4, &["10.0.0.4", "10.0.0.5"], Some("10.0.0.3"), "10.0.0.6"),
        (v4, &["10.0.0.6"], Some("10.0.0.5"), "10.0.0.2"),
        (v4, &["10.0.0.2"], Some("10.0.0.128"), "10.0.0.3"),
        (v4, &["10.0.0.2", "10.0.0.4", "10.0.0.5", "10.0.0.6"], Some("10.0.0.3"), "10.0.0.3"),
        (&["10.0.0.0/30", "10.0.1.0/30"], &[], None, "10.0.0.2"),
        (&["10.0.0.0/30", "10.0.1.0/30"], &[], Some("10.0.0.2"), "10.0.1.2"),
        (&["10.0.0.0/30", "10.0.1.0/30", "10.0.2.0/30"], &[], Some("10.0.2.2"), "10.0.0.2"),
    ] {
        let question = Question { last: last.map(ip), ..NOTHING };
        assert_eq!(
            chosen(subnets, question, taken),
            Ok(expected.to_owned()),
            "{subnets:?} {taken:?} {last:?}"
        );
    }
}

#[test]
fn a_set_without_a_free_address_is_exhausted() {
    for (subnets, taken) in [
        (&["10.0.0.0/30"][..], &["10.0.0.2"][..]),
        (&["10.0.0.0/29"], &["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]),
        (&["10.0.0.0/30", "10.0.1.0/30"], &["10.0.0.2", "10.0.1.2"]),
    ] {
        assert_eq!(chosen(subnets, NOTHING, taken), Err(NoAddress::Exhausted), "{subnets:?}");
        let words = NoAddress::Exhausted.explain(&set(subnets), "id").msg;
        assert!(words.starts_with("no IP addresses available in range set: 10.0.0.1-10.0.0."), "{words}");
    }
}

#[test]
fn a_wish_is_met_unless_it_is_the_routers_or_somebodys() {
    let requested = |requested| Question { requested: Some(ip(requested)), ..NOTHING };
    let subnets = &["192.168.1.0/29"];
    assert_eq!(chosen(subnets, requested("192.168.1.5"), &[]), Ok("192.168.1.5".to_owned()));
    for (address, taken, refusal, words) in [
        (
            "192.168.1.5",
            &["192.168.1.5"][..],
            NoAddress::Taken(ip("192.168.1.5")),
            "requested IP address 192.168.1.5 is not available in range set 192.168.1.1-192.168.1.6",
        ),
        (
            "192.168.1.1",
            &[],
            NoAddress::Gateway(ip("192.168.1.1")),
            "requested ip 192.168.1.1 is subnet's gateway",
        ),
    ] {
        assert_eq!(chosen(subnets, requested(address), taken), Err(refusal.clone()));
        assert_eq!(refusal.explain(&set(subnets), "id").msg, words);
    }
}

#[test]
fn a_container_gets_one_address_of_a_set_wished_or_not() {
    let held = [ip("10.0.0.3")];
    for requested in [None, Some(ip("10.0.0.5"))] {
        let question = Question { requested, last: None, held: &held };
        let refusal = NoAddress::Duplicate(ip("10.0.0.3"));
        assert_eq!(chosen(&["10.0.0.0/29"], question, &["10.0.0.3"]), Err(refusal.clone()));
        let words = "10.0.0.3 has been allocated to id, duplicate allocation is not allowed";
        assert_eq!(refusal.explain(&set(&["10.0.0.0/29"]), "id").msg, words);
        let other = Question { requested: None, ..question };
        assert_eq!(chosen(&["10.0.1.0/29"], other, &[]), Ok("10.0.1.2".to_owned()));
    }
}

#[test]
fn each_set_meets_one_wish_and_the_rest_is_left() {
    let sets = [set(&["10.1.2.0/24"]), set(&["10.1.3.0/24"]), set(&["fd00::/64"])];
    let requested = ["10.1.2.88", "fd00::9", "10.1.2.77", "11.0.0.1"].map(ip);
    let (shares, left) = share_requested(&sets, &requested);
    assert_eq!(shares, [Some(ip("10.1.2.88")), None, Some(ip("fd00::9"))]);
    assert_eq!(left, ["10.1.2.77", "11.0.0.1"].map(ip));
}
