//! Nodes that have the same address, or claim to be the same node: none of them fights for ever, at most one of them is
//! ready with a subnet, and the other says why it is not.

use std::time::{Duration, Instant};

use cluster_tests::{
    VXLAN, VXLAN_DUAL, flanneld_path, is_ready, metrics, options, readyz, state, wait_until,
};
use flannel_lab::{LabOptions, Node, Signal, Store, Topology, wait_for};
use store_tests::{Fleet, GoLease, Need, Program, scenarios, tell, time_to};

scenarios! {
    &[] => two_nodes_of_one_ipv4_address_with_another_ipv6_address_have_a_subnet_each,
        of_two_nodes_of_one_address_the_first_stays_ready_and_the_second_says_why_not,
        of_two_nodes_of_one_address_that_start_together_one_becomes_ready,
        a_holder_that_was_away_gets_its_lease_back_from_whoever_took_it,
        a_node_that_gets_a_dead_nodes_address_keeps_its_lease,
        two_daemons_of_one_name_write_ever_more_rarely_and_neither_is_ready;
    &[Need::Peers] => of_two_daemons_of_one_kubernetes_node_the_first_stays_and_the_second_says_why_not;
}

/// What every box that Vagrant makes has.
const SHARED: [&str; 2] = ["--public-ip", "10.0.2.15"];
const LONG: Duration = Duration::from_secs(60);
const WINDOW: Duration = Duration::from_secs(10);

/// Lets the first ten seconds pass, and counts what is written to etcd in the next ten.
fn writes(fleet: &Fleet, meanwhile: impl Fn()) -> i64 {
    let etcd = fleet.etcd().unwrap();
    written(|| etcd.revision().unwrap(), meanwhile)
}

/// The same by any count.
fn written(count: impl Fn() -> i64, meanwhile: impl Fn()) -> i64 {
    let pass = |meanwhile: &dyn Fn()| {
        let start = Instant::now();
        time_to("ten seconds to pass", LONG, || {
            meanwhile();
            start.elapsed() > WINDOW
        })
    };
    pass(&|| ());
    let before = count();
    let took = pass(&meanwhile);
    let writes = count() - before;
    tell(format!("{:.2} writes a second", writes as f64 / took.as_secs_f64()));
    writes
}

/// Whether a node says that it is ready; one that has just been started says nothing.
fn answers_ready(node: &Node) -> bool {
    node.http_get(8081, "/readyz").is_ok_and(|(code, _)| code == 200)
}

fn two_nodes_of_one_ipv4_address_with_another_ipv6_address_have_a_subnet_each() {
    let fleet = Fleet::etcd("etcd-twins", 2, 1, VXLAN_DUAL);
    let [one, other] = ["master1", "worker1"].map(|name| fleet.node(name));
    [one, other].iter().for_each(|node| node.start_flanneld(SHARED).unwrap());
    [one, other].iter().for_each(|node| is_ready(node));
    let writes = writes(&fleet, || ());
    assert!(writes < 10, "{writes} writes in ten seconds");
    let leases = fleet.etcd().unwrap().leases().unwrap();
    assert_eq!(leases.len(), 2, "{leases:?}");
    assert!(leases[0].value != leases[1].value, "{leases:?}");
    assert!([one, other].into_iter().all(answers_ready));
    for node in [one, other] {
        let (_, body) = readyz(node);
        assert!(body.iter().any(|line| line.contains("10.0.2.15")), "the address is named: {body:?}");
    }
}

/// Waits until a node says that another one has its lease, everywhere.
fn wait_refused(node: &Node) {
    wait_for("the node to say why it is not ready", LONG, || {
        let (code, body) = readyz(node);
        let words = ["another flanneld", "10.0.2.15", "/subnets/", "--public-ip"];
        let all = words.iter().all(|word| body.iter().any(|line| line.contains(word)));
        if code == 503 && all { Ok(()) } else { Err(format!("{code} {body:?}\n{}", node.log())) }
    })
    .unwrap();
    wait_until("state.json to say so", || {
        let reasons = state(node)["reasons"].to_string();
        if reasons.contains("another flanneld") { Ok(()) } else { Err(reasons) }
    });
    assert_eq!(metrics(node).get("flannel_rivals"), 1.0);
    let flannelctl = flanneld_path().with_file_name("flannelctl").display().to_string();
    let status = node.command(&flannelctl, ["status"]).output().unwrap();
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(status.contains("another flanneld") && status.contains("--public-ip"), "{status}");
}

