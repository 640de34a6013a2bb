//! A net-conf that a node cannot satisfy leaves the one before it in force: told, repaired, followed when it can be.

use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use cluster_tests::{
    Cluster, PeerLease, Picture, VXLAN, cpu_time, healed, is_ready, options, readyz, state, wait_until,
};
use flannel_lab::{Flanneld, LabOptions, Node, Topology, wait_for};

/// How long a node is watched after an edit: longer than a node may be in trouble before it counts as unready.
const WATCHED: Duration = Duration::from_secs(6);
/// Before the look that comes once a minute, on any machine.
const AT_ONCE: Duration = Duration::from_secs(20);
const DUAL: &str = r#"{"Network":"10.244.0.0/16","EnableIPv6":true,"IPv6Network":"fd00:244::/48","Backend":{"Type":"vxlan"}}"#;
const OTHER_VNI: &str = r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan","VNI":7}}"#;
const OTHER_PORT: &str = r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan","Port":4790}}"#;
const LATER: &str = r#"{"Network":"10.244.0.0/16","Backend":{"Type":"wireguard"}}"#;

/// A node that is ready by the plain net-conf, with a pod.
fn one_node(name: &str) -> Cluster {
    let topology = Topology::flat(1).unwrap();
    Cluster::up(
        name,
        LabOptions { topology, flanneld: Flanneld::Started, pods_per_node: 1, ..options(VXLAN) },
    )
}

/// Waits until the node is ready and says of the net-conf all these words in one line.
fn says(node: &Node, words: &[&str]) {
    wait_until(&format!("/readyz to say {words:?}"), || {
        let (code, lines) = readyz(node);
        let told = |line: &String| line.starts_with("net-conf: ") && words.iter().all(|w| line.contains(w));
        if code == 200 && lines.iter().any(told) { Ok(()) } else { Err(format!("{code} {lines:#?}")) }
    });
}

/// Waits until the node is ready and says nothing of the net-conf.
fn says_nothing(node: &Node) {
    wait_until("the note to go", || {
        let (code, lines) = readyz(node);
        let noted = lines.iter().any(|line| line.starts_with("net-conf: "));
        if code == 200 && !noted { Ok(()) } else { Err(format!("{code} {lines:#?}\n{}", node.log())) }
    });
}

/// The node holds back the net-conf of the store for this reason, and is as before in all else: ready for longer
/// than a blink, idle, repairing, following peers; also after a restart.
fn holds_back(cluster: &Cluster, words: &[&str]) {
    let node = cluster.node("master1");
    let (lease, pid) = (cluster.leases().owned_by("master1"), node.flanneld().pid().unwrap());
    says(node, words);
    let (spent, start) = (cpu_time(pid), Instant::now());
    while start.elapsed() < WATCHED {
        assert_eq!(readyz(node).0, 200, "{}", node.log());
        thread::sleep(Duration::from_millis(500));
    }
    let spent = cpu_time(pid) - spent;
    println!("{words:?}: {spent:?} of a core in {:?}", start.elapsed());
    assert!(spent < WATCHED / 4, "{spent:?}");
    assert_eq!(state(node)["ready"], true);
    let told = node.log().lines().filter(|line| words.iter().all(|w| line.contains(w))).count();
    assert_eq!(told, 1, "{}", node.log());

    healed(node, "the tunnel is repaired", || _ = node.ip("link del flannel.1").unwrap());
    follows_a_new_peer(cluster);
    let before = Picture::of(node);
    node.restart_flanneld().unwrap();
    is_ready(node);
    says(node, words);
    assert_eq!(before.changes_to(&Picture::of(node)), [] as [&str; 0]);
    healed(node, "the tunnel is repaired after a restart", || _ = node.ip("link del flannel.1").unwrap());
    assert_eq!(cluster.leases().owned_by("master1"), lease, "nothing is claimed or announced");
}

fn follows_a_new_peer(cluster: &Cluster) {
    let (node, leases) = (cluster.node("master1"), cluster.leases());
    let peer = PeerLease::vxlan("10.244.77.0-24", "ghost", "10.0.0.77", "0e:00:00:00:00:77");
    leases.write(&peer);
    wait_until("the new peer to be followed", || {
        let picture = Picture::of(node);
        let route = "route 10.244.77.0/24 via 10.244.77.0 dev flannel.1 ";
        if picture.has(route) { Ok(()) } else { Err(format!("{picture:#?}")) }
    });
    leases.remove(&peer.key);
    wait_until("its route to go", || {
        let picture = Picture::of(node);
        if picture.has("route 10.244.77.0/24") { Err(format!("{picture:#?}")) } else { Ok(()) }
    });
}

/// Waits until a device has these words.
fn has_device(node: &Node, device: &str, words: &str) {
    wait_until(&format!("{device} to be {words:?}"), || {
        let found = node.ip(&format!("-d link show {device}")).unwrap_or_default();
        if found.contains(words) { Ok(()) } else { Err(format!("{found}\n{}", node.log())) }
    });
}

#[test]
fn ipv6_on_a_node_without_ipv6_waits_until_the_node_has_it() {
    let cluster = one_node("held-ipv6");
    let node = cluster.node("master1");
    let address = format!("{}/64", node.v6());
    node.ip("-6 address flush dev eth0").unwrap();
    cluster.write_net_conf(DUAL).unwrap();
    holds_back(&cluster, &["eth0: it has no IPv6 address", "stays in force"]);
    node.ip(&format!("address add {address} dev eth0 nodad")).unwrap();
    has_device(node, "flannel-v6.1", "vxlan id 1 ");
    says_nothing(node);
}

