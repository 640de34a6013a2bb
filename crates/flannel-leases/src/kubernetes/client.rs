//! Talks HTTP to the API server: requests with a deadline over one connection that is kept, and watches over one
//! of their own. Takes paths and bodies, gives bodies, and errors that say what was asked of whom.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::SendRequest;
use tokio::time::timeout;

use super::access::{Access, Credentials, Material};
use super::connection;
use super::error::{CallFault, KubernetesError};
use super::stream::Unpacked;
use super::wire;
use crate::Server;

const ANSWER_LIMIT: Duration = Duration::from_secs(15);
/// A page of nodes is far smaller; more is not kept.
const LARGEST_BODY: usize = 256 << 20;

/// The form of an answer: Kubernetes' protobuf.
pub(super) const WHOLE: &str = "application/vnd.kubernetes.protobuf";
/// The same, of an object's metadata only.
pub(super) const METADATA: &str =
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
/// The same, of a list.
pub(super) const METADATA_LIST: &str =
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
pub(super) const JSON: &str = "application/json";
/// The form of the patches that Go flannel sends.
const STRATEGIC_MERGE: &str = "application/strategic-merge-patch+json";

/// One request.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// What it is for, after "cannot".
    pub act: String,
    pub method: Method,
    /// Path and query, as the API knows them.
    pub path: String,
    pub accept: &'static str,
    /// The form of the body, and the body.
    pub body: Option<(&'static str, String)>,
}

impl Call {
    /// A question.
    pub(super) fn get(act: impl Into<String>, path: impl Into<String>, accept: &'static str) -> Self {
        Self { act: act.into(), method: Method::GET, path: path.into(), accept, body: None }
    }

    /// A question for a whole Node object.
    pub(super) fn get_node(node: &str) -> Self {
        Self::get(format!("read node {node}"), format!("/api/v1/nodes/{node}"), WHOLE)
    }

    /// A patch of a Node object, of the kind that Go flannel sends.
    pub(super) fn patch_node(act: String, node: &str, patch: &serde_json::Value) -> Self {
        let (path, body) =
            (format!("/api/v1/nodes/{node}/status"), Some((STRATEGIC_MERGE, patch.to_string())));
        Self { act, method: Method::PATCH, path, accept: METADATA, body }
    }
}

/// A client of one API server.
#[derive(Debug)]
pub(super) struct Client {
    access: Access,
    idle: Mutex<Option<Sender>>,
}

type Sender = SendRequest<Full<Bytes>>;

impl Client {
    pub(super) fn new(access: Access) -> Self {
        Self { access, idle: Mutex::new(None) }
    }

    /// The server's address, for messages.
    pub(super) fn server(&self) -> String {
        self.access.server.to_string()
    }

    /// What the server is known by before it has answered.
    pub(super) fn identity(&self) -> Server {
        Server::new([self.server()], connection::authorities(&self.access).as_bytes())
    }

    /// Asks, and gives the body of the answer.
    pub(super) async fn call(&self, call: &Call) -> Result<Bytes, KubernetesError> {
        let answer = async {
            let (sender, answer) = self.ask(call).await?;
            let body = self.collect(call, answer).await?;
            *self.idle.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
            Ok(body)
        };
        timeout(ANSWER_LIMIT, answer).await.unwrap_or_else(|_| Err(self.slow(&call.act)))
    }

    /// Asks for something that goes on, over a connection of its own.
    pub(super) async fn stream(&self, call: &Call) -> Result<Incoming, KubernetesError> {
        Ok(self.send(call, self.request(call)?).await?.into_body())
    }

    /// Asks for something that goes on for long, and may come packed.
    pub(super) async fn list(&self, call: &Call) -> Result<Unpacked, KubernetesError> {
        let mut request = self.request(call)?;
        request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        Ok(Unpacked::of(self.send(call, request).await?))
    }

    /// Sends a request over a connection of its own.
    async fn send(
        &self,
        call: &Call,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, KubernetesError> {
        let answer = timeout(ANSWER_LIMIT, self.connect_and_ask(call, request)).await;
        Ok(answer.unwrap_or_else(|_| Err(self.slow(&call.act)))?.1)
    }

    /// Over the connection that was kept, or over a new one if that is gone.
    async fn ask(&self, call: &Call) -> Result<(Sender, Response<Incoming>), KubernetesError> {
        let kept = self.idle.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut sender) = kept
            && sender.ready().await.is_ok()
            && let Ok(answer) = sender.send_request(self.request(call)?).await
        {
            return Ok((sender, self.accepted(call, answer).await?));
        }
        self.connect_and_ask(call, self.request(call)?).await
    }

    async fn connect_and_ask(
        &self,
        call: &Call,
        request: Request<Full<Bytes>>,
    ) -> Result<(Sender, Response<Incoming>), KubernetesError> {
        let mut sender = connection::open(&self.access).await?;
        let answer = sender.send_request(request).await;
        let answer = answer.map_err(|cause| self.broken(&call.act, &cause))?;
        Ok((sender, self.accepted(call, answer).await?))
    }

