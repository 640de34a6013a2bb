//! The API server dies, its watches are cut, its history is gone, tokens end: pods do not notice, and a new peer is
//! followed afterwards.

use std::fs;
use std::time::{Duration, Instant};

use cluster_tests::VXLAN;
use flannel_lab::{Kubernetes, Node, Signal};
use serde_json::{Value, json};
use store_tests::{Calm, Fleet, Need, NodeObject, go_annotations, scenarios, tell, time_to};

scenarios! {
    &[Need::Peers] => the_api_server_is_away_for_a_minute, the_watch_is_cut_a_hundred_times,
        a_version_that_is_gone_leads_to_a_new_list, a_token_that_ended_is_named_and_its_successor_is_read,
        annotations_that_are_withdrawn_or_spoilt_remove_only_whom_they_should;
}

const LONG: Duration = Duration::from_secs(60);

fn the_api_server_is_away_for_a_minute() {
    let fleet = Fleet::kubernetes("kube-away", 2, VXLAN).running();
    let (kubernetes, calm) = (fleet.kubernetes().unwrap(), Calm::begin(&fleet));
    kubernetes.api_server().stop(Signal::KILL).unwrap();
    let since = Instant::now();
    time_to("a minute to pass", LONG * 2, || {
        assert!(fleet.nodes().iter().all(|node| node.readiness().is_ok()), "ready all the time");
        since.elapsed() > LONG
    });
    kubernetes.start_api_server().unwrap();
    kubernetes.wait_served().unwrap();
    let took = fleet.time_to_follow_node(&NodeObject::v4(250));
    tell(format!("a new node is followed {took:?} after the API server's return"));
    // Not after a pause that grew with the minute.
    assert!(took < LONG / 2);
    calm.held();
}

fn the_watch_is_cut_a_hundred_times() {
    let (fleet, proxy) = Fleet::kubernetes_behind("kube-cut", 2, VXLAN);
    let fleet = fleet.running();
    let calm = Calm::begin(&fleet);
    for _ in 0..100 {
        time_to("the daemons to connect", LONG, || proxy.cut() > 0);
    }
    let took = fleet.time_to_follow_node(&NodeObject::v4(250));
    tell(format!("{} connections; a new node is followed after {took:?}", proxy.connections()));
    calm.held();
}

fn a_version_that_is_gone_leads_to_a_new_list() {
    let (fleet, proxy) = Fleet::kubernetes_behind("kube-gone", 2, VXLAN);
    let fleet = fleet.running();
    let (kubernetes, calm) = (fleet.kubernetes().unwrap(), Calm::begin(&fleet));
    let (gone, moved) = (NodeObject::v4(240), NodeObject::v4(241));
    [&gone, &moved].iter().for_each(|node| _ = fleet.time_to_follow_node(node));
    proxy.shut();
    // What changes now is neither in the API server's memory nor in etcd's when the watches begin again.
    kubernetes.delete(&gone.path()).unwrap();
    kubernetes.delete(&moved.path()).unwrap();
    let anew = NodeObject { subnets: vec!["10.244.242.0/24".to_owned()], ..moved.clone() };
    kubernetes.create("/api/v1/nodes", &anew.object()).unwrap();
    kubernetes.create("/api/v1/nodes", &NodeObject::v4(250).object()).unwrap();
    let etcd = fleet.etcd().unwrap();
    etcd.compact(etcd.revision().unwrap()).unwrap();
    kubernetes.api_server().stop(Signal::KILL).unwrap();
    kubernetes.start_api_server().unwrap();
    kubernetes.wait_served().unwrap();
    proxy.open();
    tell(format!("a new node is followed after {:?}", fleet.wait_route("10.244.250.0/24")));
    // A node that was deleted and made anew between two watches has its new subnet, and no other.
    fleet.wait_route("10.244.242.0/24");
    fleet.wait_no_route("10.244.240.0/24");
    fleet.wait_no_route("10.244.241.0/24");
    calm.held_but(&["10.244.240.", "10.244.241.", "02:00:00:00:01:f0", "02:00:00:00:01:f1"]);
}

