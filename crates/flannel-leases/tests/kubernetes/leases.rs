//! What is written on nodes, and what is read from them.

use std::path::Path;

use flannel_leases::{LeaseStore, Readiness};
use flannel_plan::family::ByFamily;
use flannel_plan::lease::{Announcement, Lease};
use serde_json::{Value, json};

use crate::stage::{Stage, V4, announcement, next, peers, shared, soon, until, v4, wait_until};

#[tokio::test]
#[ignore = "needs a Kubernetes API server"]
async fn a_node_without_annotations_gets_those_of_go_and_is_a_peer_of_the_others() {
    let stage = Stage::new(shared(), V4);
    stage.add("w1", &["10.244.1.0/24"]);
    stage.add("w2", &["10.244.2.0/24"]);
    let (mut w1, mut w2) = (stage.store("w1"), stage.store("w2"));
    let first = next(&mut w1).await.unwrap();
    assert_eq!((first.own, first.peers, first.faults), (None, vec![], vec![]));

    let expected = Lease {
        owner: stage.name("w1"),
        subnets: v4("10.244.1.0/24"),
        announcement: announcement(1),
        since: 0,
    };
    let mut lease = soon(w1.publish(&announcement(1))).await.unwrap();
    assert!(lease.since > 1_700_000_000, "{}", lease.since);
    lease.since = 0;
    assert_eq!(lease, expected);
    let written = [
        ("backend-data", r#"{"VNI":1,"VtepMAC":"02:00:00:00:04:01"}"#),
        ("backend-type", "vxlan"),
        ("kube-subnet-manager", "true"),
        ("public-ip", "10.0.0.1"),
    ];
    assert_eq!(stage.annotations("w1"), written.map(|(key, value)| (key.to_owned(), value.to_owned())));

    let own = until(&mut w1, |snapshot| snapshot.own.is_some()).await;
    assert_eq!(own.own.unwrap().announcement, announcement(1));
    let seen = until(&mut w2, |snapshot| !snapshot.peers.is_empty()).await;
    assert_eq!(peers(&seen), ["w1"]);
    assert_eq!(Lease { since: 0, ..(*seen.peers[0]).clone() }, expected);

    soon(w2.publish(&announcement(2))).await.unwrap();
    let seen = until(&mut w1, |snapshot| !snapshot.peers.is_empty()).await;
    assert_eq!(peers(&seen), ["w2"]);
    stage.patch("w2", &json!({ "metadata": { "annotations": { stage.key("public-ip"): "10.0.0.22" } } }));
    let seen = until(&mut w1, |snapshot| {
        snapshot.peers.first().is_some_and(|peer| peer.announcement != announcement(2))
    });
    assert_eq!(seen.await.peers[0].announcement.public.v4, Some("10.0.0.22".parse().unwrap()));
    stage.remove("w2");
    until(&mut w1, |snapshot| snapshot.peers.is_empty()).await;
}

#[tokio::test]
#[ignore = "needs a Kubernetes API server"]
async fn annotations_are_written_in_one_patch_and_the_condition_in_another_and_neither_again() {
    let stage = Stage::new(shared(), V4);
    stage.add("w1", &["10.244.1.0/24"]);
    let mut store = stage.store("w1");
    soon(store.publish(&announcement(1))).await.unwrap();
    store.tell(&Readiness::Ready);
    wait_until("the condition is set", || stage.condition("w1")["status"] == "False").await;
    let annotations = json!({
        stage.key("backend-data"): r#"{"VNI":1,"VtepMAC":"02:00:00:00:04:01"}"#,
        stage.key("backend-type"): "vxlan",
        stage.key("kube-subnet-manager"): "true",
        stage.key("public-ip"): "10.0.0.1",
    });
    let mut sent = stage.patches("w1");
    assert_eq!(sent[0], json!({ "metadata": { "annotations": annotations } }));
    let condition = &mut sent[1]["status"]["conditions"][0];
    for time in ["lastHeartbeatTime", "lastTransitionTime"] {
        assert!(condition[time].take().as_str().is_some_and(|time| time.ends_with('Z')), "{condition}");
    }
    let expected = json!({
        "type": "NetworkUnavailable", "status": "False", "reason": "FlannelIsUp",
        "message": "Flannel is running on this node", "lastHeartbeatTime": null, "lastTransitionTime": null,
    });
    assert_eq!(sent[1], json!({ "status": { "conditions": [expected] } }));

    soon(store.publish(&announcement(1))).await.unwrap();
    drop(store);
    let mut after_a_restart = stage.store("w1");
    soon(after_a_restart.publish(&announcement(1))).await.unwrap();
    after_a_restart.tell(&Readiness::Ready);
    // A change of the address is one more patch, of that key alone.
    let moved = Announcement { public: announcement(9).public, ..announcement(1) };
    soon(after_a_restart.publish(&moved)).await.unwrap();
    let sent = stage.patches("w1");
    assert_eq!(sent.len(), 3, "{sent:#?}");
    assert_eq!(sent[2], json!({ "metadata": { "annotations": { stage.key("public-ip"): "10.0.0.9" } } }));
}

#[tokio::test]
#[ignore = "needs a Kubernetes API server"]
async fn what_go_flannel_wrote_is_gone_on_with_and_not_written_again() {
    for case in ["vxlan", "vxlan-directrouting", "host-gw"] {
        let golden =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../flannel-plan/tests/golden/kubernetes").join(case);
        let stage = Stage::new(shared(), &std::fs::read_to_string(golden.join("net-conf.json")).unwrap());
        for node in ["w1", "w2", "w3"] {
            let text = std::fs::read_to_string(golden.join(format!("node-{node}.json"))).unwrap();
            let text = text.replace("flannel.alpha.coreos.com/", &stage.key(""));
            let golden: Value = serde_json::from_str(&text).unwrap();
            stage.add_annotated(node, &[golden["spec"]["podCIDR"].as_str().unwrap()], &golden["annotations"]);
        }
        let mut store = stage.store("w1");
        let first = next(&mut store).await.unwrap();
        let (own, mut seen) = (first.own.clone().unwrap(), peers(&first));
        seen.sort();
        assert_eq!((first.faults, seen), (vec![], vec!["w2".to_owned(), "w3".to_owned()]));
        assert_eq!(soon(store.publish(&own.announcement)).await.unwrap(), *own);
        assert_eq!(stage.patches("w1"), Vec::<Value>::new());
    }
}

#[tokio::test]
#[ignore = "needs a Kubernetes API server"]
async fn an_overwritten_address_is_published_and_the_nodes_own_stays_its_announcement() {
    let stage = Stage::new(shared(), V4);
    stage.add_annotated("w1", &["10.244.1.0/24"], &json!({ stage.key("public-ip-overwrite"): "172.18.0.2" }));
    let mut store = stage.store("w1");
    soon(store.publish(&announcement(1))).await.unwrap();
    let public_ip =
        || stage.annotations("w1").into_iter().find(|(key, _)| key == "public-ip").map(|(_, ip)| ip);
    assert_eq!(public_ip().as_deref(), Some("172.18.0.2"));
    let own = until(&mut store, |snapshot| snapshot.own.is_some()).await;
    assert_eq!(own.own.unwrap().announcement, announcement(1));
    assert_eq!(own.announced.v4, "172.18.0.2".parse().ok());
    assert_eq!(stage.patches("w1").len(), 1);

    // A new overwrite is asked for while we run: the node is not as it should be, and is published again.
    stage.annotate("w1", "public-ip-overwrite", "172.18.0.3");
    let changed = until(&mut store, |snapshot| {
        snapshot.own.as_ref().is_some_and(|own| own.announcement != announcement(1))
    });
    changed.await;
    soon(store.publish(&announcement(1))).await.unwrap();
    assert_eq!(public_ip().as_deref(), Some("172.18.0.3"));
    // One that is no address is a fault, and the one before stays.
    stage.annotate("w1", "public-ip-overwrite", "nonsense");
    let wrong = until(&mut store, |snapshot| !snapshot.faults.is_empty()).await;
    assert!(wrong.faults[0].to_string().contains("\"nonsense\""), "{}", wrong.faults[0]);
    soon(store.publish(&announcement(1))).await.unwrap();
    assert_eq!(public_ip().as_deref(), Some("172.18.0.3"));
}

#[tokio::test]
#[ignore = "needs a Kubernetes API server"]
async fn the_operator_may_give_a_node_its_addresses_by_annotations() {
    let stage = Stage::new(shared(), V4);
    let annotations = json!({ stage.key("node-public-ip"): "192.0.2.7", stage.key("node-public-ipv6"): "" });
    stage.add_annotated("w1", &["10.244.1.0/24"], &annotations);
    let mut store = stage.store("w1");
    let first = next(&mut store).await.unwrap();
    let v4 = |ip: &str| ByFamily { v4: Some(ip.parse().unwrap()), v6: None };
    assert_eq!(first.public, v4("192.0.2.7"));
    stage.annotate("w1", "node-public-ip", "192.0.2.8");
    until(&mut store, |snapshot| snapshot.public == v4("192.0.2.8")).await;
    stage.annotate("w1", "node-public-ip", "none");
    let wrong = until(&mut store, |snapshot| !snapshot.faults.is_empty()).await;
    assert_eq!(wrong.public, v4("192.0.2.8"));
    stage.annotate("w1", "node-public-ip", Value::Null);
    let gone = until(&mut store, |snapshot| snapshot.faults.is_empty()).await;
    assert_eq!(gone.public, ByFamily::default());
}

#[tokio::test]
#[ignore = "needs a Kubernetes API server"]
async fn annotations_of_this_node_that_are_spoilt_or_withdrawn_are_put_back() {
    let stage = Stage::new(shared(), V4);
    stage.add("w1", &["10.244.1.0/24"]);
    let mut store = stage.store("w1");
    soon(store.publish(&announcement(1))).await.unwrap();
    let intact = stage.annotations("w1");
    for (suffix, value) in [
        ("backend-data", json!("{not json")),
        ("public-ip", json!("somewhere")),
        ("kube-subnet-manager", Value::Null),
        ("kube-subnet-manager", json!("false")),
    ] {
        stage.annotate("w1", suffix, value);
        let damaged = until(&mut store, |snapshot| snapshot.own_is_damaged).await;
        assert_eq!(damaged.own.unwrap().announcement, announcement(1));
        soon(store.publish(&announcement(1))).await.unwrap();
        assert_eq!(stage.annotations("w1"), intact);
        let whole = until(&mut store, |snapshot| !snapshot.own_is_damaged).await;
        assert_eq!((whole.own.unwrap().announcement.clone(), whole.faults), (announcement(1), vec![]));
    }
}
