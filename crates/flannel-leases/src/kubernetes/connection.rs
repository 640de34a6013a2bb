//! Opens connections to the API server: TCP that notices a dead other end, TLS where it is asked for, HTTP/1.1.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustix::net::sockopt;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::access::Access;
use super::error::KubernetesError;
use super::tls;

const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// How long a host may be silent before it is asked whether it lives, and how often it is asked then.
const SILENCE: Duration = Duration::from_secs(15);
const PROBE_EVERY: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;

/// Opens a connection; it closes when its sender and its last answer are dropped.
pub(super) async fn open(access: &Access) -> Result<SendRequest<Full<Bytes>>, KubernetesError> {
    let tls = if access.server.tls { Some((tls::config(access)?, server_name(access)?)) } else { None };
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
    match timeout(CONNECT_LIMIT, opened).await {
        Ok(opened) => opened.map_err(unreachable),
        Err(_) => Err(unreachable(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("no connection within {CONNECT_LIMIT:?}"),
        ))),
    }
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
