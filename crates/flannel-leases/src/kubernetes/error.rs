//! What can go wrong between this node and the Kubernetes API. Each message names the object, the cause and the
//! way out; none holds a secret.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use flannel_plan::family::Family;
use flannel_plan::pod_cidrs::PodCidrError;
use flannel_plan::quoted::{line, quoted};
use ipnet::IpNet;

use crate::proxy::ProxyError;

/// The Kubernetes API did not do what was asked of it.
#[derive(Debug, thiserror::Error)]
pub enum KubernetesError {
    #[error("kubeconfig {} cannot be used: {reason}", path.display())]
    Kubeconfig { path: PathBuf, reason: String },
    #[error(
        "no Kubernetes API server is known: this is no pod (KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT \
         are not both set), so give --kubeconfig-file or --kube-api-url"
    )]
    NoServer,
    #[error("{url:?} is no address of an API server: {reason}; expected https://HOST:PORT")]
    Url { url: String, reason: String },
    #[error("this node's name is not known: set NODE_NAME, or POD_NAME and POD_NAMESPACE")]
    NoName,
    #[error(
        "{0:?} is no name of a node or pod: NODE_NAME, POD_NAME and POD_NAMESPACE hold small letters, digits, \
         hyphens and dots"
    )]
    OddName(String),
    #[error(
        "pod {namespace}/{pod} is on no node yet, so this node's name is not known: set NODE_NAME instead"
    )]
    Homeless { pod: String, namespace: String },
    /// What this node shows to the server, or the server to it; its place is a file's path, or "in the kubeconfig".
    #[error("{what} {place} cannot be used: {reason}")]
    Credential { what: &'static str, place: String, reason: String },
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    #[error("the API server {server} cannot be reached: {cause}{}", way_out(cause))]
    Unreachable { server: String, cause: io::Error },
    #[error("cannot {act}: {}", .fault.told_of(.server))]
    Call { act: String, server: String, fault: CallFault },
    #[error(
        "there is no node {0}: the kubelet makes it when it joins the cluster; if it has another name, set NODE_NAME"
    )]
    NoNode(String),
    #[error("node {node} has no podCIDR: {cause}")]
    NoPodCidr { node: String, cause: NoPodCidr },
    #[error(
        "node {node} has no {family} podCIDR, and the net-conf asks for {family}: give the kube-controller-manager \
         an {family} range in --cluster-cidr, or switch the family off in the net-conf"
    )]
    NoFamily { node: String, family: Family },
    #[error(
        "podCIDR {subnet} of node {node} is outside of Network {network}: make Network in the net-conf and \
         --cluster-cidr of the kube-controller-manager the same"
    )]
    Outside { node: String, subnet: IpNet, network: IpNet },
    #[error("node {node}: {cause}")]
    BadPodCidr { node: String, cause: PodCidrError },
}

/// What came of a request in place of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallFault {
    /// The connection broke, as the HTTP library says.
    Broken(String),
    /// Nothing came for so long.
    Slow(Duration),
    /// The answer is no: its HTTP status, and what the server says. It is the operator's own server, whose sentence is
    /// cleaned but not cut.
    Refused(u16, String),
    /// The answer cannot be read.
    Garbled(String),
}

impl CallFault {
    fn told_of(&self, server: &str) -> String {
        match self {
            Self::Broken(reason) => {
                format!("the connection to the API server {server} broke: {}", quoted(reason))
            }
            Self::Slow(waited) => format!("the API server {server} has not answered within {waited:?}"),
            Self::Refused(code, message) => {
                let way_out = way_out_of_refusal(*code);
                format!("the API server {server} answers {code}: {}{way_out}", line(message))
            }
            Self::Garbled(reason) => {
                format!("the answer of the API server {server} cannot be read: {}", quoted(reason))
            }
        }
    }
}

/// Why a node has no podCIDR.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPodCidr {
    #[error(
        "the kube-controller-manager has no range left ({}): remove nodes that are gone, or give it a larger \
         --cluster-cidr",
        quoted(.0)
    )]
    Exhausted(String),
    #[error(
        "no node has one, so the kube-controller-manager gives none: run it with --allocate-node-cidrs and \
         --cluster-cidr, or set spec.podCIDR by hand"
    )]
    NoneGiven,
    #[error(
        "other nodes have one, so it should come soon; if it does not, the kube-controller-manager is not \
         running, or has no range left: `kubectl describe node` names it"
    )]
    OthersHave,
}

impl KubernetesError {
    /// What the sentence ends with, where that depends on the cause.
    pub(crate) fn way_out(&self) -> &'static str {
        match self {
            Self::Unreachable { cause, .. } => way_out(cause),
            Self::Call { fault: CallFault::Refused(code, _), .. } => way_out_of_refusal(*code),
            _ => "",
        }
    }

    /// The HTTP status of a refusal.
    pub(super) fn code(&self) -> Option<u16> {
        match self {
            Self::Call { fault: CallFault::Refused(code, _), .. } => Some(*code),
            _ => None,
        }
    }
}

fn way_out(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::ConnectionRefused => ": is it running?",
        io::ErrorKind::InvalidData => {
            ": its certificate must be signed by the CA that is given, and name this address"
        }
        _ => "",
    }
}

fn way_out_of_refusal(code: u16) -> &'static str {
    match code {
        401 => ": the token or certificate is not valid there, or has expired",
        403 => ": the ClusterRole of flannel's manifest allows it; apply it, or bind it to this user",
        _ => "",
    }
}
