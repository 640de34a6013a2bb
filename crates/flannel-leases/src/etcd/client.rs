//! Asks etcd: one endpoint at a time, the next one when it fails, with a limit of time on everything.
//!
//! Takes requests and gives answers or [`EtcdError`]. Logs once when no endpoint answers, and once when one does
//! again. A call may have been carried out although its answer was lost: only calls that bear that are repeated.

use flannel_plan::secret::Secret;
use http::Uri;
use prost::Message;
use tokio::time::timeout;
use tonic::Streaming;
use tonic::metadata::{Ascii, MetadataValue};
use tracing::{debug, info, warn};

use super::EtcdOptions;
use super::channel::{self, ANSWER_LIMIT, Call, CallError, GrpcChannel, TlsContent, TlsFiles};
use super::error::EtcdError;
use super::messages::{AUTHENTICATE, AuthenticateRequest, AuthenticateResponse};
use crate::Server;
use crate::proxy::Proxies;

const LOG_IN: Call = Call { path: AUTHENTICATE, act: "log in", stays_open: false };

/// A connection to etcd, made when needed.
pub(super) struct Client {
    endpoints: Vec<Uri>,
    current: usize,
    channel: Option<GrpcChannel>,
    proxies: Proxies,
    tls: TlsFiles,
    /// What the certificates were when the connection was made.
    tls_content: TlsContent,
    user: String,
    password: Secret,
    /// None if the next call has to log in.
    pub token: Option<MetadataValue<Ascii>>,
    is_away: bool,
    /// Why the certificates in the files cannot be used now.
    files_fault: Option<String>,
}

impl Client {
    pub(super) fn new(options: &EtcdOptions) -> Result<Self, EtcdError> {
        let is_plain = |endpoint: &String| endpoint.trim().starts_with("http://");
        let tls = if options.endpoints.iter().all(is_plain) {
            TlsFiles::of(&EtcdOptions::default())? // as in Go, files that nobody needs may be missing
        } else {
            TlsFiles::of(options)?
        };
        let endpoints = options.endpoints.iter().map(|endpoint| channel::parse(endpoint, &tls));
        let endpoints = endpoints.collect::<Result<Vec<_>, _>>()?;
        let has_login = !options.username.is_empty() && !options.password.reveal().is_empty();
        let client = Self {
            current: 0,
            channel: None,
            proxies: Proxies::of_environment(),
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
            channel::settings(endpoint, &client.tls_content)?;
            channel::way_to(endpoint, &client.proxies)?;
        }
        if client.endpoints.is_empty() { Err(EtcdError::NoEndpoint) } else { Ok(client) }
    }

    /// What etcd is known by before it has answered.
    pub(super) fn server(&self) -> Server {
        Server::new(self.endpoints.iter().map(channel::named), self.tls_content.authorities())
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
        let mut is_fresh = self.channel.is_none();
        let mut logins = 0;
        while faults.len() < self.endpoints.len() {
            match self.try_once(call, requests.clone()).await {
                Ok(answer) => {
                    if std::mem::take(&mut self.is_away) {
                        info!(endpoint = self.endpoint(), "etcd answers again");
                    }
                    return Ok(answer);
                }
                Err(CallError::Refused(why)) => return Err(why),
                Err(CallError::Token(_)) if logins == 0 => {
                    logins += 1;
                    self.token = None;
                }
                // A connection that was there before may have died unnoticed.
                Err(CallError::Away(_)) if !is_fresh => self.channel = None,
                Err(CallError::Away(why) | CallError::Late(why) | CallError::Token(why)) => {
                    faults.push((self.endpoint(), why));
                    self.move_on();
                }
            }
            is_fresh = true;
        }
        let why = EtcdError::Away(faults);
        if !std::mem::replace(&mut self.is_away, true) {
            warn!(error = %why, "etcd is away; what is known stays in force");
        }
        Err(why)
    }

    /// Gives the connection up, so that the next call goes to the next endpoint.
    pub(super) fn move_on(&mut self) {
        self.channel = None;
        self.current = (self.current + 1) % self.endpoints.len();
    }

    pub(super) fn endpoint(&self) -> String {
        self.endpoints.get(self.current).map(channel::named).unwrap_or_default()
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
            Ok(new) => channel::settings(endpoint, &new).map(|_| ()),
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
            self.channel = None;
        }
        is_usable
    }

    async fn try_once<Q, A>(&mut self, call: Call, requests: Vec<Q>) -> Result<(A, Streaming<A>), CallError>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let channel = match self.channel.take() {
            Some(channel) => channel,
            None => self.connect().await?,
        };
        let channel = self.channel.insert(channel);
        if self.token.is_none() && !self.user.is_empty() {
            self.token = log_in(channel, &self.user, &self.password).await?;
        }
        channel.exchange(call, requests, self.token.clone()).await
    }

    async fn connect(&mut self) -> Result<GrpcChannel, CallError> {
        let endpoint = self.endpoints.get(self.current).ok_or(CallError::Refused(EtcdError::NoEndpoint))?;
        let content = self.tls.read().map_err(|why| CallError::Away(why.to_string()))?;
        debug!(%endpoint, "connecting to etcd");
        let proxy = channel::way_to(endpoint, &self.proxies).map_err(CallError::Refused)?;
        let channel = GrpcChannel::connect(endpoint, &content, proxy).await?;
        self.tls_content = content;
        Ok(channel)
    }
}

/// The token that shows who we are. As in Go, a user that nobody asks for does no harm: then there is none.
async fn log_in(
    channel: &mut GrpcChannel,
    user: &str,
    password: &Secret,
) -> Result<Option<MetadataValue<Ascii>>, CallError> {
    let request = AuthenticateRequest { name: user.to_owned(), password: password.reveal().to_owned() };
    match channel.exchange(LOG_IN, vec![request], None).await {
        Ok((AuthenticateResponse { token }, _)) => {
            let token = token.parse().map_err(|_| CallError::Refused(EtcdError::Malformed("a login")));
            let mut token: MetadataValue<Ascii> = token?;
            token.set_sensitive(true);
            Ok(Some(token))
        }
        Err(CallError::Refused(EtcdError::Refused { endpoint, reason, .. })) => {
            if reason.contains("authentication is not enabled") {
                return Ok(None);
            }
            Err(CallError::Refused(EtcdError::Login { endpoint, user: user.to_owned(), reason }))
        }
        Err(other) => Err(other),
    }
}
