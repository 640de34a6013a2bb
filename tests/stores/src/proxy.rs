//! A cable between the nodes and a server's port that can be cut, and that counts what goes through it.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use flannel_lab::Node;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A program on a server that passes every connection on to another port of it.
#[derive(Debug)]
pub struct Proxy {
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
    down: AtomicU64,
}

impl Proxy {
    /// Listens on a server's address and passes on to a port of its 127.0.0.1.
    pub fn start(server: &Node, port: u16, target: u16) -> Self {
        let listener =
            server.inside(|| TcpListener::bind(SocketAddr::new(server.v4(), port))).unwrap().unwrap();
        let network = File::open(format!("/proc/{}/ns/net", server.pid().unwrap())).unwrap();
        let (state, ours) = (Arc::new(State::default()), listener.try_clone().unwrap());
        let shared = Arc::clone(&state);
        let worker = thread::spawn(move || {
            // What this thread starts is in the server's network, too.
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            ours.incoming().map_while(Result::ok).for_each(|client| pass_on(client, target, &shared));
        });
        Self { state, listener, worker: Some(worker) }
    }

    /// Cuts every connection; new ones are taken. Gives how many there were.
    pub fn cut(&self) -> usize {
        let mut open = self.state.open.lock().unwrap();
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
        self.state.down.load(Ordering::SeqCst)
    }

    /// How many connections there were so far.
    pub fn connections(&self) -> u64 {
        self.state.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        self.shut();
        let _ = self.worker.take().map(JoinHandle::join);
    }
}

fn pass_on(client: TcpStream, target: u16, state: &Arc<State>) {
    let to = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), target);
    // A server that is down refuses, and so do we, by hanging up.
    let Some(server) = TcpStream::connect(to).ok().filter(|_| !state.is_shut.load(Ordering::SeqCst)) else {
        return;
    };
    state.accepted.fetch_add(1, Ordering::SeqCst);
    let [to_server, to_client] = [&server, &client].map(|stream| stream.try_clone().unwrap());
    let mut open = state.open.lock().unwrap();
    open.extend([&server, &client].map(|stream| stream.try_clone().unwrap()));
    drop(open);
    let shared = Arc::clone(state);
    thread::spawn(move || copy(client, to_server, |_| {}));
    thread::spawn(move || {
        copy(server, to_client, |count| _ = shared.down.fetch_add(count, Ordering::SeqCst));
    });
}

/// Passes bytes on until either end has gone, and then tells both.
fn copy(mut from: TcpStream, mut to: TcpStream, count: impl Fn(u64)) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        count(u64::try_from(length).unwrap());
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
