//! Many who connect and say nothing, from many addresses of another host.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use flannel_kernel::netns::{Namespace, run_inside, visit};

use flannel_plan::underlay::{NoUnderlay, RejectedCandidate};

use super::*;

const NODE: &str = "10.9.0.1";
const HONEST: &str = "10.9.1.1";
/// So many addresses are held by those who say nothing, and so many connections by each.
const SOURCES: u8 = 40;
const EACH: usize = 8;
const PROBES: usize = 20;

fn sh(script: &str) {
    let out = Command::new("sh").args(["-e", "-c", script]).output().unwrap();
    assert!(out.status.success(), "{script}: {}", String::from_utf8_lossy(&out.stderr));
}

/// Runs a test on a node of its own; the file is the namespace of a host that is beside it on a cable.
fn on_a_node(test: impl FnOnce(&File) + Send) {
    run_inside(&Namespace::Fresh, || {
        let own = || File::open("/proc/thread-self/ns/net").unwrap();
        let beside = run_inside(&Namespace::Fresh, own).unwrap();
        let path = format!("/proc/{}/fd/{}", std::process::id(), beside.as_raw_fd());
        sh(&format!(
            "ip link set lo up; ip link add eth0 type veth peer name eth0 netns {path}
             ip addr add {NODE}/16 dev eth0; ip link set eth0 up"
        ));
        let addresses: String =
            (1..=SOURCES).map(|n| format!("ip addr add 10.9.2.{n}/16 dev eth0\n")).collect();
        let script = format!("ip addr add {HONEST}/16 dev eth0; {addresses} ip link set eth0 up");
        visit(&beside, || sh(&script)).unwrap();
        test(&beside);
    })
    .unwrap();
}

fn connect_from(source: SocketAddr, to: SocketAddr) -> rustix::io::Result<TcpStream> {
    let socket = net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    net::bind(&socket, &source)?;
    net::connect(&socket, &to)?;
    Ok(TcpStream::from(socket))
}

/// Whether the node has let go of a connection.
fn is_over(connection: &TcpStream) -> bool {
    connection.set_nonblocking(true).unwrap();
    let read = (&*connection).read(&mut [0]);
    !read.is_err_and(|why| why.kind() == io::ErrorKind::WouldBlock)
}

/// Holds as many connections as it can, and opens each again that is closed, until it is told to stop.
fn flood(to: SocketAddr, begun: &AtomicBool, stop: &AtomicBool) -> usize {
    let sources = (1..=SOURCES).map(|n| SocketAddr::from(([10, 9, 2, n], 0)));
    let sources: Vec<_> = sources.flat_map(|source| [source; EACH]).collect();
    let mut held: Vec<Option<TcpStream>> = sources.iter().map(|_| None).collect();
    let mut opened = 0;
    while !stop.load(Relaxed) {
        for (connection, source) in held.iter_mut().zip(&sources) {
            if connection.as_ref().is_none_or(is_over) {
                *connection = connect_from(*source, to).ok();
                opened += 1;
            }
        }
        begun.store(true, Relaxed);
    }
    opened
}

/// Asks some times, and tells the longest time that it took.
fn probe(name: &str, address: SocketAddr) {
    let times = (0..PROBES).map(|_| {
        let begun = Instant::now();
        assert_eq!(get(address, "/healthz"), (200, "flanneld is running".to_owned()), "{name}");
        begun.elapsed()
    });
    let mut times: Vec<_> = times.collect();
    times.sort();
    println!("probes {name}: median {:?}, longest {:?}", times[PROBES / 2], times[PROBES - 1]);
}

#[test]
fn hundreds_of_silent_connections_of_many_addresses_keep_no_probe_waiting() {
    on_a_node(|beside| {
        let port = start_at("0.0.0.0:0".parse().unwrap(), LIMITS, Arc::default()).port();
        let at = |ip: &str| SocketAddr::new(ip.parse().unwrap(), port);
        let (begun, stop) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let flooding = scope.spawn(|| visit(beside, || flood(at(NODE), &begun, &stop)).unwrap());
            let stopping = Stop(&stop);
            while !begun.load(Relaxed) && !flooding.is_finished() {
                std::thread::yield_now();
            }
            probe("by loopback", at("127.0.0.1"));
            probe("by the node's own address", at(NODE));
            visit(beside, || probe("of an honest stranger", at(NODE))).unwrap();
            drop(stopping);
            println!("{} connections were opened meanwhile", flooding.join().unwrap());
        });
    });
}

/// Stops the flood also when a probe fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn only_the_node_itself_is_told_which_interfaces_it_has() {
    on_a_node(|beside| {
        let health = Arc::<Health>::default();
        let (candidate, reason) =
            ("--iface=eth9".to_owned(), "the host has no interface of this name".to_owned());
        let none = NoUnderlay {
            refused: vec![RejectedCandidate { candidate, reason }],
            present: vec!["lo up 127.0.0.1/8".to_owned(), "eth0 up 10.9.0.1/16".to_owned()],
            hint: "name an interface".to_owned(),
        };
        let list = "no network interface can carry the pod network: --iface=eth9: the host has no interface of \
                    this name (the host has lo up 127.0.0.1/8; eth0 up 10.9.0.1/16); name an interface";
        let findings = vec![none.finding(), Finding::unlisted("no lease yet")];
        health.set_readiness(unready(findings));
        let port = start_at("0.0.0.0:0".parse().unwrap(), LIMITS, health).port();
        let address: SocketAddr = format!("{NODE}:{port}").parse().unwrap();
        let first = "flanneld is not ready yet";
        assert_eq!(get(address, "/readyz"), (503, format!("{first}\n{list}\nno lease yet\n")));
        let told = "no network interface can carry the pod network";
        let to_strangers = visit(beside, || get(address, "/readyz")).unwrap();
        assert_eq!(to_strangers, (503, format!("{first}\n{told}\nno lease yet\n")));
    });
}
