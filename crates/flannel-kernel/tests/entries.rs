//! Addresses, forwarding entries and neighbours against the real kernel.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod sandbox;

use flannel_plan::diff::Change;
use flannel_plan::observation::AddressFact;
use flannel_plan::state::{FdbEntry, Item, Neighbour};
use sandbox::*;

fn unmarked(item: Item) -> Item {
    let Item::Fdb(entry) = item else { panic!("{item}") };
    Item::Fdb(FdbEntry { marked: false, ..entry })
}

#[test]
fn an_ipv4_address_looks_as_go_flannel_makes_it() {
    with_flannel_1(|_| {
        let shown = lines("ip -4 addr show flannel.1 | grep inet");
        assert_eq!(shown, ["inet 10.244.1.0/32 scope global flannel.1"]);
    });
}

#[test]
fn an_ipv6_address_is_usable_at_once() {
    with_flannel_v6_1(|kernel| {
        let wanted = "fd00:244:0:1::/128".parse().unwrap();
        let found = observe(kernel).addresses.into_iter().find(|fact| fact.address == wanted).unwrap();
        let fact = AddressFact {
            link: name("flannel-v6.1"),
            address: wanted,
            permanent: true,
            temporary: false,
            deprecated: false,
            unusable: false,
        };
        assert_eq!(found, fact);
        assert_eq!(
            lines("ip -6 addr show flannel-v6.1 scope global | grep inet6"),
            ["inet6 fd00:244:0:1::/128 scope global nodad"]
        );
    });
}

