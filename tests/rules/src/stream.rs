//! A stream of new connections from a pod to a machine outside, and what became of each: made, lost, wrong source.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use flannel_lab::wait_for;
use rustix::net::sockopt;

use crate::Family;
use crate::netns::{Netns, connect};
use crate::site::Site;
use crate::tally::Tally;

/// New connections a second, all clients together.
const RATE: u32 = 500;
/// A client waits for its connection, so several keep the rate.
const CLIENTS: u32 = 4;
const PORT: u16 = 7200;
/// How long a connection may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(15);
const PATIENCE: Duration = Duration::from_secs(60);

/// A running stream. Dropping it ends it.
#[derive(Debug)]
pub struct Connections {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<()>>,
    server: Option<JoinHandle<()>>,
    begun: Instant,
    /// Goes when the stream is over.
    tally: Option<Tally>,
    /// Where the server waits, for a last connection that ends it.
    door: (Netns, SocketAddr),
}

#[derive(Debug, Default)]
struct Shared {
    over: AtomicBool,
    made: AtomicU64,
    lost: Mutex<Vec<String>>,
    sources: Mutex<BTreeMap<IpAddr, u64>>,
}

/// What became of the connections of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How many there were.
    pub made: u64,
    /// How long it went on.
    pub took: Duration,
    /// The connections that failed, and the packets that never came.
    pub lost: Vec<String>,
    /// Whose addresses the server saw, and how often.
    pub sources: BTreeMap<String, u64>,
}

impl Connections {
    /// Begins with the connections of one.a to far, in a family, and returns when some were made.
    pub fn begin(site: &Site, family: Family) -> Self {
        let (from, server) = (site.netns("one.a"), site.netns("far"));
        let to = SocketAddr::new(site.address("far", family), PORT);
        let (listener, shared) = (server.listener(family, PORT), Arc::new(Shared::default()));
        let tally = Some(Tally::begin(site, PORT));
        let client = |number: u32| {
            let (from, shared) = (from.clone(), Arc::clone(&shared));
            thread::spawn(move || from.inside(|| call(&shared, to, number)))
        };
        let clients = (0..CLIENTS).map(client).collect();
        let answering = Arc::clone(&shared);
        let server_thread = thread::spawn(move || answer(&answering, &listener));
        let (server_thread, begun, door) = (Some(server_thread), Instant::now(), (server, to));
        let stream = Self { shared, clients, server: server_thread, begun, tally, door };
        stream.wait_more(100);
        stream
    }

    /// Waits until so many more connections were made.
    pub fn wait_more(&self, count: u64) {
        let made = || self.shared.made.load(Ordering::SeqCst);
        let wanted = made() + count;
        wait_for("more connections", PATIENCE, || {
            if made() >= wanted { Ok(()) } else { Err(made().to_string()) }
        })
        .unwrap();
    }

    /// Ends it and tells.
    pub fn end(mut self, site: &Site) -> Outcome {
        self.hang_up();
        // Before the connection that ends the server, which would be counted too.
        let on_the_way = self.tally.take().map(|tally| tally.lost(site)).unwrap_or_default();
        self.stop();
        let sources = self.shared.sources.lock().unwrap().clone();
        Outcome {
            made: self.shared.made.load(Ordering::SeqCst),
            took: self.begun.elapsed(),
            lost: self.shared.lost.lock().unwrap().iter().cloned().chain(on_the_way).collect(),
            sources: sources.into_iter().map(|(source, count)| (site.name_of(source), count)).collect(),
        }
    }

    /// Ends the clients.
    fn hang_up(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        self.clients.drain(..).for_each(|client| client.join().unwrap());
    }

    fn stop(&mut self) {
        self.hang_up();
        if let Some(server) = self.server.take() {
            let (place, to) = &self.door;
            let _ = place.connect(to.ip(), *to, LIMIT);
            server.join().unwrap();
        }
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Connects again and again, at the pace of one client.
fn call(shared: &Shared, to: SocketAddr, number: u32) {
    let (start, pace) = (Instant::now(), Duration::from_secs(1) * CLIENTS / RATE);
    let mut next = start + pace * number / CLIENTS;
    while !shared.over.load(Ordering::SeqCst) {
        thread::sleep(next.saturating_duration_since(Instant::now()));
        next += pace;
        let made = connect(Family::of(to.ip()).unspecified(), to, LIMIT);
        // A reset leaves nothing behind that would use up ports.
        let made = made.and_then(|stream| sockopt::set_socket_linger(&stream, Some(Duration::ZERO)));
        match made {
            Ok(()) => _ = shared.made.fetch_add(1, Ordering::SeqCst),
            Err(why) => shared.lost.lock().unwrap().push(why.to_string()),
        }
    }
}

/// Notes who calls, until the end is near.
fn answer(shared: &Shared, listener: &TcpListener) {
    while let Ok((stream, source)) = listener.accept() {
        if shared.over.load(Ordering::SeqCst) && Some(source.ip()) == own_address(&stream) {
            return;
        }
        *shared.sources.lock().unwrap().entry(source.ip()).or_default() += 1;
    }
}

fn own_address(stream: &TcpStream) -> Option<IpAddr> {
    stream.local_addr().ok().map(|address| address.ip())
}
