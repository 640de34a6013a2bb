//! Routes against the real kernel.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod sandbox;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use flannel_kernel::{Kernel, Linux, Urgent};
use flannel_plan::diff::Change;
use flannel_plan::observation::{ObserveOptions, RouteFact, Scope};
use flannel_plan::state::{Item, PROTOCOL_BOOT, Route, RouteKind};
use sandbox::*;

fn routes_to(kernel: &mut Linux, destination: &str) -> Vec<RouteFact> {
    let destination = destination.parse().unwrap();
    observe(kernel).routes.into_iter().filter(|fact| fact.route.destination == destination).collect()
}

fn plain(item: Item) -> RouteFact {
    let Item::Route(route) = item else { panic!("{item}") };
    RouteFact { route, metric: 0, source: None }
}

#[test]
fn a_route_replaces_whatever_has_its_destination_in_one_step() {
    with_flannel_1(|kernel| {
        let wanted = route("flannel.1", "10.244.2.0/24", "10.244.2.0");
        for other in [
            "10.244.2.0/24 via 10.244.2.0 dev flannel.1 onlink",
            "10.244.2.0/24 via 10.0.0.2",
            "10.244.2.0/24 dev nic",
            "10.244.2.0/24 nexthop via 10.0.0.2 dev nic nexthop via 10.0.0.3 dev nic",
            "blackhole 10.244.2.0/24",
        ] {
            sh(&format!("ip route flush 10.244.2.0/24 && ip route add {other}"));
            apply(kernel, &create([wanted.clone()]));
            assert_eq!(routes_to(kernel, "10.244.2.0/24"), [plain(wanted.clone())], "{other}");
        }
    });
}

#[test]
fn an_ipv6_route_replaces_whatever_has_its_destination_and_leaves_no_sibling() {
    with_flannel_v6_1(|kernel| {
        let wanted = route("flannel-v6.1", "fd00:244:0:2::/64", "fd00:244:0:2::");
        for other in [
            "fd00:244:0:2::/64 via fd00:244:0:2:: dev flannel-v6.1 onlink",
            "fd00:244:0:2::/64 via fd00::2 dev nic",
            "fd00:244:0:2::/64 dev nic",
            "fd00:244:0:2::/64 nexthop via fd00::2 dev nic nexthop via fd00::3 dev nic",
            "blackhole fd00:244:0:2::/64",
        ] {
            sh(&format!("ip -6 route flush fd00:244:0:2::/64 && ip -6 route add {other}"));
            apply(kernel, &create([wanted.clone()]));
            assert_eq!(routes_to(kernel, "fd00:244:0:2::/64"), [plain(wanted.clone())], "{other}");
        }
    });
}

#[test]
fn an_ipv6_route_is_made_although_a_wider_one_leads_its_router_elsewhere() {
    with_flannel_v6_1(|kernel| {
        sh("ip -6 route add fd00:244::/48 via fd00::fe dev nic");
        let wanted = route("flannel-v6.1", "fd00:244:0:2::/64", "fd00:244:0:2::");
        apply(kernel, &create([wanted.clone()]));
        assert_eq!(routes_to(kernel, "fd00:244:0:2::/64"), [plain(wanted.clone())]);
        assert_eq!(routes_to(kernel, "fd00:244:0:2::/128"), []);
        // What the kernel says to whoever asks it plainly:
        let plainly =
            "ip -6 route add fd00:244:0:3::/64 via fd00:244:0:3:: dev flannel-v6.1 onlink 2>&1 || true";
        assert_eq!(lines(plainly), ["Error: Nexthop has invalid gateway or device mismatch."]);
    });
}

#[test]
fn a_removal_takes_exactly_the_route_that_it_names() {
    with_flannel_1(|kernel| {
        let ours = route("flannel.1", "10.244.2.0/24", "10.244.2.0");
        for foreign in [
            "10.244.2.0/24 via 10.244.2.0 dev flannel.1 onlink",
            "10.244.2.0/24 via 10.244.2.1 dev flannel.1 onlink proto 70",
            "10.244.2.0/24 via 10.244.2.0 dev nic onlink proto 70",
            "10.244.2.0/25 via 10.244.2.0 dev flannel.1 onlink proto 70",
            "blackhole 10.244.2.0/24 proto 70",
            "10.244.2.0/24 via 10.244.2.0 dev flannel.1 onlink proto 70 table 99",
        ] {
            sh(&format!("ip route add {foreign}"));
            apply(kernel, &remove([ours.clone()]));
            sh(&format!("ip route del {foreign}"));
        }
    });
}

