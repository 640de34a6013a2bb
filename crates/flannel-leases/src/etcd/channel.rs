//! A gRPC channel to one endpoint: made within a limit of time, and each answer awaited within a limit of time. TLS by
//! the files as they are at the moment.
//!
//! Takes requests; gives the first answer and the stream of the following ones, or [`CallError`].

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use http::Uri;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;
use tower::service_fn;

use super::EtcdOptions;
use super::error::{EtcdError, whole};
use crate::proxy::{Proxies, Proxy};

const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// How long an answer may take.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(5);
// Not below 5 s: etcd hangs up on whoever asks more often.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_LIMIT: Duration = Duration::from_secs(3);
// Half a million leases; etcd itself has no such limit for what it sends.
const LONGEST_ANSWER: usize = 128 << 20;

const CA: &str = "--etcd-cafile";
const CERT: &str = "--etcd-certfile";
const KEY: &str = "--etcd-keyfile";

/// What is asked: the path of the call, what it does in words, and whether it goes on after the first answer.
#[derive(Clone, Copy)]
pub(super) struct Call {
    pub path: &'static str,
    pub act: &'static str,
    pub stays_open: bool,
}

/// A gRPC channel.
pub(super) struct GrpcChannel {
    grpc: Grpc<Channel>,
    /// For errors.
    endpoint: String,
}

/// Why a call has no answer.
pub(super) enum CallError {
    /// This endpoint cannot answer now; another one may.
    Away(String),
    /// It took too long; another one may be faster.
    Late(String),
    /// It wants to know again who we are.
    Token(String),
    /// It does not want to.
    Refused(EtcdError),
}

impl GrpcChannel {
    pub(super) async fn connect(
        endpoint: &Uri,
        tls: &TlsContent,
        proxy: Option<Proxy>,
    ) -> Result<Self, CallError> {
        let settings = settings(endpoint, tls).map_err(|why| CallError::Away(why.to_string()))?;
        let connected = async {
            match proxy {
                Some(proxy) => {
                    let by_proxy = service_fn(move |endpoint| connect_by(proxy.clone(), endpoint));
                    settings.connect_with_connector(by_proxy).await
                }
                None => settings.connect().await,
            }
        };
        match timeout(CONNECT_LIMIT, connected).await {
            Ok(Ok(channel)) => {
                let grpc = Grpc::new(channel).max_decoding_message_size(LONGEST_ANSWER);
                Ok(Self { grpc, endpoint: named(endpoint) })
            }
            Ok(Err(why)) => Err(CallError::Away(whole(&why))),
            Err(_) => Err(CallError::Late(format!("no connection within {CONNECT_LIMIT:?}"))),
        }
    }

    /// Asks, and waits for the first answer.
    pub(super) async fn exchange<Q, A>(
        &mut self,
        call: Call,
        requests: Vec<Q>,
        token: Option<MetadataValue<Ascii>>,
    ) -> Result<(A, Streaming<A>), CallError>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let no_end = tokio_stream::pending().take(usize::from(call.stays_open));
        let mut request = Request::new(tokio_stream::iter(requests).chain(no_end));
        // Without it a member that is cut off from the others would answer from what it remembers.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        if let Some(token) = token {
            request.metadata_mut().insert("token", token);
        }
        let path = PathAndQuery::from_static(call.path);
        let answer = async {
            self.grpc.ready().await.map_err(|why| Status::unavailable(whole(&why)))?;
            let answers = self.grpc.streaming(request, path, ProstCodec::<Q, A>::default()).await?;
            let mut answers = answers.into_inner();
            let first = answers.message().await?;
            Ok((first.ok_or_else(|| Status::unavailable("the answer is empty"))?, answers))
        };
        let late = || Status::deadline_exceeded(format!("no answer within {ANSWER_LIMIT:?}"));
        let answer = timeout(ANSWER_LIMIT, answer).await.unwrap_or_else(|_| Err(late()));
        answer.map_err(|status| judged(&status, call.act, &self.endpoint))
    }
}

fn judged(status: &Status, act: &'static str, endpoint: &str) -> CallError {
    let (text, reason) = (status.message(), said(status));
    if text.contains("invalid auth token") || text.contains("revision of auth store is old") {
        return CallError::Token(reason);
    }
    match status.code() {
        Code::DeadlineExceeded => CallError::Late(reason),
        Code::Unavailable | Code::Cancelled => CallError::Away(reason),
        // Not a word of etcd: the connection broke.
        Code::Unknown | Code::Internal if status.source().is_some() => CallError::Away(reason),
        _ => CallError::Refused(EtcdError::Refused { endpoint: endpoint.to_owned(), act, reason }),
    }
}

/// What a server, or the connection to it, says.
pub(super) fn said(status: &Status) -> String {
    match status.source() {
        Some(cause) => whole(cause),
        None => status.message().to_owned(),
    }
}

pub(super) fn named(endpoint: &Uri) -> String {
    endpoint.to_string().trim_end_matches('/').to_owned()
}