#[test]
fn a_backend_of_a_later_version_waits_and_the_note_goes_with_the_edit() {
    let cluster = one_node("held-backend");
    let node = cluster.node("master1");
    cluster.write_net_conf(LATER).unwrap();
    holds_back(&cluster, &["backend wireguard comes with a later version", "stays in force"]);
    cluster.write_net_conf(VXLAN).unwrap();
    let gone = wait_for("the note to go with its cause", AT_ONCE, || {
        let lines = readyz(node).1;
        if lines == ["flanneld is ready"] { Ok(()) } else { Err(lines.join("\n")) }
    });
    gone.unwrap();
}

#[test]
fn a_tunnel_that_would_be_too_small_waits_until_the_card_is_larger() {
    let cluster = one_node("held-mtu");
    let node = cluster.node("master1");
    node.ip("link set eth0 mtu 1300").unwrap();
    has_device(node, "flannel.1", "mtu 1250 ");
    cluster.write_net_conf(DUAL).unwrap();
    holds_back(&cluster, &["eth0 has an MTU of 1300: too small for a tunnel", "stays in force"]);
    node.ip("link set eth0 mtu 1500").unwrap();
    has_device(node, "flannel-v6.1", "mtu 1430 ");
    says_nothing(node);
}

#[test]
fn a_vni_that_somebody_else_has_waits_until_it_is_free() {
    let cluster = one_node("held-vni");
    let node = cluster.node("master1");
    node.ip(&format!("link add other type vxlan id 7 dstport 8472 local {} dev eth0", node.v4())).unwrap();
    cluster.write_net_conf(OTHER_VNI).unwrap();
    holds_back(&cluster, &["flannel.7", "other has VNI 7 on UDP port 8472", "stays in force"]);
    node.ip("link del other").unwrap();
    has_device(node, "flannel.7", "vxlan id 7 ");
    says_nothing(node);
}

#[test]
fn a_name_that_somebody_else_has_waits_until_it_is_free() {
    let cluster = one_node("held-name");
    let node = cluster.node("master1");
    node.ip("link add flannel.7 type bridge").unwrap();
    cluster.write_net_conf(OTHER_VNI).unwrap();
    holds_back(&cluster, &["flannel.7", "is not ours", "stays in force"]);
    node.ip("link del flannel.7").unwrap();
    has_device(node, "flannel.7", "vxlan id 7 ");
    says_nothing(node);
}

#[test]
fn a_port_with_another_group_policy_waits_until_it_is_free() {
    let cluster = one_node("held-gbp");
    let node = cluster.node("master1");
    node.ip(&format!("link add other up type vxlan id 9 dstport 4790 gbp local {} dev eth0", node.v4()))
        .unwrap();
    cluster.write_net_conf(OTHER_PORT).unwrap();
    holds_back(&cluster, &["other uses UDP port 4790 with the group policy extension", "stays in force"]);
    node.ip("link del other").unwrap();
    has_device(node, "flannel.1", "dstport 4790 ");
    says_nothing(node);
}

#[test]
fn a_port_that_another_program_has_is_found_by_trying_and_waits_until_it_is_free() {
    let cluster = one_node("held-port");
    let node = cluster.node("master1");
    let taken = node.inside(|| UdpSocket::bind("0.0.0.0:4790").unwrap()).unwrap();
    cluster.write_net_conf(OTHER_PORT).unwrap();
    holds_back(&cluster, &["UDP port 4790 is in use by another program", "stays in force"]);
    drop(taken);
    has_device(node, "flannel.1", "dstport 4790 ");
    says_nothing(node);
}

#[test]
fn a_net_conf_that_cannot_be_read_leaves_the_remembered_one_in_force_after_a_restart() {
    let cluster = one_node("held-garbage");
    let node = cluster.node("master1");
    let wired = Picture::of(node);
    node.flanneld().stop(flannel_lab::Signal::TERM).unwrap();
    cluster.write_net_conf(r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vx"#).unwrap();
    node.start_flanneld([] as [&str; 0]).unwrap();
    is_ready(node);
    says(node, &["config.json holds no net-conf", "stays in force"]);
    assert_eq!(wired.changes_to(&Picture::of(node)), [] as [&str; 0]);
    follows_a_new_peer(&cluster);
    cluster.write_net_conf(VXLAN).unwrap();
    says_nothing(node);
    assert_eq!(wired.changes_to(&Picture::of(node)), [] as [&str; 0]);
}

#[test]
fn a_node_that_never_had_a_net_conf_waits_for_one_that_it_can_satisfy_and_says_why() {
    let cluster = Cluster::flat("held-never", 1, LATER);
    let node = cluster.node("master1");
    let before = Picture::of(node);
    node.start_flanneld([] as [&str; 0]).unwrap();
    wait_until("the reason", || match node.http_get(8081, "/readyz") {
        Ok((503, body)) if body.contains("backend wireguard comes with a later version") => Ok(()),
        answer => Err(format!("{answer:?}")),
    });
    assert_eq!(before.changes_to(&Picture::of(node)), [] as [&str; 0]);
    assert_eq!(cluster.leases().all(), []);
    cluster.write_net_conf(VXLAN).unwrap();
    is_ready(node);
}
