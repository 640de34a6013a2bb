//! What is said of a node, by evidence of every kind.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod fixture;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use fake_kernel::Fake;
use fixture::{DUAL, NOW, VXLAN, evidence, inputs, lease, settled};
use flannel_plan::backend::BackendError;
use flannel_plan::family::ByFamily;
use flannel_plan::finding::{Code, Finding};
use flannel_plan::inputs::Inputs;
use flannel_plan::link_name::LinkName;
use flannel_plan::observation::RouteFact;
use flannel_plan::report::Repair;
use flannel_plan::state::{Link, PROTOCOL_BOOT, Route, RouteKind};
use flannel_status::{
    DaemonProcess, DaemonStatus, Life, NodeStatus, ObjectCount, OwnStatus, PeerState, PeerStatus, Reach,
    node_status,
};
use ipnet::IpNet;

const DIRECT: &str = r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan","DirectRouting":true}}"#;
const HOST_GW: &str = r#"{"Network":"10.244.0.0/16","Backend":{"Type":"host-gw"}}"#;
const ALLOC: &str = r#"{"Network":"10.244.0.0/16","Backend":{"Type":"alloc"}}"#;

fn link(name: &str) -> LinkName {
    name.parse().unwrap()
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn lose_route(kernel: &mut Fake, destination: &str) {
    let before = kernel.now.routes.len();
    kernel.now.routes.retain(|fact| fact.route.destination != net(destination));
    assert_eq!(kernel.now.routes.len(), before - 1);
}

fn peers_of(status: &NodeStatus) -> Vec<(&str, PeerState, Vec<&str>)> {
    let short = |peer| {
        let PeerStatus { owner, state, why, .. }: &PeerStatus = peer;
        (owner.as_str(), *state, why.iter().map(String::as_str).collect())
    };
    status.peers.iter().map(short).collect()
}

fn own_status_of_w1(inputs: &Inputs, devices: Vec<Link>) -> OwnStatus {
    let v4 = |text: &str| ByFamily { v4: Some(net(text)), v6: None };
    let address = ByFamily { v4: Some("10.0.0.1".parse().unwrap()), v6: None };
    OwnStatus {
        owner: "w1".into(),
        subnets: v4("10.244.1.0/24"),
        networks: v4("10.244.0.0/16"),
        public: address,
        asked: address,
        interface: link("eth0"),
        addresses: address,
        interface_mtu: 1500,
        backend: inputs.config.backend.clone(),
        devices,
        pod_mtu: Some(1450),
        pod_mtus: BTreeMap::new(),
        rules: None,
    }
}

#[test]
fn a_node_as_it_should_be_is_ready_and_all_its_peers_are_ok() {
    let inputs = inputs(VXLAN, 2);
    let mut kernel = settled(&inputs);
    let device = kernel.now.links[1].link.clone();
    assert_eq!(device.name, link("flannel.1"));
    let expected = NodeStatus {
        ready: true,
        reasons: Vec::new(),
        notes: Vec::new(),
        findings: Vec::new(),
        daemon: DaemonStatus {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: 7,
            seen_as: Some(77),
            life: Life::Running,
            report: "/run/flannel/state.json".into(),
            written: NOW - 3000,
            age: 3000,
        },
        node: Some(own_status_of_w1(&inputs, vec![device])),
        objects: Some(ObjectCount { desired: 7, in_place: 7, left_over: 0 }),
        peers: vec![PeerStatus {
            owner: "w2".into(),
            subnets: vec![net("10.244.2.0/24")],
            public: vec!["10.0.0.2".parse().unwrap()],
            reached: vec![Reach::Tunnel(link("flannel.1"))],
            state: PeerState::Ok,
            why: Vec::new(),
        }],
        repairs: Vec::new(),
        contested: Vec::new(),
        foreign: Vec::new(),
    };
    assert_eq!(node_status(&evidence(&inputs, &mut kernel)), expected);
}

#[test]
fn a_peer_without_its_route_is_broken_and_comes_first_and_the_node_stays_ready() {
    let inputs = inputs(VXLAN, 4);
    let mut kernel = settled(&inputs);
    lose_route(&mut kernel, "10.244.3.0/24");
    let status = node_status(&evidence(&inputs, &mut kernel));
    let ok = |owner| (owner, PeerState::Ok, Vec::new());
    assert_eq!(peers_of(&status), [("w3", PeerState::Broken, vec!["route missing"]), ok("w2"), ok("w4")]);
    assert_eq!((status.ready, status.reasons), (true, Vec::<String>::new()));
    assert_eq!(status.objects, Some(ObjectCount { desired: 13, in_place: 12, left_over: 0 }));
}

#[test]
fn each_family_of_a_peer_is_judged_by_itself() {
    let inputs = inputs(DUAL, 2);
    let mut kernel = settled(&inputs);
    lose_route(&mut kernel, "fd00:244:0:2::/64");
    let entry = kernel.now.fdb.iter_mut().find(|entry| entry.link == link("flannel.1")).unwrap();
    entry.destination = Some("10.0.0.99".parse().unwrap());
    let status = node_status(&evidence(&inputs, &mut kernel));
    let why = vec!["IPv4 fdb wrong", "IPv6 route missing"];
    assert_eq!(peers_of(&status), [("w2", PeerState::Broken, why)]);
    assert_eq!(
        status.peers[0].reached,
        [Reach::Tunnel(link("flannel.1")), Reach::Tunnel(link("flannel-v6.1"))]
    );
}

#[test]
fn a_node_without_its_device_is_not_ready_whatever_the_daemon_says() {
    let inputs = inputs(VXLAN, 2);
    let mut kernel = settled(&inputs);
    kernel.lose_link(link("flannel.1"));
    let status = node_status(&evidence(&inputs, &mut kernel));
    assert!(!status.ready);
    let reasons = ["link flannel.1 is missing", "address 10.244.1.0/32 dev flannel.1 is missing"];
    assert_eq!(status.reasons, reasons);
    let why = vec!["fdb missing", "neighbour missing", "route missing"];
    assert_eq!(peers_of(&status), [("w2", PeerState::Broken, why)]);
}

#[test]
fn a_device_of_somebody_else_in_place_of_ours_is_the_reason() {
    let inputs = inputs(VXLAN, 2);
    let mut kernel = settled(&inputs);
    kernel.now.links[1].link.alias = "flanneld /run/flannel/blue.env".into();
    let status = node_status(&evidence(&inputs, &mut kernel));
    let link = &kernel.now.links[1].link;
    let reason = format!("{link} is not ours: remove it with `ip link del flannel.1`, or choose another VNI");
    assert_eq!((status.ready, &status.reasons[0]), (false, &reason));
    assert_eq!(status.foreign, [link.to_string()]);
}

#[test]
fn what_the_daemon_knows_the_cause_of_is_told_in_its_words() {
    let inputs = inputs(VXLAN, 2);
    let mut kernel = settled(&inputs);
    kernel.lose_link(link("flannel.1"));
    let mut evidence = evidence(&inputs, &mut kernel);
    evidence.report.ready = false;
    evidence.report.reasons = vec!["cannot create link flannel.1 up: no vxlan in this kernel".into()];
    let known = Finding::new(Code::KernelLacksBackend, "link flannel.1", &evidence.report.reasons[0]);
    evidence.report.findings = vec![known.clone()];
    let expected = [
        "cannot create link flannel.1 up: no vxlan in this kernel",
        "address 10.244.1.0/32 dev flannel.1 is missing",
    ];
    let status = node_status(&evidence);
    assert_eq!(status.reasons, expected);
    let missing = Finding::new(Code::Differs, "address 10.244.1.0/32 dev flannel.1", expected[1]);
    assert_eq!(status.findings, [known, missing]);
}

#[test]
fn a_refused_lease_is_named_once_with_its_reason() {
    let mut inputs = inputs(VXLAN, 3);
    let mut twin = lease(&inputs.config, 9);
    twin.subnets = inputs.own.subnets;
    inputs.peers.push(Arc::new(twin));
    let mut evidence = evidence(&inputs, &mut settled(&inputs));
    evidence.report.notes = vec![
        "lease of w9 (10.244.1.0/24) is ignored: 10.244.1.0/24 overlaps this node's own subnet".into(),
        "leases/x.json holds no lease".into(),
    ];
    let status = node_status(&evidence);
    let refused = ("w9", PeerState::Refused, vec!["10.244.1.0/24 overlaps this node's own subnet"]);
    assert_eq!(peers_of(&status), [refused, ("w2", PeerState::Ok, vec![]), ("w3", PeerState::Ok, vec![])]);
    assert_eq!(status.notes, ["leases/x.json holds no lease"]);
    assert_eq!(status.peers[0].public, ["10.0.0.9".parse::<IpAddr>().unwrap()]);
}

#[test]
fn a_peer_that_host_gw_cannot_reach_is_refused_and_one_on_the_segment_is_reached_directly() {
    let mut inputs = inputs(HOST_GW, 2);
    inputs.peers.push(Arc::new(lease(&inputs.config, 256 + 3)));
    let status = node_status(&evidence(&inputs, &mut settled(&inputs)));
    let why = vec!["10.0.1.3 is not on this segment, and host-gw reaches no further"];
    assert_eq!(peers_of(&status), [("w259", PeerState::Refused, why), ("w2", PeerState::Ok, vec![])]);
    assert_eq!(status.peers[1].reached, [Reach::Direct(link("eth0"))]);
}

#[test]
fn with_direct_routing_the_way_to_each_peer_is_told() {
    let mut inputs = inputs(DIRECT, 2);
    inputs.peers.push(Arc::new(lease(&inputs.config, 256 + 3)));
    let status = node_status(&evidence(&inputs, &mut settled(&inputs)));
    let ways: Vec<_> = status.peers.iter().map(|peer| peer.reached[0]).collect();
    assert_eq!(ways, [Reach::Direct(link("eth0")), Reach::Tunnel(link("flannel.1"))]);
}

#[test]
fn a_backend_that_needs_no_peers_has_none_that_could_be_broken() {
    let inputs = inputs(ALLOC, 2);
    let status = node_status(&evidence(&inputs, &mut settled(&inputs)));
    assert_eq!(peers_of(&status), [("w2", PeerState::Ok, vec![])]);
    assert_eq!(status.peers[0].reached, []);
}

#[test]
fn what_others_put_into_the_pod_network_is_named_as_it_is_now() {
    let inputs = inputs(VXLAN, 2);
    let mut kernel = settled(&inputs);
    let route = Route {
        destination: net("10.244.77.0/24"),
        kind: RouteKind::Unicast,
        via: Some("10.0.0.2".parse().unwrap()),
        link: Some(link("eth0")),
        onlink: false,
        protocol: PROTOCOL_BOOT,
    };
    kernel.now.routes.push(RouteFact { route, metric: 0, source: None });
    let mut evidence = evidence(&inputs, &mut kernel);
    evidence.report.foreign = vec!["route 10.244.66.0/24, which is gone by now".into()];
    let status = node_status(&evidence);
    assert_eq!(status.foreign, ["route 10.244.77.0/24 via 10.0.0.2 dev eth0 protocol boot"]);
    assert_eq!(status.objects, Some(ObjectCount { desired: 7, in_place: 7, left_over: 0 }));
}

#[test]
fn repairs_and_fights_are_told_and_a_fight_only_once() {
    let inputs = inputs(VXLAN, 2);
    let repair = Repair { object: "link flannel.1".into(), kind: "link".into(), count: 9, last: NOW };
    let mut evidence = evidence(&inputs, &mut settled(&inputs));
    evidence.report.repairs = Cow::Owned(vec![repair.clone()]);
    evidence.report.contested = vec!["link flannel.1".into()];
    evidence.report.notes = vec!["link flannel.1: something keeps undoing it".into()];
    evidence.report.findings =
        vec![Finding::new(Code::Contested, "link flannel.1", &evidence.report.notes[0])];
    let status = node_status(&evidence);
    assert_eq!(status.repairs, [repair]);
    assert_eq!(status.contested, ["link flannel.1"]);
    assert_eq!(status.notes, Vec::<String>::new());
}

#[test]
fn a_daemon_that_has_no_lease_yet_is_quoted() {
    let inputs = inputs(VXLAN, 2);
    let mut evidence = evidence(&inputs, &mut settled(&inputs));
    evidence.comparison = None;
    evidence.report.inputs = None;
    evidence.report.scope = None;
    evidence.report.ready = false;
    evidence.report.reasons = vec!["waiting for a lease".into()];
    let status = node_status(&evidence);
    assert_eq!((status.ready, status.node, status.objects, status.peers), (false, None, None, Vec::new()));
    assert_eq!(status.reasons, ["waiting for a lease"]);
}

#[test]
fn inputs_that_make_no_plan_are_the_reason() {
    let inputs = inputs(VXLAN, 2);
    let mut evidence = evidence(&inputs, &mut settled(&inputs));
    evidence.comparison = Some(Err(BackendError::Missing("udp".into())));
    let status = node_status(&evidence);
    assert!(!status.ready);
    assert_eq!(status.reasons, [BackendError::Missing("udp".into()).to_string()]);
}

#[test]
fn a_daemon_that_does_nothing_or_is_not_ours_is_noted_and_the_node_stays_ready() {
    let inputs = inputs(VXLAN, 2);
    let mut evidence = evidence(&inputs, &mut settled(&inputs));
    evidence.daemon = DaemonProcess { life: Life::Suspended, pid: Some(77) };
    evidence.report.version = "0.0.9".into();
    let ours = env!("CARGO_PKG_VERSION");
    let expected = [
        "flanneld is suspended, so nothing is repaired or followed: wake it with `kill -CONT 77`".to_owned(),
        format!("flanneld is 0.0.9 and flannelctl {ours}: they may not plan the same"),
    ];
    let status = node_status(&evidence);
    assert_eq!((status.ready, &status.notes[..]), (true, &expected[..]));
    evidence.daemon = DaemonProcess::NOT_SEEN;
    assert!(node_status(&evidence).notes[0].starts_with("flanneld is not running: packets still flow"));
}

#[test]
fn the_address_that_the_store_holds_is_told_beside_the_one_that_was_asked_for() {
    let inputs = inputs(VXLAN, 2);
    let mut evidence = evidence(&inputs, &mut settled(&inputs));
    let (held, asked) =
        (ByFamily { v4: "203.0.113.9".parse().ok(), v6: None }, inputs.own.announcement.public);
    evidence.report.announced = held;
    let node = node_status(&evidence).node.unwrap();
    assert_eq!((node.public, node.asked), (held, asked));
    evidence.report.announced = ByFamily::default(); // by a flanneld that did not say
    assert_eq!(node_status(&evidence).node.unwrap().public, asked);
}

#[test]
fn what_both_the_daemon_and_we_have_to_say_is_said_once() {
    let mut inputs = inputs(VXLAN, 2);
    let down = Finding::new(Code::BridgeBroken, "cni0", "cni0 is down");
    inputs.firewall.notes = vec![down.clone()];
    let mut evidence = evidence(&inputs, &mut settled(&inputs));
    evidence.report.notes = vec!["cni0 is down".to_owned(), "leases/x.json holds no lease".to_owned()];
    if let Some(Ok(comparison)) = &mut evidence.comparison {
        let old = Finding::new(Code::StaleGateway, "cni0", "cni0 has an old gateway");
        comparison.bridges = vec![down, old];
    }
    let expected = ["cni0 is down", "leases/x.json holds no lease", "cni0 has an old gateway"];
    assert_eq!(node_status(&evidence).notes, expected);
}
