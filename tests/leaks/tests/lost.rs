//! What DEL and GC need may be lost: the namespace, the record, the result of ADD, flanneld's file, the ports, the
//! whole DEL. All is freed all the same, and nothing of anybody else's.

use std::fs;

use leak_tests::{
    Call, DUAL_STACK, Firewall, Network, Node, Pod, RECORDS, RESERVATIONS, Scan, Step, on_a_node,
};
use rustix::mount::{UnmountFlags, unmount};
use serde_json::Value;

/// The pods that stay.
const LIVING: u16 = 2;

/// A pod is lost in some way, and deleted as far as the runtime can.
type Loss = fn(&Node, &Network, &mut Pod);

const LOSSES: [(&str, Loss); 16] = [
    ("nothing is lost", |node, network, pod| network.del(node, pod)),
    ("DEL comes three times", |node, network, pod| (0..3).for_each(|_| network.del(node, pod))),
    ("the result is lost", |node, network, pod| {
        pod.result = None;
        network.del(node, pod);
    }),
    ("the namespace is gone", |node, network, pod| {
        node.remove_netns(&pod.id);
        network.del(node, pod);
    }),
    ("the namespace and the result are gone", |node, network, pod| {
        node.remove_netns(&pod.id);
        pod.result = None;
        network.del(node, pod);
    }),
    ("a plain file is left of the namespace", |node, network, pod| {
        unmount(format!("/run/netns/{}", pod.id), UnmountFlags::DETACH).unwrap();
        network.del(node, pod);
        fs::remove_file(format!("/run/netns/{}", pod.id)).unwrap();
    }),
    ("the runtime does not know the namespace", |node, network, pod| {
        del(node, network, pod, |_, call| call.unset("CNI_NETNS"));
    }),
    ("the runtime knows neither namespace nor result", |node, network, pod| {
        pod.result = None;
        del(node, network, pod, |_, call| call.set("CNI_NETNS", ""));
        node.remove_netns(&pod.id);
    }),
    ("the record is empty", |node, network, pod| {
        fs::write(record(pod), "").unwrap();
        network.del(node, pod);
    }),
    ("the record is cut", |node, network, pod| {
        let text = fs::read_to_string(record(pod)).unwrap();
        fs::write(record(pod), &text[..text.len() / 2]).unwrap();
        network.del(node, pod);
    }),
    ("the record, the namespace and the result are gone", |node, network, pod| {
        fs::remove_file(record(pod)).unwrap();
        node.remove_netns(&pod.id);
        pod.result = None;
        network.del(node, pod);
    }),
    ("the record is empty and flanneld's file is gone", |node, network, pod| {
        let text = fs::read_to_string("/run/flannel/subnet.env").unwrap();
        fs::write(record(pod), "").unwrap();
        fs::remove_file("/run/flannel/subnet.env").unwrap();
        network.del(node, pod);
        node.set_subnet_env(&text);
    }),
    ("the ports are lost", |node, network, pod| {
        del(node, network, pod, |_, call| without(&call, "runtimeConfig"));
    }),
    ("the other firewall is configured now", |node, network, pod| {
        let firewall = match network.firewall {
            Firewall::Nftables => Firewall::Iptables,
            Firewall::Iptables => Firewall::Nftables,
        };
        Network { firewall, ..*network }.del(node, pod);
    }),
    ("the network has another name now", |node, network, pod| {
        del(node, network, pod, |_, call| with(&call, "name", "cbr1".into()));
    }),
    ("DEL is lost, and garbage is collected", |node, network, pod| {
        node.remove_netns(&pod.id);
        network.gc(node, &living());
    }),
];

#[test]
fn whatever_is_lost_a_pod_of_both_families_leaves_nothing_with_nftables() {
    on_a_node(|node| lose_everything(node, Network::new(Firewall::Nftables)));
}

#[test]
fn whatever_is_lost_a_pod_of_both_families_leaves_nothing_with_iptables() {
    on_a_node(|node| lose_everything(node, Network::new(Firewall::Iptables)));
}

#[test]
fn whatever_is_lost_a_pod_of_kube_flannels_version_leaves_nothing() {
    // A runtime of that version brings no result to DEL, and cannot collect garbage.
    on_a_node(|node| {
        let old = Network { version: "0.3.1", firewall: Firewall::Nftables };
        lose(node, old, &LOSSES[..LOSSES.len() - 1]);
    });
}

#[test]
fn garbage_is_what_is_in_no_list_and_without_a_list_there_is_none() {
    on_a_node(|node| {
        let network = Network::new(Firewall::Nftables);
        let (mut living, peace) = settle(node, network);
        let mut lost: Vec<Pod> = (50..60).map(Pod::new).collect();
        node.make_netns(lost.iter().map(|pod| &*pod.id));
        lost.iter_mut().for_each(|pod| network.add(node, pod));
        lost.iter().for_each(|pod| node.remove_netns(&pod.id));
        node.wait_for_cables(living.len());
        let full = node.scan();
        for step in Step::of("GC") {
            Call::new(node.plugin(step.plugin()), "GC").config(&network.config(step)).run().nothing();
        }
        node.expect(&full, "a collection without a list");
        network.gc(node, &living);
        node.expect(&peace, "ten pods were lost");
        living.iter().for_each(|pod| network.check(node, pod));
        living.drain(..).for_each(|pod| node.remove_netns(&pod.id));
        network.gc(node, &[]);
        let left = node.scan();
        assert_eq!((left.reserved().len(), left.about("pod")), (0, vec![]));
    });
}

