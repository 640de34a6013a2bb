use std::path::PathBuf;

use flannel_kernel::stack::OperState;
use flannel_plan::mac::Mac;
use flannel_plan::state;

use super::*;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn ip(address: &str, gateway: Option<&str>) -> Ip {
    Ip { interface: None, address: net(address), gateway: gateway.map(|text| text.parse().unwrap()) }
}

fn route(dst: &str, gw: Option<&str>) -> Route {
    Route::new(net(dst), gw.map(|text| text.parse().unwrap()))
}

fn completed(ips: Vec<Ip>, routes: Vec<Route>, router: Router) -> Attachment {
    let mut attachment = Attachment { ips, routes, ..Attachment::default() };
    complete(&mut attachment, router);
    attachment
}

fn inside(ip: Ip) -> Ip {
    Ip { interface: Some(2), ..ip }
}

#[test]
fn without_a_router_only_the_interface_is_filled_in() {
    let made = completed(vec![ip("10.1.2.5/24", None)], Vec::new(), Router::Absent);
    assert_eq!(made.ips, [inside(ip("10.1.2.5/24", None))]);
    assert_eq!(made.routes, []);
}

#[test]
fn a_gateway_that_ipam_does_not_say_is_the_first_address() {
    let given = vec![ip("10.1.2.5/24", None), ip("10.1.3.5/24", Some("10.1.3.9")), ip("fd00::7/64", None)];
    let made = completed(given, Vec::new(), Router::OfTheNetwork);
    let expected = [("10.1.2.5/24", "10.1.2.1"), ("10.1.3.5/24", "10.1.3.9"), ("fd00::7/64", "fd00::1")];
    assert_eq!(made.ips, expected.map(|(address, gateway)| inside(ip(address, Some(gateway)))));
    assert_eq!(made.routes, []);
    assert_eq!(gateways(&made.ips), ["10.1.2.1/24", "10.1.3.9/24", "fd00::1/64"].map(net));
}

#[test]
fn the_addresses_of_the_bridge_are_ipv4_first_and_each_once() {
    let ips = [("fd00::7/64", "fd00::1"), ("10.1.2.5/24", "10.1.2.1"), ("10.1.2.6/24", "10.1.2.1")];
    let ips = ips.map(|(address, gateway)| ip(address, Some(gateway)));
    assert_eq!(gateways(&ips), ["10.1.2.1/24", "fd00::1/64"].map(net));
}

#[test]
fn a_default_route_is_added_once_a_family() {
    let ips = vec![ip("10.1.2.5/24", None), ip("fd00::7/64", None), ip("fd01::7/64", None)];
    let made = completed(ips, vec![route("10.0.0.0/8", None)], Router::OfEverything);
    let expected =
        [route("10.0.0.0/8", None), route("0.0.0.0/0", Some("10.1.2.1")), route("::/0", Some("fd00::1"))];
    assert_eq!(made.routes, expected);
}

#[test]
fn a_default_route_of_ipam_counts_with_and_without_a_gateway() {
    for gateway in [None, Some("10.1.2.9")] {
        let given = vec![route("0.0.0.0/0", gateway)];
        let made = completed(vec![ip("10.1.2.5/24", None)], given.clone(), Router::OfEverything);
        assert_eq!(made.routes, given);
        let via: IpAddr = gateway.unwrap_or("10.1.2.1").parse().unwrap();
        let wired = wiring(&made, 7, Dad::Disabled);
        assert_eq!(wired.routes.iter().map(|route| route.via).collect::<Vec<_>>(), [Some(via)]);
    }
}

