//! Packets from pod to pod: single pings, floods, and streams that count what is lost.

use std::fs::File;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use flannel_lab::{Node, Pod, Signal};
use rustix::net::sockopt;
use rustix::process::{Pid, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::cluster::pair_up;

/// Pings every address of every other node's first pod, from the first pod of every node.
pub fn ping_all(nodes: &[&Node]) {
    ping_pairs(&pair_up(nodes));
}

/// Pings every address of the second node's first pod from that of the first, for each pair.
pub fn ping_pairs(pairs: &[(&Node, &Node)]) {
    for (from, to) in pairs {
        let (from, to) = (from.pods().unwrap().remove(0), to.pods().unwrap().remove(0));
        to.addresses().for_each(|address| _ = from.ping(address).unwrap());
    }
}

/// What became of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Toll {
    /// How many were sent.
    pub sent: u64,
    /// How many of them came, or came back.
    pub came: u64,
}

/// A thousand pings a second, from one pod to another, until it is ended.
#[derive(Debug)]
pub struct PingFlood(Child);

impl PingFlood {
    /// Begins to ping.
    pub fn begin(from: &Pod<'_>, to: IpAddr) -> Self {
        let mut command = from.command("ping", ["-n", "-q", "-i", "0.001", &to.to_string()]);
        Self(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap())
    }

    /// Ends it and counts.
    pub fn end(self) -> Toll {
        // `nsenter` is the parent of ping, because ping is in another namespace of processes.
        let outer = self.0.id();
        let children = std::fs::read_to_string(format!("/proc/{outer}/task/{outer}/children")).unwrap();
        let pid: i32 = children.split_whitespace().next().unwrap().parse().unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::INT).unwrap();
        let said = String::from_utf8(self.0.wait_with_output().unwrap().stdout).unwrap();
        let line = said.lines().find(|line| line.contains("packets transmitted")).expect(&said);
        let mut numbers = line.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok());
        Toll { sent: numbers.next().unwrap(), came: numbers.next().unwrap() }
    }
}

/// A stream of numbered UDP packets from one pod to another, so many a second, until it is ended.
#[derive(Debug)]
pub struct Stream {
    stop: Arc<AtomicBool>,
    sender: JoinHandle<u64>,
    receiver: JoinHandle<u64>,
}

const PORT: u16 = 7000;
/// A receiver that does not get a core for a second must not lose what the network delivered.
const RECEIVE_BUFFER: usize = 32 * 1024 * 1024;
const STRAGGLERS: Duration = Duration::from_millis(500);

impl Stream {
    /// Begins to send.
    pub fn begin(from: &Pod<'_>, to: &Pod<'_>, packets_a_second: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let destination = SocketAddr::new(to.address(), PORT);
        let inlet = inside(to, move || {
            let socket = UdpSocket::bind(destination).unwrap();
            sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER).unwrap();
            socket.set_read_timeout(Some(STRAGGLERS)).unwrap();
            socket
        });
        let source = SocketAddr::new(from.address(), PORT);
        let outlet = inside(from, move || UdpSocket::bind(source).unwrap());
        let (sending, receiving) = (Arc::clone(&stop), Arc::clone(&stop));
        let pause = Duration::from_secs(1) / packets_a_second;
        let sender = thread::spawn(move || send(&outlet, destination, pause, &sending));
        Self { stop, sender, receiver: thread::spawn(move || receive(&inlet, &receiving)) }
    }

    /// Ends it and counts.
    pub fn end(self) -> Toll {
        self.stop.store(true, Ordering::SeqCst);
        Toll { sent: self.sender.join().unwrap(), came: self.receiver.join().unwrap() }
    }
}

/// Runs in a pod's network, on a thread of its own; a socket stays in the network that it was made in.
fn inside<T: Send>(pod: &Pod<'_>, work: impl FnOnce() -> T + Send) -> T {
    let network = File::open(pod.node().path(&format!("/run/netns/{}", pod.name()))).unwrap();
    let enter = || {
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        work()
    };
    thread::scope(|scope| scope.spawn(enter).join().unwrap())
}

fn send(socket: &UdpSocket, to: SocketAddr, pause: Duration, stop: &AtomicBool) -> u64 {
    let (start, mut sent) = (Instant::now(), 0u32);
    while !stop.load(Ordering::SeqCst) {
        // A route that is gone is an error here, and a lost packet there.
        let _ = socket.send_to(&sent.to_be_bytes(), to);
        sent += 1;
        thread::sleep((start + pause * sent).saturating_duration_since(Instant::now()));
    }
    sent.into()
}

fn receive(socket: &UdpSocket, stop: &AtomicBool) -> u64 {
    let (mut packet, mut came) = ([0; 4], 0);
    loop {
        match socket.recv(&mut packet) {
            Ok(_) => came += 1,
            Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if stop.load(Ordering::SeqCst) {
                    return came;
                }
            }
            Err(why) => panic!("{why}"),
        }
    }
}
