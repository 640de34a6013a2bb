//! A way in for the fuzz targets: what the API server, a kubeconfig and the environment say, read without any of them.

use std::path::Path;

use flannel_plan::annotations::AnnotationPrefix;

use super::kubeconfig;
use super::node::Node;
use super::nodes::{Memory, Nodes};
use super::stream::{Frames, ListReader};
use super::wire::{self, Event};
use crate::proxy::Proxies;

fn nodes() -> Nodes {
    Nodes::new("n0", AnnotationPrefix::default(), Memory::default())
}

fn check(nodes: &Nodes) {
    let peers = nodes.peers();
    assert!(peers.is_sorted_by_key(|lease| lease.subnets), "{peers:?}");
    assert!(nodes.faults().all(|fault| !fault.to_string().is_empty()));
}

/// Reads a list in pieces of this size; gives its nodes and version, if it is one.
///
/// # Panics
/// If leases are told out of order.
pub fn list(bytes: &[u8], at_a_time: usize) -> Option<(Vec<String>, String)> {
    let (mut reader, mut nodes, mut names) = (ListReader::default(), nodes(), Vec::new());
    for piece in bytes.chunks(at_a_time.max(1)) {
        reader.push(piece);
        while let Some(message) = reader.next().ok()? {
            let node = Node::whole(message, &AnnotationPrefix::default());
            names.push(node.name.clone());
            nodes.put(node);
        }
    }
    check(&nodes);
    Some((names, reader.finish().ok()?))
}

/// Takes the frames of a watch.
///
/// # Panics
/// If leases are told out of order.
pub fn watch(bytes: &[u8]) {
    let (mut frames, mut nodes) = (Frames::default(), nodes());
    let metadata = |message| Node::metadata(message, &AnnotationPrefix::default());
    frames.push(bytes);
    while let Ok(Some(frame)) = frames.next() {
        match wire::decode_event(frame) {
            Ok(Event::Put(message)) => {
                nodes.put(Node::whole(message.clone(), &AnnotationPrefix::default()));
                nodes.put(metadata(message));
            }
            Ok(Event::Deleted(message)) => drop(nodes.remove(&metadata(message))),
            Ok(Event::Bookmark(_) | Event::Error(_)) | Err(_) => {}
        }
    }
    check(&nodes);
}

/// Reads a kubeconfig: what it gives, as it may be logged, or why it cannot be used.
///
/// # Errors
/// If it cannot be used.
pub fn kubeconfig(text: &str) -> Result<String, String> {
    kubeconfig::parse(text, Path::new("/etc/kubernetes"), None).map(|access| format!("{access:?}"))
}

/// The proxy for a host, by the values of HTTPS_PROXY and NO_PROXY, as it may be logged.
///
/// # Errors
/// If it cannot be used.
pub fn proxy(url: &str, exempt: &str, host: &str, port: u16) -> Result<Option<String>, String> {
    let found = Proxies::named(url, exempt).way_to(true, host, port);
    found.map(|proxy| proxy.map(|proxy| format!("{proxy} {proxy:?}"))).map_err(|wrong| wrong.to_string())
}
