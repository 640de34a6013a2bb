//! Which step follows from which table, without an etcd.

use std::time::{Duration, Instant};

use super::*;
use crate::etcd::keys::Keys;
use crate::etcd::messages::{Header, KeyValue};
use crate::etcd::table::WholeRead;
use crate::etcd::tenure::Tenure;

const V4: &str = r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}"#;
const V6: &str =
    r#"{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fd00:244::/48","Backend":{"Type":"vxlan"}}"#;
const DUAL: &str = r#"{"Network":"10.244.0.0/16","EnableIPv6":true,"IPv6Network":"fd00:244::/48","Backend":{"Type":"vxlan"}}"#;
const REVISION: i64 = 50;

/// A table with these leases: name, value, revision, etcd lease.
fn table(config: &str, leases: &[(&str, &str, i64, i64)]) -> Table {
    let kv = |key: String, value: &str, revision, lease| KeyValue {
        key: key.into(),
        value: value.to_owned().into(),
        create_revision: revision,
        mod_revision: revision,
        lease,
    };
    let keys = Keys::below("/n");
    let leases =
        leases.iter().map(|(name, value, revision, lease)| kv(keys.lease(name), value, *revision, *lease));
    let header = Header { cluster_id: 1, revision: REVISION, raft_term: 1 };
    let read =
        WholeRead { header, config: Some(kv(keys.config.clone(), config, 1, 0)), leases: leases.collect() };
    let mut table = Table::new(keys);
    table.take_read(read, Duration::ZERO, |_, _| false);
    table
}

fn node(value: &str) -> Node {
    Node { said: Some(Announcement::from_etcd("", value).unwrap()), ..Node::default() }
}

const ONE: &str = r#"{"PublicIP":"10.0.0.1","PublicIPv6":"fd00::1"}"#;
const TWO: &str = r#"{"PublicIP":"10.0.0.2","PublicIPv6":"fd00::2"}"#;
const ONE_V6: &str = r#"{"PublicIPv6":"fd00::1"}"#;

fn v4(subnet: &str) -> ByFamily<IpNet> {
    ByFamily { v4: Some(subnet.parse().unwrap()), v6: None }
}

fn new(name: &str, base: &str, surplus: &[(&str, i64)]) -> Lack {
    Lack::Txn(ClaimTxn {
        name: name.into(),
        guard: Guard::NoneSince(format!("/n/subnets/{base}"), REVISION),
        life: Life::Own,
        surplus: surplus.iter().map(|(name, revision)| ((*name).into(), *revision)).collect(),
    })
}

#[test]
fn a_node_without_a_lease_takes_a_free_subnet_where_the_dice_fall() {
    let taken = table(V4, &[("10.244.3.0-24", TWO, 5, 9)]);
    for (start, name, base) in [
        (0, "10.244.1.0-24", "10.244.1.0-"),
        (2, "10.244.4.0-24", "10.244.4.0-"),
        (254, "10.244.255.0-24", "10.244.255.0-"),
        (255, "10.244.1.0-24", "10.244.1.0-"),
        (u64::MAX, "10.244.1.0-24", "10.244.1.0-"),
    ] {
        assert_eq!(next_txn(&taken, &node(ONE), start).unwrap(), new(name, base, &[]), "{start}");
    }
    let last = table(
        r#"{"Network":"10.244.0.0/22","SubnetLen":24,"Backend":{"Type":"vxlan"}}"#,
        &[("10.244.3.0-24", TWO, 5, 9)],
    );
    let round = next_txn(&last, &node(ONE), 2).unwrap();
    assert_eq!(round, new("10.244.1.0-24", "10.244.1.0-", &[]), "behind the last comes the first");
}

#[test]
fn both_families_start_at_the_same_place() {
    let empty = table(DUAL, &[]);
    let step = next_txn(&empty, &node(ONE), 6).unwrap();
    assert_eq!(step, new("10.244.7.0-24&fd00:244:0:7::-64", "10.244.7.0-", &[]));
    let empty = table(V6, &[]);
    let step = next_txn(&empty, &node(ONE_V6), 6).unwrap();
    assert_eq!(step, new("0.0.0.0-0&fd00:244:0:7::-64", "0.0.0.0-0&fd00:244:0:7::-", &[]));
}

/// A key that is written again as it is.
fn again(name: &str, changed: i64, life: Life) -> Lack {
    Lack::Txn(ClaimTxn { name: name.into(), guard: Guard::Unchanged(changed), life, surplus: vec![] })
}

