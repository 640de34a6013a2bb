//! Batches whose answers the real kernel could not deliver, so that every request of them is made twice.

use std::net::IpAddr;

use flannel_plan::mac::Mac;

use super::*;
use crate::address::Dad;
use crate::netns::{Namespace, run_inside};
use crate::stack::Stack;
use crate::veth::NewVeth;
use crate::wiring::{PodRoute, Wiring, WiringError};

/// Runs a test in a namespace of its own with the number of a device whose other end is up.
fn with_a_device<T: Send>(test: impl FnOnce(&mut Stack, u32) -> T + Send) -> T {
    run_inside(&Namespace::Fresh, || {
        let mut stack = Stack::open().unwrap();
        let veth = NewVeth {
            name: "veth1".parse().unwrap(),
            mac: Mac([2, 0, 0, 0, 0, 1]),
            master: None,
            peer: "eth0".parse().unwrap(),
            peer_mac: Mac([2, 0, 0, 0, 0, 2]),
            peer_namespace: None,
            mtu: None,
        };
        let device = stack.create_veth(&veth).unwrap().peer.unwrap();
        test(&mut stack, device)
    })
    .unwrap()
}

fn route(destination: &str, via: &str) -> PodRoute {
    let (destination, via) = (destination.parse().unwrap(), Some(via.parse::<IpAddr>().unwrap()));
    PodRoute { destination, via, metric: 0, table: None, scope: None, mtu: 0, advmss: 0 }
}

fn wiring(device: u32, routes: Vec<PodRoute>) -> Wiring {
    let addresses = ["10.22.0.2/24", "fd00:22::2/64", "10.23.0.2/32", "fe80::22/64"];
    let addresses = addresses.map(|text| text.parse().unwrap()).to_vec();
    Wiring { device, addresses, routes, dad: Dad::Disabled }
}

/// The outcome of a wiring whose answers are lost.
fn wire_unheard(stack: &mut Stack, wiring: &Wiring) -> Result<(), WiringError> {
    stack.socket.lose_answers();
    stack.wire(wiring)
}

#[test]
fn what_a_repeated_batch_made_the_first_time_is_done() {
    let plain = [route("0.0.0.0/0", "10.22.0.1"), route("::/0", "fd00:22::1")];
    let second_ways = [route("0.0.0.0/0", "10.22.0.9"), route("::/0", "fd00:22::9")];
    let odd = |destination, via| PodRoute {
        metric: 7,
        table: Some(1000),
        mtu: 1300,
        advmss: 1200,
        ..route(destination, via)
    };
    let odd = [odd("10.96.0.0/12", "10.22.0.1"), odd("fd00:96::/108", "fd00:22::1")];
    let on_the_wire = [
        PodRoute { via: None, scope: Some(253), ..route("10.24.0.0/24", "10.22.0.1") },
        PodRoute { via: None, scope: Some(253), ..route("fd00:24::/64", "fd00:22::1") },
    ];
    let routes = [plain, second_ways, odd, on_the_wire].concat();
    with_a_device(|stack, device| {
        let wiring = wiring(device, routes);
        assert_eq!(wire_unheard(stack, &wiring), Ok(()));
        let found = stack.addresses(device).unwrap();
        for address in &wiring.addresses {
            assert_eq!(found.iter().filter(|found| found.address == *address).count(), 1, "{address}");
        }
        // What was heard at once is still refused the second time.
        let again = stack.wire(&wiring);
        assert!(
            matches!(&again, Err(WiringError::Address(_, why)) if why.errno == Errno::EXIST),
            "{again:?}"
        );
    });
}

#[test]
fn an_address_that_was_there_with_another_prefix_is_refused_also_if_asked_twice() {
    let outcome = with_a_device(|stack, device| {
        stack.add_address(device, "fd00:22::2/80".parse().unwrap(), Dad::Disabled).unwrap();
        wire_unheard(stack, &wiring(device, Vec::new()))
    });
    let refused = "fd00:22::2/64".parse().unwrap();
    assert!(
        matches!(&outcome, Err(WiringError::Address(address, why)) if *address == refused && why.errno == Errno::EXIST),
        "{outcome:?}"
    );
}

#[test]
fn a_route_that_was_there_with_another_mtu_is_refused_also_if_asked_twice() {
    let small = PodRoute { mtu: 1300, ..route("::/0", "fd00:22::1") };
    let outcome = with_a_device(|stack, device| {
        stack.wire(&wiring(device, vec![route("::/0", "fd00:22::1")])).unwrap();
        wire_unheard(stack, &Wiring { addresses: Vec::new(), ..wiring(device, vec![small]) })
    });
    assert!(
        matches!(&outcome, Err(WiringError::Route(route, why)) if *route == small && why.errno == Errno::EXIST),
        "{outcome:?}"
    );
}

#[test]
fn what_a_repeated_batch_removed_the_first_time_is_done() {
    with_a_device(|stack, device| {
        let address = "10.22.0.2/24".parse().unwrap();
        stack.add_address(device, address, Dad::Disabled).unwrap();
        let mut removal = Outbox::default();
        crate::address::remove(&mut removal, address, device);
        stack.socket.lose_answers();
        assert_eq!(send(&mut stack.socket, &mut removal).unwrap().len(), 0);
        assert_eq!(stack.addresses(device).unwrap(), []);
        // What was heard at once is for the caller to judge.
        assert_eq!(send(&mut stack.socket, &mut removal).unwrap().len(), 1);
    });
}