#[test]
fn a_removal_takes_exactly_the_ipv6_route_that_it_names() {
    with_flannel_v6_1(|kernel| {
        let ours = route("flannel-v6.1", "fd00:244:0:2::/64", "fd00:244:0:2::");
        for foreign in [
            "fd00:244:0:2::/64 via fd00:244:0:2:: dev flannel-v6.1 onlink",
            "fd00:244:0:2::/64 via fd00:244:0:2::1 dev flannel-v6.1 onlink proto 70",
            "fd00:244:0:2::/64 via fd00:244:0:2:: dev nic onlink proto 70",
            "fd00:244:0:2::/64 via fd00:244:0:2:: dev flannel-v6.1 onlink proto 70 metric 7",
            "blackhole fd00:244:0:2::/64 proto 70",
            "fd00:244:0:2::/64 via fd00:244:0:2:: dev flannel-v6.1 onlink proto 70 table 99",
        ] {
            sh(&format!("ip -6 route add {foreign}"));
            apply(kernel, &remove([ours.clone()]));
            sh(&format!("ip -6 route del {foreign}"));
        }
    });
}

#[test]
fn routes_of_others_are_found_as_they_are() {
    with_a_nic(|kernel| {
        sh("ip route add default via 10.0.0.254
            ip route add 10.1.0.0/16 via 10.0.0.2 metric 7 src 10.0.0.1 proto static
            ip route add 10.2.0.0/16 nexthop via 10.0.0.2 nexthop via 10.0.0.3
            ip route add unreachable 10.3.0.0/16
            ip route add throw 10.4.0.0/16
            ip route add 10.5.0.0/16 via inet6 fd00::2 dev nic
            ip route add 10.6.0.0/16 via 10.0.0.2 tos 8
            ip route add 10.7.0.0/16 via 10.0.0.2 table 99
            ip -6 route add default via fd00::fe
            ip -6 route add prohibit fd00:3::/64
            ip -6 route add fd00:4::/64 via fd00::2 metric 5");
        let route = |destination: &str, kind, via: Option<&str>, link: Option<&str>, protocol| Route {
            destination: destination.parse().unwrap(),
            kind,
            via: via.map(ip),
            link: link.map(name),
            onlink: false,
            protocol,
        };
        use RouteKind::{Blackhole, Multipath, Other, Unicast};
        let (nic, boot) = (Some("nic"), PROTOCOL_BOOT);
        let fact = |route, metric, source: Option<&str>| RouteFact { route, metric, source: source.map(ip) };
        let expected = [
            fact(route("0.0.0.0/0", Unicast, Some("10.0.0.254"), nic, boot), 0, None),
            fact(route("10.0.0.0/24", Unicast, None, nic, 2), 0, Some("10.0.0.1")),
            fact(route("10.1.0.0/16", Unicast, Some("10.0.0.2"), nic, 4), 7, Some("10.0.0.1")),
            fact(route("10.2.0.0/16", Multipath, None, None, boot), 0, None),
            fact(route("10.3.0.0/16", Blackhole, None, None, boot), 0, None),
            fact(route("10.4.0.0/16", Other, None, None, boot), 0, None),
            fact(route("10.5.0.0/16", Unicast, Some("fd00::2"), nic, boot), 0, None),
            fact(route("::/0", Unicast, Some("fd00::fe"), nic, boot), 0, None),
            fact(route("fd00:3::/64", Blackhole, None, None, boot), 0, None),
            fact(route("fd00:4::/64", Unicast, Some("fd00::2"), nic, boot), 5, None),
            fact(route("fd00::/64", Unicast, None, nic, 2), 256, None),
        ];
        let mut found = observe(kernel).routes;
        found.sort_by_key(|fact| fact.route.destination.to_string().replace("::/0", ":"));
        assert_eq!(found, expected);
    });
}

#[test]
fn routes_without_a_tunnel_are_made_and_removed() {
    with_a_nic(|kernel| {
        let direct = |destination: &str, via: Option<&str>| {
            let Item::Route(base) = route("nic", destination, "10.0.0.2") else { panic!("a route") };
            Item::Route(Route { via: via.map(ip), onlink: false, ..base })
        };
        let items = [
            direct("10.244.2.0/24", Some("10.0.0.2")),
            direct("10.244.3.0/24", None),
            direct("10.244.4.0/24", Some("fd00::2")),
            direct("fd00:244:0:2::/64", Some("fd00::2")),
            direct("fd00:244:0:3::/64", None),
        ];
        let before = observe(kernel);
        apply(kernel, &create(items.clone()));
        for item in items.clone() {
            let Item::Route(route) = item else { panic!("{item}") };
            assert_eq!(routes_to(kernel, &route.destination.to_string()), [plain(item)]);
        }
        apply(kernel, &remove(items));
        assert_eq!(observe(kernel), before);
    });
}

#[test]
fn blackhole_routes_are_made_and_removed_in_both_families() {
    with_a_nic(|kernel| {
        let before = observe(kernel);
        let items = ["10.244.1.0/24", "fd00:244:0:1::/64"].map(|destination| {
            let Item::Route(base) = route("nic", destination, "10.0.0.2") else { panic!("a route") };
            Item::Route(Route { kind: RouteKind::Blackhole, via: None, link: None, onlink: false, ..base })
        });
        apply(kernel, &create(items.clone()));
        assert_eq!(routes_to(kernel, "10.244.1.0/24"), [plain(items[0].clone())]);
        assert_eq!(routes_to(kernel, "fd00:244:0:1::/64"), [plain(items[1].clone())]);
        apply(kernel, &remove(items));
        assert_eq!(observe(kernel), before);
    });
}

#[test]
fn a_router_out_of_reach_is_refused_in_the_kernels_own_words_with_a_way_out() {
    with_a_nic(|kernel| {
        let Item::Route(base) = route("nic", "10.244.2.0/24", "10.99.0.1") else { panic!("a route") };
        let far = Item::Route(Route { onlink: false, ..base });
        let (error, hint) = complaint(kernel, Change::Create(far));
        assert_eq!(
            error,
            "cannot create route 10.244.2.0/24 via 10.99.0.1 dev nic: \
             Network is unreachable: Nexthop has invalid gateway"
        );
        assert_eq!(
            hint.unwrap(),
            "the next router is on no network of this node: is the device up, and does it have its address?"
        );
    });
}

#[test]
fn no_route_leads_to_an_address_of_the_host_and_its_successor_keeps_what_the_device_has() {
    with_an_ipv4_nic(|kernel| {
        apply(kernel, &create([link(flannel_1()), address("flannel.1", "10.244.1.0/32")]));
        apply(kernel, &create(peer(2)));
        let before = ours(kernel);
        let to_own = route("flannel.1", "10.244.1.0/24", "10.244.1.0");
        let (error, _) = complaint(kernel, Change::Create(to_own.clone()));
        assert!(error.ends_with("Nexthop has invalid gateway"), "{error}");
        apply(kernel, &create([address("flannel.1", "10.244.7.0/32")]));
        apply(kernel, &remove([address("flannel.1", "10.244.1.0/32")]));
        apply(kernel, &create([to_own.clone()]));
        let kept = before.into_iter().filter(|item| *item != address("flannel.1", "10.244.1.0/32"));
        let mut expected: Vec<_> = kept.chain([address("flannel.1", "10.244.7.0/32"), to_own]).collect();
        expected.sort_by(Item::cmp_object);
        let mut found = ours(kernel);
        found.sort_by(Item::cmp_object);
        assert_eq!(found, expected);
    });
}

#[test]
fn a_route_through_a_cable_that_is_out_is_the_same_route() {
    with_a_nic(|kernel| {
        sh("ip route add default via 10.0.0.254 && ip -6 route add default via fd00::fe");
        let before = observe(kernel).routes;
        sh("ip link set far down");
        until("the kernel has noticed", || sh("ip route show default").contains("linkdown"));
        assert_eq!(observe(kernel).routes, before);
    });
}

#[test]
fn a_look_gives_way_in_the_middle_and_the_next_one_is_whole() {
    with_flannel_1(|kernel| {
        // More than the kernel tells at once.
        let many = (0..5000).map(|n| format!("route add 10.{}.{}.0/24 dev nic\n", 128 + n / 250, n % 250));
        std::fs::write("/run/many", many.collect::<String>()).unwrap();
        sh("ip -batch /run/many");
        let asked = Arc::new(AtomicUsize::new(0));
        let count = |limit: usize| -> Urgent {
            let asked = Arc::clone(&asked);
            Arc::new(move || asked.fetch_add(1, Ordering::Relaxed) >= limit)
        };
        let options = ObserveOptions { gives_way: true, ..ObserveOptions::default() };
        let gives_way = Scope { options, ..scope() };
        kernel.give_way_to(count(usize::MAX));
        let whole = kernel.observe(&gives_way).unwrap().routes;
        assert!(whole.len() > 5000);
        let questions = asked.swap(0, Ordering::Relaxed);
        for limit in [0, questions / 2] {
            kernel.give_way_to(count(limit));
            let given_up = kernel.observe(&gives_way).map(drop).unwrap_err();
            assert!(given_up.gave_way(), "{given_up}");
            assert_eq!(asked.swap(0, Ordering::Relaxed), limit + 1);
            kernel.give_way_to(Arc::new(|| false));
            let again = kernel.observe(&gives_way).unwrap().routes;
            assert!(again == whole && observe(kernel).routes == whole);
        }
    });
}
