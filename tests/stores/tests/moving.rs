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
/// Folders that all nodes see.
const FILES: &str = "/var/lib/flannel-store/files";
const MORE_FILES: &str = "/var/lib/flannel-store/more-files";

/// Runs flannelctl on a node.
fn flannelctl(node: &Node, words: &[&str]) -> Result<String, String> {
    let program: PathBuf = flanneld_path().with_file_name("flannelctl");
    node.run(&program.display().to_string(), words).map_err(|why| why.to_string())
}

/// Restarts every daemon on another store, one after the other, and sees that nobody else notices.
fn move_all(fleet: &Fleet, store: &[&str]) {
    let watches: Vec<_> = fleet.nodes().iter().map(Watch::begin).collect();
    let pods = fleet.pods().unwrap();
    let flood = PingFlood::begin(&pods[0], pods[2].address());
    let before: Vec<_> = fleet.nodes().iter().map(|node| node.pod_subnet().unwrap()).collect();
    for node in fleet.nodes() {
        node.stop_flanneld(Signal::TERM).unwrap();
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
    let files = fleet.store().join("files");
    fs::create_dir(&files).unwrap();
    fs::write(files.join("config.json"), VXLAN_DUAL).unwrap();
    fleet.nodes().iter().for_each(|node| node.start_on_store(["--lease-dir", FILES]).unwrap());
    fleet.settled();
    let node = fleet.node("master1");
    let run = |words: &[&str]| flannelctl(node, words).unwrap();
    // Files to etcd.
    run(&["store", "export", "--lease-dir", FILES, "--to", "/run/first.json"]);
    let said = run(&["store", "import", "--etcd-endpoints", ETCD, "/run/first.json"]);
    assert_eq!(said, format!("the net-conf and 3 leases are in etcd {ETCD} below /coreos.com/network\n"));
    let leases = fleet.etcd().unwrap().leases().unwrap();
    let lives = leases.iter().map(|lease| fleet.etcd().unwrap().time_to_live(lease.lease).unwrap());
    assert!(leases.len() == 3 && lives.into_iter().all(|life| life > 80_000), "{leases:?}");
    move_all(&fleet, &["--etcd-endpoints", ETCD]);
    // Again is harmless, and etcd to other files.
    run(&["store", "import", "--etcd-endpoints", ETCD, "/run/first.json"]);
    fs::create_dir(fleet.store().join("more-files")).unwrap();
    run(&["store", "export", "--etcd-endpoints", ETCD, "--to", "/run/second.json"]);
    run(&["store", "import", "--lease-dir", MORE_FILES, "/run/second.json"]);
    move_all(&fleet, &["--lease-dir", MORE_FILES]);
    // What says something else stays.
    let export = node.path("/run/second.json");
    let other = fs::read_to_string(&export).unwrap().replace("vxlan", "host-gw");
    fs::write(&export, other).unwrap();
    let refused =
        flannelctl(node, &["store", "import", "--lease-dir", MORE_FILES, "/run/second.json"]).unwrap_err();
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
