//! Peers that leave, return and change, peers of other makes, and what Go flannel left behind: exactly the changes
//! that each needs, and nothing stale.

use std::time::Duration;

use cluster_tests::{Cluster, PeerLease, Picture, VXLAN, metrics, readyz, state, wait_until};
use flannel_lab::{Node, Signal};
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(60);
const MAC: &str = "0e:00:00:00:00:07";
const OTHER_MAC: &str = "0e:00:00:00:00:08";

/// A peer that holds 10.244.N.0/24.
fn peer(n: u8, public: &str, mac: &str) -> PeerLease {
    PeerLease::vxlan(&format!("10.244.{n}.0-24"), "ghost", public, mac)
}

fn entry(public: &str, mac: &str) -> String {
    format!("fdb {mac} dev flannel.1 dst {public} self extern_learn permanent")
}

fn neighbour(n: u8, mac: &str) -> String {
    format!("neighbour 10.244.{n}.0 dev flannel.1 lladdr {mac} PERMANENT proto 70")
}

fn route(n: u8) -> String {
    format!("route 10.244.{n}.0/24 via 10.244.{n}.0 dev flannel.1 proto 70 onlink")
}

/// The three objects of a peer.
fn objects(n: u8, public: &str, mac: &str) -> Vec<String> {
    vec![entry(public, mac), neighbour(n, mac), route(n)]
}

/// Waits until a node has changed from a picture by exactly this.
fn changes(node: &Node, before: &Picture, gone: &[String], new: &[String]) {
    let gone = gone.iter().map(|line| format!("- {line}"));
    let expected: Vec<_> = gone.chain(new.iter().map(|line| format!("+ {line}"))).collect();
    wait_until("exactly the expected changes", || {
        let found = before.changes_to(&Picture::of(node));
        if found == expected {
            Ok(())
        } else {
            Err(format!("{found:#?} is not {expected:#?}\n{}", node.log()))
        }
    });
}

/// A node with flanneld and no peer.
fn lonely(name: &str) -> Cluster {
    let cluster = Cluster::flat(name, 1, VXLAN);
    cluster.start(&["master1"]);
    cluster
}

/// Whether flanneld sees a peer change, or finds it changed.
#[derive(Clone, Copy)]
enum Flanneld {
    Runs,
    IsDownMeanwhile,
}

fn meanwhile(node: &Node, flanneld: Flanneld, change: impl FnOnce()) {
    match flanneld {
        Flanneld::Runs => change(),
        Flanneld::IsDownMeanwhile => {
            node.flanneld().stop(Signal::KILL).unwrap();
            change();
            node.start_flanneld([] as [&str; 0]).unwrap();
            node.wait_ready(PATIENCE).unwrap();
        }
    }
}

fn comes_goes_and_changes(flanneld: Flanneld) {
    let cluster = lonely("peers");
    let (node, leases) = (cluster.node("master1"), cluster.leases());
    let (alone, none) = (Picture::of(node), &[][..]);
    let (old_ip, new_ip) = ("10.0.0.77", "10.0.0.78");

    meanwhile(node, flanneld, || leases.write(&peer(7, old_ip, MAC)));
    changes(node, &alone, none, &objects(7, old_ip, MAC));

    let before = Picture::of(node);
    meanwhile(node, flanneld, || leases.write(&peer(7, new_ip, MAC)));
    changes(node, &before, &[entry(old_ip, MAC)], &[entry(new_ip, MAC)]);

    let before = Picture::of(node);
    meanwhile(node, flanneld, || leases.write(&peer(7, new_ip, OTHER_MAC)));
    let (gone, new) =
        ([entry(new_ip, MAC), neighbour(7, MAC)], [entry(new_ip, OTHER_MAC), neighbour(7, OTHER_MAC)]);
    changes(node, &before, &gone, &new);

    let before = Picture::of(node);
    meanwhile(node, flanneld, || {
        leases.remove("10.244.7.0-24");
        leases.write(&peer(9, new_ip, OTHER_MAC));
    });
    changes(node, &before, &[neighbour(7, OTHER_MAC), route(7)], &[neighbour(9, OTHER_MAC), route(9)]);

    meanwhile(node, flanneld, || leases.remove("10.244.9.0-24"));
    changes(node, &alone, none, none);
    assert_eq!(metrics(node).sum("flannel_repairs_total"), 0.0, "{}", node.log());
}

