//! Packets: which source a host outside sees, with three networks and with a thousand, and while rules are switched.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::Duration;

use flannel_kernel::netns::{Namespace, run_inside};
use flannel_plan::masq_agent::config::AgentConfig;
use flannel_plan::masq_agent::spec::AgentSpec;
use flannel_plan::rules::System;
use flannel_plan::rules::ports::ranges;

use crate::sandbox::sh;
use crate::{SYSTEMS, config, in_a_node, in_every_system, open, settle, spec};

/// A pod 10.244.1.5 on this node, and outside a host with an address in several networks.
const OUTSIDE: [&str; 4] = ["192.0.2.9", "198.51.100.9", "11.3.231.9", "169.254.7.9"];
const POD: Ipv4Addr = Ipv4Addr::new(10, 244, 1, 5);
const NODE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const PORT: u16 = 9000;
const PATIENCE: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(20);
/// Between two calls of a stream: a switch that takes long shall not use up the ports.
const PACE: Duration = Duration::from_micros(200);

fn wire() {
    sh("ip link set lo up
        ip netns add pod && ip netns add outside
        ip link add pod0 type veth peer name eth0 netns pod
        ip link add nic type veth peer name eth0 netns outside
        ip addr add 10.244.1.1/24 dev pod0 && ip link set pod0 up
        ip addr add 192.0.2.1/24 dev nic && ip link set nic up
        ip -n pod addr add 10.244.1.5/24 dev eth0 && ip -n pod link set eth0 up
        ip -n pod route add default via 10.244.1.1
        ip -n outside link set eth0 up && ip -n outside addr add 192.0.2.9/24 dev eth0
        ip -n outside route add default via 192.0.2.1
        echo 1 > /proc/sys/net/ipv4/ip_forward");
    for address in &OUTSIDE[1..] {
        sh(&format!("ip -n outside addr add {address}/32 dev eth0; ip route add {address}/32 via 192.0.2.9"));
    }
}

fn inside<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> T {
    run_inside(&Namespace::Named(name.to_owned()), work).unwrap()
}

/// Answers every packet with the address and the port that it came from.
fn echo(address: &str, until: &AtomicBool) {
    let socket = UdpSocket::bind((address, PORT)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    while !until.load(Ordering::Relaxed) {
        if let Ok((_, from)) = socket.recv_from(&mut [0; 8]) {
            socket.send_to(from.to_string().as_bytes(), from).unwrap();
        }
    }
}

/// Does something while the host outside answers on all its addresses.
fn with_echoes<T>(work: impl FnOnce() -> T) -> T {
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let closed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _closing = End(&closed);
        for address in OUTSIDE {
            let closed = &closed;
            scope.spawn(move || inside("outside", || echo(address, closed)));
        }
        inside("pod", || OUTSIDE.iter().for_each(|address| while call(address, SHORT).is_none() {}));
        work()
    })
}

/// No port is used twice: the kernel remembers what it did with the first packet, and a program that is just being
/// started by another test may hold a socket a little longer.
static NEXT_PORT: AtomicU16 = AtomicU16::new(20_000);
/// Below 512 the kernel translates to ports below 512 only, which a stream uses up within moments.
const LAST_PORT: u16 = 65_000;

fn ports_are_left() -> bool {
    NEXT_PORT.load(Ordering::Relaxed) < LAST_PORT
}

/// The address and the port that the host outside sees of a new connection; none if the packet is lost.
fn call(address: &str, patience: Duration) -> Option<SocketAddr> {
    let socket = UdpSocket::bind((POD, NEXT_PORT.fetch_add(1, Ordering::Relaxed))).unwrap();
    socket.set_read_timeout(Some(patience)).unwrap();
    socket.send_to(b"hello", (address, PORT)).unwrap();
    let mut answer = [0; 64];
    let length = socket.recv(&mut answer).ok()?;
    Some(std::str::from_utf8(&answer[..length]).unwrap().parse().unwrap())
}

