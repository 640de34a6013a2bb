//! The condition NetworkUnavailable: false when pods can be started, true only when they could not be for a while.

use std::time::Duration;

use flannel_leases::kubernetes::{Kubernetes, KubernetesOptions};
use flannel_leases::{LeaseStore, Readiness};
use serde_json::{Value, json};

use crate::stage::{Stage, V4, announcement, next, shared, soon, wait_until};

fn words(condition: &Value) -> [&str; 3] {
    ["status", "reason", "message"].map(|key| condition[key].as_str().unwrap_or_default())
}

const UP: [&str; 3] = ["False", "FlannelIsUp", "Flannel is running on this node"];

fn not_ready(reason: &str) -> Readiness {
    Readiness::NotReady(reason.to_owned())
}

#[tokio::test]
#[ignore = "needs a Kubernetes API server"]
async fn it_is_false_when_ready_and_true_with_the_reason_when_not_ready_for_long() {
    let stage = Stage::new(shared(), V4);
    stage.add("w1", &["10.244.1.0/24"]);
    let mut store = stage.store("w1").with_patience(Duration::from_millis(300));
    next(&mut store).await.unwrap();
    store.tell(&Readiness::Ready);
    wait_until("it is false", || words(&stage.condition("w1")) == UP).await;
    store.tell(&not_ready("no way out"));
    store.tell(&not_ready("no address on eth0"));
    let down = ["True", "FlannelIsDown", "no address on eth0"];
    wait_until("it is true", || words(&stage.condition("w1")) == down).await;
    let since = stage.condition("w1")["lastTransitionTime"].clone();
    store.tell(&not_ready("no link eth0"));
    let down = ["True", "FlannelIsDown", "no link eth0"];
    wait_until("it has the new reason", || words(&stage.condition("w1")) == down).await;
    assert_eq!(stage.condition("w1")["lastTransitionTime"], since);
    store.tell(&Readiness::Ready);
    wait_until("it is false again", || words(&stage.condition("w1")) == UP).await;
}

#[tokio::test]
#[ignore = "needs a Kubernetes API server"]
async fn a_moment_of_not_ready_is_not_told() {
    let stage = Stage::new(shared(), V4);
    stage.add("w1", &["10.244.1.0/24"]);
    let mut store = stage.store("w1");
    next(&mut store).await.unwrap();
    store.tell(&not_ready("starting"));
    soon(store.publish(&announcement(1))).await.unwrap();
    store.tell(&not_ready("still starting"));
    store.tell(&Readiness::Ready);
    wait_until("it is false", || words(&stage.condition("w1")) == UP).await;
    assert_eq!(stage.patches("w1").len(), 2, "annotations and one condition");
}

#[tokio::test]
#[ignore = "needs a Kubernetes API server"]
async fn a_node_that_is_made_anew_gets_it_again() {
    let stage = Stage::new(shared(), V4);
    stage.add("w1", &["10.244.1.0/24"]);
    let mut store = stage.store("w1");
    next(&mut store).await.unwrap();
    store.tell(&Readiness::Ready);
    wait_until("it is false", || words(&stage.condition("w1")) == UP).await;
    stage.remove("w1");
    stage.add("w1", &["10.244.1.0/24"]);
    wait_until("it is false on the new node", || words(&stage.condition("w1")) == UP).await;
}

#[tokio::test]
#[ignore = "needs a Kubernetes API server"]
async fn it_is_retried_until_the_node_exists_and_left_alone_if_that_is_wished() {
    let stage = Stage::new(shared(), V4);
    let mut store = stage.store("w1");
    next(&mut store).await.unwrap();
    store.tell(&Readiness::Ready);
    let mut quiet =
        Kubernetes::open(KubernetesOptions { set_condition: false, ..stage.options("w2") }).unwrap();
    stage.add("w2", &["10.244.2.0/24"]);
    next(&mut quiet).await.unwrap();
    quiet.tell(&Readiness::Ready);
    let cloud = json!({ "type": "NetworkUnavailable", "status": "True", "reason": "NoRouteCreated" });
    stage.add("w1", &["10.244.1.0/24"]);
    stage.cluster.api(
        "PATCH",
        &format!("{}/status", stage.path("w1")),
        Some(&json!({ "status": { "conditions": [cloud] } })),
    );
    wait_until("it is false", || words(&stage.condition("w1")) == UP).await;
    assert_eq!(stage.condition("w2"), Value::Null);
}
