//! Do packets really get there? From outside, from the host, from the pod itself and from its neighbour.

use conformance_tests::traffic::{At, Protocol, Server, ask, is_silent};
use conformance_tests::version::COMMON;
use conformance_tests::{Chain, PodInterface, Stage, scenarios};
use serde_json::{Value, json};

scenarios! { "portmap":
    COMMON =>
        a_published_port_answers_from_everywhere_by_iptables,
        a_published_port_answers_from_everywhere_by_nftables,
        a_port_of_one_address_answers_on_that_address_only,
        masquerading_all_hides_who_asks_by_iptables,
        masquerading_all_hides_who_asks_by_nftables,
        who_asks_from_outside_is_seen,
        the_next_pod_on_a_port_of_udp_answers_at_once;
}

const HOST: &str = "192.0.2.1";
const OUTSIDE: &str = "192.0.2.2";

/// A host with an uplink to a machine outside.
fn uplink(stage: &Stage) {
    stage.site.pod("outside");
    stage.site.sh(&format!(
        "ip link add up0 type veth peer name eth0 netns outside && ip addr add {HOST}/24 dev up0 && \
         ip addr add 192.0.2.11/24 dev up0 && ip addr add fd00:2::1/64 dev up0 nodad && ip link set up0 up && \
         ip -n outside addr add {OUTSIDE}/24 dev eth0 && ip -n outside addr add fd00:2::2/64 dev eth0 nodad && \
         ip -n outside link set eth0 up"
    ));
}

fn chain<'a>(stage: &'a Stage, keys: Value, mappings: Value) -> Chain<'a> {
    let ranges = json!([[{"subnet": "10.22.0.0/24"}], [{"subnet": "fd00:22::/64"}]]);
    let bridge = json!({"type": "bridge", "bridge": "br0", "isDefaultGateway": true, "hairpinMode": true,
        "ipam": {"type": "host-local", "ranges": ranges}});
    let mut portmap = json!({"type": "portmap", "capabilities": {"portMappings": true}});
    portmap.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    Chain {
        site: &stage.site,
        folders: vec![stage.plugins.folder.clone()],
        inner: None,
        version: stage.version,
        name: "mynet",
        plugins: vec![bridge, portmap],
        capabilities: json!({"portMappings": mappings}),
    }
}

fn both_protocols(host: u16, pod: u16) -> Value {
    json!([{"hostPort": host, "containerPort": pod, "protocol": "tcp"},
        {"hostPort": host, "containerPort": pod, "protocol": "udp"}])
}

const PROTOCOLS: [Protocol; 2] = [Protocol::Tcp, Protocol::Udp];

fn answers_from_everywhere(stage: &Stage, backend: &str) {
    uplink(stage);
    let chain = chain(stage, json!({"backend": backend}), both_protocols(8080, 80));
    let quiet = Chain { capabilities: json!({}), ..chain.clone() };
    ["pod1", "pod2"].iter().for_each(|pod| drop(stage.site.pod(pod)));
    let result = chain.add(PodInterface::of("pod1"));
    let neighbour = quiet.add(PodInterface::of("pod2"));
    let server = Server::start(&stage.site, At::Pod("pod1"), "pod1", "[::]:80");
    for protocol in PROTOCOLS {
        for (from, to) in [
            (At::Host, "10.22.0.2:80"),
            (At::Host, "192.0.2.1:8080"),
            (At::Host, "127.0.0.1:8080"),
            (At::Pod("outside"), "192.0.2.1:8080"),
            (At::Pod("pod1"), "192.0.2.1:8080"),
            (At::Pod("pod1"), "10.22.0.1:8080"),
            (At::Pod("pod2"), "192.0.2.1:8080"),
            (At::Pod("outside"), "[fd00:2::1]:8080"),
            (At::Host, "[fd00:2::1]:8080"),
        ] {
            let answer = ask(&stage.site, from, protocol, to);
            assert!(
                answer.as_ref().is_ok_and(|answer| answer.starts_with("pod1 ")),
                "{from:?} {protocol:?} {to}: {answer:?}"
            );
        }
    }
    drop(server);
    chain.del(PodInterface::of("pod1"), &result);
    quiet.del(PodInterface::of("pod2"), &neighbour);
    for protocol in PROTOCOLS {
        assert!(is_silent(&stage.site, At::Pod("outside"), protocol, "192.0.2.1:8080"));
    }
    assert_eq!(super::rules(stage), [""; 0]);
}

fn a_published_port_answers_from_everywhere_by_iptables(stage: &Stage) {
    answers_from_everywhere(stage, "iptables");
}

