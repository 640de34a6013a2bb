//! Which Node object is this node's: named outright, or that of the pod in which the daemon runs.

use tokio::sync::OnceCell;

use super::client::{Call, Client, WHOLE};
use super::error::KubernetesError;
use super::wire::Pod;

/// Which Node object is this node's.
#[derive(Debug)]
pub(super) struct Identity {
    name: OnceCell<String>,
    pod: Option<(String, String)>,
}

impl Identity {
    /// From the node's name, or else from the name and the namespace of the daemon's pod.
    pub(super) fn new(node: Option<String>, pod: Option<(String, String)>) -> Result<Self, KubernetesError> {
        let given = |text: &String| !text.is_empty();
        let node = node.filter(given);
        let pod = pod.filter(|(name, namespace)| given(name) && given(namespace));
        if node.is_none() && pod.is_none() {
            return Err(KubernetesError::NoName);
        }
        let parts = node.iter().chain(pod.iter().flat_map(|(name, namespace)| [name, namespace]));
        if let Some(odd) = parts.into_iter().find(|part| !is_name(part)) {
            return Err(KubernetesError::OddName(odd.clone()));
        }
        Ok(Self { name: OnceCell::new_with(node), pod })
    }

    /// The node's name; asks for the pod if need be, once.
    pub(super) async fn name(&self, client: &Client) -> Result<&str, KubernetesError> {
        let name = self.name.get_or_try_init(|| async {
            let (pod, namespace) = self.pod.clone().ok_or(KubernetesError::NoName)?;
            let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}");
            let found: Pod =
                client.read(&Call::get(format!("read pod {namespace}/{pod}"), path, WHOLE)).await?;
            let node = found.spec.unwrap_or_default().node_name;
            if node.is_empty() { Err(KubernetesError::Homeless { pod, namespace }) } else { Ok(node) }
        });
        name.await.map(String::as_str)
    }
}

/// Whether Kubernetes would take it for the name of an object.
fn is_name(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.')
}
