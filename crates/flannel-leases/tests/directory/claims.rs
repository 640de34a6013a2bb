//! Who gets which subnet, and keeps it.

use std::fs;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use flannel_leases::{Directory, LeaseStore};
use flannel_plan::family::{ByFamily, overlap};
use flannel_plan::lease::{Announcement, Lease};

use crate::stage::{DUAL, Stage, V4, V6, all, announcement, both, next, publish, run, v4};

const GO_LEASE: &str = r#"{"PublicIP":"10.0.0.7","PublicIPv6":null,"BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"ce:dc:bf:10:49:a9"}}"#;

#[tokio::test]
async fn a_lease_is_one_file_with_the_fields_of_go_flannel_an_owner_and_an_age() {
    let stage = Stage::new(V4);
    let before = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
    let lease = publish(&mut stage.node("one"), &announcement(1)).await;
    assert!(lease.since >= before);
    let expected = Lease {
        owner: "one".to_owned(),
        subnets: v4("10.244.1.0/24"),
        announcement: announcement(1),
        since: lease.since,
    };
    assert_eq!(lease, expected);
    assert_eq!(
        fs::read_to_string(stage.lease_file("10.244.1.0-24")).unwrap(),
        format!(
            r#"{{
  "Owner": "one",
  "Since": {},
  "PublicIP": "10.0.0.1",
  "PublicIPv6": null,
  "BackendType": "vxlan",
  "BackendData": {{"VNI":1,"VtepMAC":"02:00:00:00:04:01"}}
}}
"#,
            lease.since
        )
    );
    assert_eq!(stage.files(), ["10.244.1.0-24.json"]);
    assert_eq!(all(stage.path()), [expected]);
}

#[tokio::test]
async fn the_same_owner_gets_the_same_lease_and_an_unchanged_one_is_not_written_again() {
    let stage = Stage::new(V4);
    let first = publish(&mut stage.node("one"), &announcement(1)).await;
    let written = fs::metadata(stage.lease_file("10.244.1.0-24")).unwrap().modified().unwrap();
    let mut node = stage.node("one");
    assert_eq!(publish(&mut node, &announcement(1)).await, first);
    assert_eq!(publish(&mut node, &announcement(1)).await, first);
    assert_eq!(fs::metadata(stage.lease_file("10.244.1.0-24")).unwrap().modified().unwrap(), written);
}

#[tokio::test]
async fn a_node_that_changes_its_address_keeps_its_subnet_and_its_age() {
    let stage = Stage::new(V4);
    let first = publish(&mut stage.node("one"), &announcement(1)).await;
    let moved = publish(&mut stage.node("one"), &announcement(9)).await;
    assert_eq!(moved, Lease { announcement: announcement(9), ..first });
    assert_eq!(all(stage.path()), [moved]);
}

#[test]
fn two_hundred_nodes_that_start_together_get_two_hundred_subnets() {
    let stage = Stage::new(V4);
    let mut leases: Vec<_> = std::thread::scope(|scope| {
        let start = |n: u8| {
            let mut node = stage.node(&format!("node-{n}"));
            scope.spawn(move || run(publish(&mut node, &announcement(n))))
        };
        let nodes: Vec<_> = (0..200).map(start).collect();
        nodes.into_iter().map(|node| node.join().unwrap()).collect()
    });
    leases.sort_by_key(|lease| lease.subnets);
    assert_eq!(all(stage.path()), leases);
    let expected: Vec<_> = (1..=200).map(|n| v4(&format!("10.244.{n}.0/24"))).collect();
    assert_eq!(leases.iter().map(|lease| lease.subnets).collect::<Vec<_>>(), expected);
    leases.sort_by_key(|lease| lease.since);
    assert!(leases.windows(2).all(|pair| pair[0].since < pair[1].since), "no two leases have the same age");
}

