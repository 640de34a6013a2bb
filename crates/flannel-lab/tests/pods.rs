//! Pods of the lab, which the real CNI plugins attach to a node that stands still. Needs root.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;

use flannel_lab::{Flanneld, Lab, LabOptions, Node, Pod, Topology, unique_name};

/// A lab of one node, without pods.
fn one_node(name: &str) -> Lab {
    let topology = Topology::flat(1).unwrap();
    let flanneld = Flanneld::NotStarted;
    Lab::up(LabOptions { name: unique_name(name), topology, flanneld, ..LabOptions::default() }).unwrap()
}

/// Writes what flanneld writes.
fn give_subnet(node: &Node) {
    let env = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_IPV6_NETWORK=fd00:244::/48\n\
         FLANNEL_IPV6_SUBNET=fd00:244:0:1::1/64\nFLANNEL_MTU=1430\nFLANNEL_IPMASQ=false\n";
    fs::create_dir_all(node.path("/run/flannel")).unwrap();
    fs::write(node.path("/run/flannel/subnet.env"), env).unwrap();
}

fn addresses(pod: &Pod<'_>) -> Vec<String> {
    pod.addresses().map(|address| address.to_string()).collect()
}

fn names(node: &Node) -> Vec<String> {
    node.pods().unwrap().iter().map(|pod| pod.name().to_owned()).collect()
}

/// What the plugins and their runtime keep on the node's disk: records, and addresses that are taken.
fn kept(node: &Node) -> Vec<String> {
    let list = |folder: &str| {
        let entries = fs::read_dir(node.disk_path(folder)).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    let taken = list("/var/lib/cni/networks/cbr0").into_iter().filter(|name| name.starts_with(['1', 'f']));
    let mut kept: Vec<_> = taken.chain(list("/var/lib/cni/results")).collect();
    kept.sort();
    kept
}

#[test]
fn pods_get_the_next_addresses_of_the_subnet_that_flanneld_wrote() {
    let lab = one_node("pods");
    let node = lab.node("master1").unwrap();
    give_subnet(node);
    let (web, db) = (node.add_pod("web").unwrap(), node.add_pod("db").unwrap());
    assert_eq!(addresses(&web), ["10.244.1.2", "fd00:244:0:1::2"]);
    assert_eq!(addresses(&db), ["10.244.1.3", "fd00:244:0:1::3"]);
    db.addresses().for_each(|address| assert!(web.ping(address).is_ok()));
    web.ping(web.address()).unwrap();
    web.ping(node.v4()).unwrap();
    assert!(web.run("ip", ["-o", "link", "show", "eth0"]).unwrap().contains("mtu 1430"));
    assert!(db.run("ip", ["route"]).unwrap().contains("10.244.0.0/16 via 10.244.1.1"));
}

#[test]
fn a_pod_that_is_removed_gives_everything_back() {
    let lab = one_node("removed");
    let node = lab.node("master1").unwrap();
    give_subnet(node);
    let (web, _db) = (node.add_pod("web").unwrap(), node.add_pod("db").unwrap());
    web.remove().unwrap();
    assert_eq!(names(node), ["db"]);
    let of_db = ["10.244.1.3", "cbr0-db-eth0", "cni-loopback-db-lo", "fd00:244:0:1::3"];
    assert_eq!(kept(node), of_db);
    let ports = node.ip("-o link show master cni0").unwrap();
    assert_eq!(ports.lines().count(), 1, "{ports}");
}

#[test]
fn a_pod_that_lost_its_power_gives_its_addresses_back_when_the_next_starts() {
    let lab = one_node("power");
    let node = lab.node("master1").unwrap();
    give_subnet(node);
    node.add_pod("web").unwrap();
    node.power_off().unwrap();
    node.power_on().unwrap();
    give_subnet(node);
    let web = node.add_pod("web").unwrap();
    let [v4, v6] = <[String; 2]>::try_from(addresses(&web)).unwrap();
    assert_eq!(kept(node), [v4, "cbr0-web-eth0".into(), "cni-loopback-web-lo".into(), v6]);
}

#[test]
fn a_pod_that_cannot_be_attached_leaves_nothing() {
    let lab = one_node("failed");
    let node = lab.node("master1").unwrap();
    give_subnet(node);
    fs::create_dir_all(node.disk_path("/opt/cni/bin")).unwrap();
    std::os::unix::fs::symlink("/bin/false", node.disk_path("/opt/cni/bin/portmap")).unwrap();
    let failed = node.add_pod("web").unwrap_err().to_string();
    assert!(
        failed.starts_with(
            "cannot attach web on master1: plugin type=\"portmap\" failed (add): \
             netplugin failed with no error message: exit status 1"
        ),
        "{failed}"
    );
    assert_eq!((names(node), kept(node)), (vec![], vec![]));
    assert_eq!(node.ip("-o link show master cni0").unwrap(), "");
    assert_eq!(node.run("ip", ["netns"]).unwrap(), "");
}