fn a_published_port_answers_from_everywhere_by_nftables(stage: &Stage) {
    answers_from_everywhere(stage, "nftables");
}

fn a_port_of_one_address_answers_on_that_address_only(stage: &Stage) {
    uplink(stage);
    for backend in ["iptables", "nftables"] {
        stage.site.pod("pod1");
        let mapping =
            json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": "192.0.2.11"}]);
        let chain = chain(stage, json!({"backend": backend}), mapping);
        let result = chain.add(PodInterface::of("pod1"));
        let server = Server::start(&stage.site, At::Pod("pod1"), "pod1", "[::]:80");
        let to = |to| ask(&stage.site, At::Pod("outside"), Protocol::Tcp, to);
        assert_eq!(to("192.0.2.11:8080"), Ok(format!("pod1 {OUTSIDE}")), "{backend}");
        assert!(is_silent(&stage.site, At::Pod("outside"), Protocol::Tcp, "192.0.2.1:8080"), "{backend}");
        drop(server);
        chain.del(PodInterface::of("pod1"), &result);
        stage.site.remove_pod("pod1");
    }
}

fn masquerading_all(stage: &Stage, backend: &str) {
    uplink(stage);
    stage.site.pod("pod1");
    let chain = chain(stage, json!({"backend": backend, "masqAll": true}), both_protocols(8080, 80));
    chain.add(PodInterface::of("pod1"));
    let _server = Server::start(&stage.site, At::Pod("pod1"), "pod1", "[::]:80");
    for protocol in PROTOCOLS {
        let answer = ask(&stage.site, At::Pod("outside"), protocol, "192.0.2.1:8080");
        assert_eq!(answer, Ok("pod1 10.22.0.1".to_owned()), "{protocol:?}");
        let answer = ask(&stage.site, At::Pod("outside"), protocol, "[fd00:2::1]:8080");
        // A new bridge looks for doubles of its address first; until then the host uses another one.
        let host = ["fd00:22::1", "fd00:2::1"].map(|address| Ok(format!("pod1 {address}")));
        assert!(host.contains(&answer), "{protocol:?} {answer:?}");
    }
}

fn masquerading_all_hides_who_asks_by_iptables(stage: &Stage) {
    masquerading_all(stage, "iptables");
}

fn masquerading_all_hides_who_asks_by_nftables(stage: &Stage) {
    masquerading_all(stage, "nftables");
}

fn who_asks_from_outside_is_seen(stage: &Stage) {
    uplink(stage);
    for backend in ["iptables", "nftables"] {
        stage.site.pod("pod1");
        let chain = chain(stage, json!({"backend": backend}), both_protocols(8080, 80));
        let result = chain.add(PodInterface::of("pod1"));
        let server = Server::start(&stage.site, At::Pod("pod1"), "pod1", "[::]:80");
        for protocol in PROTOCOLS {
            let answer = ask(&stage.site, At::Pod("outside"), protocol, "192.0.2.1:8080");
            assert_eq!(answer, Ok(format!("pod1 {OUTSIDE}")), "{backend} {protocol:?}");
        }
        drop(server);
        chain.del(PodInterface::of("pod1"), &result);
        stage.site.remove_pod("pod1");
    }
}

/// The kernel remembers where packets of a client went; without forgetting, they would go to a pod that is gone.
fn the_next_pod_on_a_port_of_udp_answers_at_once(stage: &Stage) {
    uplink(stage);
    // One client for all: a process that another test starts at this moment would hold a closed one's port.
    let socket = stage.site.inside_pod("outside", || std::net::UdpSocket::bind("192.0.2.2:5555").unwrap());
    socket.set_read_timeout(Some(std::time::Duration::from_secs(3))).unwrap();
    for backend in ["iptables", "nftables"] {
        let chain = chain(stage, json!({"backend": backend}), both_protocols(8080, 80));
        for pod in ["pod1", "pod2"] {
            stage.site.pod(pod);
            let result = chain.add(PodInterface::of(pod));
            let server = Server::start(&stage.site, At::Pod(pod), pod, "0.0.0.0:80");
            socket.send_to(b"?", "192.0.2.1:8080").unwrap();
            let mut buffer = [0; 64];
            let length = socket.recv(&mut buffer).unwrap_or_else(|error| panic!("{backend} {pod}: {error}"));
            let answer = String::from_utf8_lossy(&buffer[..length]);
            assert_eq!(answer, format!("{pod} {OUTSIDE}"), "{backend}");
            drop(server);
            chain.del(PodInterface::of(pod), &result);
            stage.site.remove_pod(pod);
        }
    }
}
