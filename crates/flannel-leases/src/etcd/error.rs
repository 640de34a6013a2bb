//! What can go wrong with etcd. Each message names the object, the cause and the way out; none holds a secret.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use flannel_plan::quoted::quoted;

use crate::proxy::ProxyError;

/// An etcd that did not do what was asked of it.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    #[error("no etcd endpoint is named: set --etcd-endpoints")]
    NoEndpoint,
    #[error("{endpoint:?} is no etcd endpoint: {reason}: write http://HOST:PORT or https://HOST:PORT")]
    Endpoint { endpoint: String, reason: String },
    #[error("{} cannot be used as {role}: {reason}", path.display())]
    TlsFile { path: PathBuf, role: &'static str, reason: String },
    #[error("TLS cannot be spoken with {endpoint}: {reason}{}", way_out(endpoint, reason))]
    Tls { endpoint: String, reason: String },
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    #[error("--etcd-certfile and --etcd-keyfile belong together, but only {0} is set: set both or neither")]
    HalfIdentity(&'static str),
    #[error("etcd does not answer: {}{}", each(.0), ways_out(.0))]
    Away(Vec<(String, String)>),
    #[error("etcd at {endpoint} does not {act}: {}{}", quoted(.reason), way_out(endpoint, reason))]
    Refused { endpoint: String, act: &'static str, reason: String },
    #[error(
        "etcd at {endpoint} does not let user {user:?} in: {}: correct --etcd-username or --etcd-password",
        quoted(.reason)
    )]
    Login { endpoint: String, user: String, reason: String },
    #[error("no lease was had in {waited:?}: others changed the same keys {times} times; trying again")]
    Outraced { times: usize, waited: Duration },
    /// Import would overwrite something.
    #[error(
        "{0} is there already, and says something else: delete it first, or choose another --etcd-prefix"
    )]
    Exists(String),
    #[error("etcd's answer to {0} lacks a part: a bug, please report it")]
    Malformed(&'static str),
}

impl EtcdError {
    /// What the sentence ends with, where that depends on the cause.
    pub(crate) fn way_out(&self) -> &'static str {
        match self {
            Self::Tls { endpoint, reason } | Self::Refused { endpoint, reason, .. } => {
                way_out(endpoint, reason)
            }
            Self::Away(faults) => ways_out(faults),
            _ => "",
        }
    }
}

fn each(faults: &[(String, String)]) -> String {
    faults.iter().map(|(endpoint, why)| format!("{endpoint}: {why}")).collect::<Vec<_>>().join("; ")
}

fn ways_out(faults: &[(String, String)]) -> &'static str {
    let mut ways = faults.iter().map(|(endpoint, why)| way_out(endpoint, why));
    ways.find(|way| !way.is_empty()).unwrap_or_default()
}

/// What usually helps against what etcd or TLS say, where we know it.
fn way_out(endpoint: &str, reason: &str) -> &'static str {
    const WAYS: [(&str, &str); 11] = [
        ("UnknownIssuer", ": name the authority that signed etcd's certificate by --etcd-cafile"),
        ("NotValidForName", ": name etcd as its certificate does in --etcd-endpoints"),
        ("expired", ": renew the certificate; it is read again at the next try"),
        (
            "received fatal alert",
            ": etcd wants a client certificate that it trusts: set --etcd-certfile and --etcd-keyfile, or renew them",
        ),
        (
            "native certs",
            ": name the authority by --etcd-cafile, or install those of the system (ca-certificates)",
        ),
        ("keys may not be consistent", ": --etcd-keyfile is not the key of --etcd-certfile"),
        ("InvalidContentType", ": no TLS is spoken there: write http:// in --etcd-endpoints"),
        ("permission denied", ": grant the user the right to read and write below --etcd-prefix"),
        ("user name is empty", ": set --etcd-username and --etcd-password"),
        ("database space exceeded", ": compact and defragment etcd, then `etcdctl alarm disarm`"),
        ("Connection refused", ": start etcd, or correct --etcd-endpoints"),
    ];
    if reason.contains("connection closed") || reason.contains("connection error: stream closed") {
        return hung_up(endpoint);
    }
    WAYS.iter().find(|(sign, _)| reason.contains(sign)).map_or("", |(_, way)| way)
}

/// etcd closed the connection before its reason was heard.
fn hung_up(endpoint: &str) -> &'static str {
    if endpoint.starts_with("https:") {
        ": it hung up: if etcd wants client certificates, set --etcd-certfile and --etcd-keyfile, or renew them"
    } else {
        ": it hung up: if TLS is spoken there, write https:// for it"
    }
}

/// An error and what caused it, in one line, each said once.
pub(super) fn whole(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        let more = deeper.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = deeper.source();
    }
    text
}
