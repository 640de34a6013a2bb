//! /healthz, /readyz and /metrics. Takes an address and the shared [`Health`], gives Go flannel's answers, and more
//! lines where there is more to say.
//!
//! The port is open to whoever can reach the node, so a client gets one request, a small buffer and a deadline, and
//! those who are not on the node are told nothing of its interfaces.

mod guests;

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use flannel_plan::finding::Finding;
use flannel_status::Readiness;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use tokio::net::TcpStream;

use crate::metrics::{self, Metrics};
use guests::{Guests, Room, Source};

/// How long a port that is taken is tried for, and how often.
const MOST_PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(20);

/// A loop that has nothing to do comes round once a minute; one that has not for so long hangs.
const LONGEST_TURN: Duration = Duration::from_secs(90);

/// What the daemon tells about itself; the loop writes, clients read.
#[derive(Debug, Default)]
pub struct Health {
    readiness: Mutex<Readiness>,
    pub metrics: Metrics,
}

impl Health {
    /// Replaces what /readyz answers.
    pub fn set_readiness(&self, readiness: Readiness) {
        self.metrics.ready.set(readiness.ready.into());
        self.metrics.findings.set(readiness.told().map(|finding| finding.code.as_str()));
        *self.readiness.lock().unwrap_or_else(PoisonError::into_inner) = readiness;
    }

    /// What /readyz says to those who are on the node.
    #[cfg(test)]
    pub fn readyz(&self) -> String {
        readiness_told(&self.readiness(), Source::Node).1
    }

    fn readiness(&self) -> Readiness {
        self.readiness.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What /readyz says of it.
fn readiness_told(readiness: &Readiness, to: Source) -> (StatusCode, String) {
    let (status, first) = match readiness.ready {
        true => (StatusCode::OK, "flanneld is ready"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "flanneld is not ready yet"),
    };
    // Go's body is one line without an end, and probes may compare it; where we add lines, each has its end.
    let told = |finding: &Finding| match to {
        Source::Node => finding.text.replace('\n', " "),
        Source::Stranger(_) => finding.outside().replace('\n', " "),
    };
    let lines: String = readiness.told().map(|finding| told(finding) + "\n").collect();
    let end = if lines.is_empty() { "" } else { "\n" };
    (status, format!("{first}{end}{lines}"))
}

/// A port that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve health and metrics on {address}: {source}; {}", hint(*source))]
pub struct BindError {
    address: SocketAddr,
    source: Errno,
}

fn hint(source: Errno) -> &'static str {
    match source {
        Errno::ADDRINUSE => "stop the program that has this port, or choose another with --healthz-port",
        Errno::ADDRNOTAVAIL => "no interface has this address: choose another with --healthz-ip",
        Errno::ACCESS => "ports below 1024 need CAP_NET_BIND_SERVICE: choose another with --healthz-port",
        _ => "see --healthz-ip and --healthz-port",
    }
}

/// Opens the port; early, so that a conflict is told before the node is touched and probes find somebody.
///
/// A flanneld that was killed as it started a program leaves a child that has the port until the program runs.
pub fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    let end = Instant::now() + MOST_PATIENCE;
    loop {
        match bind_once(address) {
            Err(Errno::ADDRINUSE) if Instant::now() < end => thread::sleep(PAUSE),
            bound => return bound.map_err(|source| BindError { address, source }),
        }
    }
}

fn bind_once(address: SocketAddr) -> rustix::io::Result<TcpListener> {
    if address.ip().is_unspecified() {
        // Go listens on both families for 0.0.0.0 as well: kubelet probes an IPv6 node by its IPv6 address.
        let both = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), address.port());
        match open(both) {
            Err(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) if address.is_ipv4() => open(address),
            opened => opened,
        }
    } else {
        open(address)
    }
}

fn open(address: SocketAddr) -> rustix::io::Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    // A restart must not wait for the connections of the one before.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, !address.ip().is_unspecified())?;
    }
    net::bind(&socket, &address)?;
    net::listen(&socket, 128)?;
    Ok(TcpListener::from(socket))
}

/// What clients may take from us.
#[derive(Clone, Copy)]
pub struct Limits {
    room: Room,
    /// Until the head of the request is there.
    head: Duration,
    /// For everything.
    time: Duration,
}

/// What they usually may.
pub const LIMITS: Limits = Limits {
    room: Room { node: 64, strangers: 64, one_source: 8 },
    head: Duration::from_secs(1),
    time: Duration::from_secs(10),
};
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(500);
const LARGEST_HEAD: usize = 8192; // hyper takes no less

/// Answers clients until it is dropped.
pub async fn serve(limits: Limits, listener: TcpListener, health: Arc<Health>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let guests = Guests::new(limits.room);
    loop {
        match listener.accept().await {
            Ok((client, theirs)) => {
                // One who is gone already has no address at our end, and nothing to say.
                let Ok(ours) = client.local_addr() else { continue };
                let (source, health) = (Source::of(theirs, ours), Arc::clone(&health));
                guests.admit(source, async move {
                    let _ = tokio::time::timeout(limits.time, converse(client, source, limits, health)).await;
                });
                // Among many who come at once, each is listened to before the next one may take its place.
                tokio::task::yield_now().await;
            }
            Err(why) => {
                // Out of file descriptors, most likely: the client waits in the queue, and so do we.
                tracing::warn!(%why, "cannot accept a client of the health port");
                tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
            }
        }
    }
}

async fn converse(client: TcpStream, source: Source, limits: Limits, health: Arc<Health>) {
    let service = service_fn(move |request| {
        let answer = answer(&request, source, &health);
        async { Ok::<_, Infallible>(answer) }
    });
    let conversation = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .keep_alive(false)
        .max_buf_size(LARGEST_HEAD)
        .serve_connection(TokioIo::new(client), service);
    if let Err(why) = conversation.await {
        tracing::trace!(%why, "a client of the health port went away");
    }
}

/// Go looks at the path only: any method will do.
fn answer(request: &Request<Incoming>, source: Source, health: &Health) -> Response<Full<Bytes>> {
    match request.uri().path() {
        "/healthz" => {
            let (status, body) = alive(health.metrics.pulse.get());
            text(status, body)
        }
        "/readyz" => {
            let (status, body) = readiness_told(&health.readiness(), source);
            text(status, body)
        }
        "/metrics" => match health.metrics.text() {
            Ok(figures) => with_type(metrics::MEDIA_TYPE, StatusCode::OK, figures),
            Err(why) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("bug: no figures: {why}\n")),
        },
        _ => text(StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
    }
}

/// Whether a restart could help: only if the loop hangs.
fn alive(came_round: Option<Duration>) -> (StatusCode, String) {
    match came_round.filter(|age| *age > LONGEST_TURN) {
        None => (StatusCode::OK, "flanneld is running".to_owned()),
        Some(age) => {
            let words = format!("flanneld hangs: its loop has not come round for {} s\n", age.as_secs());
            (StatusCode::SERVICE_UNAVAILABLE, words)
        }
    }
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    with_type("text/plain; charset=utf-8", status, body)
}

fn with_type(media_type: &'static str, status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

#[cfg(test)]
mod tests;
