use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn raw(subnet: &str) -> RawRange {
    RawRange { subnet: Some(subnet.parse().unwrap()), ..RawRange::default() }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn set(subnets: &[&str]) -> RangeSet {
    RangeSet::check(&subnets.iter().map(|subnet| raw(subnet)).collect::<Vec<_>>()).unwrap()
}

fn words<T: fmt::Debug>(outcome: Result<T, CniError>) -> String {
    outcome.unwrap_err().msg
}

fn round(set: &RangeSet, last: Option<&str>) -> Vec<String> {
    set.candidates(last.map(ip)).map(|(address, _)| address.to_string()).collect()
}

#[test]
fn what_is_not_said_gets_the_usual_values() {
    for (subnet, start, end, gateway) in [
        ("192.0.2.0/24", "192.0.2.1", "192.0.2.254", "192.0.2.1"),
        ("192.0.2.0/25", "192.0.2.1", "192.0.2.126", "192.0.2.1"),
        ("10.0.0.0/30", "10.0.0.1", "10.0.0.2", "10.0.0.1"),
        ("2001:DB8:1::/64", "2001:db8:1::1", "2001:db8:1::ffff:ffff:ffff:ffff", "2001:db8:1::1"),
    ] {
        let expected =
            Range { subnet: subnet.parse().unwrap(), start: ip(start), end: ip(end), gateway: ip(gateway) };
        assert_eq!(raw(subnet).check(), Ok(expected));
    }
}

#[test]
fn what_is_said_counts() {
    let said = RawRange {
        start: Some(ip("192.0.2.40")),
        end: Some(ip("192.0.2.50")),
        gateway: Some(ip("192.0.9.254")),
        ..raw("192.0.2.0/24")
    };
    let range = said.check().unwrap();
    assert_eq!((range.start, range.end), (ip("192.0.2.40"), ip("192.0.2.50")));
    assert_eq!(range.gateway, ip("192.0.9.254"));
}

#[test]
fn the_network_and_the_broadcast_address_can_be_given_if_said() {
    let whole = RawRange { start: Some(ip("10.0.0.0")), end: Some(ip("10.0.0.3")), ..raw("10.0.0.0/30") };
    let whole = RangeSet::check(&[whole]).unwrap();
    assert_eq!(round(&whole, None), ["10.0.0.0", "10.0.0.2", "10.0.0.3"]);
    let last = RawRange { start: Some(ip("10.0.0.3")), ..raw("10.0.0.0/30") };
    assert_eq!(round(&RangeSet::check(&[last]).unwrap(), None), ["10.0.0.3"]);
}

#[test]
fn a_network_that_makes_no_sense_is_refused_in_the_words_of_go() {
    let host_bits = "Network has host bits set. For a subnet mask of length";
    for (subnet, text) in [
        ("192.0.2.0/31", "Network 192.0.2.0/31 too small to allocate from".to_owned()),
        ("192.0.2.0/32", "Network 192.0.2.0/32 too small to allocate from".to_owned()),
        ("fd00::/127", "Network fd00::/127 too small to allocate from".to_owned()),
        ("192.0.2.12/24", format!("{host_bits} 24 the network address is 192.0.2.0")),
        ("192.168.127.0/23", format!("{host_bits} 23 the network address is 192.168.126.0")),
        ("2001:DB8:1::24:19ff:fee1:c44a/64", format!("{host_bits} 64 the network address is 2001:db8:1::")),
        ("2001:DB8:24:19ff::/63", format!("{host_bits} 63 the network address is 2001:db8:24:19fe::")),
        ("::ffff:10.0.0.0/120", "IPNet IP and Mask version mismatch".to_owned()),
    ] {
        assert_eq!(words(raw(subnet).check()), text);
    }
    assert_eq!(words(RawRange::default().check()), "IP <nil> not v4 nor v6");
}

#[test]
fn bounds_outside_of_the_network_or_in_the_wrong_order_are_refused() {
    for (start, end, text) in [
        (Some("192.0.3.0"), None, "RangeStart 192.0.3.0 not in network 192.0.2.0/24"),
        (Some("fd00::1"), None, "RangeStart fd00::1 not in network 192.0.2.0/24"),
        (None, Some("192.0.4.0"), "RangeEnd 192.0.4.0 not in network 192.0.2.0/24"),
        (None, Some("192.0.2.0"), "RangeEnd 192.0.2.0 not in network 192.0.2.0/24"),
        (Some("192.0.2.50"), Some("192.0.2.40"), "RangeStart 192.0.2.50 not in network 192.0.2.0/24"),
    ] {
        let range = RawRange { start: start.map(ip), end: end.map(ip), ..raw("192.0.2.0/24") };
        assert_eq!(words(range.check()), text);
    }
}

#[test]
fn an_address_is_of_a_range_from_its_first_to_its_last() {
    let bounds = |subnet, start, end| RawRange { start: Some(ip(start)), end: Some(ip(end)), ..raw(subnet) };
    let v4 = bounds("192.0.2.0/24", "192.0.2.40", "192.0.2.50").check().unwrap();
    let v6 = bounds("2001:DB8:1::/64", "2001:db8:1::40", "2001:db8:1::50").check().unwrap();
    for (range, address, contained) in [
        (v4, "192.0.3.0", false),
        (v4, "192.0.2.39", false),
        (v4, "192.0.2.40", true),
        (v4, "192.0.2.50", true),
        (v4, "192.0.2.51", false),
        (v4, "2001:db8:1::40", false),
        (v6, "2001:db8:2::", false),
        (v6, "2001:db8:1::39", false),
        (v6, "2001:db8:1::40", true),
        (v6, "2001:db8:1::50", true),
        (v6, "2001:db8:1::51", false),
        (v6, "192.0.2.40", false),
    ] {
        assert_eq!(range.contains(ip(address)), contained, "{address} in {range}");
    }
}

#[test]
fn ranges_overlap_only_where_they_share_an_address() {
    let until = |subnet, end| RawRange { end: Some(ip(end)), ..raw(subnet) };
    let from = |subnet, start| RawRange { start: Some(ip(start)), ..raw(subnet) };
    for (one, other, overlap) in [
        (raw("10.0.0.0/24"), raw("10.0.1.0/24"), false),
        (raw("0.0.0.0/24"), raw("::/24"), false),
        (raw("10.0.0.0/24"), raw("10.0.0.0/24"), true),
        (raw("10.0.0.0/20"), raw("10.0.1.0/24"), true),
        (until("10.0.0.0/24", "10.0.0.127"), from("10.0.0.0/24", "10.0.0.128"), false),
        (until("10.0.0.0/24", "10.0.0.127"), from("10.0.0.0/24", "10.0.0.127"), true),
    ] {
        let (one, other) = (RangeSet::check(&[one]).unwrap(), RangeSet::check(&[other]).unwrap());
        assert_eq!((one.overlaps(&other), other.overlaps(&one)), (overlap, overlap), "{one} {other}");
    }
}

#[test]
fn a_set_is_of_one_family_and_its_ranges_share_nothing() {
    assert_eq!(words(RangeSet::check(&[])), "empty range set");
    assert_eq!(words(RangeSet::check(&[raw("10.1.0.0/22"), raw("fd00::/64")])), "mixed address families");
    assert_eq!(
        words(RangeSet::check(&[raw("192.168.0.0/20"), raw("192.168.2.0/24")])),
        "subnets 192.168.0.1-192.168.15.254 and 192.168.2.1-192.168.2.254 overlap"
    );
    let two = set(&["192.168.0.0/24", "172.16.1.0/24"]);
    assert_eq!(two.to_string(), "192.168.0.1-192.168.0.254,172.16.1.1-172.16.1.254");
    let subnet_of = |address| two.range_of(ip(address)).map(|range| range.subnet.to_string());
    assert_eq!(subnet_of("172.16.1.9"), Some("172.16.1.0/24".to_owned()));
    assert_eq!(subnet_of("192.168.99.99"), None);
}

#[test]
fn a_round_starts_after_the_last_address_and_ends_with_it() {
    let small = set(&["192.168.1.0/29"]);
    let all = |numbers: [u8; 5]| numbers.map(|number| format!("192.168.1.{number}")).to_vec();
    assert_eq!(round(&small, None), all([2, 3, 4, 5, 6]));
    assert_eq!(round(&small, Some("192.168.1.6")), all([2, 3, 4, 5, 6]));
    assert_eq!(round(&small, Some("192.168.1.3")), all([4, 5, 6, 2, 3]));
    assert_eq!(round(&small, Some("10.9.9.9")), all([2, 3, 4, 5, 6]));
    assert_eq!(round(&small, Some("192.168.1.1")), all([2, 3, 4, 5, 6]));
}

#[test]
fn a_round_goes_through_all_ranges_and_back() {
    let bounds = |subnet, start, end| RawRange { start: Some(ip(start)), end: Some(ip(end)), ..raw(subnet) };
    let two = RangeSet::check(&[
        bounds("192.168.1.0/30", "192.168.1.0", "192.168.1.3"),
        bounds("192.168.2.0/30", "192.168.2.0", "192.168.2.3"),
    ])
    .unwrap();
    let all = ["192.168.1.0", "192.168.1.2", "192.168.1.3", "192.168.2.0", "192.168.2.2", "192.168.2.3"];
    assert_eq!(round(&two, None), all);
    let mut turned = all;
    turned.rotate_left(3);
    assert_eq!(round(&two, Some("192.168.1.3")), turned);
}

#[test]
fn a_round_without_any_address_to_give_ends() {
    let only_gateway = RawRange { end: Some(ip("10.0.0.1")), ..raw("10.0.0.0/30") };
    assert_eq!(round(&RangeSet::check(&[only_gateway]).unwrap(), None), [""; 0]);
    let top = RawRange { start: Some(ip("255.255.255.255")), ..raw("255.255.255.252/30") };
    assert_eq!(round(&RangeSet::check(&[top]).unwrap(), None), ["255.255.255.255"]);
}

fn small_set() -> impl Strategy<Value = RangeSet> {
    let range = |place: u8| {
        (0_u8..16, 0_u8..16, 0_u8..18).prop_map(move |(one, other, gateway)| RawRange {
            start: Some(ip(&format!("10.0.{place}.{}", one.min(other)))),
            end: Some(ip(&format!("10.0.{place}.{}", one.max(other)))),
            gateway: Some(ip(&format!("10.0.{place}.{gateway}"))),
            ..raw(&format!("10.0.{place}.0/28"))
        })
    };
    (1_u8..4)
        .prop_flat_map(move |count| (0..count).map(range).collect::<Vec<_>>())
        .prop_map(|ranges| RangeSet::check(&ranges).unwrap())
}

proptest! {
    #[test]
    fn a_round_has_each_address_but_routers_once_and_ends_with_the_last(
        set in small_set(), place in 0_u8..4, number in 0_u8..16,
    ) {
        let last = ip(&format!("10.0.{place}.{number}"));
        let round: Vec<IpAddr> = set.candidates(Some(last)).map(|(address, _)| address).collect();
        let each: BTreeSet<IpAddr> = round.iter().copied().collect();
        let expected: BTreeSet<IpAddr> = (0..4_u8)
            .flat_map(|place| (0..16_u8).map(move |number| ip(&format!("10.0.{place}.{number}"))))
            .filter(|address| set.range_of(*address).is_some_and(|range| range.gateway != *address))
            .collect();
        prop_assert_eq!(round.len(), each.len());
        prop_assert_eq!(&each, &expected);
        if each.contains(&last) {
            prop_assert_eq!(round.last(), Some(&last));
        }
    }

    #[test]
    fn a_checked_range_is_inside_of_its_network(
        address in any::<u32>(), length in 0_u8..=32, start in any::<Option<u32>>(), end in any::<Option<u32>>(),
    ) {
        let v4 = |number: u32| IpAddr::V4(number.into());
        let subnet = IpNet::new(v4(address), length).unwrap().trunc();
        let inside = |number: u32| {
            let host = !u32::try_from(u64::from(u32::MAX) << (32 - length) & u64::from(u32::MAX)).unwrap();
            let IpAddr::V4(network) = subnet.network() else { unreachable!() };
            v4(u32::from(network) | (number & host))
        };
        let raw = RawRange {
            subnet: Some(subnet), start: start.map(inside), end: end.map(inside), gateway: None,
        };
        if let Ok(range) = raw.check() {
            prop_assert!(range.start <= range.end);
            prop_assert!(subnet.contains(&range.start) && subnet.contains(&range.end));
        }
    }
}
