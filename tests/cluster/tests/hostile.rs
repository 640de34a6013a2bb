//! A lease is an input from outside: foolish and hostile ones are ignored whole, named and counted.

use std::collections::BTreeMap;

use cluster_tests::{
    Cluster, PeerLease, Picture, VXLAN, metrics, ping_all, readyz, state, vxlan_mac, wait_until,
};
use flannel_lab::Node;
use serde_json::json;

/// The pod network holds the LAN, so that a lease can ask for the LAN.
const WIDE: &str =
    r#"{"Network":"10.0.0.0/8","SubnetLen":24,"SubnetMin":"10.244.0.0","Backend":{"Type":"vxlan"}}"#;
const MAC: &str = "0e:00:00:00:00:66";

/// One bad lease, and how it is refused.
struct Bad {
    lease: PeerLease,
    /// What the note ends with.
    why: String,
    /// The label of its count.
    label: &'static str,
}

fn bad(lease: PeerLease, label: &'static str, why: impl Into<String>) -> Bad {
    Bad { lease, why: why.into(), label }
}

fn evil(key: &str) -> PeerLease {
    PeerLease::vxlan(key, &format!("evil-{key}"), "10.0.0.66", MAC)
}

/// Leases that would take packets away, each for another reason.
fn takers(cluster: &Cluster, node: &Node) -> Vec<Bad> {
    let (own, peer) = (cluster.leases().subnet_of(node.name()), cluster.leases().subnet_of("worker2"));
    let half = |subnet: &str| subnet.replace("/24", "-25");
    let (own_half, peer_half) = (half(&own), half(&peer));
    let shown = |key: &str| key.replace('-', "/");
    vec![
        bad(evil("192.168.0.0-24"), "outside_network", "192.168.0.0/24 is outside of the pod network"),
        bad(
            evil(&own_half),
            "overlaps_ours",
            format!("{} overlaps this node's own subnet", shown(&own_half)),
        ),
        bad(
            evil(&peer_half),
            "overlaps_peer",
            format!("{} overlaps the lease of worker2, which was here first", shown(&peer_half)),
        ),
        bad(
            evil("10.0.0.0-24"),
            "connected_network",
            "it takes packets from 10.0.0.0/24, which eth0 is connected to",
        ),
        bad(
            evil("10.0.0.0-16"),
            "connected_network",
            "it takes packets from 10.0.0.0/24, which eth0 is connected to",
        ),
        bad(evil("10.0.0.0-8"), "outside_network", "10.0.0.0/8 is outside of the pod network"),
    ]
}

/// Leases that pretend to be somebody.
fn impostors(node: &Node, peer: &Node) -> Vec<Bad> {
    let (own, theirs) = (vxlan_mac(node, "flannel.1"), vxlan_mac(peer, "flannel.1"));
    let mac = |mac: &str| json!({ "VNI": 1, "VtepMAC": mac });
    vec![
        bad(
            evil("10.250.1.0-24").with("BackendData", mac(&own)),
            "our_mac",
            format!("hardware address {own} is this node's own"),
        ),
        bad(
            evil("10.250.2.0-24").with("BackendData", mac(&theirs)),
            "peers_mac",
            format!("hardware address {theirs} is that of worker2, which was here first"),
        ),
        bad(
            evil("10.250.3.0-24").with("PublicIP", json!("10.0.0.21")),
            "our_public_address",
            "public address 10.0.0.21 is this node's own",
        ),
        bad(
            evil("10.250.4.0-24").with("PublicIP", json!("10.250.4.9")),
            "public_address_in_subnet",
            "public address 10.250.4.9 lies inside its own subnet",
        ),
        bad(
            evil("10.250.5.0-24").with("PublicIP", json!("255.255.255.255")),
            "bad_public_address",
            "public address 255.255.255.255 cannot be a node's",
        ),
        bad(
            evil("10.250.6.0-24").with("BackendData", mac("ff:ff:ff:ff:ff:ff")),
            "bad_detail",
            "its backend data cannot be used: VtepMAC ff:ff:ff:ff:ff:ff cannot be a device's",
        ),
        bad(
            evil("10.250.7.0-24").with("BackendType", json!("wireguard")),
            "other_backend",
            "it speaks wireguard",
        ),
    ]
}