#[test]
fn an_address_that_must_not_be_used_says_so() {
    with_a_nic(|kernel| {
        // Without carrier the check for a double never ends.
        sh("ip link set far down
            ip addr add fd00:5::1/64 dev nic
            ip addr add 10.9.0.1/24 dev nic valid_lft 100 preferred_lft 0
            ip addr add 10.0.0.2/24 dev nic
            ip addr add 10.8.0.1 peer 10.8.0.2/32 dev nic");
        let mut seen: Vec<_> = observe(kernel)
            .addresses
            .into_iter()
            .filter(|fact| fact.link == name("nic") && !fact.address.to_string().starts_with("fe80"))
            .map(|fact| {
                (fact.address.to_string(), fact.permanent, fact.temporary, fact.deprecated, fact.unusable)
            })
            .collect();
        seen.sort();
        let expected = [
            ("10.0.0.1/24", true, false, false, false),
            ("10.0.0.2/24", true, false, false, false),
            ("10.8.0.1/32", true, false, false, false),
            ("10.9.0.1/24", false, false, true, false),
            ("fd00:5::1/64", true, false, false, true),
            ("fd00::1/64", true, false, false, false),
        ];
        assert_eq!(seen, expected.map(|(a, b, c, d, e)| (a.to_owned(), b, c, d, e)));
    });
}

#[test]
fn entries_of_both_families_are_found_again() {
    with_flannel_v6_1(|kernel| {
        let items = [
            fdb("flannel-v6.1", 2, "fd00::2"),
            neighbour("flannel-v6.1", "fd00:244:0:2::", 2),
            route("flannel-v6.1", "fd00:244:0:2::/64", "fd00:244:0:2::"),
        ];
        apply(kernel, &create(items.clone()));
        // The kernel's own route to the address is the only other thing there.
        let others = ours(kernel).into_iter().filter(|item| items.contains(item));
        assert_eq!(others.collect::<Vec<_>>(), items);
        assert_eq!(
            lines("ip -6 route show fd00:244:0:2::/64"),
            ["fd00:244:0:2::/64 via fd00:244:0:2:: dev flannel-v6.1 proto 70 metric 1024 onlink pref medium"]
        );
        assert_eq!(
            lines("bridge fdb show dev flannel-v6.1"),
            ["02:00:00:00:00:02 dst fd00::2 self extern_learn permanent"]
        );
        apply(kernel, &remove(items.clone()));
        assert!(!ours(kernel).iter().any(|item| items.contains(item)));
    });
}

#[test]
fn a_peer_that_moves_changes_its_forwarding_entry_in_one_step() {
    with_flannel_1(|kernel| {
        apply(kernel, &create(peer(2)));
        let after = fdb("flannel.1", 2, "10.0.0.77");
        apply(kernel, &replace(fdb("flannel.1", 2, "10.0.0.2"), after));
        assert_eq!(
            lines("bridge fdb show dev flannel.1"),
            ["02:00:00:00:00:02 dst 10.0.0.77 self extern_learn permanent"]
        );
    });
}

#[test]
fn an_entry_that_go_flannel_made_gets_our_mark() {
    with_flannel_1(|kernel| {
        sh("bridge fdb add 02:00:00:00:00:02 dev flannel.1 dst 10.0.0.2");
        let wanted = fdb("flannel.1", 2, "10.0.0.2");
        assert_eq!(
            observe(kernel).fdb.into_iter().map(Item::Fdb).collect::<Vec<_>>(),
            [unmarked(wanted.clone())]
        );
        apply(kernel, &replace(unmarked(wanted.clone()), wanted.clone()));
        assert_eq!(observe(kernel).fdb.into_iter().map(Item::Fdb).collect::<Vec<_>>(), [wanted]);
    });
}

#[test]
fn linux_does_not_mark_an_entry_that_was_made_without_a_mark() {
    with_flannel_1(|_| {
        sh("bridge fdb add 02:00:00:00:00:02 dev flannel.1 dst 10.0.0.2
            bridge fdb replace 02:00:00:00:00:02 dev flannel.1 dst 10.0.0.3 extern_learn");
        assert_eq!(lines("bridge fdb show dev flannel.1"), ["02:00:00:00:00:02 dst 10.0.0.3 self permanent"]);
    });
}

#[test]
fn a_replace_in_the_way_of_go_takes_our_mark_off_an_entry() {
    with_flannel_1(|kernel| {
        apply(kernel, &create(peer(2)));
        sh("bridge fdb replace 02:00:00:00:00:02 dev flannel.1 dst 10.0.0.2");
        let wanted = fdb("flannel.1", 2, "10.0.0.2");
        assert_eq!(observe(kernel).fdb.into_iter().map(Item::Fdb).collect::<Vec<_>>(), [unmarked(wanted)]);
    });
}

#[test]
fn linux_answers_success_to_a_removal_with_a_wrong_destination_and_removes_nothing() {
    with_flannel_1(|kernel| {
        apply(kernel, &create(peer(2)));
        sh("bridge fdb del 02:00:00:00:00:02 dev flannel.1 dst 9.9.9.9");
        assert_eq!(observe(kernel).fdb.len(), 1);
        apply(kernel, &remove([fdb("flannel.1", 2, "9.9.9.9")]));
        assert_eq!(observe(kernel).fdb, []);
    });
}

#[test]
fn an_entry_with_a_port_of_its_own_has_no_plain_destination_and_is_put_right() {
    with_flannel_1(|kernel| {
        sh("bridge fdb add 02:00:00:00:00:02 dev flannel.1 dst 10.0.0.2 port 99 extern_learn");
        let found = observe(kernel).fdb;
        let odd = FdbEntry { link: name("flannel.1"), mac: mac(2), destination: None, marked: true };
        assert_eq!(found, [odd]);
        let wanted = fdb("flannel.1", 2, "10.0.0.2");
        apply(kernel, &replace(Item::Fdb(odd), wanted.clone()));
        assert_eq!(observe(kernel).fdb.into_iter().map(Item::Fdb).collect::<Vec<_>>(), [wanted]);
    });
}

#[test]
fn an_entry_with_two_destinations_is_one_entry_without_a_plain_one() {
    with_flannel_1(|kernel| {
        sh("bridge fdb append 00:00:00:00:00:00 dev flannel.1 dst 10.0.0.2
            bridge fdb append 00:00:00:00:00:00 dev flannel.1 dst 10.0.0.3");
        let (link, mac) = (name("flannel.1"), flannel_plan::mac::Mac([0; 6]));
        assert_eq!(observe(kernel).fdb, [FdbEntry { link, mac, destination: None, marked: false }]);
    });
}

#[test]
fn entries_of_a_bridge_that_the_device_is_a_port_of_are_not_the_devices() {
    with_flannel_1(|kernel| {
        apply(kernel, &create(peer(2)));
        sh("ip link add br0 type bridge && ip link set br0 up && ip link set flannel.1 master br0
            bridge fdb add 02:00:00:00:00:77 dev flannel.1 master static");
        let [entry, ..] = peer(2);
        assert_eq!(observe(kernel).fdb.into_iter().map(Item::Fdb).collect::<Vec<_>>(), [entry]);
    });
}

#[test]
fn our_protocol_on_a_neighbour_survives_a_replace_in_the_way_of_go() {
    with_flannel_1(|kernel| {
        apply(kernel, &create(peer(2)));
        sh("ip neigh replace 10.244.2.0 lladdr 02:00:00:00:00:09 dev flannel.1 nud permanent");
        let found: Vec<_> = observe(kernel).neighbours.into_iter().map(Item::Neighbour).collect();
        assert_eq!(found, [neighbour("flannel.1", "10.244.2.0", 9)]);
    });
}

#[test]
fn a_neighbour_that_go_flannel_made_gets_our_protocol_in_one_step() {
    with_flannel_1(|kernel| {
        sh("ip neigh add 10.244.2.0 lladdr 02:00:00:00:00:02 dev flannel.1 nud permanent");
        let wanted = neighbour("flannel.1", "10.244.2.0", 2);
        let Item::Neighbour(ours) = wanted else { panic!("{wanted}") };
        let theirs = Neighbour { protocol: 0, ..ours };
        assert_eq!(observe(kernel).neighbours, [theirs]);
        apply(kernel, &replace(Item::Neighbour(theirs), wanted));
        assert_eq!(observe(kernel).neighbours, [ours]);
    });
}

#[test]
fn neighbours_that_are_not_permanent_or_not_on_our_devices_are_not_found() {
    with_flannel_1(|kernel| {
        sh("ip neigh add 10.244.9.0 lladdr 02:00:00:00:00:09 dev flannel.1 nud reachable
            ip neigh add 10.0.0.9 lladdr 02:00:00:00:00:09 dev nic nud permanent");
        assert_eq!(observe(kernel).neighbours, []);
    });
}

#[test]
fn a_device_with_our_mark_is_looked_at_under_any_name() {
    with_flannel_1(|kernel| {
        apply(kernel, &create(peer(2)));
        sh("ip link set flannel.1 down && ip link set flannel.1 name old.1 && ip link set old.1 up");
        assert_eq!(
            observe(kernel).fdb.into_iter().map(Item::Fdb).collect::<Vec<_>>(),
            [fdb("old.1", 2, "10.0.0.2")]
        );
    });
}

#[test]
fn an_object_on_a_device_that_is_gone_fails_to_be_made_and_is_removed_already() {
    with_a_nic(|kernel| {
        let [entry, ..] = peer(2);
        let (error, hint) = complaint(kernel, Change::Create(entry.clone()));
        assert_eq!(error, format!("cannot create {entry}: there is no device flannel.1"));
        assert_eq!(
            hint.unwrap(),
            "somebody removed flannel.1 a moment ago: it is made again at the next look"
        );
        apply(kernel, &remove(peer(2)));
    });
}

#[test]
fn an_ipv6_address_where_ipv6_is_off_or_the_mtu_too_small_is_refused_with_a_way_out() {
    with_a_nic(|kernel| {
        apply(kernel, &create([link(flannel_v6_1())]));
        sh("echo 1 > /proc/sys/net/ipv6/conf/flannel-v6.1/disable_ipv6");
        let change = Change::Create(address("flannel-v6.1", "fd00:244:0:1::/128"));
        let (error, hint) = complaint(kernel, change.clone());
        let what = "cannot create address fd00:244:0:1::/128 dev flannel-v6.1";
        assert_eq!(error, format!("{what}: Permission denied: ipv6: IPv6 is disabled on this device"));
        assert_eq!(hint.unwrap(), "switch IPv6 on: set net.ipv6.conf.*.disable_ipv6 to 0");
        sh("echo 0 > /proc/sys/net/ipv6/conf/flannel-v6.1/disable_ipv6 && ip link set flannel-v6.1 mtu 1200");
        let (error, hint) = complaint(kernel, change);
        assert_eq!(error, format!("{what}: Invalid argument"));
        assert_eq!(hint.unwrap(), "a device with IPv6 needs an MTU of at least 1280");
    });
}
