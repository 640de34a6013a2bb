//! One pod on one bridge, step by step: what the kernel makes of each request, seen by `ip` and `bridge`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod sandbox;

use std::fs::File;
use std::os::fd::AsFd;
use std::time::Duration;

use flannel_kernel::address::{Dad, DadState, DeviceAddress};
use flannel_kernel::bridge::{NewBridge, Port, PortVlans};
use flannel_kernel::netns::{Namespace, run_inside, visit};
use flannel_kernel::stack::{OperState, Stack};
use flannel_kernel::sysctl;
use flannel_kernel::veth::NewVeth;
use flannel_kernel::wiring::{PodRoute, Wiring, WiringError};
use flannel_plan::mac::Mac;
use rustix::io::Errno;
use sandbox::*;

const BRIDGE_MAC: Mac = Mac([0xfe, 0, 0, 0, 0, 1]);
const LIMIT: Duration = Duration::from_secs(60);

/// Runs a test in a namespace of its own that plays the host, with another that plays the pod.
fn with_a_pod(test: impl FnOnce(&mut Stack, &File) + Send) {
    in_a_namespace(|| {
        let pod = run_inside(&Namespace::Fresh, || File::open("/proc/thread-self/ns/net").unwrap()).unwrap();
        test(&mut Stack::open().unwrap(), &pod);
    });
}

fn bridge() -> NewBridge {
    NewBridge { name: name("cni0"), mac: BRIDGE_MAC, mtu: None, vlan_filtering: false, promiscuous: false }
}

fn veth<'a>(bridge: u32, pod: &'a File) -> NewVeth<'a> {
    NewVeth {
        name: name("veth1"),
        mac: mac(1),
        master: Some(bridge),
        peer: name("eth0"),
        peer_mac: mac(2),
        peer_namespace: Some(pod.as_fd()),
        mtu: Some(1400),
    }
}

fn route(destination: &str, via: Option<&str>) -> PodRoute {
    let (destination, via) = (destination.parse().unwrap(), via.map(ip));
    PodRoute { destination, via, metric: 0, table: None, scope: None, mtu: 0, advmss: 0 }
}

/// The number of `cni0` after it was made, and that of `eth0` after the pair was made.
fn attach(host: &mut Stack, pod: &File) -> (u32, u32) {
    host.create_bridge(&bridge()).unwrap();
    let bridge = host.device(name("cni0")).unwrap().unwrap().index;
    host.create_veth(&veth(bridge, pod)).unwrap();
    (bridge, host.device(name("veth1")).unwrap().unwrap().peer.unwrap())
}

fn wiring(device: u32) -> Wiring {
    let addresses = ["10.22.0.2/24", "fd00:22::2/64"].map(|text| text.parse().unwrap()).to_vec();
    let routes = vec![route("0.0.0.0/0", Some("10.22.0.1")), route("::/0", Some("fd00:22::1"))];
    Wiring { device, addresses, routes, dad: Dad::Disabled }
}

#[test]
fn a_bridge_is_made_up_with_the_mac_it_was_told_and_keeps_it() {
    with_a_pod(|host, pod| {
        host.create_bridge(&NewBridge { mtu: Some(1400), promiscuous: true, ..bridge() }).unwrap();
        let made = host.device(name("cni0")).unwrap().unwrap();
        assert_eq!((&*made.kind, made.mtu, made.up, made.promiscuous), ("bridge", 1400, true, true));
        host.create_veth(&veth(made.index, pod)).unwrap();
        assert_eq!(host.device_at(made.index).unwrap().unwrap().mac, BRIDGE_MAC);
        assert_eq!(host.create_bridge(&bridge()).unwrap_err().errno, Errno::EXIST);
    });
}

#[test]
fn a_pair_is_made_with_one_end_on_the_bridge_and_the_other_in_the_pod() {
    with_a_pod(|host, pod| {
        let (bridge, eth0) = attach(host, pod);
        let here = host.device(name("veth1")).unwrap().unwrap();
        assert_eq!((&*here.kind, here.mac, here.mtu, here.up), ("veth", mac(1), 1400, true));
        assert_eq!((here.master, here.peer), (Some(bridge), Some(eth0)));
        let ports: Vec<_> = host.ports(bridge).unwrap().iter().map(|port| port.index).collect();
        assert_eq!(ports, [here.index]);
        let there = visit(pod, || Stack::open().unwrap().device(name("eth0")).unwrap().unwrap()).unwrap();
        assert_eq!((there.index, there.peer, there.mac), (eth0, Some(here.index), mac(2)));
        assert_eq!((there.mtu, there.up, there.master), (1400, false, None));
        assert!(!sh("ip link show veth1").contains("qlen"));
    });
}

