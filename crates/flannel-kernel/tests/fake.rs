//! The kernel in memory forgets what the real one forgets.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod sandbox;

use fake_kernel::Fake;
use flannel_kernel::{Kernel, NetlinkError};
use flannel_plan::diff::Change;
use flannel_plan::state::{Item, Link};
use rustix::io::Errno;
use sandbox::*;

fn flannel_1_but(change: impl FnOnce(&mut Link)) -> Item {
    let mut altered = flannel_1();
    change(&mut altered);
    link(altered)
}

fn both_families() -> Vec<Item> {
    let mut items = vec![
        link(flannel_1()),
        address("flannel.1", "10.244.1.0/32"),
        address("flannel.1", "fd00:244:0:1::/128"),
    ];
    items.extend(peer(2));
    items.push(neighbour("flannel.1", "fd00:244:0:2::", 2));
    items.push(route("flannel.1", "fd00:244:0:2::/64", "fd00:244:0:2::"));
    items.sort_by(Item::cmp_object);
    items
}

#[test]
fn the_fake_and_linux_are_left_with_the_same_after_the_same_changes() {
    let own = link(flannel_1());
    let deeds: Vec<Vec<Change>> = vec![
        vec![],
        remove([own.clone()]),
        replace(own.clone(), flannel_1_but(|link| link.up = false)),
        replace(own.clone(), flannel_1_but(|link| link.mac = Some(mac(99)))),
        replace(own.clone(), flannel_1_but(|link| link.mtu = 1400)),
        replace(own.clone(), flannel_1_but(|link| vxlan(link).vni = 7)),
        replace(own, flannel_1_but(|link| vxlan(link).learning = true)),
        remove([address("flannel.1", "10.244.1.0/32")]),
        remove([address("flannel.1", "fd00:244:0:1::/128")]),
        remove(peer(2)),
        replace(fdb("flannel.1", 2, "10.0.0.2"), fdb("flannel.1", 2, "10.0.0.7")),
    ];
    for deed in deeds {
        with_a_nic(|linux| {
            let mut fake = Fake::new(observe(linux));
            for changes in [create(both_families()), deed.clone()] {
                apply(linux, &changes);
                assert_eq!(fake.apply(&changes), []);
            }
            // The kernel makes a route to an IPv6 address by itself; the fake does not.
            let expected: Vec<_> = ours(linux).into_iter().filter(|item| !is_connected(item)).collect();
            assert_eq!(ours_in(fake.observe(&scope()).unwrap()), expected, "{deed:?}");
        });
    }
}

fn is_connected(item: &Item) -> bool {
    matches!(item, Item::Route(route) if route.via.is_none())
}

#[test]
fn a_refused_change_is_not_made_and_says_why() {
    let mut fake = Fake::default();
    let [entry, ..] = peer(2);
    let own = link(flannel_1());
    fake.refuses.insert(entry.key(), NetlinkError::from(Errno::PERM));
    let failures = fake.apply(&create([own.clone(), entry.clone()]));
    let told: Vec<_> = failures.iter().map(|failure| failure.why.to_string()).collect();
    assert_eq!(told, [format!("cannot create {entry}: Operation not permitted")]);
    assert_eq!(fake.made, create([own.clone()]));
    assert_eq!(ours_in(fake.observe(&scope()).unwrap()), [own]);
}
