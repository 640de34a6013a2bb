//! Moving a cluster from one store to another by `flannelctl store`, as docs/stores.md tells, while pods talk.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use cluster_tests::{PingFlood, Toll, VXLAN_DUAL, flanneld_path, is_ready};
use flannel_lab::{Node, Signal};
use serde_json::Value;
use store_tests::{Fleet, Need, Watch, scenarios, tell};

scenarios! {
    &[] => a_cluster_moves_from_files_to_etcd_and_back_and_no_packet_is_lost;
    &[Need::Peers] => the_nodes_of_kubernetes_are_shown_and_exported_and_nothing_is_imported_there;
}

const ETCD: &str = "http://10.0.0.11:2379";
/// What the nodes see of a folder of the lab.
const FILES: &str = "/var/lib/flannel-store";

/// Runs flannelctl on a node.
fn flannelctl(node: &Node, words: &[&str]) -> Result<String, String> {
    let program: PathBuf = flanneld_path().with_file_name("flannelctl");
    node.run(&program.display().to_string(), words).map_err(|why| why.to_string())
}

/// Runs on a node what docs/stores.md says under this name, line by line.
fn as_documented(node: &Node, name: &str) {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/stores.md");
    let text = fs::read_to_string(document).unwrap();
    let block = text.split(&format!("```sh {name}\n")).nth(1).expect(name).split("```").next().unwrap();
    let folder = flanneld_path().parent().unwrap().display().to_string();
    for line in block.lines() {
        node.run("env", [&format!("PATH={folder}:/usr/bin:/bin"), "sh", "-c", line]).unwrap();
    }
}

/// Restarts every daemon on another store, one after the other, and sees that nobody else notices.
fn move_all(fleet: &Fleet, store: &[&str]) {
    let watches: Vec<_> = fleet.nodes().iter().map(Watch::begin).collect();
    let pods = fleet.pods().unwrap();
    let flood = PingFlood::begin(&pods[0], pods[2].address());
    let before: Vec<_> = fleet.nodes().iter().map(|node| node.pod_subnet().unwrap()).collect();
    for node in fleet.nodes() {
        node.flanneld().stop(Signal::TERM).unwrap();
        node.start_on_store(store).unwrap();
        is_ready(node);
    }
    fleet.wait_all_reach();
    let after: Vec<_> = fleet.nodes().iter().map(|node| node.pod_subnet().unwrap()).collect();
    assert_eq!(after, before, "subnets stay");
    watches.iter().for_each(Watch::assert_lost_nothing);
    let Toll { sent, came } = flood.end();
    assert_eq!(came, sent);
    tell(format!("{} nodes now use {}: 0 of {sent} packets were lost", after.len(), store[1]));
}

fn a_cluster_moves_from_files_to_etcd_and_back_and_no_packet_is_lost() {
    let fleet = Fleet::etcd("moving", 3, 1, VXLAN_DUAL);
    fleet.etcd().unwrap().delete("/coreos.com/network/config").unwrap();
    fs::write(fleet.store().join("config.json"), VXLAN_DUAL).unwrap();
    fleet.nodes().iter().for_each(|node| node.start_on_store(["--lease-dir", FILES]).unwrap());
    fleet.settled();
    let (node, etcd) = (fleet.node("master1"), fleet.etcd().unwrap());
    as_documented(node, "move files to etcd");
    let leases = etcd.leases().unwrap();
    let lives = leases.iter().map(|lease| etcd.time_to_live(lease.lease).unwrap());
    assert!(leases.len() == 3 && lives.into_iter().all(|life| life > 80_000), "{leases:?}");
    move_all(&fleet, &["--etcd-endpoints", ETCD]);
    as_documented(node, "move etcd to etcd");
    move_all(&fleet, &["--etcd-endpoints", ETCD, "--etcd-prefix", "/flannel/blue"]);
    // Twice is harmless; what says something else stays.
    as_documented(node, "move etcd to files");
    as_documented(node, "move etcd to files");
    let files = format!("{FILES}/new");
    move_all(&fleet, &["--lease-dir", &files]);
    let export = node.path("/run/cluster.json");
    let other = fs::read_to_string(&export).unwrap().replace("vxlan", "host-gw");
    fs::write(&export, other).unwrap();
    let refused =
        flannelctl(node, &["store", "import", "--lease-dir", &files, "/run/cluster.json"]).unwrap_err();
    assert!(refused.contains("says something else; nothing was written"), "{refused}");
}

fn the_nodes_of_kubernetes_are_shown_and_exported_and_nothing_is_imported_there() {
    let fleet = Fleet::kubernetes("showing", 2, VXLAN_DUAL).running();
    let node = fleet.node("master1");
    let store = ["--kubeconfig-file", "/etc/kube-flannel/kubeconfig"];
    let run = |verb: &[&str], rest: &[&str]| flannelctl(node, &[&["store"], verb, &store, rest].concat());
    let shown = run(&["show"], &[]).unwrap();
    assert!(["master1", "worker1", "10.244.0.0/16"].iter().all(|word| shown.contains(word)), "{shown}");
    let export: Value = serde_json::from_str(&run(&["export"], &[]).unwrap()).unwrap();
    assert_eq!(export["config"]["Network"], "10.244.0.0/16");
    let owners = export["leases"].as_array().unwrap().iter().map(|lease| lease["owner"].as_str().unwrap());
    assert_eq!(owners.collect::<BTreeSet<_>>(), BTreeSet::from(["master1", "worker1"]));
    fs::write(node.path("/run/export.json"), export.to_string()).unwrap();
    let refused = run(&["import"], &["/run/export.json"]).unwrap_err();
    assert!(refused.contains("podCIDR"), "{refused}");
}
