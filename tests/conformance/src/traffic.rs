//! Servers in pods and clients anywhere, on real sockets. A server answers with the address it was asked from.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::Site;
use crate::wait::wait_until;

/// How long a client waits for an answer that should come.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a client waits for an answer that should not come.
const IMPATIENCE: Duration = Duration::from_millis(400);

/// Which protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// With connections.
    Tcp,
    /// Without.
    Udp,
}

/// Where a client or a server is.
#[derive(Clone, Copy, Debug)]
pub enum At<'a> {
    /// On the host.
    Host,
    /// In a pod, or in another named namespace of the site.
    Pod(&'a str),
    /// In the namespace that a path of the site stands for.
    Path(&'a Path),
}

/// A server on TCP and UDP of one port, until it is dropped.
#[derive(Debug)]
pub struct Server {
    done: Arc<AtomicBool>,
    address: (TcpListener, UdpSocket),
}

impl Server {
    /// Starts a server that answers with its name and the address it is asked from.
    pub fn start(site: &Site, at: At, name: &str, address: &str) -> Self {
        let open = || (once_free(|| TcpListener::bind(address)), once_free(|| UdpSocket::bind(address)));
        let (tcp, udp) = run(site, at, open);
        let done = Arc::new(AtomicBool::new(false));
        let address = (tcp.try_clone().unwrap(), udp.try_clone().unwrap());
        // Non-blocking sockets that are polled would be waiting by sleeping; a limit on each wait serves as well.
        udp.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let (name, stop) = (name.to_owned(), Arc::clone(&done));
        let answer = move |from: SocketAddr| format!("{name} {}", canonical(from));
        let tcp_answer = answer.clone();
        thread::spawn(move || serve_udp(&udp, &stop, answer));
        let stop = Arc::clone(&done);
        thread::spawn(move || serve_tcp(&tcp, &stop, tcp_answer));
        Self { done, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.done.store(true, Ordering::SeqCst);
        // Ends the wait of accept.
        let _ = rustix::net::shutdown(&self.address.0, rustix::net::Shutdown::Both);
    }
}

/// A server before this one may still have the port: by its thread, or by a process that another test just starts.
fn once_free<T>(open: impl Fn() -> std::io::Result<T>) -> T {
    let mut open_one = None;
    wait_until("the port is free", || match open() {
        Ok(one) => open_one.replace(one).is_none(),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => false,
        Err(error) => panic!("{error}"),
    });
    open_one.unwrap()
}

fn canonical(from: SocketAddr) -> String {
    from.ip().to_canonical().to_string()
}

fn serve_tcp(listener: &TcpListener, done: &AtomicBool, answer: impl Fn(SocketAddr) -> String) {
    while let Ok((mut stream, from)) = listener.accept() {
        if done.load(Ordering::SeqCst) {
            return;
        }
        let _ = stream.write_all(answer(from).as_bytes());
    }
}

fn serve_udp(socket: &UdpSocket, done: &AtomicBool, answer: impl Fn(SocketAddr) -> String) {
    let mut buffer = [0; 64];
    while !done.load(Ordering::SeqCst) {
        if let Ok((_, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(answer(from).as_bytes(), from);
        }
    }
}

/// Asks a server, and gives its answer: its name and the address that it saw.
pub fn ask(site: &Site, from: At, protocol: Protocol, to: &str) -> Result<String, String> {
    ask_for(site, from, protocol, (to, PATIENCE))
}

/// Whether nobody answers.
pub fn is_silent(site: &Site, from: At, protocol: Protocol, to: &str) -> bool {
    ask_for(site, from, protocol, (to, IMPATIENCE)).is_err()
}

fn ask_for(
    site: &Site,
    from: At,
    protocol: Protocol,
    (to, limit): (&str, Duration),
) -> Result<String, String> {
    let to: SocketAddr = to.parse().unwrap();
    let ask = || match protocol {
        Protocol::Tcp => ask_tcp(to, limit),
        Protocol::Udp => ask_udp(to, limit),
    };
    run(site, from, ask).map_err(|error| error.to_string())
}

fn run<T: Send>(site: &Site, at: At, work: impl FnOnce() -> T + Send) -> T {
    match at {
        At::Host => site.inside(work),
        At::Pod(pod) => site.inside_pod(pod, work),
        At::Path(path) => site.inside_path(path, work),
    }
}

fn ask_tcp(to: SocketAddr, limit: Duration) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&to, limit)?;
    stream.set_read_timeout(Some(limit))?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn ask_udp(to: SocketAddr, limit: Duration) -> std::io::Result<String> {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(limit))?;
    socket.send(b"?")?;
    let mut buffer = [0; 128];
    let length = socket.recv(&mut buffer)?;
    Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
}