#[test]
fn a_route_without_a_gateway_goes_by_the_first_of_its_family() {
    let ips = vec![ip("fd00::7/64", Some("fd00::1")), ip("10.1.2.5/24", None)];
    let routes = vec![route("10.0.0.0/8", None), Route { mtu: 1300, ..route("fd11::/16", None) }];
    let wired = wiring(&Attachment { ips, routes, ..Attachment::default() }, 7, Dad::Enabled);
    let plain = PodRoute {
        destination: net("10.0.0.0/8"),
        via: None,
        metric: 0,
        table: None,
        scope: None,
        mtu: 0,
        advmss: 0,
    };
    let by_gateway =
        PodRoute { destination: net("fd11::/16"), via: Some("fd00::1".parse().unwrap()), mtu: 1300, ..plain };
    let expected = Wiring {
        device: 7,
        addresses: vec![net("fd00::7/64"), net("10.1.2.5/24")],
        routes: vec![plain, by_gateway],
        dad: Dad::Enabled,
    };
    assert_eq!(wired, expected);
}

fn device(index: u32, name: &str, kind: &str) -> Device {
    Device {
        index,
        name: name.parse().unwrap(),
        mac: mac(index),
        mtu: 1500,
        up: true,
        promiscuous: false,
        kind: kind.into(),
        master: None,
        peer: None,
        state: OperState::UP,
        default_vlan: None,
    }
}

fn mac(index: u32) -> Mac {
    Mac([2, 0, 0, 0, 0, u8::try_from(index).unwrap()])
}

fn fact(destination: &str, via: Option<&str>) -> RouteFact {
    let route = state::Route {
        destination: net(destination),
        kind: RouteKind::Unicast,
        via: via.map(|text| text.parse().unwrap()),
        link: Some("eth0".parse().unwrap()),
        onlink: false,
        protocol: 3,
    };
    RouteFact { route, metric: 0, source: None }
}

/// A pod as ADD left it, and what ADD said about it.
fn healthy() -> (Attachment, Found) {
    let interface = |name: &str, index, sandbox: Option<&str>| Interface {
        name: name.into(),
        mac: mac(index).to_string(),
        sandbox: sandbox.map(PathBuf::from),
        ..Interface::default()
    };
    let result = Attachment {
        interfaces: vec![
            interface("cni0", 3, None),
            interface("veth1", 5, None),
            interface("eth0", 2, Some("/run/netns/pod")),
        ],
        ips: vec![inside(ip("10.1.2.5/24", Some("10.1.2.1")))],
        routes: vec![route("0.0.0.0/0", Some("10.1.2.1")), route("10.9.0.0/16", Some("10.1.2.7"))],
        ..Attachment::default()
    };
    let found = Found {
        bridge: Some(device(3, "cni0", "bridge")),
        others: vec![Device { peer: Some(2), master: Some(3), ..device(5, "veth1", "veth") }],
        pod: Some(Device { peer: Some(5), ..device(2, "eth0", "veth") }),
        addresses: vec![net("10.1.2.5/24")],
        routes: vec![
            fact("0.0.0.0/0", Some("10.1.2.1")),
            fact("10.1.2.0/24", None),
            fact("10.9.0.0/16", Some("10.1.2.7")),
        ],
    };
    (result, found)
}

/// What is told after something was changed in the promise or in the pod.
fn told(change: impl FnOnce(&mut Attachment, &mut Found)) -> Vec<String> {
    let (mut result, mut found) = healthy();
    change(&mut result, &mut found);
    let promise = Promise {
        result: &result,
        bridge: "cni0".parse().unwrap(),
        promiscuous: false,
        ifname: "eth0",
        netns: Path::new("/run/netns/pod"),
    };
    promise.faults(&found)
}

#[test]
fn a_pod_as_it_was_left_has_no_faults() {
    assert_eq!(told(|_, _| ()), [""; 0]);
    assert_eq!(told(|result, _| result.interfaces[0].mac.clear()), [""; 0]);
    // Another default gateway will do, and so will one more route or address.
    assert_eq!(told(|_, found| found.routes[0] = fact("0.0.0.0/0", Some("10.1.2.99"))), [""; 0]);
    assert_eq!(told(|_, found| found.addresses.push(net("fd00::7/64"))), [""; 0]);
}

#[test]
fn a_pod_without_addresses_has_no_faults() {
    let nothing = |result: &mut Attachment, found: &mut Found| {
        (result.ips, result.routes) = (Vec::new(), Vec::new());
        (found.addresses, found.routes) = (Vec::new(), Vec::new());
    };
    assert_eq!(told(nothing), [""; 0]);
}

