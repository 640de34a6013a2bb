//! The lab with flanneld: pods on all nodes, every fault, and the packets on the wire. Needs root and a built
//! flanneld.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::time::Duration;

use flannel_lab::packet::{Layer, decode};
use flannel_lab::{Backend, Capture, Families, Fault, Lab, LabOptions, PING, unique_name};

const LIMIT: Duration = Duration::from_secs(20);

fn up(name: &str, backend: Backend, families: Families) -> Lab {
    let net_conf = backend.net_conf(families);
    Lab::up(LabOptions { name: unique_name(name), net_conf, ..LabOptions::default() }).unwrap()
}

fn assert_all_pods_reach_each_other(lab: &Lab) {
    let pods = lab.pods().unwrap();
    for from in &pods {
        for address in pods.iter().flat_map(|to| to.addresses()) {
            from.wait_ping(address, LIMIT).unwrap();
        }
    }
}

/// What is on worker1's cable when its pod pings the pod of another node.
fn ping_on_the_wire(lab: &Lab, to: &str) -> Vec<Layer> {
    let worker1 = lab.node("worker1").unwrap();
    let (from, to) = (&worker1.pods().unwrap()[0], &lab.node(to).unwrap().pods().unwrap()[0]);
    let capture = Capture::start(worker1.switch(), "worker1", PING, LIMIT).unwrap();
    from.wait_ping(to.address(), LIMIT).unwrap();
    decode(&capture.frame().unwrap()).unwrap()
}

fn is_tunnelled(layers: &[Layer]) -> bool {
    layers.iter().any(|layer| matches!(layer, Layer::Vxlan { .. }))
}

#[test]
fn pods_of_both_families_reach_each_other_through_vxlan() {
    let lab = up("dual", Backend::Vxlan, Families::Dual);
    assert_all_pods_reach_each_other(&lab);
}

#[test]
fn direct_routing_tunnels_between_racks_alone() {
    let lab = up("direct", Backend::VxlanDirectRouting, Families::V4);
    assert_all_pods_reach_each_other(&lab);
    assert!(!is_tunnelled(&ping_on_the_wire(&lab, "worker2")));
    assert!(is_tunnelled(&ping_on_the_wire(&lab, "worker3")));
}

#[test]
fn every_fault_that_flanneld_can_repair_is_repaired() {
    let lab = up("faults", Backend::Vxlan, Families::V4);
    for (fault, _) in Fault::ALL.into_iter().filter(|(fault, _)| fault.is_repairable()) {
        let broken = lab.break_node("worker1", fault, None).unwrap();
        let took = broken.wait_repaired(LIMIT).unwrap();
        println!("{fault}: {} repaired after {took:?}", broken.command());
    }
    assert_all_pods_reach_each_other(&lab);
}

#[test]
fn cable_and_power_come_back_by_healing() {
    let lab = up("heal", Backend::Vxlan, Families::V4);
    for (fault, first) in [(Fault::Cable, "cable plugged in"), (Fault::Power, "power on")] {
        lab.break_node("worker3", fault, None).unwrap();
        let done = lab.heal("worker3", LIMIT).unwrap();
        assert_eq!(done[0], first);
        assert_all_pods_reach_each_other(&lab);
    }
    assert_eq!(lab.heal("worker3", LIMIT).unwrap(), [""; 0]);
}
