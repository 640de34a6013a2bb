//! What is remembered is of one cluster and of one node in it: it is no answer where another is meant, and Kubernetes is
//! told nothing by it.

use std::fs;
use std::time::{Duration, Instant};

use cluster_tests::{VXLAN, is_ready, wait_until};
use flannel_lab::{Kubernetes, Node, Signal};
use serde_json::{Value, json};
use store_tests::{Fleet, Need, scenarios, tell, time_to};

use crate::boot::wait_remembered;

scenarios! {
    &[Need::Peers] => a_node_made_anew_never_starts_from_what_its_predecessor_was,
        network_unavailable_is_never_told_from_memory_alone;
}

const LONG: Duration = Duration::from_secs(60);
const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/flannel";

fn a_node_made_anew_never_starts_from_what_its_predecessor_was() {
    let (fleet, proxy) = Fleet::kubernetes_behind("kube-anew", 2, VXLAN);
    let fleet = fleet.running();
    let (kubernetes, node) = (fleet.kubernetes().unwrap(), fleet.node("worker1"));
    wait_remembered(node, &["master1"]);
    node.power_off().unwrap();
    kubernetes.controllers().stop(Signal::KILL).unwrap();
    kubernetes.delete_node("worker1").unwrap();
    let spec = json!({"podCIDR": "10.244.77.0/24", "podCIDRs": ["10.244.77.0/24"]});
    let anew = json!({"metadata": {"name": "worker1"}, "spec": spec});
    kubernetes.create("/api/v1/nodes", &anew).unwrap();
    node.power_on().unwrap();
    proxy.shut();
    node.start_flanneld([""; 0]).unwrap();
    time_to("the refusal to be told", LONG, || node.log().contains("the lease store cannot be read"));
    proxy.open();
    is_ready(node);
    assert!(!node.log().contains("going on with what"), "{}", node.log());
    let env = fs::read_to_string(node.path("/run/flannel/subnet.env")).unwrap();
    assert!(env.contains("FLANNEL_SUBNET=10.244.77.1/24"), "{env}");
}

/// What the condition NetworkUnavailable of a node says.
fn condition(kubernetes: Kubernetes<'_>, node: &Node) -> Value {
    let object = kubernetes.node(node.name()).unwrap();
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.into_iter().find(|condition| condition["type"] == "NetworkUnavailable");
    found.map(|condition| condition["status"].clone()).unwrap_or_default()
}

/// Gives flannel these rights to nodes, and no others.
fn allow(kubernetes: Kubernetes<'_>, verbs: &[&str]) {
    let rule =
        |resource: &str, verbs: &[&str]| json!({"apiGroups": [""], "resources": [resource], "verbs": verbs});
    let rules = [rule("nodes", verbs), rule("nodes/status", &["patch"])];
    kubernetes.patch(ROLE, &json!({"rules": rules})).unwrap();
    let token = kubernetes.flannel_token().unwrap();
    let expected = if verbs.contains(&"list") { 200 } else { 403 };
    time_to("the rights to change", LONG, || {
        kubernetes.request_as(&token, "GET", "/api/v1/nodes", None).unwrap().0 == expected
    });
}

fn network_unavailable_is_never_told_from_memory_alone() {
    let fleet = Fleet::kubernetes("kube-memory", 2, VXLAN).running();
    let (kubernetes, node) = (fleet.kubernetes().unwrap(), fleet.node("worker1"));
    wait_remembered(node, &["master1"]);
    node.flanneld().stop(Signal::TERM).unwrap();
    // As a cloud's controller does with a node that joins.
    let unavailable = json!({"type": "NetworkUnavailable", "status": "True", "reason": "NoRouteCreated"});
    kubernetes
        .patch("/api/v1/nodes/worker1/status", &json!({"status": {"conditions": [unavailable]}}))
        .unwrap();
    allow(kubernetes, &["get"]);
    node.start_flanneld([""; 0]).unwrap();
    wait_until("the node to go on with what it remembers", || {
        let told = node.http_get(8081, "/readyz").map_err(|why| why.to_string())?;
        let is_by_memory = told.0 == 200 && told.1.contains("what it said before is in force");
        if is_by_memory { Ok(()) } else { Err(format!("{told:?}")) }
    });
    let since = Instant::now();
    time_to("five seconds to pass", LONG, || {
        assert_eq!(condition(kubernetes, node), "True", "only the store can tell who this node is");
        since.elapsed() > Duration::from_secs(5)
    });
    allow(kubernetes, &["get", "list", "watch"]);
    let took = time_to("the condition", LONG, || condition(kubernetes, node) == "False");
    tell(format!("the condition is told {took:?} after the store can be read"));
}
