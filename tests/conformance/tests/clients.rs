//! Real runtimes on our plugins: cnitool, podman and containerd, each on a node of its own.

pub mod cnitool;
pub mod containerd;
pub mod podman;

use std::path::Path;

use conformance_tests::Site;
use conformance_tests::traffic::{At, Protocol, Server, ask, is_silent};
use serde_json::{Value, json};

const SUBNET_ENV: &str =
    "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.3.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n";

/// The network of kube-flannel, in a version.
fn kube_flannel(version: &str) -> Value {
    json!({"name": "cbr0", "cniVersion": version, "plugins": [
        {"type": "flannel", "delegate": {"hairpinMode": true, "isDefaultGateway": true}},
        {"type": "portmap", "capabilities": {"portMappings": true}}]})
}

/// A network without flannel, as podman makes them.
fn bridge(version: &str) -> Value {
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.244.3.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]});
    json!({"name": "cbr0", "cniVersion": version, "plugins": [
        {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true, "ipMasq": true, "ipam": ipam},
        {"type": "portmap", "capabilities": {"portMappings": true}}]})
}

/// A node with a network, and with an uplink to a machine outside.
fn node(network: &Value) -> Site {
    let site = Site::node();
    site.write("/run/flannel/subnet.env", SUBNET_ENV);
    site.write("/etc/cni/net.d/10-flannel.conflist", network.to_string());
    site.pod("outside");
    site.sh("ip link add up0 type veth peer name eth0 netns outside && ip addr add 192.0.2.1/24 dev up0 && \
        ip link set up0 up && ip -n outside addr add 192.0.2.2/24 dev eth0 && ip -n outside link set eth0 up && \
        ip -n outside link set lo up");
    site
}

/// Where the port 8080 of the node answers from: outside, the node, the pod itself.
const ASKED: [(&str, &str); 4] = [
    ("outside", "192.0.2.1:8080"),
    ("host", "192.0.2.1:8080"),
    ("host", "127.0.0.1:8080"),
    ("pod", "192.0.2.1:8080"),
];

fn from<'a>(place: &'a str, pod: &'a Path) -> At<'a> {
    match place {
        "host" => At::Host,
        "pod" => At::Path(pod),
        other => At::Pod(other),
    }
}

/// Does port 80 of a pod answer on port 8080 of the node, to everybody, by both protocols?
#[track_caller]
fn answers(site: &Site, pod: &Path) {
    let _server = Server::start(site, At::Path(pod), "here", "0.0.0.0:80");
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        for (place, to) in ASKED {
            let answer = ask(site, from(place, pod), protocol, to);
            assert!(
                answer.as_ref().is_ok_and(|answer| answer.starts_with("here ")),
                "{place} {to} {protocol:?}: {answer:?}"
            );
        }
    }
}

/// Is nothing left of the pods that were here?
#[track_caller]
fn leaves_nothing(site: &Site) {
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        assert!(is_silent(site, At::Pod("outside"), protocol, "192.0.2.1:8080"), "{protocol:?}");
    }
    let mut devices = site.devices(None);
    devices.sort();
    assert_eq!(devices, ["cni0", "up0"]);
    let chains: Vec<_> = [4, 6].into_iter().flat_map(|family| site.nat_chains(family)).collect();
    assert!(chains.iter().all(|chain| chain.starts_with("CNI-HOSTPORT-")), "{chains:?}");
    let comments: Vec<_> = site.nft().into_iter().filter(|line| line.contains("10.244.3.")).collect();
    assert_eq!(comments, [""; 0]);
    let files = site.files("/var/lib/cni").into_keys();
    let files: Vec<_> =
        files.filter(|path| !path.ends_with("/lock") && !path.contains("last_reserved")).collect();
    assert_eq!(files, [""; 0]);
    assert_eq!(site.sh("ip netns list | grep -v outside || true"), "", "namespaces");
}

/// A folder with the least that a container needs: one program that does everything.
fn busybox(site: &Site) {
    site.sh("mkdir -p /tmp/root/bin && cp $(command -v busybox) /tmp/root/bin/busybox");
}
