//! How subnets are claimed, kept and given up.

use std::time::Duration;

use flannel_leases::LeaseStore;
use flannel_plan::family::ByFamily;
use flannel_plan::lease::Lease;

use crate::stage::{
    DUAL, PREFIX, Stage, V4, V6, announcement, both, dual_announcement, key, next, publish, soon, until, v4,
    v6_announcement,
};

#[tokio::test]
async fn a_lease_is_stored_as_go_flannel_stores_it() {
    let stage = Stage::new(V4);
    let mut node = stage.node();
    let lease = publish(&mut node, &announcement(1)).await;
    let names = stage.names();
    assert_eq!(names, ["10.244.250.0-24"]);
    assert_eq!(
        stage.value(&names[0]),
        r#"{"PublicIP":"10.0.0.1","PublicIPv6":null,"BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"02:00:00:00:04:01"}}"#
    );
    let (left, granted) = stage.seconds(&stage.life(&names[0]).unwrap());
    assert!(left > 86_390 && granted == 86_400, "{left} of {granted}");
    let expected = Lease { owner: "10.0.0.1".to_owned(), announcement: announcement(1), ..lease.clone() };
    assert_eq!(lease, expected);
    let snapshot = next(&mut node).await;
    assert_eq!(snapshot.own.as_deref(), Some(&lease));
    assert_eq!((snapshot.peers, snapshot.faults, snapshot.own_is_damaged), (vec![], vec![], false));
}

#[tokio::test]
async fn both_families_are_one_key_and_one_value_as_in_go() {
    let stage = Stage::new(DUAL);
    let lease = publish(&mut stage.node(), &dual_announcement(2)).await;
    let (four, six) = (lease.subnets.v4.unwrap(), lease.subnets.v6.unwrap());
    let name = format!("{}-24&{}-64", four.network(), six.network());
    assert_eq!(stage.names(), [&*name]);
    assert_eq!(
        stage.value(&name),
        r#"{"PublicIP":"10.0.0.2","PublicIPv6":"fd00:30::2","BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"02:00:00:00:04:02"},"BackendV6Data":{"VNI":1,"VtepMAC":"02:00:00:00:04:02"}}"#
    );
}

#[tokio::test]
async fn nodes_with_ipv6_alone_have_leases_of_their_own() {
    let stage = Stage::new(V6);
    let mut one = stage.node();
    let first = publish(&mut one, &v6_announcement(1)).await;
    let second = publish(&mut stage.node(), &v6_announcement(2)).await;
    assert_eq!((first.owner.as_str(), second.owner.as_str()), ("fd00:30::1", "fd00:30::2"));
    assert_ne!(first.subnets, second.subnets);
    let name = format!("0.0.0.0-0&{}-64", first.subnets.v6.unwrap().network());
    assert_eq!(
        stage.value(&name),
        r#"{"PublicIP":"0.0.0.0","PublicIPv6":"fd00:30::1","BackendType":"vxlan","BackendV6Data":{"VNI":1,"VtepMAC":"02:00:00:00:04:01"}}"#
    );
    assert_eq!(publish(&mut stage.node(), &v6_announcement(1)).await, first, "found again by its address");
    let snapshot = until(&mut one, "the other is there", |snapshot| !snapshot.peers.is_empty()).await;
    assert_eq!(snapshot.own.as_deref(), Some(&first));
    assert_eq!(snapshot.peers.iter().map(|peer| &**peer).collect::<Vec<_>>(), [&second]);
}