/// The sources that the host outside sees at each of its addresses.
fn sources() -> Vec<Option<IpAddr>> {
    inside("pod", || OUTSIDE.iter().map(|address| call(address, PATIENCE).map(|seen| seen.ip())).collect())
}

#[test]
fn only_packets_to_networks_of_the_list_keep_their_source() {
    in_every_system(|system| {
        wire();
        let mut rules = open();
        with_echoes(|| {
            let (pod, node) = (Some(IpAddr::from(POD)), Some(IpAddr::from(NODE)));
            let mut seen = |config: AgentConfig| {
                settle(&mut rules, &AgentSpec { config, ..spec(system) });
                sources()
            };
            assert_eq!(seen(config("{}")), [node, node, node, pod], "{system}");
            assert_eq!(
                seen(config(r#"{"nonMasqueradeCIDRs":["198.51.100.0/24"]}"#)),
                [node, pod, node, pod],
                "{system}"
            );
            assert_eq!(
                seen(config(r#"{"nonMasqueradeCIDRs":["0.0.0.0/0"],"masqLinkLocal":true}"#)),
                [pod, pod, pod, pod],
                "{system}"
            );
            assert_eq!(
                seen(config(r#"{"nonMasqueradeCIDRs":null,"masqLinkLocal":true}"#)),
                [node; 4],
                "{system}"
            );
            assert_eq!(seen(a_thousand()), [node, node, pod, pod], "{system}");
        });
    });
}

/// 11.3.231.0/25 is the last but one of a thousand.
fn a_thousand() -> AgentConfig {
    let nets: Vec<_> = (0..1000).map(|n| format!("\"11.{}.{}.0/25\"", n / 256, n % 256)).collect();
    config(&format!(r#"{{"cidrLimit":1000,"nonMasqueradeCIDRs":[{}]}}"#, nets.join(",")))
}

#[test]
fn ports_are_chosen_from_the_ranges_by_their_size() {
    in_every_system(|system| {
        wire();
        let mut spec = spec(system);
        spec.to_ports = ranges("40000-40299,50000-50099").unwrap();
        settle(&mut open(), &spec);
        let mut counts: BTreeMap<bool, usize> = BTreeMap::new();
        with_echoes(|| {
            for _ in 0..200 {
                let port = inside("pod", || call("192.0.2.9", PATIENCE)).unwrap().port();
                assert!((40000..40300).contains(&port) || (50000..50100).contains(&port), "{system}: {port}");
                *counts.entry(port < 45000).or_default() += 1;
            }
        });
        // Three of four on average; 110 is seven times the usual deviation away.
        assert!(counts[&true] > 110 && counts[&true] < 190, "{system}: {counts:?}");
    });
}

#[test]
fn no_connection_is_lost_or_has_the_wrong_source_while_systems_are_switched() {
    in_a_node(|| {
        wire();
        let mut rules = open();
        settle(&mut rules, &spec(System::IptablesNft));
        let over = AtomicBool::new(false);
        let seen = with_echoes(|| {
            std::thread::scope(|scope| {
                let calls = scope.spawn(|| {
                    inside("pod", || {
                        let mut seen: BTreeMap<Option<IpAddr>, usize> = BTreeMap::new();
                        while !over.load(Ordering::Relaxed) && ports_are_left() {
                            let answer = call("192.0.2.9", PATIENCE);
                            *seen.entry(answer.map(|seen| seen.ip())).or_default() += 1;
                            std::thread::sleep(PACE);
                        }
                        seen
                    })
                });
                for system in SYSTEMS.iter().cycle().take(12) {
                    settle(&mut rules, &spec(*system));
                }
                over.store(true, Ordering::Relaxed);
                calls.join().unwrap()
            })
        });
        assert_eq!(seen.keys().copied().collect::<Vec<_>>(), [Some(IpAddr::from(NODE))], "{seen:?}");
        assert!(seen.values().sum::<usize>() > 100, "{seen:?}");
    });
}
