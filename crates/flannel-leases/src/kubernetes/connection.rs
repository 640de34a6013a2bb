//! Opens connections to the API server: TCP that notices a dead other end, TLS where it is asked for, HTTP/1.1. Files
//! are read for every connection, so that new certificates are used at once.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustix::net::sockopt;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::access::{Access, Certificate, Material, Trust};
use super::error::KubernetesError;

const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// How long a host may be silent before it is asked whether it lives, and how often it is asked then.
const SILENCE: Duration = Duration::from_secs(15);
const PROBE_EVERY: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;

/// Opens a connection; it closes when its sender and its last answer are dropped.
pub(super) async fn open(access: &Access) -> Result<SendRequest<Full<Bytes>>, KubernetesError> {
    let tls = if access.server.tls { Some((tls_config(access)?, server_name(access)?)) } else { None };
    let unreachable = |cause| KubernetesError::Unreachable { server: access.server.to_string(), cause };
    let opened = async {
        let (host, port) = (access.server.host.as_str(), access.server.port);
        let stream = match &access.proxy {
            Some(proxy) => proxy.connect(host, port).await?,
            None => TcpStream::connect((host, port)).await?,
        };
        mind_silence(&stream)?;
        match tls {
            None => handshake(stream).await,
            Some((config, name)) => {
                handshake(TlsConnector::from(Arc::new(config)).connect(name, stream).await?).await
            }
        }
    };
    let late = || io::Error::new(io::ErrorKind::TimedOut, format!("no connection within {CONNECT_LIMIT:?}"));
    timeout(CONNECT_LIMIT, opened).await.unwrap_or_else(|_| Err(late())).map_err(unreachable)
}

fn server_name(access: &Access) -> Result<ServerName<'static>, KubernetesError> {
    let name = access.server_name.as_ref().unwrap_or(&access.server.host);
    ServerName::try_from(name.clone()).map_err(|cause| KubernetesError::Url {
        url: access.server.to_string(),
        reason: format!("{name:?} is no name of a host: {cause}"),
    })
}

/// A host that lost power says nothing: TCP itself has to ask now and then.
fn mind_silence(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, SILENCE)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, PROBES)?;
    let limit = SILENCE + PROBE_EVERY * PROBES;
    sockopt::set_tcp_user_timeout(stream, u32::try_from(limit.as_millis()).unwrap_or(u32::MAX))?;
    Ok(())
}

async fn handshake<T>(stream: T) -> io::Result<SendRequest<Full<Bytes>>>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // It ends by itself; how it ended is told to whoever waits for an answer.
    tokio::spawn(connection);
    Ok(sender)
}

/// What a connection needs to be believed on both ends.
fn tls_config(access: &Access) -> Result<ClientConfig, KubernetesError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|cause| KubernetesError::Credential {
            what: "the TLS library",
            place: "of this program".to_owned(),
            reason: cause.to_string(),
        })?;
    let builder = match roots(&access.trust)? {
        Some(roots) => builder.with_root_certificates(roots),
        None => builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider))),
    };
    match &access.certificate {
        None => Ok(builder.with_no_client_auth()),
        Some(Certificate { chain, key }) => builder
            .with_client_auth_cert(certificates("client certificate", chain)?, private_key(key)?)
            .map_err(|cause| chain.wrong("client certificate", cause)),
    }
}

/// The authority that the operator names for a server, as PEM text; nothing if there is none.
pub(super) fn authorities(access: &Access) -> String {
    match &access.trust {
        // What cannot be read makes every connection fail, and is told then.
        Trust::Authority(material) if access.server.tls => material.read("CA").unwrap_or_default(),
        _ => String::new(),
    }
}

/// Whose signature makes a server's certificate good; none if nobody's is asked for.
fn roots(trust: &Trust) -> Result<Option<RootCertStore>, KubernetesError> {
    let mut roots = RootCertStore::empty();
    match trust {
        Trust::Anybody => return Ok(None),
        Trust::Host => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        Trust::Authority(material) => {
            for certificate in certificates("CA", material)? {
                roots.add(certificate).map_err(|cause| material.wrong("CA", cause))?;
            }
        }
    }
    Ok(Some(roots))
}

fn certificates(
    what: &'static str,
    material: &Material,
) -> Result<Vec<CertificateDer<'static>>, KubernetesError> {
    let pem = material.read(what)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match read {
        Ok(chain) if chain.is_empty() => Err(material.wrong(what, "there is no certificate in it")),
        Ok(chain) => Ok(chain),
        Err(cause) => Err(material.wrong(what, cause)),
    }
}

fn private_key(material: &Material) -> Result<PrivateKeyDer<'static>, KubernetesError> {
    let pem = material.read("client key")?;
    // The reader's own message might quote a line of the key.
    PrivateKeyDer::from_pem_slice(pem.as_bytes())
        .map_err(|_| material.wrong("client key", "there is no private key in it that we know"))
}

/// Believes every server: `insecure-skip-tls-verify` in a kubeconfig.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