/// The same node in a run that has this etcd lease.
fn with_life(mine: i64, mut node: Node) -> Node {
    node.tenure.mine = Some(mine);
    node
}

#[test]
fn what_is_said_already_is_kept_and_what_differs_is_written_with_the_life_it_has() {
    let leases = table(V4, &[("10.244.3.0-24", ONE, 5, 9)]);
    assert_eq!(
        next_txn(&leases, &with_life(9, node(ONE)), 0).unwrap(),
        Lack::Nothing("10.244.3.0-24".into())
    );
    let changed = node(r#"{"PublicIP":"10.0.0.1","BackendType":"host-gw"}"#);
    assert_eq!(
        next_txn(&leases, &with_life(9, changed.clone()), 0).unwrap(),
        again("10.244.3.0-24", 5, Life::Own)
    );
    let reserved = table(V4, &[("10.244.3.0-24", ONE, 5, 0)]);
    assert_eq!(next_txn(&reserved, &changed, 0).unwrap(), again("10.244.3.0-24", 5, Life::Reserved));
    assert_eq!(next_txn(&reserved, &node(ONE), 0).unwrap(), Lack::Nothing("10.244.3.0-24".into()));
}

#[test]
fn a_key_that_lives_by_anothers_etcd_lease_is_written_over_once_and_then_left_to_it() {
    let leases = table(V4, &[("10.244.3.0-24", ONE, 5, 8)]);
    let mut newcomer = with_life(9, node(ONE));
    assert_eq!(next_txn(&leases, &newcomer, 0).unwrap(), again("10.244.3.0-24", 5, Life::Own));
    newcomer.tenure.note_replaced(8, Instant::now());
    assert_eq!(next_txn(&leases, &newcomer, 0).unwrap(), Lack::Rival("10.244.3.0-24".into()), "8 lives");
}

#[test]
fn what_it_had_comes_before_dice_as_far_as_they_are_free() {
    let leases = table(V4, &[("10.244.7.0-24", TWO, 5, 9), ("10.244.8.0-24", "garbage", 6, 9)]);
    let held =
        |subnet: &str| Some(Held { name: "gone".into(), subnets: v4(subnet), created: 3, lease_id: 4 });
    let claims = |node: Node, name: &str| {
        let base = format!("{}-", name.trim_end_matches("-24"));
        assert_eq!(next_txn(&leases, &node, 0).unwrap(), new(name, &base, &[]));
    };
    claims(Node { previous: v4("10.244.20.0/24"), ..node(ONE) }, "10.244.20.0-24");
    claims(
        Node { held: held("10.244.30.0/24"), previous: v4("10.244.20.0/24"), ..node(ONE) },
        "10.244.30.0-24",
    );
    claims(
        Node { held: held("10.244.7.0/24"), previous: v4("10.244.20.0/24"), ..node(ONE) },
        "10.244.20.0-24",
    );
    claims(Node { previous: v4("10.244.8.0/24"), ..node(ONE) }, "10.244.1.0-24");
    claims(Node { previous: v4("10.244.20.0/25"), ..node(ONE) }, "10.244.1.0-24");
}

#[test]
fn a_lease_that_does_not_fit_is_replaced_in_the_same_step_and_hands_its_life_on() {
    let leases = table(V4, &[("10.9.3.0-24", ONE, 5, 9)]);
    let step = next_txn(&leases, &node(ONE), 0).unwrap();
    assert_eq!(step, new("10.244.1.0-24", "10.244.1.0-", &[("10.9.3.0-24", 5)]));
    let grown = table(DUAL, &[("10.244.3.0-24", ONE, 5, 9)]);
    let step = next_txn(&grown, &node(ONE), 0).unwrap();
    let name = "10.244.3.0-24&fd00:244:0:1::-64";
    assert_eq!(step, new(name, "10.244.3.0-", &[("10.244.3.0-24", 5)]));
}

/// What holds `10.244.3.0-24`, made at 5, by etcd lease 9.
fn holder(value: &str) -> Node {
    let held = Held { name: "10.244.3.0-24".into(), subnets: v4("10.244.3.0/24"), created: 5, lease_id: 9 };
    with_life(9, Node { held: Some(held), ..node(value) })
}

#[test]
fn a_key_that_this_node_made_is_its_own_until_somebody_else_makes_it_anew() {
    let owns = |created: i64, lease: i64| {
        let table = table(V4, &[("10.244.3.0-24", TWO, created, lease)]);
        let node = Node { tenure: Tenure::default(), ..holder(ONE) };
        node.owns("10.244.3.0-24", table.entry("10.244.3.0-24").unwrap())
    };
    assert!(owns(5, 9), "only its address has changed");
    assert!(!owns(6, 9) && !owns(5, 8) && !owns(5, 0));
}

#[test]
fn a_node_that_gets_a_dead_nodes_address_stays_with_what_it_holds_and_leaves_the_other() {
    let dead = ("10.244.2.0-24", TWO, 4, 8);
    let moved = table(V4, &[dead, ("10.244.3.0-24", ONE, 5, 9)]);
    assert_eq!(next_txn(&moved, &holder(TWO), 0).unwrap(), again("10.244.3.0-24", 5, Life::Own));
    let written = table(V4, &[dead, ("10.244.3.0-24", TWO, 5, 9)]);
    assert_eq!(next_txn(&written, &holder(TWO), 0).unwrap(), Lack::Nothing("10.244.3.0-24".into()));
    let lost = table(V4, &[dead]);
    let step = next_txn(&lost, &holder(TWO), 0).unwrap();
    assert_eq!(step, new("10.244.3.0-24", "10.244.3.0-", &[]), "it claims its own subnet again");
}

#[test]
fn a_start_with_a_dead_nodes_address_recalls_its_own_key() {
    let dead = ("10.244.2.0-24", TWO, 4, 8);
    let recalled = |leases: &Table, mut node: Node| {
        node.recall(leases);
        node.held.map(|held| String::from(held.name))
    };
    let own = Some("10.244.3.0-24".to_owned());
    // By what it said when it ran last, whatever address it has now.
    let before = table(V4, &[dead, ("10.244.3.0-24", ONE, 5, 9)]);
    let memory =
        |origin| Memory { origin, own: before.entry("10.244.3.0-24").unwrap().lease.clone().unwrap() };
    let remembered = Some(memory(before.origin()));
    assert_eq!(recalled(&before, Node { remembered: remembered.clone(), ..node(TWO) }), own);
    let elsewhere = Some(memory(Some("another cluster".into())));
    assert_eq!(recalled(&before, Node { remembered: elsewhere, ..node(TWO) }), None);
    // By the subnet that it had, where its address had been written.
    let moved = table(V4, &[dead, ("10.244.3.0-24", TWO, 5, 9)]);
    let previous = v4("10.244.3.0/24");
    assert_eq!(recalled(&moved, Node { previous, ..node(TWO) }), own);
    // Neither is true of a key that another node has made by now.
    let taken = table(V4, &[dead, ("10.244.3.0-24", ONE, 6, 7)]);
    assert_eq!(recalled(&taken, Node { remembered, previous, ..node(TWO) }), None);
}

#[test]
fn two_nodes_of_one_ipv4_address_with_another_ipv6_address_have_a_lease_each() {
    let twin = node(r#"{"PublicIP":"10.0.0.1","PublicIPv6":"fd00::9"}"#);
    let leases = table(V4, &[("10.244.1.0-24", ONE, 5, 9)]);
    assert_eq!(next_txn(&leases, &twin, 0).unwrap(), new("10.244.2.0-24", "10.244.2.0-", &[]));
}

#[test]
fn of_two_that_overlap_the_younger_moves_and_the_older_stays() {
    let older = table(V4, &[("10.244.2.0-23", TWO, 4, 8), ("10.244.3.0-24", ONE, 5, 9)]);
    let step = next_txn(&older, &node(ONE), 1).unwrap();
    assert_eq!(step, new("10.244.4.0-24", "10.244.4.0-", &[("10.244.3.0-24", 5)]));
    let younger = table(V4, &[("10.244.2.0-23", TWO, 6, 8), ("10.244.3.0-24", ONE, 5, 9)]);
    assert_eq!(
        next_txn(&younger, &with_life(9, node(ONE)), 1).unwrap(),
        Lack::Nothing("10.244.3.0-24".into())
    );
}

#[test]
fn without_a_free_subnet_the_error_counts_those_that_are_taken() {
    let tiny = r#"{"Network":"10.244.0.0/26","SubnetLen":28,"Backend":{"Type":"vxlan"}}"#;
    let full = table(tiny, &[("10.244.0.16-28", TWO, 4, 8), ("10.244.0.32-27", "garbage", 5, 9)]);
    let why = next_txn(&full, &node(ONE), 1).unwrap_err();
    assert!(why.to_string().starts_with("no /28 is free in 10.244.0.0/26, 2 leases overlap it: "), "{why}");
}
