//! Many nodes at once on one store.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::time::{Duration, Instant};

use cluster_tests::{Cluster, VXLAN, metrics, options, wait_until};
use flannel_lab::{LabOptions, Topology};

const NODES: usize = 200;
/// They claim one after the other, each with a write that the disk has to confirm, on a machine with other work.
const PATIENCE: Duration = Duration::from_secs(300);

/// How many files of one user can be watched at once: enough for one machine by default, not for 200 on one kernel.
struct Watches(String);

const WATCHES: &str = "/proc/sys/fs/inotify/max_user_instances";

impl Watches {
    fn raised() -> Self {
        let before = fs::read_to_string(WATCHES).unwrap();
        if before.trim().parse::<usize>().unwrap() < 8 * NODES {
            fs::write(WATCHES, (8 * NODES).to_string()).unwrap();
        }
        Self(before)
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        let _ = fs::write(WATCHES, &self.0);
    }
}

#[test]
fn two_hundred_daemons_that_start_together_get_two_hundred_subnets_and_none_gives_up() {
    let _watches = Watches::raised();
    let topology = Topology::flat(NODES).unwrap();
    let cluster = Cluster::alone("scale", LabOptions { topology, ..options(VXLAN) });
    // They cannot be started in one moment on two cores; but they can be made to claim in one.
    let gate = File::create(cluster.store().join("lock")).unwrap();
    gate.lock().unwrap();
    let start = Instant::now();
    cluster.nodes().iter().for_each(|node| node.start_flanneld(["-v", "0"]).unwrap());
    println!("all are started after {:?}", start.elapsed());
    drop(gate);
    cluster.nodes().iter().for_each(|node| node.wait_ready(PATIENCE).unwrap());
    println!("all are ready after {:?}", start.elapsed());
    let leases = cluster.leases().all();
    let subnets: BTreeSet<_> = leases.iter().map(|(key, _)| key.as_str()).collect();
    let owners: BTreeSet<_> = leases.iter().filter_map(|(_, value)| value["Owner"].as_str()).collect();
    assert_eq!((subnets.len(), owners.len()), (NODES, NODES));
    for node in cluster.nodes() {
        assert!(node.flanneld().lives(), "{}", node.log());
        wait_until(&format!("{} to know all others", node.name()), || {
            let peers = metrics(node).get("flannel_peers");
            if peers == 199.0 { Ok(()) } else { Err(format!("{peers}")) }
        });
    }
    println!("all know each other after {:?}", start.elapsed());
    let (first, last) = (cluster.node("master1"), cluster.node("worker199"));
    let (from, to) = (first.add_pod("pod1").unwrap(), last.add_pod("pod1").unwrap());
    from.ping(to.address()).unwrap();
}
