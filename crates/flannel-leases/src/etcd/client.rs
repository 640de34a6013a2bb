//! Asks etcd: one endpoint at a time, the next one when it fails, with a limit of time on everything.
//!
//! Takes requests and gives answers or [`EtcdError`]. Logs once when no endpoint answers, and once when one does
//! again. A call may have been carried out although its answer was lost: only calls that bear that are repeated.

use std::error::Error;
use std::time::Duration;

use http::Uri;
use http::uri::PathAndQuery;
use prost::Message;
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;
use tracing::{debug, info, warn};

use super::EtcdOptions;
use super::error::{EtcdError, whole};
use super::messages::{AUTHENTICATE, AuthenticateRequest, AuthenticateResponse};
use super::secret::Secret;
use super::tls::{TlsContent, TlsFiles};

const CONNECT_LIMIT: Duration = Duration::from_secs(3);
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
// Not below 5 s: etcd hangs up on whoever asks more often.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_LIMIT: Duration = Duration::from_secs(3);
// Half a million leases; etcd itself has no such limit for what it sends.
const LONGEST_ANSWER: usize = 128 << 20;

/// What is asked: the path of the call, what it does in words, and whether it goes on after the first answer.
#[derive(Clone, Copy)]
pub(super) struct Call {
    pub path: &'static str,
    pub act: &'static str,
    pub stays_open: bool,
}

/// A connection to etcd, made when needed.
pub(super) struct Client {
    endpoints: Vec<Uri>,
    current: usize,
    line: Option<Grpc<Channel>>,
    tls: TlsFiles,
    /// What the certificates were when the connection was made.
    tls_content: TlsContent,
    user: String,
    password: Secret,
    token: Option<MetadataValue<Ascii>>,
    is_away: bool,
    /// Why the certificates in the files cannot be used now.
    files_fault: Option<String>,
}

/// Why a call has no answer.
enum Trouble {
    /// This endpoint cannot answer now; another one may.
    Away(String),
    /// It wants to know again who we are.
    Token(String),
    /// It does not want to.
    Refused(EtcdError),
}

impl Client {
    pub(super) fn new(options: &EtcdOptions) -> Result<Self, EtcdError> {
        let is_plain = |endpoint: &String| endpoint.trim().starts_with("http://");
        let tls = if options.endpoints.iter().all(is_plain) {
            TlsFiles::of(&EtcdOptions::default())? // as in Go, files that nobody needs may be missing
        } else {
            TlsFiles::of(options)?
        };
        let endpoints = options.endpoints.iter().map(|endpoint| parse(endpoint, &tls));
        let endpoints = endpoints.collect::<Result<Vec<_>, _>>()?;
        let has_login = !options.username.is_empty() && !options.password.is_empty();
        let client = Self {
            current: 0,
            line: None,
            tls_content: tls.read()?,
            tls,
            user: if has_login { options.username.clone() } else { String::new() },
            password: options.password.clone(),
            token: None,
            is_away: false,
            files_fault: None,
            endpoints,
        };
        for endpoint in &client.endpoints {
            settings(endpoint, &client.tls_content)?;
        }
        if client.endpoints.is_empty() { Err(EtcdError::NoEndpoint) } else { Ok(client) }
    }

