//! Many changes at once: all are made, and a refusal among them finds the change that it is about.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod sandbox;

use std::net::Ipv4Addr;

use flannel_kernel::{Failure, Kernel};
use flannel_plan::diff::Change;
use flannel_plan::mac::Mac;
use flannel_plan::state::{FdbEntry, Item, Neighbour, PROTOCOL, Route, RouteKind};
use sandbox::*;

/// The items of so many peers, in the order of creation.
fn peers(count: u32) -> Vec<Item> {
    let link = name("flannel.1");
    let base = |n: u32| Ipv4Addr::from(0x0b00_0000 + n * 256);
    let mac = |n: u32| {
        let [a, b, c, d] = n.to_be_bytes();
        Mac([2, 1, a, b, c, d])
    };
    let fdb = (1..=count).map(|n| {
        let destination = Some(Ipv4Addr::from(0x0a00_0100 + n).into());
        Item::Fdb(FdbEntry { link, mac: mac(n), destination, marked: true })
    });
    let neighbours = (1..=count).map(|n| {
        Item::Neighbour(Neighbour { link, address: base(n).into(), mac: mac(n), protocol: PROTOCOL })
    });
    let routes = (1..=count).map(|n| {
        let destination = ipnet::IpNet::new(base(n).into(), 24).unwrap();
        let (kind, via) = (RouteKind::Unicast, Some(base(n).into()));
        Item::Route(Route { destination, kind, via, link: Some(link), onlink: true, protocol: PROTOCOL })
    });
    fdb.chain(neighbours).chain(routes).collect()
}

#[test]
fn a_thousand_peers_are_made_found_and_removed() {
    with_flannel_1(|kernel| {
        let before = ours(kernel);
        let items = peers(1000);
        apply(kernel, &create(items.clone()));
        let expected: Vec<_> = before.iter().cloned().chain(items.clone()).collect();
        assert_eq!(ours(kernel), expected);
        apply(kernel, &remove(items));
        assert_eq!(ours(kernel), before);
    });
}

#[test]
fn refusals_in_the_middle_of_a_batch_name_their_change_and_stop_nothing() {
    with_flannel_1(|kernel| {
        let mut items = peers(450);
        // A gateway of another family, a forwarding entry for nobody, and a device that does not exist.
        let Item::Route(good) = items[1000] else { panic!("{}", items[1000]) };
        items[1000] = Item::Route(Route { via: Some(ip("10.99.0.1")), onlink: false, ..good });
        let Item::Fdb(good) = items[7] else { panic!("{}", items[7]) };
        items[7] = Item::Fdb(FdbEntry { mac: Mac([1, 0, 0, 0, 0, 0]), destination: None, ..good });
        let Item::Neighbour(good) = items[500] else { panic!("{}", items[500]) };
        items[500] = Item::Neighbour(Neighbour { link: name("nobody"), ..good });

        let changes = create(items.clone());
        let failures = kernel.apply(&changes);
        let mut failed: Vec<_> = failures.iter().map(|Failure { change, .. }| change.clone()).collect();
        failed.sort_by_key(Change::key);
        assert_eq!(failed, [7, 500, 1000].map(|place: usize| changes[place].clone()));
        let made: Vec<_> = ours(kernel).into_iter().skip(2).collect();
        let wanted = items.into_iter().enumerate().filter(|(place, _)| ![7, 500, 1000].contains(place));
        assert_eq!(made, wanted.map(|(_, item)| item).collect::<Vec<_>>());
    });
}

#[test]
fn a_batch_in_which_everything_is_refused_loses_no_refusal() {
    with_flannel_1(|kernel| {
        let items: Vec<_> = peers(1000).split_off(2000);
        let out_of_reach = items.into_iter().map(|item| {
            let Item::Route(route) = item else { panic!("{item}") };
            Item::Route(Route { via: Some(ip("10.99.0.1")), onlink: false, ..route })
        });
        let changes = create(out_of_reach);
        let failed: Vec<_> = kernel.apply(&changes).into_iter().map(|failure| failure.change).collect();
        assert_eq!(failed, changes);
    });
}

#[test]
fn changes_around_a_new_device_are_made_in_order() {
    with_a_nic(|kernel| {
        let items =
            [vec![link(flannel_1()), address("flannel.1", "10.244.1.0/32")], peer(2).to_vec()].concat();
        let mut changes = create(items.clone());
        changes.extend(remove(items.clone().into_iter().rev()));
        changes.extend(create(items.clone()));
        apply(kernel, &changes);
        assert_eq!(ours(kernel), items);
    });
}
