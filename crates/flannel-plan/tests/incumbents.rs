//! Of two peers that claim the same the one that was followed first is right; and which addresses no peer can have.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::Arc;

use flannel_plan::family::ByFamily;
use flannel_plan::inputs::Inputs;
use flannel_plan::lease::{Announcement, BackendData, Lease};
use flannel_plan::peers::{judge, newcomers};
use flannel_plan::report::NodeReport;

/// A node at 10.0.0.1/24 and fd00:1::1/64 with a pod network of both families and no peers.
fn node() -> Inputs {
    let report = include_str!("../../../fuzz/seeds/state_json/vxlan-dual");
    let (report, _) = NodeReport::read(report.as_bytes()).unwrap();
    Inputs { peers: Vec::new(), ..report.inputs.unwrap().into_owned() }
}

fn lease(owner: &str, third: u8, mac: u8, since: u64) -> Lease {
    let data = format!(r#"{{"VNI":1,"VtepMAC":"02:00:00:00:00:{mac:02x}"}}"#);
    let announcement = Announcement {
        public: ByFamily { v4: Some([10, 0, 0, third].into()), v6: None },
        backend: "vxlan".to_owned(),
        detail: ByFamily { v4: BackendData::from_json(&data).unwrap(), v6: None },
    };
    let subnets = ByFamily { v4: format!("10.244.{third}.0/24").parse().ok(), v6: None };
    Lease { owner: owner.to_owned(), subnets, announcement, since }
}

/// Plans one list of leases after the other; gives who is followed at the end.
fn followed<const N: usize>(lists: [Vec<&Lease>; N]) -> Vec<String> {
    let mut inputs = node();
    for list in lists {
        let peers: Vec<_> = list.into_iter().cloned().map(Arc::new).collect();
        inputs.newcomers = newcomers(&inputs.peers, &inputs.newcomers, &peers);
        inputs.peers = peers;
        inputs.newcomers = judge(&inputs, inputs.peers.iter().map(|lease| &**lease)).newcomers;
    }
    let judged = judge(&inputs, inputs.peers.iter().map(|lease| &**lease));
    judged.peers.iter().map(|peer| peer.lease.owner.clone()).collect()
}

#[test]
fn a_followed_peer_keeps_its_mac_against_an_older_lease() {
    let (victim, impostor) = (&lease("victim", 7, 7, 90), &lease("impostor", 8, 7, 1));
    assert_eq!(followed([vec![victim], vec![victim, impostor]]), ["victim"]);
    // A lease that is refused is followed when the other one goes, and then it is the one that was here first.
    assert_eq!(followed([vec![victim], vec![victim, impostor], vec![impostor]]), ["impostor"]);
    assert_eq!(followed([vec![victim], vec![impostor], vec![victim, impostor]]), ["impostor"]);
}

#[test]
fn of_two_that_are_equally_new_the_older_is_followed() {
    let (young, old, other) = (&lease("young", 7, 7, 90), &lease("old", 8, 7, 1), &lease("other", 9, 9, 5));
    assert_eq!(followed([vec![young, old]]), ["old"]);
    assert_eq!(followed([vec![other], vec![young, old, other]]), ["old", "other"]);
}

#[test]
fn a_peer_with_a_new_device_keeps_its_subnet_against_an_older_lease() {
    let (victim, mut impostor) = (&lease("victim", 7, 7, 90), lease("impostor", 7, 8, 1));
    impostor.subnets.v4 = "10.244.7.128/25".parse().ok();
    let renewed = &lease("victim", 7, 9, 90);
    assert_eq!(followed([vec![victim], vec![victim, &impostor], vec![renewed, &impostor]]), ["victim"]);
}

#[test]
fn a_peer_cannot_take_the_mac_of_another_by_changing_its_own() {
    let (a, b, copy) = (&lease("a", 7, 7, 90), &lease("b", 8, 8, 1), &lease("b", 8, 7, 1));
    assert_eq!(followed([vec![a, b], vec![a, copy]]), ["a"]);
}

#[test]
fn an_address_that_stands_for_a_network_or_belongs_to_pods_is_no_peers() {
    let told = |v4: Option<&str>, v6: Option<&str>| {
        let mut peer = lease("odd", 7, 7, 1);
        peer.announcement.public =
            ByFamily { v4: v4.map(|ip| ip.parse().unwrap()), v6: v6.map(|ip| ip.parse().unwrap()) };
        peer.subnets.v6 = "fd00:244:0:7::/64".parse().ok();
        peer.announcement.detail.v6 = peer.announcement.detail.v4.clone();
        let inputs = Inputs { peers: vec![Arc::new(peer)], ..node() };
        let judged = judge(&inputs, inputs.peers.iter().map(|lease| &**lease));
        judged.ignored.first().map(|refusal| refusal.why.to_string())
    };
    assert_eq!(
        told(Some("10.0.0.255"), None).unwrap(),
        "public address 10.0.0.255 is no host's: it stands for 10.0.0.0/24"
    );
    assert_eq!(
        told(Some("10.0.0.0"), None).unwrap(),
        "public address 10.0.0.0 is no host's: it stands for 10.0.0.0/24"
    );
    assert_eq!(
        told(None, Some("fd00:1::")).unwrap(),
        "public address fd00:1:: is no host's: it stands for fd00:1::/64"
    );
    assert_eq!(
        told(Some("10.244.9.9"), None).unwrap(),
        "public address 10.244.9.9 lies inside the pod network"
    );
    assert_eq!(
        told(None, Some("fd00:244:0:9::9")).unwrap(),
        "public address fd00:244:0:9::9 lies inside the pod network"
    );
    // Other networks' are their business, and the last address of an IPv6 network is one as any.
    assert_eq!(told(Some("10.0.1.255"), Some("fd00:1::ffff:ffff:ffff:ffff")), None);
}

#[test]
fn where_this_nodes_own_address_is_one_of_pods_that_of_others_may_be() {
    let mut peer = lease("beside-us", 7, 7, 1);
    peer.announcement.public.v4 = Some([10, 244, 200, 9].into());
    let mut inputs = Inputs { peers: vec![Arc::new(peer)], ..node() };
    inputs.underlay.addresses.v4 = Some([10, 244, 200, 1].into());
    let judged = judge(&inputs, inputs.peers.iter().map(|lease| &**lease));
    assert_eq!((judged.peers.len(), judged.ignored), (1, vec![]));
}
