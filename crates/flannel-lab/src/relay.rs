//! A cable between the nodes and a server's port that can be cut, and that counts what goes through it.
//!
//! Runs on threads of the calling program, with sockets in the server's network.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crate::Result;
use crate::node::Node;

/// A port of a server that passes every connection on to another port of it.
#[derive(Debug)]
pub struct Relay {
    state: Arc<State>,
    listener: TcpListener,
    worker: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct State {
    open: Mutex<Vec<TcpStream>>,
    is_shut: AtomicBool,
    accepted: AtomicU64,
    /// How many bytes came from the server.
    received: AtomicU64,
}

impl State {
    fn open(&self) -> MutexGuard<'_, Vec<TcpStream>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Relay {
    /// Listens on a server's address and passes on to a port of its 127.0.0.1.
    pub fn start(server: &Node, port: u16, target: u16) -> Result<Self> {
        let address = SocketAddr::new(server.v4(), port);
        let started = server.inside(|| {
            let listener = TcpListener::bind(address)?;
            let (state, ours) = (Arc::new(State::default()), listener.try_clone()?);
            let shared = Arc::clone(&state);
            // A thread, and what it starts, is in the network of the one that starts it.
            let worker = thread::spawn(move || {
                let clients = ours.incoming().map_while(std::io::Result::ok);
                clients.for_each(|client| pass_on(client, target, &shared));
            });
            Ok(Self { state, listener, worker: Some(worker) })
        });
        started?.map_err(server.enter_error())
    }

    /// Cuts every connection; new ones are taken. Gives how many there were.
    pub fn cut(&self) -> usize {
        let mut open = self.state.open();
        open.iter().for_each(|stream| _ = stream.shutdown(Shutdown::Both));
        open.drain(..).count() / 2
    }

    /// Cuts every connection, and every new one at once, until it is opened again.
    pub fn shut(&self) {
        self.state.is_shut.store(true, Ordering::SeqCst);
        self.cut();
    }

    /// Takes connections again.
    pub fn open(&self) {
        self.state.is_shut.store(false, Ordering::SeqCst);
    }

    /// How many bytes came from the server so far.
    pub fn received(&self) -> u64 {
        self.state.received.load(Ordering::SeqCst)
    }

    /// How many connections there were so far.
    pub fn connections(&self) -> u64 {
        self.state.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        self.shut();
        let _ = self.worker.take().map(JoinHandle::join);
    }
}

/// A server that is down refuses, and so do we, by hanging up.
fn pass_on(client: TcpStream, target: u16, state: &Arc<State>) {
    let to = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), target);
    let server = TcpStream::connect(to).ok().filter(|_| !state.is_shut.load(Ordering::SeqCst));
    let copies = server.as_ref().and_then(|server| {
        let twice = |stream: &TcpStream| Some([stream.try_clone().ok()?, stream.try_clone().ok()?]);
        Some((twice(server)?, twice(&client)?))
    });
    let (Some(server), Some(([to_server, one], [to_client, other]))) = (server, copies) else { return };
    // Small messages must not wait for the answer to the last one.
    let _ = server.set_nodelay(true).and(client.set_nodelay(true));
    state.accepted.fetch_add(1, Ordering::SeqCst);
    state.open().extend([one, other]);
    let shared = Arc::clone(state);
    thread::spawn(move || copy(client, to_server, |_| {}));
    thread::spawn(move || {
        copy(server, to_client, |count| _ = shared.received.fetch_add(count, Ordering::SeqCst));
    });
}

/// Passes bytes on until either end has gone, and then tells both.
fn copy(mut from: TcpStream, mut to: TcpStream, count: impl Fn(u64)) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        count(u64::try_from(length).unwrap_or_default());
        let Some(bytes) = buffer.get(..length) else { break };
        if to.write_all(bytes).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