/// Reads an endpoint: without a scheme it is TLS if there is a client certificate, as in Go.
pub(super) fn parse(endpoint: &str, tls: &TlsFiles) -> Result<Uri, EtcdError> {
    let wrong = |reason: String| EtcdError::Endpoint { endpoint: endpoint.to_owned(), reason };
    let text = endpoint.trim();
    if let Some((_, host)) = text.rsplit_once('@') {
        // What stands before the @ is likely a password.
        let reason = "a user belongs into --etcd-username".to_owned();
        return Err(EtcdError::Endpoint { endpoint: format!("...@{host}"), reason });
    }
    let text = match (text.contains("://"), tls.identity.is_some()) {
        (true, _) => text.to_owned(),
        (false, true) => format!("https://{text}"),
        (false, false) => format!("http://{text}"),
    };
    let uri: Uri = text.parse().map_err(|why: http::uri::InvalidUri| wrong(why.to_string()))?;
    match uri.scheme_str() {
        Some("http" | "https") => {}
        other => return Err(wrong(format!("it begins with {:?}", other.unwrap_or_default()))),
    }
    Ok(uri)
}

/// The proxy for an endpoint, if one is for it. As in Go, HTTPS_PROXY counts whether TLS is spoken or not.
pub(super) fn way_to(endpoint: &Uri, proxies: &Proxies) -> Result<Option<Proxy>, EtcdError> {
    let (host, port) = address(endpoint);
    Ok(proxies.way_to(true, host, port)?)
}

fn address(endpoint: &Uri) -> (&str, u16) {
    let usual = if endpoint.scheme_str() == Some("https") { 443 } else { 80 };
    let host = endpoint.host().unwrap_or_default().trim_matches(['[', ']']);
    (host, endpoint.port_u16().unwrap_or(usual))
}

async fn connect_by(proxy: Proxy, endpoint: Uri) -> io::Result<TokioIo<TcpStream>> {
    let (host, port) = address(&endpoint);
    let stream = proxy.connect(host, port).await?;
    stream.set_nodelay(true)?;
    Ok(TokioIo::new(stream))
}

/// How an endpoint is connected to; fails if the certificates cannot be used.
pub(super) fn settings(endpoint: &Uri, tls: &TlsContent) -> Result<Endpoint, EtcdError> {
    let wrong =
        |why: tonic::transport::Error| EtcdError::Tls { endpoint: named(endpoint), reason: whole(&why) };
    let settings = Endpoint::from(endpoint.clone())
        .connect_timeout(CONNECT_LIMIT)
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_LIMIT)
        .tcp_nodelay(true);
    if endpoint.scheme_str() == Some("https") {
        settings.tls_config(tls.settings(endpoint.host().unwrap_or_default())).map_err(wrong)
    } else {
        Ok(settings)
    }
}

/// Where certificates and keys are.
pub(super) struct TlsFiles {
    ca: Option<PathBuf>,
    /// The client certificate, and its key.
    identity: Option<(PathBuf, PathBuf)>,
}

/// What they say.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct TlsContent {
    ca: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl TlsFiles {
    pub(super) fn of(options: &EtcdOptions) -> Result<Self, EtcdError> {
        let identity = match (options.cert_file.clone(), options.key_file.clone()) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (Some(_), None) => return Err(EtcdError::HalfIdentity(CERT)),
            (None, Some(_)) => return Err(EtcdError::HalfIdentity(KEY)),
            (None, None) => None,
        };
        Ok(Self { ca: options.ca_file.clone(), identity })
    }

    /// Reads them now.
    pub(super) fn read(&self) -> Result<TlsContent, EtcdError> {
        let ca = self.ca.as_ref().map(|path| read(path, CA, "BEGIN CERTIFICATE")).transpose()?;
        let identity = match &self.identity {
            Some((cert, key)) => {
                Some((read(cert, CERT, "BEGIN CERTIFICATE")?, read(key, KEY, "PRIVATE KEY")?))
            }
            None => None,
        };
        Ok(TlsContent { ca, identity })
    }
}

fn read(path: &PathBuf, role: &'static str, sign: &str) -> Result<Vec<u8>, EtcdError> {
    let wrong = |reason: String| EtcdError::TlsFile { path: path.clone(), role, reason };
    let content =
        flannel_files::read(path, flannel_files::MOST_BY_HAND).map_err(|cause| wrong(cause.to_string()))?;
    if !String::from_utf8_lossy(&content).contains(sign) {
        return Err(wrong(format!("it has no line \"{sign}\": expected PEM")));
    }
    Ok(content)
}

impl TlsContent {
    /// The authorities that are ours, as PEM text; none if those of the system count.
    pub(super) fn authorities(&self) -> &[u8] {
        self.ca.as_deref().unwrap_or_default()
    }

    /// The settings of a connection to a host: its authority is ours, or else one of the system's.
    pub(super) fn settings(&self, host: &str) -> ClientTlsConfig {
        // An IPv6 address is in brackets in a URL, and without them in a certificate.
        let settings = ClientTlsConfig::new().domain_name(host.trim_matches(['[', ']']));
        let settings = match &self.ca {
            Some(ca) => settings.ca_certificate(Certificate::from_pem(ca)),
            None => settings.with_native_roots(),
        };
        match &self.identity {
            Some((cert, key)) => settings.identity(Identity::from_pem(cert, key)),
            None => settings,
        }
    }
}
