//! Many pods on one node, many of them at the same time.

use std::collections::BTreeSet;
use std::thread;

use leak_tests::{Firewall, Network, Node, Pod, on_a_node};

const PODS: u16 = 250;
const AT_ONCE: usize = 50;

#[test]
fn a_node_of_250_pods_is_filled_and_emptied_by_50_at_a_time_with_nftables() {
    on_a_node(|node| fill_and_empty(node, Network::new(Firewall::Nftables)));
}

#[test]
fn a_node_of_250_pods_is_filled_and_emptied_by_50_at_a_time_with_iptables() {
    on_a_node(|node| fill_and_empty(node, Network::new(Firewall::Iptables)));
}

#[test]
fn pods_that_come_and_pods_that_go_at_the_same_time_do_not_disturb_each_other() {
    on_a_node(|node| {
        let network = Network::new(Firewall::Nftables);
        let pods: Vec<Pod> =
            (0..2 * AT_ONCE).map(|number| Pod::new(u16::try_from(number).unwrap())).collect();
        let (mut old, mut new) = (pods[..AT_ONCE].to_vec(), pods[AT_ONCE..].to_vec());
        let empty = network.warm_up(node);
        node.make_netns(pods.iter().map(|pod| &*pod.id));
        at_once(&mut old, |pod| network.add(node, pod));
        for _ in 0..2 {
            thread::scope(|scope| {
                scope.spawn(|| at_once(&mut old, |pod| network.del(node, pod)));
                at_once(&mut new, |pod| network.add(node, pod));
            });
            let scan = node.scan();
            scan.expect_each_address_once();
            assert_eq!(scan.reserved().len(), AT_ONCE);
            new.iter().for_each(|pod| network.check(node, pod));
            old.iter_mut().for_each(|pod| pod.result = None);
            std::mem::swap(&mut old, &mut new);
        }
        at_once(&mut old, |pod| network.del(node, pod));
        pods.iter().for_each(|pod| node.remove_netns(&pod.id));
        node.expect(&empty, "the pods came");
    });
}

fn fill_and_empty(node: &Node, network: Network) {
    let empty = network.warm_up(node);
    let mut pods: Vec<Pod> = (0..PODS).map(Pod::new).collect();
    node.make_netns(pods.iter().map(|pod| &*pod.id));
    at_once(&mut pods, |pod| network.add(node, pod));
    let told: BTreeSet<String> = pods.iter().map(Pod::address).collect();
    assert_eq!(told.len(), usize::from(PODS), "each pod is told an address of its own");
    let full = node.scan();
    full.expect_each_address_once();
    assert_eq!(full.reserved().keys().cloned().collect::<BTreeSet<_>>(), told);
    at_once(&mut pods, |pod| network.del(node, pod));
    pods.iter().for_each(|pod| node.remove_netns(&pod.id));
    node.expect(&empty, "the pods came");
}

/// Does something for every pod, for so many of them at once.
fn at_once(pods: &mut [Pod], work: impl Fn(&mut Pod) + Sync) {
    let each = pods.len().div_ceil(AT_ONCE);
    thread::scope(|scope| {
        for some in pods.chunks_mut(each) {
            scope.spawn(|| some.iter_mut().for_each(&work));
        }
    });
}