    /// The answer if it is a yes.
    async fn accepted(
        &self,
        call: &Call,
        answer: Response<Incoming>,
    ) -> Result<Response<Incoming>, KubernetesError> {
        if answer.status().is_success() {
            return Ok(answer);
        }
        let code = answer.status().as_u16();
        let message = reason(&self.collect(call, answer).await?);
        Err(self.failed(&call.act, CallFault::Refused(code, message)))
    }

    /// The next part of something that goes on; none at its end.
    pub(super) async fn part(
        &self,
        act: &str,
        body: &mut Incoming,
    ) -> Result<Option<Bytes>, KubernetesError> {
        match timeout(ANSWER_LIMIT, body.frame()).await {
            Err(_) => Err(self.slow(act)),
            Ok(None) => Ok(None),
            Ok(Some(Err(cause))) => Err(self.broken(act, &cause)),
            Ok(Some(Ok(frame))) => Ok(Some(frame.into_data().unwrap_or_default())),
        }
    }

    async fn collect(&self, call: &Call, answer: Response<Incoming>) -> Result<Bytes, KubernetesError> {
        let mut body = answer.into_body();
        let mut bytes = Vec::new();
        while let Some(part) = self.part(&call.act, &mut body).await? {
            bytes.extend_from_slice(&part);
            if bytes.len() > LARGEST_BODY {
                return Err(self.garbled(&call.act, &"it has no end"));
            }
        }
        Ok(bytes.into())
    }

    fn request(&self, call: &Call) -> Result<Request<Full<Bytes>>, KubernetesError> {
        let server = &self.access.server;
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(format!("{}{}", server.path, call.path))
            .header(HOST, server.authority())
            .header(USER_AGENT, concat!("flanneld/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, call.accept);
        if let Some(authorization) = authorization(&self.access.credentials)? {
            request = request.header(AUTHORIZATION, authorization);
        }
        let mut body = Bytes::new();
        if let Some((form, text)) = &call.body {
            request = request.header(CONTENT_TYPE, *form);
            body = text.clone().into();
        }
        request.body(Full::new(body)).map_err(|cause| self.garbled(&call.act, &cause))
    }

    /// What came of a request in place of an answer.
    pub(super) fn failed(&self, act: &str, fault: CallFault) -> KubernetesError {
        KubernetesError::Call { act: act.to_owned(), server: self.server(), fault }
    }

    fn slow(&self, act: &str) -> KubernetesError {
        self.failed(act, CallFault::Slow(ANSWER_LIMIT))
    }

    /// For `map_err`: the connection broke.
    pub(super) fn broken(&self, act: &str, cause: &hyper::Error) -> KubernetesError {
        // The library names only its own part of it.
        let reason = std::error::Error::source(cause).map_or_else(|| cause.to_string(), ToString::to_string);
        self.failed(act, CallFault::Broken(reason))
    }

    /// For `map_err`: the answer makes no sense.
    pub(super) fn garbled(&self, act: &str, reason: &dyn ToString) -> KubernetesError {
        self.failed(act, CallFault::Garbled(reason.to_string()))
    }

    /// Asks for one object.
    pub(super) async fn read<T: prost::Message + Default>(&self, call: &Call) -> Result<T, KubernetesError> {
        let body = self.call(call).await?;
        wire::decode(body).map_err(|cause| self.garbled(&call.act, &cause))
    }
}

/// What a server says about a refusal: in protobuf or JSON, or in plain words if it is a proxy.
fn reason(body: &Bytes) -> String {
    if let Ok(status) = wire::decode::<wire::Status>(body.clone()) {
        return status.message;
    }
    let json: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    if let Some(message) = json.as_ref().and_then(|json| json["message"].as_str()) {
        return message.to_owned();
    }
    String::from_utf8_lossy(body).trim().chars().take(200).collect()
}

/// The header that shows who we are. A token file is read for every request: tokens of pods live for an hour.
fn authorization(credentials: &Credentials) -> Result<Option<HeaderValue>, KubernetesError> {
    let mut value = match credentials {
        Credentials::Nothing => return Ok(None),
        Credentials::Token(token) => {
            let text = token.read("token")?;
            if text.trim().is_empty() {
                return Err(token.wrong("token", "it is empty"));
            }
            let value = HeaderValue::from_str(&format!("Bearer {}", text.trim()));
            value.map_err(|_| token.wrong("token", "it holds odd characters"))?
        }
        Credentials::Password { user, password } => {
            let pair = STANDARD.encode(format!("{user}:{}", password.reveal()));
            let value = HeaderValue::from_str(&format!("Basic {pair}"));
            value.map_err(|cause| Material::Inline(password.clone()).wrong("password", cause))?
        }
    };
    value.set_sensitive(true);
    Ok(Some(value))
}
