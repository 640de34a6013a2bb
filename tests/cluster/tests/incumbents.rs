//! Of two peers that claim the same the one that was followed first stays, however old the other one says it is, and
//! also when the observer starts anew.

use std::fs;

use cluster_tests::{Cluster, PeerLease, Picture, VXLAN, is_ready, readyz, wait_until};
use flannel_lab::Node;
use serde_json::json;

const MAC: &str = "0e:00:00:00:00:07";

/// Older than every lease that a daemon made.
fn older(key: &str, owner: &str, public: &str, mac: &str) -> PeerLease {
    PeerLease::vxlan(key, owner, public, mac).with("Since", json!(1))
}

/// Waits until a node names these as ignored, because of `victim`.
fn wait_ignored(node: &Node, owners: &[&str]) {
    wait_until("the impostors to be named", || {
        let (code, lines) = readyz(node);
        let is_named = |owner: &&str| {
            let begin = format!("lease of {owner} (");
            lines
                .iter()
                .any(|line| line.starts_with(&begin) && line.ends_with("victim, which was here first"))
        };
        if code == 200 && owners.iter().all(is_named) { Ok(()) } else { Err(lines.join("\n")) }
    });
}

/// Waits until the next start will know of these leases.
fn wait_remembered(node: &Node, subnets: &[&str]) {
    wait_until("who is followed to be written down", || {
        let folders = [node.path("/run/flannel"), node.disk_path("/var/lib/flannel")];
        let files = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
        let snapshots = files
            .map(|file| file.path())
            .filter(|path| path.ends_with("run-flannel-subnet.env.snapshot.json"));
        let text: String = snapshots.filter_map(|path| fs::read_to_string(path).ok()).collect();
        if subnets.iter().all(|subnet| text.contains(subnet)) { Ok(()) } else { Err(text) }
    });
}

#[test]
fn who_is_followed_keeps_subnet_and_mac_against_older_leases_also_after_a_restart() {
    let cluster = Cluster::flat("incumbent", 1, VXLAN);
    let (node, leases) = (cluster.node("master1"), cluster.leases());
    leases.write(&PeerLease::vxlan("10.244.7.0-24", "victim", "10.0.0.77", MAC));
    cluster.start(&["master1"]);
    let before = Picture::of(node);
    assert!(before.has("route 10.244.7.0/24 via 10.244.7.0 dev flannel.1 "));

    leases.write(&older("10.244.8.0-24", "copies-mac", "10.0.0.88", MAC));
    leases.write(&older("10.244.7.128-25", "takes-subnet", "10.0.0.99", "0e:00:00:00:00:09"));
    let impostors = ["copies-mac", "takes-subnet"];
    wait_ignored(node, &impostors);
    assert_eq!(before.changes_to(&Picture::of(node)), [] as [&str; 0]);

    wait_remembered(node, &["10.244.8.0/24", "10.244.7.128/25"]);
    node.restart_flanneld().unwrap();
    is_ready(node);
    wait_ignored(node, &impostors);
    assert_eq!(before.changes_to(&Picture::of(node)), [] as [&str; 0]);

    // A new device of the one that was here first is followed; of two that are equally new the older is.
    leases.write(&PeerLease::vxlan("10.244.7.0-24", "victim", "10.0.0.77", "0e:00:00:00:00:0a"));
    wait_until("the victim's new device and the next in line for its old MAC", || {
        let now = Picture::of(node);
        let has = |line: &str| now.has(line);
        let is_right = has("neighbour 10.244.7.0 dev flannel.1 lladdr 0e:00:00:00:00:0a")
            && has("fdb 0e:00:00:00:00:07 dev flannel.1 dst 10.0.0.88")
            && !has("route 10.244.7.128/25");
        if is_right { Ok(()) } else { Err(before.changes_to(&now).join("\n")) }
    });
}
