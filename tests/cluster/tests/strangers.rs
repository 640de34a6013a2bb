//! Peers that change all the time, and what they write: they cost nothing worth speaking of, and nobody else waits.

use std::time::{Duration, Instant};

use cluster_tests::{Cluster, PeerLease, Picture, VXLAN, metrics, wait_until};
use flannel_lab::Node;

/// How long a peer toggles.
const TOGGLING: Duration = Duration::from_secs(4);

/// Waits until a node has a line of this beginning, or has it no more.
fn wait_line(node: &Node, begin: &str, wanted: bool) {
    wait_until(&format!("{begin:?} to be there: {wanted}"), || {
        if Picture::of(node).has(begin) == wanted { Ok(()) } else { Err(node.log()) }
    });
}

/// Another peer, which comes once.
fn other(number: u32) -> PeerLease {
    PeerLease::vxlan(
        &format!("10.244.{}.0-24", 100 + number),
        &format!("other{number}"),
        &format!("10.0.0.{}", 100 + number),
        &format!("0e:00:00:00:02:{number:02x}"),
    )
}

#[test]
fn a_peer_that_toggles_is_followed_once_a_second_and_others_do_not_wait_for_it() {
    let cluster = Cluster::flat("toggling", 1, VXLAN);
    let (node, leases) = (cluster.node("master1"), cluster.leases());
    let toggling = |mac: &str| PeerLease::vxlan("10.244.7.0-24", "toggling", "10.0.0.77", mac);
    leases.write(&toggling("0e:00:00:00:00:01"));
    cluster.start(&["master1"]);
    let changes = || metrics(node).sum("flannel_changes_total");
    let (before, start) = (changes(), Instant::now());
    let (mut written, mut others) = (0, 0);
    while start.elapsed() < TOGGLING {
        written += 1;
        leases.write(&toggling(&format!("0e:00:00:00:01:{:02x}", written % 200)));
        if start.elapsed() > TOGGLING / 4 * (others + 1) {
            others += 1;
            leases.write(&other(others));
            wait_line(node, &format!("route 10.244.{}.0/24 ", 100 + others), true);
        }
    }
    let (made, seconds) = (changes() - before, start.elapsed().as_secs_f64());
    // A burst of five and one a second, three objects each; and the three of each other peer.
    let most = (5.0 + seconds + 1.0 + f64::from(others)) * 3.0;
    assert!(made <= most, "{made} changes in {seconds:.1} s for {written} words; {most} at most");
    assert!(written > 50, "{written}");

    leases.write(&toggling("0e:00:00:00:00:ff"));
    wait_line(node, "neighbour 10.244.7.0 dev flannel.1 lladdr 0e:00:00:00:00:ff", true);
    leases.remove("10.244.7.0-24");
    wait_line(node, "route 10.244.7.0/24 ", false);
}
