//! The kernel's notices: told when something of ours may have changed, silent otherwise.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod sandbox;

use std::sync::{Arc, RwLock};
use std::time::Duration;

use flannel_kernel::Linux;
use flannel_kernel::watch::{Interest, Notice, OwnEntry, Watch};
use flannel_plan::state::Item;
use sandbox::*;

/// Far longer than any notice takes; only a failing test waits so long.
const LIMIT: Duration = Duration::from_secs(10);

fn interest(kernel: &Linux) -> Interest {
    Interest {
        links: vec![name("flannel.1"), name("flannel-v6.1")],
        underlay: Some(name("nic")),
        obstacles: vec![],
        networks: vec!["10.244.0.0/16".parse().unwrap(), "fd00:244::/48".parse().unwrap()],
        own_ports: vec![kernel.port_id()],
        own_entries: vec![],
    }
}

fn watch(interest: Interest) -> Watch {
    Watch::open(Arc::new(RwLock::new(interest))).unwrap()
}

/// A node with both devices and one peer, and a watch that starts after that.
fn with_a_watch(test: impl FnOnce(&mut Linux, &mut Watch) + Send) {
    with_an_ipv4_nic(|kernel| {
        let devices = [link(flannel_v6_1()), link(flannel_1()), address("flannel.1", "10.244.1.0/32")];
        apply(kernel, &create(devices));
        apply(kernel, &create(peer(2)));
        apply(kernel, &create([route("flannel-v6.1", "fd00:244:0:2::/64", "fd00:244:0:2::")]));
        let mut watch = watch(interest(kernel));
        test(kernel, &mut watch);
    });
}

/// All notices up to those that are provoked now: whatever is still to come was provoked later.
fn told_until_now(watch: &mut Watch) -> Vec<Notice> {
    sh("ip route add 10.244.250.0/24 dev nic proto 99 && ip route del 10.244.250.0/24 dev nic proto 99");
    let end = told_route("10.244.250.0/24");
    let (mut told, mut ends) = (Vec::new(), 0);
    while ends < 2 {
        match watch.wait_at_most(LIMIT).unwrap() {
            Some(notice) if notice == end => ends += 1,
            Some(notice) => told.push(notice),
            None => panic!("the last notice never came after {told:?}"),
        }
    }
    told
}

fn told_route(destination: &str) -> Notice {
    Notice::Route(destination.parse().unwrap())
}

#[test]
fn what_somebody_else_does_to_our_objects_is_told() {
    with_a_watch(|_, watch| {
        let flannel = name("flannel.1");
        for (deed, notice) in [
            ("bridge fdb del 02:00:00:00:00:02 dev flannel.1", Notice::Fdb(flannel)),
            ("bridge fdb add 02:00:00:00:00:02 dev flannel.1 dst 9.9.9.9", Notice::Fdb(flannel)),
            (
                "ip neigh replace 10.244.2.0 lladdr 02:00:00:00:00:03 dev flannel.1 nud permanent",
                Notice::Neighbour(flannel),
            ),
            (
                "ip neigh replace 10.244.2.0 lladdr 02:00:00:00:00:03 dev flannel.1 nud stale",
                Notice::Neighbour(flannel),
            ),
            ("ip neigh del 10.244.2.0 dev flannel.1", Notice::Neighbour(flannel)),
            ("ip route del 10.244.2.0/24", told_route("10.244.2.0/24")),
            ("ip route add 10.244.2.0/24 dev nic", told_route("10.244.2.0/24")),
            ("ip -6 route del fd00:244:0:2::/64", told_route("fd00:244:0:2::/64")),
            ("ip link set flannel.1 mtu 1300", Notice::Link(flannel)),
            ("ip addr add 10.244.7.7/32 dev flannel.1", Notice::Address(flannel)),
            ("ip link set flannel.1 down", Notice::Link(flannel)),
            ("ip link del flannel.1", Notice::Link(flannel)),
        ] {
            sh(deed);
            assert!(told_until_now(watch).contains(&notice), "{deed}");
        }
    });
}