#[tokio::test]
async fn a_node_that_starts_again_finds_its_lease_by_its_address_and_gives_it_a_life_of_its_own() {
    let stage = Stage::new(V4);
    let first = publish(&mut stage.node(), &announcement(1)).await;
    let (name, life) = (stage.names()[0].clone(), stage.life(&stage.names()[0]));
    let mut again = stage.node();
    let before = next(&mut again).await;
    assert_eq!(before.own, None, "who it is, it only knows when it publishes");
    assert_eq!(before.peers.iter().map(|peer| &**peer).collect::<Vec<_>>(), [&first]);
    let revision = stage.revision();
    assert_eq!(publish(&mut again, &announcement(1)).await, first);
    assert_eq!(
        stage.revision(),
        revision + 1,
        "whoever else lives by this key must see that it is taken over"
    );
    let (_, life) = (assert_ne!(stage.life(&name), life), stage.life(&name));
    assert_eq!(publish(&mut again, &announcement(1)).await, first);
    assert_eq!(stage.revision(), revision + 1, "nothing had to be written");
    let mut moved = announcement(1);
    moved.detail = announcement(9).detail;
    let changed = publish(&mut again, &moved).await;
    assert_eq!(changed, Lease { announcement: moved, ..first });
    assert_eq!((stage.names(), stage.life(&name)), (vec![name.clone()], life));
}

#[tokio::test]
async fn a_running_node_whose_address_changes_keeps_its_subnet() {
    let stage = Stage::new(V4);
    let mut node = stage.node();
    let first = publish(&mut node, &announcement(1)).await;
    let second = publish(&mut node, &announcement(7)).await;
    assert_eq!(second, Lease { owner: "10.0.0.7".to_owned(), announcement: announcement(7), ..first });
    let snapshot = next(&mut node).await;
    assert_eq!((snapshot.own.as_deref(), snapshot.peers.len()), (Some(&second), 0));
    assert_eq!(stage.names().len(), 1);
}

#[tokio::test]
async fn a_previous_subnet_is_had_again_if_it_is_free_and_fits() {
    let stage = Stage::new(V4);
    let mut first = stage.node_with(v4("10.244.77.1/24"));
    assert_eq!(publish(&mut first, &announcement(1)).await.subnets, v4("10.244.77.0/24"));
    for (n, previous) in [(2, "10.244.77.0/24"), (3, "10.9.9.0/24"), (4, "10.244.78.0/25")] {
        let mut node = stage.node_with(v4(previous));
        let subnets = publish(&mut node, &announcement(n)).await.subnets;
        assert!(
            subnets.v4.unwrap().addr() != "10.244.77.0".parse::<std::net::IpAddr>().unwrap(),
            "{previous}"
        );
        assert_ne!(subnets, v4(previous));
    }
    stage.configure(DUAL);
    let mut dual = stage.node_with(both("10.244.90.0/24", "fd00:244:0:90::/64"));
    let lease = publish(&mut dual, &dual_announcement(5)).await;
    assert_eq!(lease.subnets, both("10.244.90.0/24", "fd00:244:0:90::/64"));
}

#[tokio::test]
async fn a_lease_that_does_not_fit_a_new_config_is_exchanged_in_one_step() {
    let stage = Stage::new(V4);
    let mut node = stage.node();
    let first = publish(&mut node, &announcement(1)).await;
    let life = stage.life(&stage.names()[0]);
    assert_eq!(next(&mut node).await.own.as_deref(), Some(&first));
    stage.configure(&V4.replace("10.244", "10.99"));
    let snapshot = until(&mut node, "the own lease fits no more", |snapshot| snapshot.own.is_none()).await;
    assert_eq!(snapshot.peers, []);
    let reasons: Vec<_> = snapshot.faults.iter().map(|fault| fault.reason.as_str()).collect();
    assert_eq!(reasons, ["does not fit the net-conf any more: this node takes another subnet"]);
    let revision = stage.revision();
    let second = publish(&mut node, &announcement(1)).await;
    assert_eq!(stage.revision(), revision + 1);
    assert!(second.subnets.v4.unwrap().to_string().starts_with("10.99."), "{second}");
    let name = format!("{}-24", second.subnets.v4.unwrap().network());
    assert_eq!((stage.names(), stage.life(&name), stage.leases()), (vec![name.clone()], life, 1));
    let snapshot = next(&mut node).await;
    assert_eq!((snapshot.own.as_deref(), snapshot.faults), (Some(&second), vec![]));
}

