//! Packets: through a mapped port from outside, from the host itself, and from the container that has it.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use flannel_kernel::netns::{Namespace, run_inside};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};

use crate::stage::*;

/// Only a failing test takes so long.
const PATIENCE: Duration = Duration::from_secs(10);

/// A host with a bridge, on it `pod1` and `pod2`, and beside it `outside`, which knows no way to the pods.
fn on_a_wired_host(test: impl FnOnce() + Send) {
    on_a_host(|| {
        // A link-local address that is still in doubt keeps the host from asking for neighbours.
        sh("echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad; echo 0 > /proc/sys/net/ipv6/conf/all/accept_dad
            ip link add cni0 type bridge && ip link set cni0 up
            ip addr add 10.22.0.1/16 dev cni0 && ip addr add fd00:22::1/64 dev cni0 nodad
            for pod in 1 2; do
                ip netns add pod$pod
                ip link add veth$pod type veth peer name eth0 netns pod$pod
                ip link set veth$pod master cni0 up && bridge link set dev veth$pod hairpin on
                ip -n pod$pod link set lo up && ip -n pod$pod link set eth0 up
                ip -n pod$pod addr add 10.22.0.1$pod/16 dev eth0
                ip -n pod$pod addr add fd00:22::1$pod/64 dev eth0 nodad
                ip -n pod$pod route add default via 10.22.0.1
                ip -n pod$pod route add default via fd00:22::1
            done
            ip netns add outside && ip link add up0 type veth peer name eth0 netns outside
            ip addr add 192.0.2.1/24 dev up0 && ip addr add 2001:db8::1/64 dev up0 nodad && ip link set up0 up
            ip -n outside addr add 192.0.2.2/24 dev eth0 && ip -n outside link set eth0 up
            ip -n outside addr add 2001:db8::2/64 dev eth0 nodad
            echo 1 > /proc/sys/net/ipv4/ip_forward && echo 1 > /proc/sys/net/ipv6/conf/all/forwarding");
        test();
    });
}

fn asked(pod: u8, backend: &str, more: Value) -> Value {
    let ports = json!([
        {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
        {"hostPort": 8081, "containerPort": 81, "protocol": "udp"},
    ]);
    let mut config = config(&[&format!("10.22.0.1{pod}/16"), &format!("fd00:22::1{pod}/64")], ports, more);
    config["backend"] = backend.into();
    config
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Tcp,
    Udp,
}

/// Where somebody is: the host, or a namespace.
fn at<T: Send>(place: &str, work: impl FnOnce() -> T + Send) -> T {
    if place == "host" { work() } else { run_inside(&Namespace::Named(place.to_owned()), work).unwrap() }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// One question from a place to an address, which `pod` answers: whom it saw; none if nothing arrived.
fn seen(transport: Transport, from: &str, to: SocketAddr, pod: &str) -> Option<IpAddr> {
    exchange(transport, pod, || at(from, || ask(transport, to, 0)))
}

/// `pod` answers one question, if one comes before `client` gives up: whom it saw, which the client must hear.
fn exchange(transport: Transport, pod: &str, client: impl FnOnce() -> Option<String>) -> Option<IpAddr> {
    let (tell, hear) = channel();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let is_over = &is_over;
        let server = scope.spawn(move || {
            let ready = move || tell.send(()).unwrap();
            at(pod, move || match transport {
                Transport::Tcp => serve_tcp(ready, is_over),
                Transport::Udp => serve_udp(ready, is_over),
            })
        });
        hear.recv().unwrap();
        let answer = client();
        is_over.store(true, Ordering::Relaxed);
        let seen = server.join().unwrap();
        assert_eq!(answer, seen.map(|address| address.to_string()), "the answer comes back");
        seen
    })
}

fn ask(transport: Transport, to: SocketAddr, own_port: u16) -> Option<String> {
    match transport {
        Transport::Tcp => ask_tcp(to),
        Transport::Udp => ask_udp(to, own_port),
    }
}

/// Opens a port; the kernel may still be busy with closing what had it a moment ago.
fn once_free<T>(open: impl Fn() -> std::io::Result<T>) -> T {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    loop {
        match open() {
            Ok(socket) => return socket,
            Err(error) => assert!(std::time::Instant::now() < end, "{error}"),
        }
    }
}

fn serve_tcp(ready: impl FnOnce(), is_over: &AtomicBool) -> Option<IpAddr> {
    let listener = once_free(|| TcpListener::bind("[::]:80"));
    ready();
    if !is_readable(&listener, is_over) {
        return None;
    }
    let (mut stream, peer) = listener.accept().unwrap();
    let address = peer.ip().to_canonical();
    stream.write_all(address.to_string().as_bytes()).unwrap();
    Some(address)
}

fn serve_udp(ready: impl FnOnce(), is_over: &AtomicBool) -> Option<IpAddr> {
    let socket = once_free(|| UdpSocket::bind("[::]:81"));
    ready();
    if !is_readable(&socket, is_over) {
        return None;
    }
    let (_, peer) = socket.recv_from(&mut [0; 16]).unwrap();
    let address = peer.ip().to_canonical();
    socket.send_to(address.to_string().as_bytes(), peer).unwrap();
    Some(address)
}

fn is_readable(socket: &impl AsFd, is_over: &AtomicBool) -> bool {
    let slice = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    loop {
        let ended = is_over.load(Ordering::Relaxed);
        if poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&slice)).unwrap() == 1 {
            return true;
        }
        if ended {
            return false;
        }
    }
}