#[test]
fn a_reservation_without_an_owner_is_given_away_or_collected() {
    on_a_node(|node| {
        let network = Network::new(Firewall::Nftables);
        let (living, peace) = settle(node, network);
        for number in 100..110 {
            fs::write(format!("{RESERVATIONS}/10.244.1.{number}"), "").unwrap();
        }
        network.gc(node, &living);
        node.expect(&peace, "ten files were cut by a power failure");
        node.set_subnet_env(
            "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/29\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n",
        );
        // The first pods have 10.244.1.3 and .4; nothing but these is left to give.
        let blank = [2, 5, 6].map(|number| format!("{RESERVATIONS}/10.244.1.{number}"));
        blank.iter().for_each(|path| fs::write(path, "").unwrap());
        let mut pods: Vec<Pod> = (50..53).map(Pod::new).collect();
        node.make_netns(pods.iter().map(|pod| &*pod.id));
        let flannel = |pod: &mut Pod| {
            let call = network.call(node, "ADD", Step::Flannel, pod);
            // The bridge has the address of the larger network.
            let mut config: Value = serde_json::from_slice(&call.stdin).unwrap();
            config["delegate"]["bridge"] = "cni1".into();
            pod.result = Some(call.config(&config).run().result());
        };
        pods.iter_mut().for_each(flannel);
        node.scan().expect_each_address_once();
    });
}

#[test]
fn of_two_interfaces_of_a_pod_each_goes_alone() {
    on_a_node(|node| {
        for firewall in [Firewall::Nftables, Firewall::Iptables] {
            let network = Network::new(firewall);
            let empty = network.warm_up(node);
            let mut pod = Pod::new(1);
            node.make_netns([&*pod.id]);
            network.add(node, &mut pod);
            let one = node.scan();
            let second = |command: &str| {
                let pod = Pod { result: None, ..pod.clone() };
                let call = network.call(node, command, Step::Flannel, &pod);
                // Two default routes would be one too many.
                let mut config: Value = serde_json::from_slice(&call.stdin).unwrap();
                config["delegate"]["isDefaultGateway"] = false.into();
                call.config(&config).set("CNI_IFNAME", "eth1").run()
            };
            second("ADD").result();
            let two = node.scan();
            assert_eq!(two.reserved().len(), 2);
            second("DEL").nothing();
            node.expect(&one, "the second interface came");
            second("ADD").result();
            network.del(node, &pod);
            second("DEL").nothing();
            node.remove_netns(&pod.id);
            node.expect(&empty, "the pod came");
        }
    });
}

fn lose_everything(node: &Node, network: Network) {
    node.set_subnet_env(DUAL_STACK);
    lose(node, network, &LOSSES);
}

fn lose(node: &Node, network: Network, losses: &[(&str, Loss)]) {
    let (_, mut peace) = settle(node, network);
    let mut left = Vec::new();
    for (number, (what, loss)) in (10..).zip(losses) {
        let mut pod = Pod::new(number);
        node.make_netns([&*pod.id]);
        network.add(node, &mut pod);
        if network.version < "0.4.0" {
            pod.result = None;
        }
        loss(node, &network, &mut pod);
        if node.names_of_netns().contains(&pod.id) {
            node.remove_netns(&pod.id);
        }
        let difference = node.difference(&peace, std::time::Duration::from_secs(20));
        if !difference.is_empty() {
            left.push((what, difference));
            peace = node.scan();
        }
    }
    assert!(left.is_empty(), "{left:#?}");
}

/// A node with pods that live, and what a scan finds then.
fn settle(node: &Node, network: Network) -> (Vec<Pod>, Scan) {
    network.warm_up(node);
    let mut living = living();
    node.make_netns(living.iter().map(|pod| &*pod.id));
    living.iter_mut().for_each(|pod| network.add(node, pod));
    let scan = node.scan();
    scan.expect_each_address_once();
    (living, scan)
}

fn living() -> Vec<Pod> {
    (1..=LIVING).map(Pod::new).collect()
}

fn record(pod: &Pod) -> String {
    format!("{RECORDS}/{}", pod.id)
}

/// DEL of all plugins, each call altered.
fn del(node: &Node, network: &Network, pod: &Pod, alter: impl Fn(Step, Call) -> Call) {
    for step in Step::of("DEL") {
        alter(step, network.call(node, "DEL", step, pod)).run().nothing();
    }
}

fn with(call: &Call, key: &str, value: Value) -> Call {
    let mut config: Value = serde_json::from_slice(&call.stdin).unwrap();
    config[key] = value;
    call.clone().config(&config)
}

fn without(call: &Call, key: &str) -> Call {
    let mut config: Value = serde_json::from_slice(&call.stdin).unwrap();
    config.as_object_mut().unwrap().remove(key);
    call.clone().config(&config)
}