#[test]
fn what_happens_to_the_device_below_is_told() {
    with_a_watch(|_, watch| {
        let nic = name("nic");
        for (deed, notice) in [
            ("ip addr add 10.0.0.9/24 dev nic", Notice::Address(nic)),
            ("ip addr del 10.0.0.9/24 dev nic", Notice::Address(nic)),
            ("ip link set nic mtu 1400", Notice::Link(nic)),
            ("ip route add 192.168.7.0/24 via 10.0.0.2", told_route("192.168.7.0/24")),
            ("ip route add default via 10.0.0.2", told_route("0.0.0.0/0")),
            ("ip -6 route add default via fe80::2 dev nic", told_route("::/0")),
            (
                "ip route add 192.168.8.0/24 nexthop via 10.0.0.2 nexthop via 10.0.0.3",
                told_route("192.168.8.0/24"),
            ),
            ("ip link del nic", Notice::Link(nic)),
        ] {
            sh(deed);
            let told = if deed == "ip link del nic" {
                watch.wait_at_most(LIMIT).unwrap().into_iter().collect()
            } else {
                told_until_now(watch)
            };
            assert!(told.contains(&notice), "{deed}: {told:?}");
        }
    });
}

#[test]
fn what_cannot_matter_is_not_told() {
    with_a_watch(|_, watch| {
        // Devices of pods come and go all the time.
        sh("ip link add cni0 type bridge
            ip link add pod1 type veth peer name pod2
            ip link set pod1 master cni0 && ip link set cni0 up && ip link set pod1 up && ip link set pod2 up
            ip addr add 172.16.0.1/24 dev cni0
            ip neigh add 172.16.0.2 lladdr 02:00:00:00:00:77 dev cni0 nud permanent
            ip neigh add 10.0.0.77 lladdr 02:00:00:00:00:77 dev nic nud permanent
            ip route add 172.17.0.0/24 via 172.16.0.2
            ip route add 172.18.0.0/24 via 10.0.0.2 table 99
            bridge fdb add 02:00:00:00:00:77 dev pod1 master static
            ip link set pod1 nomaster
            ip link del pod1 && ip link del cni0");
        assert_eq!(told_until_now(watch), []);
    });
}

#[test]
fn while_no_device_below_is_chosen_every_device_matters() {
    with_an_ipv4_nic(|kernel| {
        let interest = Arc::new(RwLock::new(Interest { underlay: None, ..interest(kernel) }));
        let mut watch = Watch::open(interest.clone()).unwrap();
        sh("ip link add br0 type bridge");
        assert!(told_until_now(&mut watch).contains(&Notice::Link(name("br0"))));
        interest.write().unwrap().underlay = Some(name("nic"));
        sh("ip link set br0 alias other");
        assert_eq!(told_until_now(&mut watch), []);
    });
}

#[test]
fn a_device_in_the_way_of_a_peer_matters_too() {
    with_an_ipv4_nic(|kernel| {
        sh("ip link add br0 type bridge && ip addr add 10.244.9.1/24 dev br0 && ip link set br0 up");
        let mut watch = watch(Interest { obstacles: vec![name("br0")], ..interest(kernel) });
        sh("ip addr del 10.244.9.1/24 dev br0");
        assert!(told_until_now(&mut watch).contains(&Notice::Address(name("br0"))));
        sh("ip link del br0");
        assert!(told_until_now(&mut watch).contains(&Notice::Link(name("br0"))));
    });
}

#[test]
fn a_device_that_gets_our_name_or_loses_it_is_told() {
    with_a_watch(|_, watch| {
        sh("ip link del flannel.1 && ip link add x type bridge");
        told_until_now(watch);
        sh("ip link set x name flannel.1");
        assert!(told_until_now(watch).contains(&Notice::Link(name("flannel.1"))));
        sh("ip link set flannel.1 name y");
        assert!(told_until_now(watch).contains(&Notice::Link(name("flannel.1"))));
        sh("ip link set y alias y");
        assert_eq!(told_until_now(watch), []);
    });
}

#[test]
fn our_own_changes_are_not_told_where_linux_signs_them() {
    with_a_watch(|kernel, watch| {
        let [_, neighbour, route_4] = peer(3);
        let route_6 = route("flannel-v6.1", "fd00:244:0:3::/64", "fd00:244:0:3::");
        let items = [address("flannel.1", "10.244.1.1/32"), neighbour, route_4, route_6];
        apply(kernel, &create(items.clone()));
        apply(kernel, &remove(items));
        assert_eq!(told_until_now(watch), []);
    });
}

#[test]
fn our_own_forwarding_entries_and_ipv6_addresses_are_told_since_linux_does_not_sign_them() {
    with_a_watch(|kernel, watch| {
        let [entry, ..] = peer(3);
        apply(kernel, &create([entry.clone()]));
        apply(kernel, &remove([entry]));
        let fdb = Notice::Fdb(name("flannel.1"));
        assert_eq!(told_until_now(watch), [fdb, fdb]);
        apply(kernel, &create([address("flannel-v6.1", "fd00:244:0:1::7/128")]));
        let expected = [told_route("fd00:244:0:1::7/128"), Notice::Address(name("flannel-v6.1"))];
        assert_eq!(expected.map(Some), [(); 2].map(|()| watch.wait_at_most(LIMIT).unwrap()));
    });
}

#[test]
fn a_forwarding_entry_that_we_said_we_change_is_not_told_and_what_others_make_of_it_is() {
    with_an_ipv4_nic(|kernel| {
        apply(kernel, &create([link(flannel_v6_1()), link(flannel_1())]));
        let [item, ..] = peer(3);
        let Item::Fdb(entry) = item else { panic!("{item}") };
        let own = |is_there| OwnEntry { entry, is_there };
        let mut watch = watch(Interest { own_entries: vec![own(true), own(false)], ..interest(kernel) });
        apply(kernel, &create([item.clone()]));
        apply(kernel, &remove([item.clone()]));
        assert_eq!(told_until_now(&mut watch), []);
        apply(kernel, &create([item]));
        let others = format!("bridge fdb replace {} dev flannel.1 dst 192.0.2.99 extern_learn", entry.mac);
        sh(&others);
        assert_eq!(told_until_now(&mut watch), [Notice::Fdb(name("flannel.1"))]);
    });
}

#[test]
fn ipv4_routes_vanish_in_silence_when_a_link_goes_down_or_its_address_goes_and_ipv6_ones_do_not() {
    with_a_watch(|kernel, watch| {
        sh("ip link set flannel.1 down && ip link set flannel-v6.1 down");
        let told = told_until_now(watch);
        assert!(!told.contains(&told_route("10.244.2.0/24")), "{told:?}");
        assert!(told.contains(&told_route("fd00:244:0:2::/64")), "{told:?}");
        assert!(told.contains(&Notice::Link(name("flannel.1"))), "{told:?}");

        sh("ip link set flannel.1 up");
        apply(kernel, &create(peer(2)));
        told_until_now(watch);
        sh("ip addr del 10.244.1.0/32 dev flannel.1");
        let told = told_until_now(watch);
        assert!(!told.contains(&told_route("10.244.2.0/24")), "{told:?}");
        assert!(told.contains(&Notice::Address(name("flannel.1"))), "{told:?}");
        assert!(!ours(kernel).contains(&peer(2)[2]));
    });
}

#[test]
fn notices_that_were_lost_are_one_notice_about_everything() {
    with_a_watch(|_, watch| {
        watch.keep_at_most(1).unwrap();
        sh("for i in $(seq 100); do ip route add 10.244.9.$i dev nic; done
            ip link add late type bridge");
        while watch.wait_at_most(LIMIT).unwrap().expect("a notice") != Notice::Everything {}
        // Whatever happens from now on is told again, also on devices that came in the meantime.
        watch.keep_at_most(100_000).unwrap();
        assert_eq!(watch.wait_at_most(Duration::ZERO).unwrap(), None);
        sh("ip link del flannel.1 && ip link set late name flannel.1");
        assert!(told_until_now(watch).contains(&Notice::Link(name("flannel.1"))));
        sh("ip link set flannel.1 name late");
        assert_eq!(told_until_now(watch).first(), Some(&Notice::Link(name("flannel.1"))));
    });
}

#[test]
fn a_watch_that_is_told_nothing_waits() {
    with_a_watch(|_, watch| {
        assert_eq!(watch.wait_at_most(Duration::ZERO).unwrap(), None);
    });
}
