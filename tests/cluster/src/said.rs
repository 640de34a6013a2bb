//! What flanneld says of itself: /readyz, /metrics and state.json.

use std::collections::BTreeMap;
use std::fs;

use flannel_lab::Node;
use serde_json::Value;

use crate::cluster::wait_until;

/// The health port of the lab's own daemons.
const PORT: u16 = 8081;

/// The code and the lines of /readyz.
pub fn readyz(node: &Node) -> (u16, Vec<String>) {
    let (code, body) = node.http_get(PORT, "/readyz").unwrap();
    (code, body.lines().map(str::to_owned).collect())
}

/// Waits until the daemon on the lab's own health port is ready, whoever started it.
pub fn is_ready(node: &Node) {
    wait_until(&format!("flanneld on {} to be ready", node.name()), || {
        match node.http_get(PORT, "/readyz") {
            Ok((200, _)) => Ok(()),
            Ok((_, body)) => Err(body),
            Err(why) => Err(why.to_string()),
        }
    });
}

/// The whole state.json of the lab's own daemon; null while there is none.
pub fn state(node: &Node) -> Value {
    let text = fs::read_to_string(node.path("/run/flannel/state.json")).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// The figures of /metrics by their names with labels, without buckets.
#[derive(Clone, Debug, PartialEq)]
pub struct Metrics(BTreeMap<String, f64>);

/// Asks for /metrics.
pub fn metrics(node: &Node) -> Metrics {
    let (_, body) = node.http_get(PORT, "/metrics").unwrap();
    let figure = |line: &str| {
        let (name, figure) = line.rsplit_once(' ')?;
        Some((name.to_owned(), figure.parse().ok()?))
    };
    Metrics(body.lines().filter(|line| !line.starts_with('#')).filter_map(figure).collect())
}

impl Metrics {
    /// One figure by its whole name; 0 if there is none.
    pub fn get(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// The sum of all figures that differ in labels only.
    pub fn sum(&self, name: &str) -> f64 {
        let same = |known: &str| {
            known.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('{'))
        };
        self.0.iter().filter(|(known, _)| same(known)).map(|(_, figure)| figure).sum()
    }

    /// The labels of a figure and their values, where they are not 0.
    pub fn labelled(&self, name: &str) -> BTreeMap<String, f64> {
        let of = |(known, figure): (&String, &f64)| {
            let labels = known.strip_prefix(name)?.strip_prefix('{')?.strip_suffix('}')?;
            (*figure != 0.0).then(|| (labels.replace('"', ""), *figure))
        };
        self.0.iter().filter_map(of).collect()
    }
}