/// A token of flannel's account that lives as long as a secret of this name.
fn token_bound_to(kubernetes: Kubernetes<'_>, secret: &str) -> String {
    let namespace = "/api/v1/namespaces/kube-flannel";
    let made =
        kubernetes.create(&format!("{namespace}/secrets"), &json!({"metadata": {"name": secret}})).unwrap();
    let bound = json!({"kind": "Secret", "apiVersion": "v1", "name": secret, "uid": made["metadata"]["uid"]});
    let wish = json!({"spec": {"audiences": [], "expirationSeconds": 3600, "boundObjectRef": bound}});
    let answer = kubernetes.create(&format!("{namespace}/serviceaccounts/flannel/token"), &wish).unwrap();
    answer["status"]["token"].as_str().unwrap().to_owned()
}

fn a_token_that_ended_is_named_and_its_successor_is_read() {
    let (fleet, proxy) = Fleet::kubernetes_behind("kube-token", 2, VXLAN);
    let kubernetes = fleet.kubernetes().unwrap();
    let give = |token: &str| {
        for node in fleet.nodes() {
            fs::write(node.disk_path("/etc/kube-flannel/token"), token).unwrap();
        }
    };
    let (first, second) = (token_bound_to(kubernetes, "first"), token_bound_to(kubernetes, "second"));
    give(&first);
    fleet.nodes().iter().for_each(|node| node.start_flanneld(["-v", "10"]).unwrap());
    fleet.settled();
    let calm = Calm::begin(&fleet);
    kubernetes.delete("/api/v1/namespaces/kube-flannel/secrets/first").unwrap();
    let is_refused = || kubernetes.request_as(&first, "GET", "/api/v1/nodes", None).unwrap().0 == 401;
    time_to("the API server to forget the token", LONG, is_refused);
    proxy.cut();
    let names_it = |node: &Node| node.log().contains("401") || node.log().contains("nauthorized");
    time_to("the nodes to say that they are not let in", LONG, || fleet.nodes().iter().all(names_it));
    give(&second);
    let took = fleet.time_to_follow_node(&NodeObject::v4(250));
    tell(format!("a new node is followed {took:?} after the new token"));
    calm.held();
    for node in fleet.nodes() {
        let state = fs::read_to_string(node.path("/run/flannel/state.json")).unwrap();
        let told = [node.log(), state, node.http_get(8081, "/readyz").unwrap().1].concat();
        assert!(!told.contains(&first) && !told.contains(&second), "{} told a token", node.name());
    }
}

/// Changes the annotations of a node's object by adding flannel's prefix to their names.
fn annotate(kubernetes: Kubernetes<'_>, node: &str, annotations: &[(&str, Value)]) {
    let all =
        annotations.iter().map(|(name, value)| (format!("flannel.alpha.coreos.com/{name}"), value.clone()));
    kubernetes.annotate(node, &Value::Object(all.collect())).unwrap();
}

fn annotations_that_are_withdrawn_or_spoilt_remove_only_whom_they_should() {
    let fleet = Fleet::kubernetes("kube-annotations", 2, VXLAN).running();
    let (kubernetes, calm) = (fleet.kubernetes().unwrap(), Calm::begin(&fleet));
    let (spoilt, withdrawn) = (NodeObject::v4(240), NodeObject::v4(241));
    [&spoilt, &withdrawn].iter().for_each(|node| _ = fleet.time_to_follow_node(node));
    let before = fleet.identity(fleet.node("worker1"));
    // What a peer said before stays in force while it cannot be read; so does what this node says of itself.
    let garbage = [("backend-data", json!("{")), ("public-ip", json!("ten")), ("backend-type", json!(""))];
    annotate(kubernetes, &spoilt.name, &garbage[..2]);
    annotate(kubernetes, "worker1", &garbage);
    let took = time_to("worker1 to say again what it said", LONG, || {
        fleet.identity(fleet.node("worker1")) == before
    });
    tell(format!("the own annotations are repaired after {took:?}"));
    let names = ["backend-data", "backend-type", "kube-subnet-manager", "public-ip"];
    annotate(kubernetes, &withdrawn.name, &names.map(|name| (name, Value::Null)));
    tell(format!("a withdrawn node is gone after {:?}", fleet.wait_no_route("10.244.241.0/24")));
    tell(format!("a new node is followed after {:?}", fleet.time_to_follow_node(&NodeObject::v4(250))));
    fleet.wait_route("10.244.240.0/24");
    // Back again, and as before.
    kubernetes.annotate(&withdrawn.name, &withdrawn.annotations()).unwrap();
    kubernetes.annotate(&spoilt.name, &go_annotations("10.0.0.240", "02:00:00:00:01:f0")).unwrap();
    fleet.wait_route("10.244.241.0/24");
    calm.held_but(&["10.244.241.", "02:00:00:00:01:f1"]);
}