#[test]
fn neighbours_are_those_that_have_answered() {
    with_a_pod(|host, pod| {
        let (bridge, eth0) = attach(host, pod);
        // The kernel forgets neighbours when it notices, a moment later, that a bridge without a live port is idle.
        visit(pod, || Stack::open().unwrap().raise(eth0).unwrap()).unwrap();
        host.wait_for_up(bridge, LIMIT).unwrap();
        for (address, state) in [("10.22.0.7", "stale"), ("fd00:22::7", "permanent"), ("10.22.0.8", "failed")]
        {
            sh(&format!("ip neigh add {address} lladdr 02:00:00:00:00:07 dev cni0 nud {state}"));
        }
        let mut found = host.neighbours().unwrap();
        found.retain(|address| !address.is_multicast());
        found.sort();
        assert_eq!(found, ["10.22.0.7", "fd00:22::7"].map(|text| text.parse::<std::net::IpAddr>().unwrap()));
    });
}

#[test]
fn both_ends_have_one_queue_each_way_however_many_processors_there_are() {
    with_a_pod(|host, pod| {
        attach(host, pod);
        let ends = [sh("ip -d link show veth1"), visit(pod, || sh("ip -d link show eth0")).unwrap()];
        for end in ends {
            assert!(end.contains("numtxqueues 1 ") && end.contains("numrxqueues 1 "), "{end}");
        }
    });
}

#[test]
fn a_name_that_is_taken_on_either_side_is_refused_and_nothing_is_left() {
    with_a_pod(|host, pod| {
        let (bridge, _) = attach(host, pod);
        let second = NewVeth { name: name("veth2"), ..veth(bridge, pod) };
        assert_eq!(host.create_veth(&second).unwrap_err().errno, Errno::EXIST);
        assert_eq!(host.device(name("veth2")).unwrap(), None);
        let other_side = NewVeth { peer: name("eth1"), ..veth(bridge, pod) };
        assert_eq!(host.create_veth(&other_side).unwrap_err().errno, Errno::EXIST);
        assert_eq!(visit(pod, || lines("ip -o link show")).unwrap().len(), 2);
    });
}

#[test]
fn the_inside_is_wired_in_one_batch_and_the_port_goes_up() {
    with_a_pod(|host, pod| {
        let (_, eth0) = attach(host, pod);
        visit(pod, || {
            let mut wiring = wiring(eth0);
            wiring.routes.push(PodRoute {
                metric: 7,
                mtu: 1300,
                advmss: 1260,
                ..route("10.99.0.0/16", Some("10.22.0.9"))
            });
            wiring.routes.push(PodRoute { table: Some(1000), ..route("10.98.0.0/16", None) });
            sysctl::set("net/ipv6/conf/eth0/accept_dad", "0").unwrap();
            Stack::open().unwrap().wire(&wiring).unwrap();
            assert_eq!(
                lines("ip route"),
                [
                    "default via 10.22.0.1 dev eth0",
                    "10.22.0.0/24 dev eth0 proto kernel scope link src 10.22.0.2",
                    "10.99.0.0/16 via 10.22.0.9 dev eth0 metric 7 mtu 1300 advmss 1260"
                ]
            );
            assert_eq!(lines("ip route show table 1000"), ["10.98.0.0/16 dev eth0"]);
            assert_eq!(
                lines("ip -6 route show default"),
                ["default via fd00:22::1 dev eth0 metric 1024 pref medium"]
            );
            let addresses = lines("ip -o addr show dev eth0");
            assert!(
                addresses[0].contains("inet 10.22.0.2/24 brd 10.22.0.255 scope global eth0"),
                "{addresses:?}"
            );
            assert!(addresses.iter().all(|line| !line.contains("tentative")), "{addresses:?}");
        })
        .unwrap();
        let port = host.device(name("veth1")).unwrap().unwrap();
        assert_eq!(host.wait_for_up(port.index, LIMIT).unwrap().unwrap().state, OperState::UP);
    });
}

#[test]
fn a_refusal_in_the_batch_names_the_address_or_route() {
    with_a_pod(|host, pod| {
        let (_, eth0) = attach(host, pod);
        let wire = |wiring: &Wiring| visit(pod, || Stack::open().unwrap().wire(wiring)).unwrap();
        let mut unreachable = wiring(eth0);
        unreachable.routes.insert(1, route("10.99.0.0/16", Some("10.98.0.1")));
        let said = wire(&unreachable).unwrap_err();
        assert_eq!(
            said.to_string(),
            "failed to add route '10.99.0.0/16 via 10.98.0.1': Network is unreachable: \
             Nexthop has invalid gateway"
        );
        let WiringError::Address(address, why) = wire(&wiring(eth0)).unwrap_err() else { panic!() };
        assert_eq!((address, why.errno), ("10.22.0.2/24".parse().unwrap(), Errno::EXIST));
        let gone = Wiring { addresses: Vec::new(), routes: Vec::new(), ..wiring(77) };
        let WiringError::Raise(why) = wire(&gone).unwrap_err() else { panic!() };
        assert_eq!(why.errno, Errno::NODEV);
    });
}