fn of_two_nodes_of_one_address_the_first_stays_ready_and_the_second_says_why_not() {
    let fleet = Fleet::etcd("etcd-rivals", 2, 1, VXLAN);
    let [first, second] = ["master1", "worker1"].map(|name| fleet.node(name));
    first.start_flanneld(SHARED).unwrap();
    is_ready(first);
    let before = fleet.etcd().unwrap().leases().unwrap();
    second.start_flanneld(SHARED).unwrap();
    let never_both = || assert!(!answers_ready(second), "{}", second.log());
    let writes = writes(&fleet, never_both);
    assert!(writes < 10, "{writes} writes in ten seconds");
    wait_refused(second);
    is_ready(first);
    let after = fleet.etcd().unwrap().leases().unwrap();
    assert_eq!((after[0].lease, &after[0].value, after.len()), (before[0].lease, &before[0].value, 1));
    assert!(!second.path("/run/flannel/subnet.env").exists(), "no pod starts there");
    assert!(readyz(first).1.iter().any(|line| line.contains("another flanneld")), "{:?}", readyz(first));
    assert_eq!(metrics(first).get("flannel_lease_corrections_total"), 1.0);
    // The way out that it names.
    second.flanneld().stop(Signal::TERM).unwrap();
    second.start_flanneld(["--public-ip", "10.0.2.16"]).unwrap();
    is_ready(second);
    assert!(answers_ready(first));
    assert_eq!(fleet.etcd().unwrap().leases().unwrap().len(), 2);
}

fn of_two_nodes_of_one_address_that_start_together_one_becomes_ready() {
    let fleet = Fleet::etcd("etcd-race", 2, 1, VXLAN);
    let nodes = ["master1", "worker1"].map(|name| fleet.node(name));
    // Both find the lease of a node that is gone.
    let gone = GoLease::vxlan("10.244.7.0-24", "10.0.2.15", "02:00:00:00:00:07");
    let etcd = fleet.etcd().unwrap();
    etcd.put_with_lease(&gone.path(), &gone.value, etcd.grant(600).unwrap()).unwrap();
    nodes.iter().for_each(|node| node.start_flanneld(SHARED).unwrap());
    time_to("one to be ready", LONG, || nodes.iter().any(|node| answers_ready(node)));
    let writes = writes(&fleet, || ());
    assert!(writes < 10, "{writes} writes in ten seconds");
    let [ready, refused] = if answers_ready(nodes[0]) { nodes } else { [nodes[1], nodes[0]] };
    assert!(answers_ready(ready));
    wait_refused(refused);
    assert_eq!(etcd.leases().unwrap().len(), 1);
}