#[test]
fn a_peer_that_comes_moves_changes_and_leaves_costs_exactly_those_changes() {
    comes_goes_and_changes(Flanneld::Runs);
}

#[test]
fn a_peer_that_came_moved_changed_and_left_while_flanneld_was_down_leaves_nothing_stale() {
    comes_goes_and_changes(Flanneld::IsDownMeanwhile);
}

#[test]
fn silence_is_not_absence_when_all_leases_vanish_with_their_folder() {
    let cluster = lonely("silence");
    let node = cluster.node("master1");
    cluster.leases().write(&peer(7, "10.0.0.77", MAC));
    wait_until("the peer to be followed", || {
        if Picture::of(node).has(&route(7)) { Ok(()) } else { Err(node.log()) }
    });
    let before = Picture::of(node);
    std::fs::rename(cluster.store().join("leases"), cluster.store().join("away")).unwrap();
    wait_until("the loss to be told", || {
        let notes = state(node)["notes"].to_string();
        if notes.contains("has vanished with all leases") { Ok(()) } else { Err(notes) }
    });
    assert_eq!(before.changes_to(&Picture::of(node)), [] as [&str; 0]);
    std::fs::rename(cluster.store().join("away"), cluster.store().join("leases")).unwrap();
    wait_until("the loss to be over", || {
        let notes = state(node)["notes"].to_string();
        if notes == "[]" { Ok(()) } else { Err(notes) }
    });
    assert_eq!(before.changes_to(&Picture::of(node)), [] as [&str; 0]);
    assert_eq!(readyz(node).1, ["flanneld is ready"]);
}

#[test]
fn peers_of_an_old_go_flannel_and_of_windows_are_followed() {
    let cluster = lonely("makes");
    let (node, leases) = (cluster.node("master1"), cluster.leases());
    let alone = Picture::of(node);
    let old = peer(7, "10.0.0.77", MAC).with("BackendData", json!({ "VtepMAC": MAC }));
    let windows = peer(8, "10.0.0.78", OTHER_MAC)
        .with("BackendData", json!({ "VNI": 4096, "VtepMAC": OTHER_MAC }))
        .with("Owner", json!("windows"));
    leases.write(&old.without("Owner").without("Since"));
    leases.write(&windows);
    let mut new = [objects(7, "10.0.0.77", MAC), objects(8, "10.0.0.78", OTHER_MAC)].concat();
    new.sort();
    changes(node, &alone, &[], &new);
    assert_eq!(readyz(node).1, ["flanneld is ready"]);
}

/// What a node with a pod becomes when its subnet is another's.
#[test]
fn a_node_that_lost_its_subnet_reaches_the_new_owner_when_its_last_old_pod_is_gone() {
    let cluster = lonely("old-gateway");
    let (node, leases) = (cluster.node("master1"), cluster.leases());
    let ((old_key, _), old) = (leases.owned_by("master1"), leases.subnet_of("master1"));
    let pod = node.add_pod("old1").unwrap();
    node.flanneld().stop(Signal::TERM).unwrap();
    leases.remove(&old_key);
    leases.write(&PeerLease::vxlan(&old_key, "ghost", "10.0.0.77", MAC));
    node.start_flanneld([] as [&str; 0]).unwrap();
    wait_until("another subnet", || {
        let owners = leases.all();
        let has_one =
            |(key, lease): &(String, serde_json::Value)| *key != old_key && lease["Owner"] == "master1";
        if owners.iter().any(has_one) { Ok(()) } else { Err(format!("{owners:?}\n{}", node.log())) }
    });
    node.wait_ready(PATIENCE).unwrap();
    wait_until("the old gateway to be named with a way out", || {
        let (_, body) = node.http_get(8081, "/readyz").map_err(|why| why.to_string())?;
        let way_out = format!("`ip addr del {} dev cni0`", old.replace(".0/", ".1/"));
        if body.contains(&way_out) { Ok(()) } else { Err(body) }
    });
    let _new = node.add_pod("new1").unwrap();
    pod.remove().unwrap();
    wait_until("a route to the new owner", || {
        let routes = node.ip(&format!("route show {old}")).map_err(|why| why.to_string())?;
        if routes.contains("dev flannel.1") { Ok(()) } else { Err(format!("{routes}\n{}", node.log())) }
    });
    let gateways = node.ip("-o -4 addr show dev cni0").unwrap();
    assert_eq!(gateways.lines().count(), 1, "{gateways}");
}