/// Files that hold no lease at all.
const GARBAGE: [(&str, &str); 5] = [
    ("0.0.0.0-0", r#"{"PublicIP":"10.0.0.66","PublicIPv6":null,"BackendType":"vxlan"}"#),
    ("10.251.1.0-24", "{"),
    ("10.251.2.0-24", ""),
    ("10.251.3.0-24", r#"{"PublicIP":"nowhere","PublicIPv6":null}"#),
    ("not-a-subnet", r#"{"PublicIP":"10.0.0.66","PublicIPv6":null}"#),
];

fn notes_hold(node: &Node, wanted: &[String]) {
    wait_until("every bad lease to be named", || {
        let (code, lines) = readyz(node);
        let notes: Vec<String> = serde_json::from_value(state(node)["notes"].clone()).unwrap_or_default();
        for want in wanted {
            let named = |line: &String| line.contains(want.as_str());
            if code != 200 || !lines.iter().any(named) || !notes.iter().any(named) {
                return Err(format!("{want} is not in {code} {lines:#?} or {notes:#?}"));
            }
        }
        Ok(())
    });
}

#[test]
fn hostile_leases_are_ignored_named_and_counted_and_change_nothing() {
    let cluster = Cluster::running("hostile", WIDE);
    let (node, peer) = (cluster.node("worker1"), cluster.node("worker2"));
    let before = Picture::of(node);
    let all: Vec<Bad> = takers(&cluster, node).into_iter().chain(impostors(node, peer)).collect();
    let mut counts = BTreeMap::new();
    for Bad { lease, label, .. } in &all {
        cluster.leases().write(lease);
        *counts.entry(format!("reason={label}")).or_insert(0.0) += 1.0;
    }
    GARBAGE.iter().for_each(|(key, text)| cluster.leases().write_text(key, text));

    let refusal = |bad: &Bad| {
        format!(
            "lease of evil-{} ({}) is ignored: {}",
            bad.lease.key,
            bad.lease.key.replace('-', "/"),
            bad.why
        )
    };
    let garbage = GARBAGE.iter().map(|(key, _)| format!("/leases/{key}.json "));
    notes_hold(node, &all.iter().map(refusal).chain(garbage).collect::<Vec<_>>());
    assert_eq!(metrics(node).labelled("flannel_peers_ignored"), counts);
    assert_eq!(metrics(node).get("flannel_peers"), 3.0);
    assert_eq!(before.changes_to(&Picture::of(node)), [] as [&str; 0]);
    ping_all(&cluster.nodes().iter().collect::<Vec<_>>());

    all.iter().for_each(|bad| cluster.leases().remove(&bad.lease.key));
    GARBAGE.iter().for_each(|(key, _)| cluster.leases().remove(key));
    wait_until("all to be forgotten", || {
        let lines = readyz(node).1;
        if lines == ["flanneld is ready"] { Ok(()) } else { Err(lines.join("\n")) }
    });
    assert_eq!(metrics(node).labelled("flannel_peers_ignored"), BTreeMap::new());
}

/// The same in IPv6: the pod network holds the LAN fd00:10::/64.
const WIDE6: &str = r#"{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fd00::/16","IPv6SubnetLen":64,"IPv6SubnetMin":"fd00:244::","Backend":{"Type":"vxlan"}}"#;

fn evil6(subnet: &str, public: &str, mac: &str) -> PeerLease {
    let lease =
        evil(&format!("0.0.0.0-0&{subnet}")).without("BackendData").with("PublicIP", json!("0.0.0.0"));
    let lease = lease.with("Owner", json!(format!("evil-{subnet}")));
    lease.with("PublicIPv6", json!(public)).with("BackendV6Data", json!({ "VNI": 1, "VtepMAC": mac }))
}

#[test]
fn hostile_leases_of_ipv6_are_ignored_named_and_counted_and_change_nothing() {
    let cluster = Cluster::running("hostile6", WIDE6);
    let (node, peer) = (cluster.node("worker1"), cluster.node("worker2"));
    let (before, nobody) = (Picture::of(node), "fd00:10::66");
    let own = cluster.leases().subnet6_of("worker1").replace("/64", "-80");
    let (own_mac, their_mac) = (vxlan_mac(node, "flannel-v6.1"), vxlan_mac(peer, "flannel-v6.1"));
    let all = [
        (evil6("2001:db8::-64", nobody, MAC), "outside_network", "outside of the pod network"),
        (evil6(&own, nobody, MAC), "overlaps_ours", "overlaps this node's own subnet"),
        (evil6("fd00:10::-64", nobody, MAC), "connected_network", "which eth0 is connected to"),
        (evil6("fd00:250:0:1::-64", nobody, &own_mac), "our_mac", "is this node's own"),
        (evil6("fd00:250:0:2::-64", nobody, &their_mac), "peers_mac", "worker2, which was here first"),
        (
            evil6("fd00:250:0:3::-64", "fd00:10::21", MAC),
            "our_public_address",
            "fd00:10::21 is this node's own",
        ),
        (evil6("fd00:250:0:4::-64", "ff02::1", MAC), "bad_public_address", "ff02::1 cannot be a node's"),
    ];
    all.iter().for_each(|(lease, ..)| cluster.leases().write(lease));
    let named = all.iter().flat_map(|(lease, _, why)| [lease.value["Owner"].as_str().unwrap(), why]);
    notes_hold(node, &named.map(str::to_owned).collect::<Vec<_>>());
    let counts: BTreeMap<_, _> = all.iter().map(|(_, label, _)| (format!("reason={label}"), 1.0)).collect();
    assert_eq!(metrics(node).labelled("flannel_peers_ignored"), counts);
    assert_eq!(before.changes_to(&Picture::of(node)), [] as [&str; 0]);
    ping_all(&cluster.nodes().iter().collect::<Vec<_>>());
}

#[test]
fn a_peer_with_the_public_address_of_another_is_followed_with_a_warning() {
    let cluster = Cluster::flat("same-ip", 1, VXLAN);
    cluster.start(&["master1"]);
    let node = cluster.node("master1");
    let twin = |n: u8| {
        let lease = PeerLease::vxlan(
            &format!("10.244.{n}.0-24"),
            &format!("twin{n}"),
            "10.0.0.77",
            &format!("0e:00:00:00:00:0{n}"),
        );
        lease.with("Since", json!(u64::MAX / 2 + u64::from(n)))
    };
    cluster.leases().write(&twin(7));
    cluster.leases().write(&twin(8));
    wait_until("both to be followed", || {
        let peers = metrics(node).get("flannel_peers");
        if peers == 2.0 { Ok(()) } else { Err(node.log()) }
    });
    let warning = "twin7 and twin8 both announce 10.0.0.77";
    wait_until("the warning to be told", || {
        let log = node.log();
        let told = log.lines().filter(|line| line.contains(" WARN ") && line.contains(warning)).count();
        if told == 1 { Ok(()) } else { Err(log) }
    });
    let picture = Picture::of(node);
    assert_eq!(picture.lines("fdb ").iter().filter(|line| line.contains(" dst 10.0.0.77 ")).count(), 2);
}