    /// Asks a question that has one answer.
    pub(super) async fn ask<Q, A>(&mut self, call: Call, request: Q) -> Result<A, EtcdError>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let (answer, mut rest) = self.open(call, vec![request]).await?;
        // To wait for the end spares the server a reset.
        let _ = timeout(ANSWER_LIMIT, rest.message()).await;
        Ok(answer)
    }

    /// Asks at one endpoint after the other until one answers; gives its first answer, and where more come from.
    pub(super) async fn open<Q, A>(
        &mut self,
        call: Call,
        requests: Vec<Q>,
    ) -> Result<(A, Streaming<A>), EtcdError>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let mut faults = Vec::new();
        let mut is_fresh = self.line.is_none();
        let mut logins = 0;
        while faults.len() < self.endpoints.len() {
            match self.try_once(call, requests.clone()).await {
                Ok(answer) => return Ok(self.answered(answer)),
                Err(Trouble::Refused(why)) => return Err(why),
                Err(Trouble::Token(_)) if logins == 0 => {
                    logins += 1;
                    self.token = None;
                }
                // A connection that was there before may have died unnoticed.
                Err(Trouble::Away(_)) if !is_fresh => self.line = None,
                Err(Trouble::Away(why) | Trouble::Token(why)) => {
                    faults.push((self.endpoint(), why));
                    self.move_on();
                }
            }
            is_fresh = true;
        }
        Err(self.lost(faults))
    }

    /// Gives the connection up, so that the next call goes to the next endpoint.
    pub(super) fn move_on(&mut self) {
        self.line = None;
        self.current = (self.current + 1) % self.endpoints.len();
    }

    /// Makes the next call log in anew.
    pub(super) fn forget_token(&mut self) {
        self.token = None;
    }

    /// The endpoint in use.
    pub(super) fn endpoint(&self) -> String {
        self.endpoints.get(self.current).map(named).unwrap_or_default()
    }

    /// Whether anything is read from files.
    pub(super) fn uses_files(&self) -> bool {
        self.tls_content != TlsContent::default()
    }

    /// Gives the connection up if its certificates are no longer those in the files, and says whether it did.
    /// Files that cannot be used leave it as it is.
    pub(super) fn follow_files(&mut self) -> bool {
        let Some(endpoint) = self.endpoints.get(self.current) else { return false };
        let new = match self.tls.read() {
            Ok(new) if new == self.tls_content => return false,
            Ok(new) => settings(endpoint, &new).map(|_| ()),
            Err(why) => Err(why),
        };
        let fault = new.err().map(|why| why.to_string());
        if let Some(why) = fault.as_ref().filter(|why| self.files_fault.as_ref() != Some(why)) {
            warn!(error = why, "the certificates for etcd cannot be used; the old connection stays");
        }
        let is_usable = fault.is_none();
        self.files_fault = fault;
        if is_usable {
            info!("the certificates for etcd have changed; connecting anew");
            self.line = None;
        }
        is_usable
    }

    async fn try_once<Q, A>(&mut self, call: Call, requests: Vec<Q>) -> Result<(A, Streaming<A>), Trouble>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        self.connect().await?;
        self.log_in().await?;
        let endpoint = self.endpoint();
        let Some(line) = &mut self.line else { return Err(Trouble::Away("not connected".to_owned())) };
        let answer = exchange(line, call, requests, self.token.clone());
        within(ANSWER_LIMIT, answer).await.map_err(|status| judged(status, call.act, endpoint))
    }

    async fn connect(&mut self) -> Result<(), Trouble> {
        if self.line.is_some() {
            return Ok(());
        }
        let Some(endpoint) = self.endpoints.get(self.current) else { return Ok(()) };
        let content = self.tls.read().map_err(|why| Trouble::Away(why.to_string()))?;
        let settings = settings(endpoint, &content).map_err(|why| Trouble::Away(why.to_string()))?;
        debug!(%endpoint, "connecting to etcd");
        match timeout(CONNECT_LIMIT, settings.connect()).await {
            Ok(Ok(channel)) => {
                self.line = Some(Grpc::new(channel).max_decoding_message_size(LONGEST_ANSWER));
                self.tls_content = content;
                Ok(())
            }
            Ok(Err(why)) => Err(Trouble::Away(whole(&why))),
            Err(_) => Err(Trouble::Away(format!("no connection within {CONNECT_LIMIT:?}"))),
        }
    }

    async fn log_in(&mut self) -> Result<(), Trouble> {
        if self.token.is_some() || self.user.is_empty() {
            return Ok(());
        }
        let endpoint = self.endpoint();
        let Some(line) = &mut self.line else { return Ok(()) };
        let request =
            AuthenticateRequest { name: self.user.clone(), password: self.password.reveal().to_owned() };
        let call = Call { path: AUTHENTICATE, act: "log in", stays_open: false };
        match within(ANSWER_LIMIT, exchange(line, call, vec![request], None)).await {
            Ok((AuthenticateResponse { token }, _)) => {
                let mut token: MetadataValue<Ascii> =
                    token.parse().map_err(|_| Trouble::Refused(EtcdError::Malformed("a login")))?;
                token.set_sensitive(true);
                self.token = Some(token);
                Ok(())
            }
            // As in Go: a user that nobody asks for does no harm.
            Err(status) if status.message().contains("authentication is not enabled") => Ok(()),
            Err(status) if is_away(&status) => Err(Trouble::Away(said(&status))),
            Err(status) => {
                let (user, reason) = (self.user.clone(), status.message().to_owned());
                Err(Trouble::Refused(EtcdError::Login { endpoint, user, reason }))
            }
        }
    }

    fn answered<T>(&mut self, answer: T) -> T {
        if std::mem::take(&mut self.is_away) {
            info!(endpoint = self.endpoint(), "etcd answers again");
        }
        answer
    }

    fn lost(&mut self, faults: Vec<(String, String)>) -> EtcdError {
        let why = EtcdError::Away(faults);
        if !std::mem::replace(&mut self.is_away, true) {
            warn!(error = %why, "etcd is away; what is known stays in force");
        }
        why
    }
}