#[test]
fn a_port_gets_hairpin_and_isolation_and_loses_them() {
    with_a_pod(|host, pod| {
        attach(host, pod);
        let port = host.device(name("veth1")).unwrap().unwrap().index;
        let seen = || sh("bridge -d link show dev veth1");
        for (hairpin, isolated) in [(true, false), (false, true), (true, true), (false, false)] {
            host.set_port(port, Port { hairpin, isolated }).unwrap();
            let word = |on| if on { "on" } else { "off" };
            assert!(seen().contains(&format!("hairpin {} ", word(hairpin))), "{}", seen());
            assert!(seen().contains(&format!(" isolated {} ", word(isolated))), "{}", seen());
        }
    });
}

#[test]
#[ignore = "needs a kernel whose bridges know VLANs: `make test-vm`"]
fn a_port_gets_vlans() {
    with_a_pod(|host, pod| {
        host.create_bridge(&NewBridge { vlan_filtering: true, ..bridge() }).unwrap();
        let bridge = host.device(name("cni0")).unwrap().unwrap();
        assert_eq!(bridge.default_vlan, Some(1));
        host.create_veth(&veth(bridge.index, pod)).unwrap();
        let port = host.device(name("veth1")).unwrap().unwrap().index;
        let vlans = PortVlans { without: Some(1), untagged: Some(100), tagged: vec![101, 200, 201, 202] };
        host.set_vlans(port, &vlans).unwrap();
        let seen = lines("bridge -compressvlans vlan show dev veth1");
        assert_eq!(seen[1..], ["veth1 100 PVID Egress Untagged", "101", "200-202"]);
    });
}

#[test]
fn addresses_of_one_device_are_added_found_and_taken_away() {
    with_a_pod(|host, pod| {
        let (bridge, _) = attach(host, pod);
        for address in ["10.22.0.1/24", "10.23.0.1/31", "fd00:22::1/64"] {
            host.add_address(bridge, address.parse().unwrap(), Dad::Disabled).unwrap();
        }
        let mut found = host.addresses(bridge).unwrap();
        found.retain(|found| !found.address.to_string().starts_with("fe80:"));
        let sure = |text: &str| DeviceAddress { address: text.parse().unwrap(), dad: DadState::Done };
        assert_eq!(found, ["10.22.0.1/24", "10.23.0.1/31", "fd00:22::1/64"].map(sure));
        let again = host.add_address(bridge, "10.22.0.1/24".parse().unwrap(), Dad::Disabled);
        assert_eq!(again.unwrap_err().errno, Errno::EXIST);
        for found in found {
            host.remove_address(bridge, found.address).unwrap();
        }
        assert_eq!(sh("ip -o addr show dev cni0 scope global"), "");
    });
}

#[test]
fn a_double_on_the_wire_is_found_and_told() {
    with_a_pod(|host, pod| {
        let (bridge, eth0) = attach(host, pod);
        host.add_address(bridge, "fd00:22::2/64".parse().unwrap(), Dad::Disabled).unwrap();
        visit(pod, || {
            let mut inside = Stack::open().unwrap();
            let wiring = Wiring { dad: Dad::Enabled, routes: Vec::new(), ..wiring(eth0) };
            inside.wire(&wiring).unwrap();
            let double = DeviceAddress { address: "fd00:22::2/64".parse().unwrap(), dad: DadState::Failed };
            assert_eq!(inside.wait_for_addresses(eth0, LIMIT).unwrap(), [double]);
        })
        .unwrap();
    });
}

#[test]
fn a_device_that_is_not_up_in_time_is_given_as_it_is() {
    with_a_pod(|host, pod| {
        attach(host, pod);
        let port = host.device(name("veth1")).unwrap().unwrap();
        let found = host.wait_for_up(port.index, Duration::from_millis(20)).unwrap().unwrap();
        assert_ne!(found.state, OperState::UP);
        assert!(found.state.to_string().ends_with("down"), "{}", found.state);
        assert_eq!(host.wait_for_up(999, LIMIT).unwrap(), None);
    });
}

#[test]
fn a_device_is_gone_long_before_its_removal_is_over() {
    with_a_pod(|host, pod| {
        let (_, eth0) = attach(host, pod);
        let port = host.device(name("veth1")).unwrap().unwrap().index;
        let mut inside = visit(pod, || Stack::open().unwrap()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || inside.remove(eth0).unwrap());
            host.wait_for_absence(port, LIMIT).unwrap();
            assert_eq!(host.device_at(port).unwrap(), None);
        });
        host.wait_for_absence(port, LIMIT).unwrap();
    });
}

#[test]
fn with_one_end_the_other_goes_and_a_second_removal_is_no_failure() {
    with_a_pod(|host, pod| {
        let (_, eth0) = attach(host, pod);
        visit(pod, || {
            let mut inside = Stack::open().unwrap();
            inside.remove(eth0).unwrap();
            inside.remove(eth0).unwrap();
        })
        .unwrap();
        assert_eq!(host.device(name("veth1")).unwrap(), None);
    });
}