fn ask_tcp(to: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// Asks again now and then: a cable that was plugged in just now loses what comes too early.
fn ask_udp(to: SocketAddr, own_port: u16) -> Option<String> {
    let own: IpAddr = if to.is_ipv4() { ip("0.0.0.0") } else { ip("::") };
    let socket = UdpSocket::bind((own, own_port)).unwrap();
    socket.set_read_timeout(Some(PATIENCE / 10)).unwrap();
    socket.connect(to).unwrap();
    let mut answer = [0; 64];
    for _ in 0..10 {
        socket.send(b"who am I").ok()?;
        match socket.recv(&mut answer) {
            Ok(length) => return Some(String::from_utf8(answer[..length].to_vec()).unwrap()),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return None,
            Err(_) => {}
        }
    }
    None
}

fn to(address: &str, transport: Transport) -> SocketAddr {
    let port = match transport {
        Transport::Tcp => 8080,
        Transport::Udp => 8081,
    };
    (ip(address), port).into()
}

#[test]
fn a_mapped_port_is_reached_from_outside_from_the_host_and_from_the_container_itself() {
    for backend in ["iptables", "nftables"] {
        on_a_wired_host(|| {
            portmap("ADD", &asked(1, backend, json!({}))).unwrap();
            for transport in [Transport::Tcp, Transport::Udp] {
                let ask = |from: &str, address: &str| seen(transport, from, to(address, transport), "pod1");
                let who = |address: &str| Some(ip(address));
                assert_eq!(ask("outside", "192.0.2.1"), who("192.0.2.2"), "{backend} {transport:?} outside");
                assert_eq!(ask("host", "192.0.2.1"), who("192.0.2.1"), "{backend} {transport:?} host");
                assert_eq!(ask("host", "127.0.0.1"), who("10.22.0.1"), "{backend} {transport:?} localhost");
                assert_eq!(ask("pod1", "192.0.2.1"), who("10.22.0.1"), "{backend} {transport:?} hairpin");
                assert_eq!(
                    ask("outside", "2001:db8::1"),
                    who("2001:db8::2"),
                    "{backend} {transport:?} outside"
                );
                assert_eq!(ask("pod1", "2001:db8::1"), who("fd00:22::1"), "{backend} {transport:?} hairpin");
            }
            portmap("DEL", &asked(1, backend, json!({}))).unwrap();
            assert_eq!(seen(Transport::Tcp, "outside", to("192.0.2.1", Transport::Tcp), "pod1"), None);
        });
    }
}

#[test]
fn masquerading_all_hides_who_asks() {
    for backend in ["iptables", "nftables"] {
        on_a_wired_host(|| {
            portmap("ADD", &asked(1, backend, json!({"masqAll": true}))).unwrap();
            let ask = |from: &str, address: &str| {
                seen(Transport::Tcp, from, to(address, Transport::Tcp), "pod1").unwrap().to_string()
            };
            assert_eq!(ask("outside", "192.0.2.1"), "10.22.0.1", "{backend}");
            assert_eq!(ask("outside", "2001:db8::1"), "fd00:22::1", "{backend}");
            assert_eq!(ask("host", "127.0.0.1"), "10.22.0.1", "{backend}");
            assert_eq!(ask("pod1", "192.0.2.1"), "10.22.0.1", "{backend}");
            // Only what comes through the mapping is hidden.
            let direct = seen(Transport::Tcp, "pod2", (ip("10.22.0.11"), 80).into(), "pod1");
            assert_eq!(direct, Some(ip("10.22.0.12")));
        });
    }
}

#[test]
fn without_snat_the_container_does_not_reach_itself_and_others_do() {
    for backend in ["iptables", "nftables"] {
        on_a_wired_host(|| {
            portmap("ADD", &asked(1, backend, json!({"snat": false}))).unwrap();
            let outside = seen(Transport::Tcp, "outside", to("192.0.2.1", Transport::Tcp), "pod1");
            assert_eq!(outside, Some(ip("192.0.2.2")), "{backend}");
            assert_eq!(sh("cat /proc/sys/net/ipv4/conf/cni0/route_localnet").trim(), "0");
        });
    }
}

#[test]
fn an_address_of_the_host_keeps_a_port_to_itself() {
    for backend in ["iptables", "nftables"] {
        on_a_wired_host(|| {
            sh("ip addr add 192.0.2.9/24 dev up0");
            let mut asked = asked(1, backend, json!({}));
            asked["runtimeConfig"]["portMappings"][0]["hostIP"] = "192.0.2.9".into();
            portmap("ADD", &asked).unwrap();
            let ask = |address: &str| seen(Transport::Tcp, "outside", to(address, Transport::Tcp), "pod1");
            assert_eq!((ask("192.0.2.9"), ask("192.0.2.1")), (Some(ip("192.0.2.2")), None), "{backend}");
        });
    }
}

/// A client that always asks from the same port, as resolvers and phones do.
fn persistent_client(pod: &str) -> Option<IpAddr> {
    let question = || at("outside", || ask(Transport::Udp, to("192.0.2.1", Transport::Udp), 5555));
    exchange(Transport::Udp, pod, question)
}

#[test]
fn a_udp_client_that_never_stops_reaches_the_next_container_at_the_port() {
    for backend in ["iptables", "nftables"] {
        on_a_wired_host(|| {
            let who = Some(ip("192.0.2.2"));
            // It asks before there is a mapping, and the kernel remembers that there was none.
            assert_eq!(persistent_client("pod2"), None);
            portmap_for("one", "eth0", "ADD", &asked(1, backend, json!({}))).unwrap();
            assert_eq!(persistent_client("pod1"), who, "{backend}");
            // A runtime that has forgotten the ports: the rules tell them.
            portmap_for("one", "eth0", "DEL", &asked(1, backend, json!({"runtimeConfig": null}))).unwrap();
            assert_eq!(persistent_client("pod1"), None, "{backend}");
            portmap_for("two", "eth0", "ADD", &asked(2, backend, json!({}))).unwrap();
            assert_eq!(persistent_client("pod2"), who, "{backend}");
        });
    }
}
