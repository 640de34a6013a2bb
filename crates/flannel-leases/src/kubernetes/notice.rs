//! Tells the operator about a node that gets no subnet: as a Kubernetes Event on the node, once for each reason.

use http::Method;
use serde_json::json;
use tracing::debug;

use super::client::{Call, Client, JSON};
use super::clock;

/// The Event that tells of it.
fn event(node: &str, uid: &str, message: &str) -> Call {
    let now = clock::now();
    let body = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "generateName": format!("{node}."), "namespace": "default" },
        "involvedObject": { "apiVersion": "v1", "kind": "Node", "name": node, "uid": uid },
        "type": "Warning",
        "reason": "FlannelHasNoSubnet",
        "message": message,
        "source": { "component": "flanneld", "host": node },
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    });
    Call {
        act: format!("write an Event on node {node}"),
        method: Method::POST,
        path: "/api/v1/namespaces/default/events".to_owned(),
        accept: JSON,
        body: Some((JSON, body.to_string())),
    }
}

/// Writes the Event. It may not be allowed, which is no trouble: flannel's own manifest does not allow it.
pub(super) async fn tell(client: &Client, node: &str, uid: &str, message: &str) {
    if let Err(error) = client.call(&event(node, uid, message)).await {
        debug!(%error, "no Event was written");
    }
}

/// What the controller-manager says about a node for which it has no range left, if we may read it.
pub(super) async fn exhaustion(client: &Client, node: &str) -> Option<String> {
    let path = format!(
        "/api/v1/events?limit=1&fieldSelector=involvedObject.kind%3DNode%2CinvolvedObject.name%3D{node}\
         %2Creason%3DCIDRNotAvailable"
    );
    match client.call(&Call::get(format!("read the Events of node {node}"), path, JSON)).await {
        Ok(body) => {
            let events: serde_json::Value = serde_json::from_slice(&body).ok()?;
            events["items"][0]["message"].as_str().map(str::to_owned)
        }
        Err(error) => {
            debug!(%error, "the cause of a missing podCIDR is guessed");
            None
        }
    }
}
