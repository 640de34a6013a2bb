//! A stream of new connections through a node while its rules change: none is lost, none has the wrong source.

use std::collections::BTreeMap;
use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flannel_kernel::firewall::rules::Rules;
use flannel_kernel::netns::{Namespace, run_inside};
use flannel_plan::rules::spec::Spec;
use flannel_plan::rules::{SourcePorts, System};

use crate::sandbox::{ip, sh};
use crate::{SYSTEMS, in_a_node, net, nothing, settle, spec};

/// A pod 10.244.1.5 and following on this node, and a host 192.0.2.9 outside, which sees the node as 192.0.2.1.
fn wire() {
    sh("ip link set lo up
        ip netns add pod && ip netns add outside
        ip link add pod0 type veth peer name eth0 netns pod
        ip link add nic type veth peer name eth0 netns outside
        ip addr add 10.244.1.1/24 dev pod0 && ip link set pod0 up
        ip addr add 192.0.2.1/24 dev nic && ip link set nic up
        for last in $(seq 5 20); do ip -n pod addr add 10.244.1.$last/24 dev eth0; done
        ip -n pod link set eth0 up
        ip -n pod route add default via 10.244.1.1
        ip -n outside addr add 192.0.2.9/24 dev eth0 && ip -n outside link set eth0 up
        ip -n outside route add default via 192.0.2.1
        echo 1 > /proc/sys/net/ipv4/ip_forward");
}

/// The ports that the host outside answers on: one alone has too few clients of a single address.
const PORTS: std::ops::Range<u16> = 9000..9008;

/// Answers every packet to a port with the address that it came from.
fn echo(port: u16, until: &AtomicBool) {
    let socket = UdpSocket::bind(("192.0.2.9", port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let mut buffer = [0; 8];
    while !until.load(Ordering::Relaxed) {
        if let Ok((_, from)) = socket.recv_from(&mut buffer) {
            socket.send_to(from.ip().to_string().as_bytes(), from).unwrap();
        }
    }
}

/// Sends from another port each time, and counts by what the other side saw; a packet that is lost is seen by
/// nobody. No port is used twice, as the kernel would remember what it did with the first packet.
fn call(until: &AtomicBool) -> BTreeMap<Option<IpAddr>, usize> {
    let mut seen = BTreeMap::new();
    let mut buffer = [0; 64];
    let mut ports = (5_u8..=20).flat_map(|last| (1024..32768).map(move |port| (last, port)));
    let mut servers = PORTS.cycle();
    loop {
        let ((last, port), server) = ports.next().zip(servers.next()).unwrap();
        let socket = UdpSocket::bind((IpAddr::from([10, 244, 1, last]), port)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        socket.send_to(b"hello", ("192.0.2.9", server)).unwrap();
        let answer = socket.recv(&mut buffer).ok();
        let source = answer.map(|length| std::str::from_utf8(&buffer[..length]).unwrap().parse().unwrap());
        *seen.entry(source).or_default() += 1;
        if until.load(Ordering::Relaxed) {
            return seen;
        }
    }
}

/// Ends the streams even if the test fails in between.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn inside<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> T {
    run_inside(&Namespace::Named(name.to_owned()), work).unwrap()
}

/// What the host outside saw while `work` was done.
fn calls_during(work: impl FnOnce()) -> BTreeMap<Option<IpAddr>, usize> {
    let (over, closed) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _closing = End(&closed);
        for port in PORTS {
            let closed = &closed;
            scope.spawn(move || inside("outside", || echo(port, closed)));
        }
        // Answers tell that both ends are there.
        inside("pod", || PORTS.for_each(|port| while !is_answered(port) {}));
        let calls = {
            let _ending = End(&over);
            let calls = scope.spawn(|| inside("pod", || call(&over)));
            work();
            calls
        };
        calls.join().unwrap()
    })
}

fn is_answered(port: u16) -> bool {
    let socket = UdpSocket::bind("10.244.1.5:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    socket.send_to(b"hello", ("192.0.2.9", port)).unwrap();
    socket.recv(&mut [0; 64]).is_ok()
}

/// Every system after every other, and in each a change of every rule and back.
fn changes() -> Vec<Spec> {
    let mut changes = Vec::new();
    for round in 0..3 {
        for at in 0..SYSTEMS.len() {
            let plain = spec(SYSTEMS[(at + round * (at + 1)) % SYSTEMS.len()]);
            let mut other = plain.clone();
            other.non_masquerade_cidrs = vec![net("203.0.113.0/24")];
            other.masquerade.v4 = Some(SourcePorts::Kept);
            changes.extend([plain.clone(), other, plain]);
        }
    }
    changes
}

#[test]
fn no_connection_is_lost_or_has_the_wrong_source_while_rules_change() {
    in_a_node(|| {
        wire();
        let mut rules = Rules::open();
        settle(&mut rules, &spec(System::IptablesLegacy));
        let seen = calls_during(|| {
            for spec in changes() {
                settle(&mut rules, &spec);
            }
        });
        assert_eq!(seen.keys().copied().collect::<Vec<_>>(), [Some(ip("192.0.2.1"))], "{seen:?}");
        assert!(seen.values().sum::<usize>() > 300, "{seen:?}");
    });
}

#[test]
fn without_masquerade_the_pod_is_seen_itself() {
    in_a_node(|| {
        wire();
        let seen = calls_during(|| {
            settle(&mut Rules::open(), &nothing(System::Nftables));
        });
        assert_eq!(seen.keys().copied().collect::<Vec<_>>(), [Some(ip("10.244.1.5"))], "{seen:?}");
    });
}

#[test]
fn a_pod_whose_port_became_that_of_the_tunnel_gets_its_answers() {
    for system in SYSTEMS {
        in_a_node(|| {
            wire();
            let mut spec = spec(system);
            spec.masquerade.v4 = Some(SourcePorts::Kept);
            settle(&mut Rules::open(), &spec);
            let answer = inside_both(9000, || {
                let socket = UdpSocket::bind("10.244.1.5:8472").unwrap();
                socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
                socket.send_to(b"hello", "192.0.2.9:9000").unwrap();
                let mut buffer = [0; 64];
                let length = socket.recv(&mut buffer).unwrap();
                String::from_utf8(buffer[..length].to_vec()).unwrap()
            });
            assert_eq!(answer, "192.0.2.1", "{system}");
        });
    }
}

/// Runs `work` in the pod while the host outside answers on a port.
fn inside_both<T: Send>(port: u16, work: impl FnOnce() -> T + Send) -> T {
    let closed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _closing = End(&closed);
        scope.spawn(|| inside("outside", || echo(port, &closed)));
        inside("pod", || while !is_answered(port) {});
        inside("pod", work)
    })
}
