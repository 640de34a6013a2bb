//! The subnets that Kubernetes gives nodes: late, none, outside, of one family, and others than before.

use flannel_leases::kubernetes::KubernetesError as Error;
use flannel_leases::kubernetes::{Kubernetes, NoPodCidr};
use flannel_leases::{LeaseStore, StoreError};
use flannel_plan::family::Family;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::stage::{
    DUAL, Stage, V4, announcement, dual_announcement, next, peers, shared, soon, until, v4, wait_until,
};

/// Why a node cannot be published.
async fn refusal(store: &mut Kubernetes) -> Error {
    match soon(store.publish(&announcement(1))).await {
        Err(StoreError::Kubernetes(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn events(stage: &Stage<'_>, node: &str) -> Vec<Value> {
    let path = format!("/api/v1/events?fieldSelector=involvedObject.name%3D{}", stage.name(node));
    let listed = stage.cluster.api("GET", &path, None);
    let items = listed["items"].as_array().cloned().unwrap_or_default();
    items.into_iter().filter(|event| event["source"]["component"] == "flanneld").collect()
}

#[tokio::test]
#[ignore = "needs a Kubernetes API server"]
async fn a_peer_without_a_pod_cidr_is_read_when_it_gets_one_and_not_at_each_heartbeat() {
    let stage = Stage::new(shared(), V4);
    stage.add("w1", &["10.244.1.0/24"]);
    let annotations = json!({
        stage.key("backend-data"): "null", stage.key("backend-type"): "host-gw",
        stage.key("kube-subnet-manager"): "true", stage.key("public-ip"): "10.0.0.2",
    });
    stage.add_annotated("w2", &[], &annotations);
    stage.add_annotated("w3", &["10.244.3.0/24"], &annotations);
    let mut store = stage.store("w1");
    assert_eq!(peers(&next(&mut store).await.unwrap()), ["w3"]);
    for n in 10..15 {
        stage.patch("w2", &json!({ "metadata": { "labels": { "heartbeat": n.to_string() } } }));
        // What is heard of another one later shows that the heartbeat has been heard.
        stage.annotate("w3", "public-ip", format!("10.0.0.{n}"));
        let address = Some([10, 0, 0, n].into());
        until(&mut store, |snapshot| snapshot.peers[0].announcement.public.v4 == address).await;
    }
    stage.patch("w2", &json!({ "spec": { "podCIDR": "10.244.2.0/24", "podCIDRs": ["10.244.2.0/24"] } }));
    until(&mut store, |snapshot| peers(snapshot) == ["w2", "w3"]).await;
    let asked = stage.cluster.asked_by_flannel();
    let reads = asked.iter().filter(|(verb, path, _)| verb == "get" && *path == stage.path("w2"));
    assert_eq!(reads.count(), 1);
}

#[tokio::test]
#[ignore = "needs a Kubernetes API server"]
async fn a_pod_cidr_that_comes_late_is_waited_for() {
    let stage = Stage::new(shared(), V4);
    stage.add("w1", &[]);
    stage.add("w2", &["10.244.2.0/24"]);
    let mut store = stage.store("w1");
    let first = next(&mut store).await.unwrap();
    assert_eq!((first.own, first.faults), (None, vec![]));
    let error = refusal(&mut store).await;
    assert!(matches!(&error, Error::NoPodCidr { cause: NoPodCidr::OthersHave, .. }), "{error}");
    assert_eq!(stage.patches("w1"), Vec::<Value>::new());
    stage.patch("w1", &json!({ "spec": { "podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24"] } }));
    // It is heard of without a try: a snapshot makes the caller publish again.
    next(&mut store).await.unwrap();
    assert_eq!(soon(store.publish(&announcement(1))).await.unwrap().subnets, v4("10.244.1.0/24"));
    until(&mut store, |snapshot| snapshot.own.is_some()).await;
}

#[tokio::test]
#[ignore = "needs a Kubernetes API server"]
async fn a_peer_whose_pod_cidr_comes_after_its_annotations_is_followed() {
    let stage = Stage::new(shared(), V4);
    stage.add("w1", &["10.244.1.0/24"]);
    let annotations = json!({ stage.key("kube-subnet-manager"): "true", stage.key("public-ip"): "10.0.0.2" });
    stage.add_annotated("w2", &[], &annotations);
    let mut store = stage.store("w1");
    assert_eq!(next(&mut store).await.unwrap().peers, []);
    stage.patch("w2", &json!({ "spec": { "podCIDR": "10.244.2.0/24", "podCIDRs": ["10.244.2.0/24"] } }));
    let seen = until(&mut store, |snapshot| !snapshot.peers.is_empty()).await;
    assert_eq!(seen.peers[0].subnets, v4("10.244.2.0/24"));
}

#[tokio::test]
#[ignore = "needs a Kubernetes API server"]
async fn a_subnet_outside_of_the_network_or_of_one_family_is_refused_and_both_are_named() {
    let stage = Stage::new(shared(), V4);
    stage.add("w1", &["10.42.1.0/24"]);
    let mut store = stage.store("w1");
    let error = refusal(&mut store).await;
    let expected = "podCIDR 10.42.1.0/24 of node w1 is outside of Network 10.244.0.0/16: make Network in the \
                    net-conf and --cluster-cidr of the kube-controller-manager the same";
    assert_eq!(error.to_string().replace(&stage.name("w1"), "w1"), expected);
    assert_eq!(next(&mut store).await.unwrap().own, None);

    let stage = Stage::new(shared(), DUAL);
    stage.add("w1", &["10.244.1.0/24"]);
    let error = refusal(&mut stage.store("w1")).await;
    assert!(matches!(error, Error::NoFamily { family: Family::V6, .. }), "{error}");
    // Flannel's manifest does not allow Events, which is no trouble.
    assert_eq!(events(&stage, "w1"), Vec::<Value>::new());
}

#[tokio::test]
#[ignore = "needs a Kubernetes API server"]
async fn a_range_that_is_exhausted_is_named_where_events_may_be_read_and_told_once_where_they_may_be_written()
{
    let mut cluster = Cluster::start();
    cluster.start_controllers(&[
        "--allocate-node-cidrs",
        "--cluster-cidr=10.244.0.0/23",
        "--node-cidr-mask-size=24",
    ]);
    let stage = Stage::new(&cluster, V4);
    stage.add("w1", &[]);
    stage.add("w2", &[]);
    let has_cidr = |node: &str| stage.read(node)["spec"]["podCIDR"].is_string();
    wait_until("two nodes have a podCIDR", || has_cidr("w1") && has_cidr("w2")).await;
    stage.add("w3", &[]);
    let is_told = || {
        let events = cluster.api("GET", "/api/v1/events?fieldSelector=reason%3DCIDRNotAvailable", None);
        events["items"].as_array().is_some_and(|items| !items.is_empty())
    };
    wait_until("the controller-manager complains", is_told).await;

    let mut store = stage.store("w3");
    assert_eq!(next(&mut store).await.unwrap().own, None);
    let error = refusal(&mut store).await;
    assert!(matches!(&error, Error::NoPodCidr { cause: NoPodCidr::OthersHave, .. }), "{error}");

    let rule = json!({ "apiGroups": [""], "resources": ["events"], "verbs": ["list", "create"] });
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/flannel";
    let mut role = cluster.api("GET", path, None);
    role["rules"].as_array_mut().unwrap().push(rule);
    cluster.api("PUT", path, Some(&role));
    let mut causes = Vec::new();
    wait_until("the right is given", || cluster.may_list_events()).await;
    for _ in 0..3 {
        causes.push(refusal(&mut store).await.to_string());
    }
    assert!(causes.iter().all(|cause| cause.contains("has no range left")), "{causes:#?}");
    let told = events(&stage, "w3");
    assert_eq!(told.len(), 1, "{told:#?}");
    assert_eq!(told[0]["message"], causes[0].as_str());
    assert_eq!(told[0]["reason"], "FlannelHasNoSubnet");

    stage.remove("w1");
    until(&mut store, |snapshot| snapshot.own.is_none() && has_cidr("w3")).await;
    soon(store.publish(&announcement(3))).await.unwrap();
}

#[tokio::test]
#[ignore = "needs a Kubernetes API server"]
async fn a_controller_manager_that_gives_no_subnets_is_named() {
    let cluster = Cluster::start();
    let stage = Stage::new(&cluster, V4);
    stage.add("w1", &[]);
    stage.add("w2", &[]);
    let mut store = stage.store("w1");
    next(&mut store).await.unwrap();
    let error = refusal(&mut store).await;
    assert!(matches!(&error, Error::NoPodCidr { cause: NoPodCidr::NoneGiven, .. }), "{error}");
    assert!(error.to_string().contains("--allocate-node-cidrs"), "{error}");
}

#[tokio::test]
#[ignore = "needs a Kubernetes API server"]
async fn a_peer_that_comes_back_with_another_pod_cidr_is_followed() {
    let stage = Stage::new(shared(), V4);
    stage.add("w1", &["10.244.1.0/24"]);
    stage.add("w2", &["10.244.2.0/24"]);
    let (mut w1, mut w2) = (stage.store("w1"), stage.store("w2"));
    soon(w2.publish(&announcement(2))).await.unwrap();
    let before = next(&mut w1).await.unwrap();
    assert_eq!(before.peers[0].subnets, v4("10.244.2.0/24"));
    next(&mut w2).await.unwrap();
    stage.remove("w2");
    let without = until(&mut w2, |snapshot| snapshot.own.is_none()).await;
    assert!(without.faults[0].to_string().contains("does not exist"), "{}", without.faults[0]);
    let error = refusal(&mut w2).await;
    assert!(matches!(error, Error::NoNode(_)), "{error}");
    stage.add("w2", &["10.244.22.0/24"]);
    // The node is back: it is to be published again, with what it has now.
    let back = until(&mut w2, |snapshot| snapshot.faults.is_empty()).await;
    assert!(back.own_is_damaged);
    let lease = soon(w2.publish(&announcement(2))).await.unwrap();
    assert_eq!(lease.subnets, v4("10.244.22.0/24"));
    let seen = until(&mut w1, |snapshot| !snapshot.peers.is_empty()).await;
    assert_eq!(*seen.peers[0], lease);
}

#[tokio::test]
#[ignore = "needs a Kubernetes API server"]
async fn a_dual_stack_peer_that_changes_one_family_is_followed() {
    let stage = Stage::new(shared(), DUAL);
    stage.add("w1", &["10.244.1.0/24", "fd00:244:0:1::/64"]);
    stage.add("w2", &["10.244.2.0/24", "fd00:244:0:2::/64"]);
    let (mut w1, mut w2) = (stage.store("w1"), stage.store("w2"));
    soon(w2.publish(&dual_announcement(2))).await.unwrap();
    let first = next(&mut w1).await.unwrap();
    assert_eq!((peers(&first), &first.peers[0].announcement), (vec!["w2".to_owned()], &dual_announcement(2)));
    let mut wanted = dual_announcement(2);
    wanted.public.v6 = Some("fd00:10::99".parse().unwrap());
    soon(w2.publish(&wanted)).await.unwrap();
    until(&mut w1, |snapshot| snapshot.peers.first().is_some_and(|peer| peer.announcement == wanted)).await;
    wanted.detail.v4 = announcement(9).detail.v4;
    soon(w2.publish(&wanted)).await.unwrap();
    until(&mut w1, |snapshot| snapshot.peers.first().is_some_and(|peer| peer.announcement == wanted)).await;
}