#[test]
fn every_fault_is_told() {
    let bridge_gone = "CNI created bridge cni0 in host namespace was not found";
    assert_eq!(told(|_, found| found.bridge = None), [bridge_gone]);
    assert_eq!(told(|result, _| drop(result.interfaces.remove(0))), [bridge_gone]);
    let other_mac =
        "Bridge interface cni0 Mac doesn't match: 02:00:00:00:00:03 promised, 02:00:00:00:00:09 found";
    assert_eq!(told(|_, found| found.bridge.as_mut().unwrap().mac = mac(9)), [other_mac]);
    let no_bridge = "Interface cni0 does not have the bridge type";
    assert_eq!(told(|_, found| found.bridge.as_mut().unwrap().kind = "vxlan".into()), [no_bridge]);
    let promiscuous = "Bridge interface cni0 has promisc mode on, configured off";
    assert_eq!(told(|_, found| found.bridge.as_mut().unwrap().promiscuous = true), [promiscuous]);
    let in_sandbox = "Bridge interface cni0 is in the sandbox /x";
    assert_eq!(told(|result, _| result.interfaces[0].sandbox = Some("/x".into())), [in_sandbox]);
}

#[test]
fn a_pod_that_is_another_is_told() {
    let elsewhere = "Sandbox in prevResult /x doesn't match configured netns: /run/netns/pod";
    assert_eq!(told(|result, _| result.interfaces[2].sandbox = Some("/x".into())), [elsewhere]);
    let not_promised = "CNI created interface in container eth0 not found";
    assert_eq!(told(|result, _| result.interfaces[2].sandbox = None), [not_promised]);
    assert_eq!(told(|_, found| found.pod = None), ["Container interface eth0 was not found"]);
    let no_veth = "Container interface eth0 not of type veth";
    assert_eq!(told(|_, found| found.pod.as_mut().unwrap().kind = "macvlan".into()), [no_veth]);
    let other_mac =
        "Container interface eth0 Mac doesn't match: 02:00:00:00:00:02 promised, 02:00:00:00:00:09 found";
    assert_eq!(told(|_, found| found.pod.as_mut().unwrap().mac = mac(9)), [other_mac]);
}

#[test]
fn a_veth_that_ends_elsewhere_is_told() {
    let cut = ["CNI veth created for bridge cni0 was not found"];
    assert_eq!(told(|_, found| found.others.clear()), cut);
    assert_eq!(told(|_, found| found.others[0].master = None), cut);
    assert_eq!(told(|_, found| found.others[0].peer = Some(9)), cut);
    assert_eq!(told(|_, found| found.pod.as_mut().unwrap().peer = Some(9)), cut);
    let other_mac = "Interface veth1 Mac doesn't match: 02:00:00:00:00:05 promised, 02:00:00:00:00:09 found";
    assert_eq!(told(|_, found| found.others[0].mac = mac(9)), [other_mac]);
}

#[test]
fn addresses_and_routes_that_are_lost_are_told() {
    let other_length = |_: &mut Attachment, found: &mut Found| found.addresses = vec![net("10.1.2.5/16")];
    assert_eq!(told(other_length), ["Failed to match addr 10.1.2.5/24 on interface"]);
    assert_eq!(
        told(|_, found| found.routes.truncate(1)),
        [
            "Failed to find the route for the network 10.1.2.0/24 of 10.1.2.5/24",
            "Expected route 10.9.0.0/16 via 10.1.2.7 was not found"
        ]
    );
    assert_eq!(
        told(|_, found| found.routes[2] = fact("10.9.0.0/16", Some("10.1.2.8"))),
        ["Expected route 10.9.0.0/16 via 10.1.2.7 was not found"]
    );
    let in_another_table = |result: &mut Attachment, found: &mut Found| {
        result.routes[1].table = Some(100);
        found.routes.truncate(2);
    };
    assert_eq!(told(in_another_table), [""; 0]);
}
