//! Labs whose leases are in a real etcd.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use flannel_lab::{Etcd, Flanneld, Lab, LabError, LabOptions, Signal, Store, Topology, unique_name};

fn options(name: &str, members: usize) -> LabOptions {
    LabOptions {
        name: unique_name(name),
        topology: Topology::flat(2).unwrap(),
        store: Store::etcd(members),
        flanneld: Flanneld::NotStarted,
        ..LabOptions::default()
    }
}

#[test]
fn an_etcd_holds_the_net_conf_and_every_node_reaches_it() {
    let lab = Lab::up(options("etcd", 1)).unwrap();
    let etcd = lab.etcd().unwrap();
    let entries = etcd.entries(Etcd::PREFIX).unwrap();
    let keys: Vec<_> = entries.iter().map(|entry| (&*entry.key, &*entry.value)).collect();
    assert_eq!(keys, [("/coreos.com/network/config", &*LabOptions::default().net_conf)]);
    for node in lab.nodes() {
        node.ping(lab.servers()[0].v4()).unwrap();
        node.ping(lab.servers()[0].v6()).unwrap();
    }
}

#[test]
fn keys_live_as_long_as_their_lease() {
    let lab = Lab::up(options("etcd-lease", 1)).unwrap();
    let etcd = lab.etcd().unwrap();
    let lease = etcd.grant(600).unwrap();
    etcd.put_with_lease("/coreos.com/network/subnets/10.244.1.0-24", "{}", lease).unwrap();
    let found = etcd.leases().unwrap().remove(0);
    assert_eq!((&*found.key, &*found.value, found.lease), ("10.244.1.0-24", "{}", lease));
    assert!((500..=600).contains(&etcd.time_to_live(lease).unwrap()));
    etcd.revoke(lease).unwrap();
    assert_eq!(etcd.leases().unwrap(), []);
    assert!(!etcd.delete("/coreos.com/network/subnets/10.244.1.0-24").unwrap());
    etcd.compact(etcd.revision().unwrap()).unwrap();
}

#[test]
fn an_etcd_of_three_serves_while_its_leader_is_dead_and_takes_it_back() {
    let lab = Lab::up(options("etcd-three", 3)).unwrap();
    let etcd = lab.etcd().unwrap();
    let first = etcd.leader().unwrap();
    first.service("etcd").stop(Signal::KILL).unwrap();
    let second = etcd.leader().unwrap();
    assert_ne!(second.name(), first.name());
    etcd.put("/a", "b").unwrap();
    etcd.start(first).unwrap();
    etcd.wait_healthy(first).unwrap();
}

#[test]
fn another_program_finds_the_etcd_of_a_lab_again_and_takes_it_down_with_it() {
    let up = Lab::up(options("etcd-found", 1)).unwrap();
    let name = up.name().to_owned();
    let found = Lab::open(&name).unwrap();
    assert_eq!(found.etcd().unwrap().entries("/").unwrap().len(), 1);
    assert!(matches!(found.machine("store1"), Ok(server) if server.pid().is_some()));
    let pid = found.servers()[0].service("etcd").pid().unwrap();
    up.down().unwrap();
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert!(matches!(Lab::open(&name), Err(LabError::NoLab(_))));
}

#[test]
fn a_missing_etcd_is_named_with_its_package_before_anything_is_made() {
    let program = Some("/nowhere/etcd".into());
    let store = Store::Etcd { members: 1, program, arguments: Vec::new() };
    let why = Lab::up(LabOptions { store, ..options("etcd-none", 1) }).unwrap_err().to_string();
    assert_eq!(
        why,
        "/nowhere/etcd is no program: install one with `apt-get install etcd-server`, or name it in $ETCD"
    );
}