#[tokio::test]
async fn an_age_is_later_than_every_other_even_if_the_clock_is_behind() {
    let stage = Stage::new(V4);
    stage.put("10.244.1.0-24", r#"{"PublicIP":"10.0.0.2","Owner":"two","Since":99999999999999}"#);
    assert_eq!(publish(&mut stage.node("one"), &announcement(1)).await.since, 100_000_000_000_000);
}

#[tokio::test]
async fn subnets_that_a_node_had_before_are_preferred_if_they_are_free_and_fit() {
    let stage = Stage::new(V4);
    let before = async |owner: &str, previous: &str| {
        let mut node = Directory::open(stage.path(), owner, v4(previous)).unwrap();
        publish(&mut node, &announcement(1)).await.subnets
    };
    assert_eq!(before("one", "10.244.77.1/24").await, v4("10.244.77.0/24"));
    assert_eq!(before("two", "10.244.77.1/24").await, v4("10.244.1.0/24"), "it is taken by now");
    assert_eq!(before("three", "10.99.1.1/24").await, v4("10.244.2.0/24"), "it is of another network");
    assert_eq!(before("four", "10.244.78.0/25").await, v4("10.244.3.0/24"), "it is of another length");
}

#[tokio::test]
async fn both_families_are_claimed_in_one_lease() {
    let stage = Stage::new(DUAL);
    let lease = publish(&mut stage.node("one"), &announcement(1)).await;
    assert_eq!(lease.subnets, both("10.244.1.0/24", "fd00:244:0:1::/64"));
    assert_eq!(stage.files(), ["10.244.1.0-24&fd00:244:0:1::-64.json"]);
    stage.put("0.0.0.0-0&fd00:244:0:2::-64", r#"{"PublicIPv6":"fd00::9","Owner":"nine"}"#);
    let second = publish(&mut stage.node("two"), &announcement(2)).await;
    assert_eq!(second.subnets, both("10.244.2.0/24", "fd00:244:0:3::/64"));
}

#[tokio::test]
async fn ipv6_alone_is_claimed_without_ipv4() {
    let stage = Stage::new(V6);
    let said = Announcement {
        public: ByFamily { v4: None, v6: Some("fd00:30::1".parse().unwrap()) },
        detail: ByFamily { v4: None, v6: announcement(1).detail.v4 },
        ..announcement(1)
    };
    let lease = publish(&mut stage.node("one"), &said).await;
    assert_eq!(lease.subnets, ByFamily { v4: None, v6: Some("fd00:244:0:1::/64".parse().unwrap()) });
    assert_eq!(lease.announcement, said);
    assert_eq!(stage.files(), ["0.0.0.0-0&fd00:244:0:1::-64.json"]);
    assert_eq!(all(stage.path()), [lease]);
}

#[tokio::test]
async fn a_family_that_is_switched_on_or_off_leaves_the_other_where_it_is() {
    let stage = Stage::new(V4);
    publish(&mut stage.node("zero"), &announcement(9)).await;
    let mut node = stage.node("one");
    assert_eq!(publish(&mut node, &announcement(1)).await.subnets, v4("10.244.2.0/24"));
    stage.configure(DUAL);
    let dual = publish(&mut node, &announcement(1)).await;
    assert_eq!(dual.subnets, both("10.244.2.0/24", "fd00:244:0:1::/64"));
    assert_eq!(stage.files(), ["10.244.1.0-24.json", "10.244.2.0-24&fd00:244:0:1::-64.json"]);
    stage.configure(V4);
    assert_eq!(publish(&mut node, &announcement(1)).await.subnets, v4("10.244.2.0/24"));
    assert_eq!(stage.files(), ["10.244.1.0-24.json", "10.244.2.0-24.json"]);
}

#[tokio::test]
async fn a_lease_that_no_longer_fits_the_config_is_exchanged_for_one_that_does() {
    let stage = Stage::new(V4);
    let mut node = stage.node("one");
    let first = publish(&mut node, &announcement(1)).await;
    assert_eq!(next(&mut node).await.unwrap().own.as_deref(), Some(&first));
    stage.configure(&V4.replace("10.244", "10.99"));
    assert_eq!(next(&mut node).await.unwrap().own, None, "it must publish again");
    let second = publish(&mut node, &announcement(1)).await;
    assert_eq!(second.subnets, v4("10.99.1.0/24"));
    assert!(second.since > first.since);
    assert_eq!(all(stage.path()), std::slice::from_ref(&second));
    assert_eq!(next(&mut node).await.unwrap().own.as_deref(), Some(&second));
}

#[tokio::test]
async fn a_new_length_never_overlaps_what_others_still_hold() {
    let stage = Stage::new(V4);
    let (mut one, mut two) = (stage.node("one"), stage.node("two"));
    publish(&mut one, &announcement(1)).await;
    publish(&mut two, &announcement(2)).await;
    stage.configure(
        r#"{"Network":"10.244.0.0/16","SubnetLen":23,"SubnetMin":"10.244.0.0","Backend":{"Type":"vxlan"}}"#,
    );
    let first = publish(&mut one, &announcement(1)).await;
    assert_eq!(
        first.subnets,
        v4("10.244.0.0/23"),
        "its own old subnet is no hindrance, only those of others"
    );
    assert_eq!(publish(&mut two, &announcement(2)).await.subnets, v4("10.244.2.0/23"));
}

#[tokio::test]
async fn subnets_of_any_length_and_of_unreadable_files_are_never_given_to_another() {
    let stage = Stage::new(V4);
    stage.put("10.244.0.0-22", r#"{"PublicIP":"10.0.0.2","Owner":"large"}"#);
    stage.put("10.244.4.128-26", r#"{"PublicIP":"10.0.0.3","Owner":"small"}"#);
    stage.put("10.244.5.0-24", "garbage");
    stage.put("10.244.6.7-24", r#"{"PublicIP":"10.0.0.4","Owner":"crooked"}"#);
    let lease = publish(&mut stage.node("one"), &announcement(1)).await;
    assert_eq!(lease.subnets, v4("10.244.7.0/24"));
}

#[tokio::test]
async fn when_every_subnet_is_taken_the_error_says_so_and_what_to_do() {
    let stage = Stage::new(r#"{"Network":"10.9.0.0/26","SubnetLen":28,"Backend":{"Type":"vxlan"}}"#);
    for owner in ["one", "two", "three"] {
        publish(&mut stage.node(owner), &announcement(1)).await;
    }
    let wrong = stage.node("four").publish(&announcement(4)).await.unwrap_err();
    assert_eq!(
        wrong.to_string(),
        "no /28 is free in 10.9.0.0/26, 3 leases overlap it: release one that nobody needs (`flannelctl lease \
         release NODE --lease-dir DIR`), or choose a larger network or a longer subnet length"
    );
    Directory::release(stage.path(), "two").unwrap();
    assert_eq!(publish(&mut stage.node("four"), &announcement(4)).await.subnets, v4("10.9.0.32/28"));
}

#[tokio::test]
async fn a_released_subnet_is_free_for_the_next() {
    let stage = Stage::new(V4);
    let first = publish(&mut stage.node("one"), &announcement(1)).await;
    publish(&mut stage.node("two"), &announcement(2)).await;
    assert_eq!(Directory::release(stage.path(), "one").unwrap(), Arc::new(first));
    assert_eq!(stage.files(), ["10.244.2.0-24.json"]);
    let wrong = Directory::release(stage.path(), "one").unwrap_err().to_string();
    let dir = stage.path().display();
    assert_eq!(wrong, format!("one holds no lease in {dir}: `flannelctl lease list` shows who holds one"));
    assert_eq!(publish(&mut stage.node("three"), &announcement(3)).await.subnets, v4("10.244.1.0/24"));
}

#[tokio::test]
async fn a_running_node_whose_lease_was_removed_gets_the_same_subnet_if_it_is_still_free() {
    let stage = Stage::new(V4);
    publish(&mut stage.node("zero"), &announcement(9)).await;
    let mut node = stage.node("one");
    publish(&mut node, &announcement(1)).await;
    next(&mut node).await.unwrap();
    Directory::release(stage.path(), "zero").unwrap();
    Directory::release(stage.path(), "one").unwrap();
    assert_eq!(publish(&mut node, &announcement(1)).await.subnets, v4("10.244.2.0/24"));
}

#[tokio::test]
async fn a_lease_that_go_flannel_made_belongs_to_the_node_with_its_address() {
    let stage = Stage::new(V4);
    stage.put("10.244.40.0-24", GO_LEASE);
    let known = all(stage.path());
    assert_eq!((known[0].owner.as_str(), known[0].since), ("10.0.0.7", u64::MAX));
    let other = publish(&mut stage.node("one"), &announcement(1)).await;
    let adopted = publish(&mut stage.node("seven"), &announcement(7)).await;
    assert_eq!(
        adopted,
        Lease {
            owner: "seven".to_owned(),
            announcement: announcement(7),
            since: adopted.since,
            ..known[0].clone()
        }
    );
    // A lease without an age counts as the youngest; adopted, it gets one, after all others.
    assert!(adopted.since > other.since && adopted.since < u64::MAX);
    assert_eq!(all(stage.path()), [other, adopted]);
}

#[tokio::test]
async fn a_node_that_gets_the_address_of_a_lease_that_go_flannel_made_stays_with_its_own() {
    let stage = Stage::new(V4);
    let mut node = Directory::open(stage.path(), "one", v4("10.244.3.0/24")).unwrap();
    let held = publish(&mut node, &announcement(1)).await;
    fs::write(stage.lease_file("10.244.2.0-24"), r#"{"Since":5,"PublicIP":"10.0.0.7","PublicIPv6":null}"#)
        .unwrap();
    let moved = publish(&mut node, &announcement(7)).await;
    assert_eq!(moved, Lease { announcement: announcement(7), ..held });
    assert_eq!(stage.files(), ["10.244.2.0-24.json", "10.244.3.0-24.json"], "what is not its own is left");
}

#[tokio::test]
async fn of_two_leases_of_one_owner_the_older_is_kept() {
    let stage = Stage::new(V4);
    stage.put("10.244.3.0-24", r#"{"PublicIP":"10.0.0.1","Owner":"one","Since":20}"#);
    stage.put("10.244.9.0-24", r#"{"PublicIP":"10.0.0.1","Owner":"one","Since":10}"#);
    let mut node = stage.node("one");
    let snapshot = next(&mut node).await.unwrap();
    assert_eq!((snapshot.own.unwrap().subnets, snapshot.peers), (v4("10.244.9.0/24"), Vec::new()));
    let kept = publish(&mut node, &announcement(1)).await;
    assert_eq!((kept.subnets, kept.since), (v4("10.244.9.0/24"), 10));
    assert_eq!(stage.files(), ["10.244.9.0-24.json"]);
}

#[tokio::test]
async fn of_two_owners_of_one_address_the_younger_moves_away() {
    let stage = Stage::new(V4);
    stage.put("10.244.8.0-23", r#"{"PublicIP":"10.0.0.2","Owner":"old","Since":10}"#);
    stage.put("10.244.9.0-24", r#"{"PublicIP":"10.0.0.1","Owner":"young","Since":20}"#);
    let moved = publish(&mut stage.node("young"), &announcement(1)).await;
    assert_eq!(moved.subnets, v4("10.244.1.0/24"));
    let leases = all(stage.path());
    assert!(!overlap(leases[0].subnets.v4.unwrap(), leases[1].subnets.v4.unwrap()));
}