fn a_holder_that_was_away_gets_its_lease_back_from_whoever_took_it() {
    let fleet = Fleet::etcd("etcd-away", 2, 1, VXLAN);
    let [first, second] = ["master1", "worker1"].map(|name| fleet.node(name));
    first.start_flanneld(SHARED).unwrap();
    is_ready(first);
    let lease = || fleet.etcd().unwrap().leases().unwrap().remove(0);
    let before = lease();
    first.flanneld().signal(Signal::STOP);
    second.start_flanneld(SHARED).unwrap();
    is_ready(second);
    let taken = lease();
    assert!(taken.key == before.key && taken.lease != before.lease, "{before:?} {taken:?}");
    first.flanneld().signal(Signal::CONT);
    wait_refused(second);
    wait_for("the first to hold its lease", LONG, || {
        let now = lease();
        if now.lease == before.lease && answers_ready(first) { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .unwrap();
}

fn a_node_that_gets_a_dead_nodes_address_keeps_its_lease() {
    let fleet = Fleet::etcd("etcd-heir", 2, 1, VXLAN);
    let (etcd, node) = (fleet.etcd().unwrap(), fleet.node("worker1"));
    // Older than the node's own.
    let dead = GoLease::vxlan("10.244.250.0-24", "10.0.0.99", "02:00:00:00:00:99");
    etcd.put_with_lease(&dead.path(), &dead.value, etcd.grant(600).unwrap()).unwrap();
    fleet.start_all(Program::Ours);
    let before = fleet.etcd_lease(node);
    let pod = node.pods().unwrap().remove(0).address();
    let addresses = node.ip("-o -4 address show dev eth0").unwrap();
    let old = addresses.split_whitespace().find(|word| word.starts_with("10.0.0.21/")).unwrap();
    // Without the first of a network, Linux drops the others of it.
    node.ip(&format!("address add {} dev eth0", old.replace(".21/", ".99/"))).unwrap();
    node.ip(&format!("address del {old} dev eth0")).unwrap();
    node.ip(&format!("address replace {} dev eth0", old.replace(".21/", ".99/"))).unwrap();
    let keeps = || {
        wait_for("the node to announce its new address", LONG, || {
            let leases = etcd.leases().unwrap();
            let own = leases.iter().find(|lease| lease.key == before.key);
            let has_moved =
                own.is_some_and(|own| own.value == before.value.replace("10.0.0.21", "10.0.0.99"));
            let is_left = leases.iter().any(|lease| lease.key == dead.key && lease.value == dead.value);
            if has_moved && is_left { Ok(()) } else { Err(format!("{leases:?}\n{}", node.log())) }
        })
        .unwrap();
        wait_until("it to name the dead node's lease", || {
            let (code, body) = readyz(node);
            let named =
                body.iter().any(|line| line.contains("10.244.250.0/24") && line.contains("10.0.0.99"));
            if code == 200 && named { Ok(()) } else { Err(format!("{code} {body:?}")) }
        });
        let from = fleet.node("master1").pods().unwrap().remove(0);
        from.wait_ping(pod, LONG).unwrap();
    };
    keeps();
    node.restart_flanneld().unwrap();
    is_ready(node);
    keeps();
}

fn two_daemons_of_one_name_write_ever_more_rarely_and_neither_is_ready() {
    let topology = Topology::flat(2).unwrap();
    let flanneld_env = vec![("NODE_NAME".to_owned(), "twin".to_owned())];
    let fleet = Fleet::up("same-name", LabOptions { topology, flanneld_env, ..options(VXLAN) });
    let nodes = ["master1", "worker1"].map(|name| fleet.node(name));
    nodes.iter().for_each(|node| node.start_flanneld([""; 0]).unwrap());
    let claims = |node: &Node| node.log().lines().filter(|line| line.contains("lease held")).count();
    let writes = written(|| nodes.iter().map(|node| i64::try_from(claims(node)).unwrap()).sum(), || ());
    assert!(writes < 10, "{writes} writes in ten seconds");
    for (node, other) in [(nodes[0], nodes[1]), (nodes[1], nodes[0])] {
        wait_for("the node to name the other", LONG, || {
            let (code, body) = readyz(node);
            let named =
                |line: &String| line.contains("the lease of twin") && line.contains(&other.v4().to_string());
            if code == 503 && body.iter().any(named) { Ok(()) } else { Err(format!("{code} {body:?}")) }
        })
        .unwrap();
        assert_eq!(metrics(node).get("flannel_rivals"), 1.0);
    }
    // Peace makes the one that is left ready, with its own address.
    nodes[1].flanneld().stop(Signal::TERM).unwrap();
    wait_for("the other to be ready", LONG * 3, || {
        if answers_ready(nodes[0]) { Ok(()) } else { Err(nodes[0].log()) }
    })
    .unwrap();
    assert_eq!(metrics(nodes[0]).get("flannel_rivals"), 0.0);
}

fn of_two_daemons_of_one_kubernetes_node_the_first_stays_and_the_second_says_why_not() {
    let (topology, store) = (Topology::flat(2).unwrap(), Store::Kubernetes { programs: None });
    let flanneld_env = vec![("NODE_NAME".to_owned(), "master1".to_owned())];
    let fleet = Fleet::up("kube-rivals", LabOptions { topology, store, flanneld_env, ..options(VXLAN) });
    let nodes = ["master1", "worker1"].map(|name| fleet.node(name));
    let [first, second] = nodes;
    let kubernetes = fleet.kubernetes().unwrap();
    let announced = || {
        let object = kubernetes.node("master1").unwrap();
        object["metadata"]["annotations"]["flannel.alpha.coreos.com/public-ip"].clone()
    };
    first.start_flanneld([""; 0]).unwrap();
    is_ready(first);
    second.start_flanneld([""; 0]).unwrap();
    let written_by =
        |node: &Node| node.log().lines().filter(|line| line.contains("annotations written")).count();
    let never_both = || assert!(answers_ready(first) && !answers_ready(second), "{}", second.log());
    let writes =
        written(|| nodes.iter().map(|node| i64::try_from(written_by(node)).unwrap()).sum(), never_both);
    assert!(writes < 10, "{writes} writes in ten seconds");
    wait_for("the second to say why it is not ready", LONG, || {
        let (code, body) = readyz(second);
        let words = ["node master1", "another flanneld", "10.0.0.20", "NODE_NAME"];
        let all = words.iter().all(|word| body.iter().any(|line| line.contains(word)));
        if code == 503 && all { Ok(()) } else { Err(format!("{code} {body:?}\n{}", second.log())) }
    })
    .unwrap();
    assert!(!second.path("/run/flannel/subnet.env").exists(), "no pod starts there");
    assert_eq!(metrics(second).get("flannel_rivals"), 1.0);
    assert!(readyz(first).1.iter().any(|line| line.contains("another flanneld")), "{:?}", readyz(first));
    assert_eq!(announced(), "10.0.0.20", "the correction stands");
    // Whoever is left is the node, and nothing of the other stays.
    first.flanneld().stop(Signal::TERM).unwrap();
    second.restart_flanneld().unwrap();
    is_ready(second);
    assert_eq!(announced(), "10.0.0.21");
}
