//! A power failure: the kernel and /run forget everything, the disk does not, and nobody deletes the pods of before.

use std::fs;

use leak_tests::{Firewall, Network, Node, Pod, RECORDS, RESERVATIONS, on_a_node};

/// Six addresses, of which the bridge has one.
const SMALL: &str = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/29\nFLANNEL_MTU=1450\n\
                     FLANNEL_IPMASQ=false\n";
const ADDRESSES: u16 = 5;

#[test]
fn addresses_of_the_last_boot_are_given_again_and_the_old_pods_cannot_take_them_back() {
    on_a_node(|node| {
        let network = Network::new(Firewall::Nftables);
        let mut old = added(node, network, 0);
        for boot in 1..4 {
            node.reboot();
            node.set_subnet_env(SMALL);
            // All are taken by pods that died in the power failure, and all are given again.
            let new = added(node, network, 100 * boot);
            let full = node.scan();
            full.expect_each_address_once();
            assert_eq!(full.reserved().len(), usize::from(ADDRESSES));
            // The kubelet finds the dead pods and deletes them.
            for pod in &mut old {
                network.del(node, pod);
                pod.result = None;
                network.del(node, pod);
            }
            let scan = node.scan();
            assert_eq!(scan.reserved(), full.reserved());
            let records = new.iter().map(|pod| pod.id.clone()).collect::<Vec<_>>();
            assert_eq!(names(RECORDS), records, "the records of dead pods are gone");
            new.iter().for_each(|pod| network.check(node, pod));
            old = new;
        }
    });
}

#[test]
fn after_a_reboot_garbage_is_everything_that_was_there_before() {
    on_a_node(|node| {
        for firewall in [Firewall::Nftables, Firewall::Iptables] {
            let network = Network::new(firewall);
            added(node, network, 0);
            node.reboot();
            node.set_subnet_env(SMALL);
            let mut pod = Pod::new(50);
            node.make_netns([&*pod.id]);
            network.add(node, &mut pod);
            network.gc(node, std::slice::from_ref(&pod));
            assert_eq!((names(RECORDS), node.scan().reserved().len()), (vec![pod.id.clone()], 1));
            network.del(node, &pod);
            assert_eq!((names(RECORDS), node.scan().reserved().len()), (vec![], 0));
            node.reboot();
            node.set_subnet_env(SMALL);
        }
    });
}

#[test]
fn a_power_failure_that_empties_files_leaves_no_address_lost() {
    on_a_node(|node| {
        let network = Network::new(Firewall::Nftables);
        let old = added(node, network, 0);
        node.reboot();
        node.set_subnet_env(SMALL);
        for folder in [RECORDS, RESERVATIONS] {
            for name in names(folder) {
                fs::write(format!("{folder}/{name}"), "").unwrap();
            }
        }
        let new = added(node, network, 100);
        let scan = node.scan();
        scan.expect_each_address_once();
        old.iter().for_each(|pod| network.del(node, pod));
        assert_eq!(node.scan().reserved(), scan.reserved());
        assert_eq!(names(RECORDS).len(), new.len());
    });
}

#[test]
fn reservations_of_gos_plugin_are_taken_in_need_from_the_dead_and_never_from_the_living() {
    on_a_node(|node| {
        let network = Network::new(Firewall::Nftables);
        let mut living = added(node, network, 0);
        // As Go's plugin would have written them: nothing tells when.
        for pod in &living {
            let path = format!("{RESERVATIONS}/{}", pod.address());
            fs::remove_file(&path).unwrap();
            fs::write(path, format!("{}\r\neth0", pod.id)).unwrap();
        }
        let mut pod = Pod::new(50);
        node.make_netns([&*pod.id]);
        let refusal = network.call(node, "ADD", leak_tests::Step::Flannel, &pod).run().error();
        assert_eq!(refusal.0, 999);
        assert!(
            refusal.1.contains("no IP addresses available in range set: 10.244.1.1-10.244.1.6"),
            "{refusal:?}"
        );
        network.del(node, &pod);
        let dead = living.remove(2);
        node.remove_netns(&dead.id);
        node.wait_for_cables(living.len());
        network.add(node, &mut pod);
        assert_eq!(pod.address(), dead.address());
        node.scan().expect_each_address_once();
        network.del(node, &dead);
        node.scan().expect_each_address_once();
        network.check(node, &pod);
    });
}

/// As many pods as there are addresses, added.
fn added(node: &Node, network: Network, first: u16) -> Vec<Pod> {
    node.set_subnet_env(SMALL);
    let mut pods: Vec<Pod> = (first..first + ADDRESSES).map(Pod::new).collect();
    node.make_netns(pods.iter().map(|pod| &*pod.id));
    pods.iter_mut().for_each(|pod| network.add(node, pod));
    pods
}

fn names(folder: &str) -> Vec<String> {
    let entries =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> =
        entries.filter(|name| name != "lock" && !name.starts_with("last_reserved_ip.")).collect();
    names.sort();
    names
}