#[tokio::test]
async fn a_family_that_is_switched_on_or_off_leaves_the_other_where_it_is() {
    let stage = Stage::new(V4);
    let mut node = stage.node();
    let four = publish(&mut node, &dual_announcement(1)).await;
    stage.configure(DUAL);
    let dual = publish(&mut node, &dual_announcement(1)).await;
    assert_eq!((dual.subnets.v4, dual.subnets.v6.is_some()), (four.subnets.v4, true));
    assert_eq!(stage.names().len(), 1);
    stage.configure(V6);
    let six = publish(&mut node, &v6_announcement(1)).await;
    assert_eq!(six.subnets, ByFamily { v4: None, v6: dual.subnets.v6 });
    stage.configure(DUAL);
    let dual_again = publish(&mut node, &dual_announcement(1)).await;
    assert_eq!(dual_again.subnets.v6, dual.subnets.v6);
    assert_eq!(stage.names().len(), 1);
}

#[tokio::test]
async fn subnets_of_others_are_never_given_out_whatever_their_length_or_state() {
    let small = r#"{"Network":"10.244.0.0/21","SubnetLen":24,"Backend":{"Type":"vxlan"}}"#;
    let stage = Stage::new(small);
    stage.put("10.244.0.0-23", r#"{"PublicIP":"10.0.0.2"}"#);
    stage.put("10.244.2.128-26", r#"{"PublicIP":"10.0.0.3"}"#);
    stage.put("10.244.3.0-24", "garbage");
    stage.put("10.244.4.7-24", r#"{"PublicIP":"10.0.0.4"}"#);
    stage.put("10.244.5.0-24&fd00:9::-64", r#"{"PublicIP":"10.0.0.5","PublicIPv6":"fd00::5"}"#);
    stage.put("10.244.6.0-24", "null");
    let lease = publish(&mut stage.node_with(v4("10.244.3.0/24")), &announcement(1)).await;
    assert_eq!(lease.subnets, v4("10.244.7.0/24"));
    let wrong = soon(stage.node().publish(&announcement(9))).await.unwrap_err().to_string();
    assert_eq!(
        wrong,
        format!(
            "no /24 is free in 10.244.0.0/21, 7 leases overlap it: delete the key of a node that is gone for good \
             below {PREFIX}/subnets/, or choose a larger network or a longer subnet length"
        )
    );
    stage.delete("10.244.5.0-24&fd00:9::-64");
    assert_eq!(publish(&mut stage.node(), &announcement(9)).await.subnets, v4("10.244.5.0/24"));
}

#[tokio::test]
async fn every_free_subnet_is_a_candidate() {
    let stage = Stage::new(r#"{"Network":"10.244.0.0/16","SubnetLen":18,"Backend":{"Type":"vxlan"}}"#);
    let mut subnets = Vec::new();
    for n in 1..=3 {
        subnets.push(publish(&mut stage.node(), &announcement(n)).await.subnets);
    }
    subnets.sort();
    assert_eq!(subnets, [v4("10.244.64.0/18"), v4("10.244.128.0/18"), v4("10.244.192.0/18")]);
}

#[tokio::test]
async fn without_a_config_the_error_names_the_key_and_what_to_do() {
    let stage = Stage::new(V4);
    stage.cluster.ctl(&["del", &format!("{PREFIX}/config")]);
    let mut node = stage.node();
    let wrong = soon(node.publish(&announcement(1))).await.unwrap_err().to_string();
    let reason =
        "was not found in etcd: was it written by the etcdv3 API? Write the net-conf there by `etcdctl put`";
    assert_eq!(wrong, format!("no lease can be claimed: {PREFIX}/config {reason}"));
    let fault = next(&mut node).await.config.unwrap_err();
    assert_eq!((fault.file.to_str(), fault.reason.as_str()), (Some("/coreos.com/network/config"), reason));
    stage.configure(V4);
    until(&mut node, "the config is there", |snapshot| snapshot.config.is_ok()).await;
    publish(&mut node, &announcement(1)).await;
}

#[tokio::test]
async fn a_reservation_stays_without_an_end_and_is_found_by_its_address() {
    let stage = Stage::new(V4);
    stage.put("10.244.40.0-24", r#"{"PublicIP":"10.0.0.1"}"#);
    let mut node = stage.node();
    let lease = publish(&mut node, &announcement(1)).await;
    assert_eq!(lease.subnets, v4("10.244.40.0/24"));
    assert_eq!(next(&mut node).await.own.as_deref(), Some(&lease));
    assert_eq!(publish(&mut stage.node(), &announcement(1)).await, lease, "after a restart, too");
    assert_eq!((stage.life("10.244.40.0-24"), stage.leases()), (None, 0));
}

#[tokio::test]
async fn a_lease_becomes_a_reservation_when_its_end_is_taken_away() {
    let stage = Stage::new(V4);
    let mut node = stage.node();
    let lease = publish(&mut node, &announcement(1)).await;
    let name = stage.names()[0].clone();
    next(&mut node).await;
    stage.put(&name, &stage.value(&name));
    let mut other = stage.node();
    publish(&mut other, &announcement(2)).await;
    let snapshot = until(&mut node, "the other is there", |snapshot| !snapshot.peers.is_empty()).await;
    assert_eq!(snapshot.own.as_deref(), Some(&lease));
    assert_eq!(publish(&mut node, &announcement(1)).await, lease);
    assert_eq!(stage.life(&name), None);
}

#[tokio::test]
async fn of_several_leases_with_one_address_the_oldest_that_fits_is_kept() {
    let stage = Stage::new(V4);
    for name in ["10.9.3.0-24", "10.244.9.0-24", "10.244.3.0-24"] {
        stage.put(name, r#"{"PublicIP":"10.0.0.1"}"#);
    }
    let mut node = stage.node();
    assert_eq!(publish(&mut node, &announcement(1)).await.subnets, v4("10.244.9.0/24"));
    assert_eq!(stage.names(), ["10.244.9.0-24"]);
}

#[tokio::test]
async fn of_two_that_hold_the_same_the_younger_moves_away() {
    let stage = Stage::new(V4);
    stage.put("10.244.8.0-23", r#"{"PublicIP":"10.0.0.2"}"#);
    stage.put("10.244.9.0-24", r#"{"PublicIP":"10.0.0.1"}"#);
    let lease = publish(&mut stage.node(), &announcement(1)).await;
    assert!(
        !["10.244.8.0", "10.244.9.0"].contains(&lease.subnets.v4.unwrap().network().to_string().as_str())
    );
    assert_eq!(stage.names().len(), 2);
}

#[tokio::test]
async fn keys_beside_the_folder_are_not_looked_at() {
    let stage = Stage::new(V4);
    stage.cluster.ctl(&["put", &format!("{PREFIX}/subnets-old/10.244.1.0-24"), r#"{"PublicIP":"10.0.0.1"}"#]);
    let mut node = stage.node();
    assert_eq!(next(&mut node).await.peers, []);
    publish(&mut node, &announcement(1)).await;
    assert!(stage.cluster.ctl(&["get", &key("")]).is_empty());
}

#[tokio::test]
async fn after_a_claim_that_failed_there_is_no_news() {
    let stage = Stage::new(r#"{"Network":"10.9.0.0/26","SubnetLen":28,"Backend":{"Type":"vxlan"}}"#);
    stage.put("10.9.0.0-26", r#"{"PublicIP":"10.0.0.9"}"#);
    let mut node = stage.node();
    for _ in 0..2 {
        soon(node.publish(&announcement(1))).await.unwrap_err();
    }
    next(&mut node).await;
    soon(node.publish(&announcement(1))).await.unwrap_err();
    let told = tokio::time::timeout(Duration::from_millis(300), node.next()).await;
    assert!(told.is_err(), "the caller would try again at once, for ever");
    stage.delete("10.9.0.0-26");
    next(&mut node).await;
    publish(&mut node, &announcement(1)).await;
}
