//! Several daemons on one node, and what supervises them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use cluster_tests::{
    Cluster, Daemon, Picture, VXLAN, VXLAN_DUAL, healed, is_ready, metrics, vxlan_mac, wait_until,
};
use flannel_lab::{Node, Signal};

const BLUE: &str = r#"{"Network":"10.99.0.0/16","Backend":{"Type":"vxlan","VNI":9}}"#;

/// A second daemon with a store, a file, a port and a network of its own.
fn blue(node: &Node) -> Daemon {
    let store = ["--lease-dir", "/var/lib/flannel-store/blue"];
    let rest = ["--subnet-file", "/run/flannel/blue.env", "--healthz-port", "8082"];
    Daemon::start(node, &[store.as_slice(), rest.as_slice()].concat())
}

fn blue_is_ready(node: &Node) {
    wait_until("the second daemon to be ready", || match node.http_get(8082, "/readyz") {
        Ok((200, _)) => Ok(()),
        answer => Err(format!("{answer:?}")),
    });
}

#[test]
fn two_daemons_on_one_node_leave_each_others_objects_alone() {
    let cluster = Cluster::flat("side-by-side", 2, VXLAN);
    let names = ["master1", "worker1"];
    fs::create_dir(cluster.store().join("blue")).unwrap();
    fs::write(cluster.store().join("blue/config.json"), BLUE).unwrap();
    cluster.start(&names);
    let node = cluster.node("master1");
    let blues: Vec<_> = names.iter().map(|name| blue(cluster.node(name))).collect();
    names.iter().for_each(|name| blue_is_ready(cluster.node(name)));
    wait_until("both networks to be whole", || {
        let picture = Picture::of(node);
        let whole = picture.lines("fdb ").len() == 2 && picture.lines("neighbour ").len() == 2;
        if whole { Ok(()) } else { Err(format!("{picture:#?}")) }
    });
    let files = ["subnet.env", "state.json", "blue.env", "blue.state.json"];
    files
        .iter()
        .for_each(|file| assert!(fs::exists(node.path(&format!("/run/flannel/{file}"))).unwrap(), "{file}"));
    assert!(
        fs::read_to_string(node.path("/run/flannel/blue.env"))
            .unwrap()
            .starts_with("FLANNEL_NETWORK=10.99.0.0/16\n")
    );

    let before = Picture::of(node);
    for device in ["flannel.1", "flannel.9"] {
        let took = healed(node, device, || _ = node.ip(&format!("link del {device}")).unwrap());
        println!("{device} is back after {took:?}");
    }
    node.restart_flanneld().unwrap();
    is_ready(node);
    assert_eq!(metrics(node).labelled("flannel_changes_total"), BTreeMap::new(), "{}", node.log());
    drop(blues);
    let _again = blue(node);
    blue_is_ready(node);
    assert_eq!(before.changes_to(&Picture::of(node)), [] as [&str; 0]);
    assert_ne!(vxlan_mac(node, "flannel.1"), vxlan_mac(node, "flannel.9"));
}

#[test]
fn a_supervisor_hears_ready_once_the_node_is_wired_and_stopping_at_the_end() {
    let cluster = Cluster::flat("notify", 1, VXLAN_DUAL);
    let node = cluster.node("master1");
    let ear = UnixDatagram::bind(node.path("/run/notify.sock")).unwrap();
    ear.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let hear = || {
        let mut text = [0; 1024];
        let length = ear.recv(&mut text).unwrap();
        String::from_utf8(text[..length].to_vec()).unwrap()
    };
    let mut daemon = Daemon::start_under(node, &[], &[], &[("NOTIFY_SOCKET", "/run/notify.sock")]);
    let mut heard = hear();
    while !heard.contains("READY=1\n") {
        assert!(heard.starts_with("STATUS=not ready: "), "{heard}");
        heard = hear();
    }
    assert!(fs::exists(node.path("/run/flannel/subnet.env")).unwrap());
    daemon.signal(Signal::TERM);
    while heard != "STOPPING=1\n" {
        heard = hear();
    }
    assert_eq!(daemon.ended().0.code(), Some(0));
}