async fn exchange<Q, A>(
    line: &mut Grpc<Channel>,
    call: Call,
    requests: Vec<Q>,
    token: Option<MetadataValue<Ascii>>,
) -> Result<(A, Streaming<A>), Status>
where
    Q: Message + Clone + 'static,
    A: Message + Default + 'static,
{
    line.ready().await.map_err(|why| Status::unavailable(whole(&why)))?;
    let no_end = tokio_stream::pending().take(if call.stays_open { 1 } else { 0 });
    let mut request = Request::new(tokio_stream::iter(requests).chain(no_end));
    // Without it a member that is cut off from the others would answer from what it remembers.
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    if let Some(token) = token {
        request.metadata_mut().insert("token", token);
    }
    let path = PathAndQuery::from_static(call.path);
    let mut answers = line.streaming(request, path, ProstCodec::<Q, A>::default()).await?.into_inner();
    let first = answers.message().await?;
    Ok((first.ok_or_else(|| Status::unavailable("the answer is empty"))?, answers))
}

async fn within<T>(limit: Duration, what: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    let late = || Status::deadline_exceeded(format!("no answer within {limit:?}"));
    timeout(limit, what).await.unwrap_or_else(|_| Err(late()))
}

fn judged(status: Status, act: &'static str, endpoint: String) -> Trouble {
    let text = status.message();
    if text.contains("invalid auth token") || text.contains("revision of auth store is old") {
        return Trouble::Token(said(&status));
    }
    if is_away(&status) {
        return Trouble::Away(said(&status));
    }
    Trouble::Refused(EtcdError::Refused { endpoint, act, reason: said(&status) })
}

fn is_away(status: &Status) -> bool {
    match status.code() {
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => true,
        // Not a word of etcd: the connection broke.
        Code::Unknown | Code::Internal => status.source().is_some(),
        _ => false,
    }
}

/// What a server, or the connection to it, says.
pub(super) fn said(status: &Status) -> String {
    match status.source() {
        Some(cause) => whole(cause),
        None => status.message().to_owned(),
    }
}

fn named(endpoint: &Uri) -> String {
    endpoint.to_string().trim_end_matches('/').to_owned()
}

fn parse(endpoint: &str, tls: &TlsFiles) -> Result<Uri, EtcdError> {
    let wrong = |reason: String| EtcdError::Endpoint { endpoint: endpoint.to_owned(), reason };
    let text = endpoint.trim();
    if let Some((_, host)) = text.rsplit_once('@') {
        // What stands before the @ is likely a password.
        let reason = "a user belongs into --etcd-username".to_owned();
        return Err(EtcdError::Endpoint { endpoint: format!("...@{host}"), reason });
    }
    let text = match (text.contains("://"), tls.has_identity()) {
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

fn settings(endpoint: &Uri, tls: &TlsContent) -> Result<Endpoint, EtcdError> {
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
