//! Tells the operator about a node that gets no subnet: as a Kubernetes Event on the node, once for each reason. And the
//! time as Kubernetes writes it: `2006-01-02T15:04:05Z`.

use std::time::{SystemTime, UNIX_EPOCH};

use http::Method;
use serde_json::json;
use tracing::debug;

use super::client::{Call, Client, JSON};

fn event(node: &str, uid: &str, message: &str) -> Call {
    let now = now();
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

pub(super) fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    written(since.as_secs())
}

/// A time in seconds since 1970.
fn written(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The date of a day since 1970, reckoned in years that begin in March, where the leap day is the last.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_kubernetes_writes_them() {
        assert_eq!(written(0), "1970-01-01T00:00:00Z");
        assert_eq!(written(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(written(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(written(1_767_225_599), "2025-12-31T23:59:59Z");
        assert_eq!(written(4_107_542_400), "2100-03-01T00:00:00Z");
    }
}
