//! What is made is found again, the same; what is removed leaves nothing.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod sandbox;

use flannel_plan::state::Item;
use sandbox::*;

fn node_with_one_peer() -> Vec<Item> {
    let mut items = vec![link(flannel_1()), address("flannel.1", "10.244.1.0/32")];
    items.extend(peer(2));
    items
}

#[test]
fn what_is_created_is_found_again_the_same() {
    with_a_nic(|kernel| {
        let items = node_with_one_peer();
        apply(kernel, &create(items.clone()));
        assert_eq!(ours(kernel), items);
    });
}

#[test]
fn creating_again_what_is_there_changes_nothing() {
    with_a_nic(|kernel| {
        let items = node_with_one_peer();
        apply(kernel, &create(items.clone()));
        apply(kernel, &create(items[1..].to_vec()));
        assert_eq!(ours(kernel), items);
    });
}

#[test]
fn what_is_removed_leaves_nothing() {
    with_a_nic(|kernel| {
        let before = observe(kernel);
        let mut items = node_with_one_peer();
        apply(kernel, &create(items.clone()));
        items.reverse();
        apply(kernel, &remove(items.clone()));
        assert_eq!(observe(kernel), before);
        apply(kernel, &remove(items));
    });
}
