//! What can be wrong around a daemon: it says what and why, changes nothing, and goes on by itself when it is mended.

use std::fs;

use cluster_tests::{
    Cluster, Daemon, Leases, PeerLease, Picture, VXLAN, is_ready, options, readyz, state, wait_until,
};
use flannel_lab::{LabOptions, Node, Topology};
use serde_json::Value;

const GARBAGE: &str = r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vx"#;

fn one_node(name: &str) -> Cluster {
    Cluster::up(name, LabOptions { topology: Topology::flat(1).unwrap(), ..options(VXLAN) })
}

/// Waits until /readyz refuses with a line that holds all these words.
fn refuses(node: &Node, words: &[&str]) {
    wait_until(&format!("/readyz to say {words:?}"), || match node.http_get(8081, "/readyz") {
        Ok((503, body)) if body.lines().any(|line| words.iter().all(|word| line.contains(word))) => Ok(()),
        answer => Err(format!("{answer:?}")),
    });
}

fn no_panic(log: &str) {
    assert!(!log.contains("panicked"), "{log}");
}

#[test]
fn a_store_that_is_not_there_ends_flanneld_with_1_and_says_what_to_do() {
    let cluster = one_node("no-store");
    let node = cluster.node("master1");
    let before = Picture::of(node);
    let mut daemon = Daemon::start(node, &["--lease-dir", "/var/lib/nowhere"]);
    let (status, _) = daemon.ended();
    assert_eq!(status.code(), Some(1));
    let said = daemon.log();
    let words = "lease store /var/lib/nowhere cannot be used: No such file or directory (os error 2): create the directory, or name another one";
    assert!(said.lines().last().unwrap().contains(words), "{said}");
    no_panic(&said);
    assert_eq!(before.changes_to(&Picture::of(node)), [] as [&str; 0]);
}

#[test]
fn a_net_conf_that_is_missing_or_broken_is_named_and_a_good_one_is_taken_at_once() {
    let cluster = one_node("net-conf");
    let (node, config) = (cluster.node("master1"), cluster.store().join("config.json"));
    fs::remove_file(&config).unwrap();
    let before = Picture::of(node);
    node.start_flanneld([] as [&str; 0]).unwrap();
    refuses(node, &["config.json is not there", "write the net-conf into it"]);
    cluster.write_net_conf(GARBAGE).unwrap();
    refuses(node, &["config.json holds no net-conf"]);
    cluster
        .write_net_conf(
            r#"{"Network":"10.244.0.0/33","SubnetLen":5,"Backend":{"Type":"vxlan","VNI":99999999}}"#,
        )
        .unwrap();
    refuses(node, &["config.json holds no net-conf", "10.244.0.0/33"]);
    assert_eq!(before.changes_to(&Picture::of(node)), [] as [&str; 0]);
    assert!(!fs::exists(node.path("/run/flannel/subnet.env")).unwrap());
    cluster.write_net_conf(VXLAN).unwrap();
    is_ready(node);

    let wired = Picture::of(node);
    cluster.write_net_conf(GARBAGE).unwrap();
    wait_until("the running daemon to name the garbage", || {
        let (code, lines) = readyz(node);
        let told = lines.iter().any(|line| {
            line.contains("config.json holds no net-conf")
                && line.contains("what it said before stays in force")
        });
        if code == 200 && told { Ok(()) } else { Err(format!("{code} {lines:#?}")) }
    });
    assert_eq!(wired.changes_to(&Picture::of(node)), [] as [&str; 0]);
    cluster.write_net_conf(VXLAN).unwrap();
    wait_until("the note to go", || {
        let lines = readyz(node).1;
        if lines == ["flanneld is ready"] { Ok(()) } else { Err(lines.join("\n")) }
    });
    assert_eq!(wired.changes_to(&Picture::of(node)), [] as [&str; 0]);
    no_panic(&node.log());
}

#[test]
fn a_peers_lease_that_becomes_garbage_is_named_and_what_it_said_stays_in_force() {
    let cluster = one_node("garbage");
    let (node, leases) = (cluster.node("master1"), cluster.leases());
    let lease = PeerLease::vxlan("10.244.7.0-24", "ghost", "10.0.0.77", "0e:00:00:00:00:07");
    leases.write(&lease);
    cluster.start(&["master1"]);
    let before = Picture::of(node);
    assert!(before.has("route 10.244.7.0/24 via 10.244.7.0 dev flannel.1 "));
    leases.write_text(&lease.key, "garbage");
    wait_until("the garbage to be named", || {
        let (code, lines) = readyz(node);
        let words = ["/leases/10.244.7.0-24.json holds no lease", "what it said before stays in force"];
        let told = lines.iter().any(|line| words.iter().all(|word| line.contains(word)));
        if code == 200 && told { Ok(()) } else { Err(format!("{code} {lines:#?}")) }
    });
    assert_eq!(before.changes_to(&Picture::of(node)), [] as [&str; 0]);
    leases.write(&lease);
    wait_until("the note to go", || {
        let lines = readyz(node).1;
        if lines == ["flanneld is ready"] { Ok(()) } else { Err(lines.join("\n")) }
    });
    assert_eq!(before.changes_to(&Picture::of(node)), [] as [&str; 0]);
}

#[test]
fn a_nodes_own_lease_that_is_removed_or_becomes_garbage_is_written_again() {
    let cluster = one_node("own-garbage");
    let (node, leases) = (cluster.node("master1"), cluster.leases());
    cluster.start(&["master1"]);
    let (wired, own) = (Picture::of(node), leases.owned_by("master1"));
    let breaks: [fn(&Leases, &str); 2] = [Leases::remove, |leases, key| leases.write_text(key, "garbage")];
    for break_it in breaks {
        break_it(&leases, &own.0);
        wait_until("the lease to be whole again", || {
            let found = leases.all();
            let same = |(key, lease): &(String, Value)| {
                *key == own.0 && lease["BackendData"] == own.1["BackendData"]
            };
            if found.len() == 1 && same(&found[0]) {
                Ok(())
            } else {
                Err(format!("{found:?}\n{}", node.log()))
            }
        });
        assert_eq!(wired.changes_to(&Picture::of(node)), [] as [&str; 0]);
        assert_eq!(leases.owned_by("master1").0, own.0);
    }
}

#[test]
fn a_full_disk_under_the_store_is_named_and_the_lease_comes_when_there_is_room() {
    let cluster = one_node("full-disk");
    let node = cluster.node("master1");
    let mount = ["-t", "tmpfs", "-o", "size=16k", "small", "/var/lib/flannel-store"];
    node.run("mount", mount).unwrap();
    fs::write(node.path("/var/lib/flannel-store/config.json"), VXLAN).unwrap();
    fs::write(node.path("/var/lib/flannel-store/lock"), "").unwrap();
    fs::create_dir(node.path("/var/lib/flannel-store/leases")).unwrap();
    let _ = fs::write(node.path("/var/lib/flannel-store/ballast"), [0; 64 * 1024]);
    let before = Picture::of(node);
    node.start_flanneld([] as [&str; 0]).unwrap();
    refuses(node, &["waiting for a lease: cannot write", "No space left on device", "free some space"]);
    assert_eq!(before.changes_to(&Picture::of(node)), [] as [&str; 0]);
    fs::remove_file(node.path("/var/lib/flannel-store/ballast")).unwrap();
    is_ready(node);
    no_panic(&node.log());
}

#[test]
fn a_subnet_file_that_cannot_be_written_keeps_the_node_unready_until_it_can() {
    let cluster = one_node("read-only");
    let node = cluster.node("master1");
    fs::create_dir(node.path("/run/flannel")).unwrap();
    node.run("mount", ["-t", "tmpfs", "-o", "ro", "ro", "/run/flannel"]).unwrap();
    node.start_flanneld([] as [&str; 0]).unwrap();
    refuses(node, &["/run/flannel/subnet.env", "Read-only file system", "mount it writable"]);
    assert!(Picture::of(node).has("link flannel.1: "), "the node itself is wired");
    node.run("mount", ["-o", "remount,rw", "/run/flannel"]).unwrap();
    is_ready(node);
    wait_until("state.json to be there", || match state(node)["ready"].as_bool() {
        Some(true) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    no_panic(&node.log());
}

/// Runs flanneld with less than root's rights: it says what it lacks, stays, and changes nothing.
fn lacks_a_right(node: &Node, under: &[&str], words: &[&str]) {
    let before = Picture::of(node);
    let mut daemon = Daemon::start_under(node, under, &[], &[]);
    refuses(node, words);
    assert!(daemon.lives(), "{}", daemon.log());
    no_panic(&daemon.log());
    assert_eq!(before.changes_to(&Picture::of(node)), [] as [&str; 0]);
    assert!(!fs::exists(node.path("/run/flannel/subnet.env")).unwrap());
}

#[test]
fn a_daemon_without_the_rights_of_root_says_which_it_lacks_and_changes_nothing() {
    let cluster = one_node("no-right");
    let node = cluster.node("master1");
    let plain_user = ["setpriv", "--reuid", "65534", "--clear-groups"];
    let no_lease = ["waiting for a lease", "/var/lib/flannel-store/lock", "Permission denied", "run as root"];
    lacks_a_right(node, &plain_user, &no_lease);
    let all_but_one = ["setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-net_admin"];
    let no_device = ["cannot create link flannel.1", "CAP_NET_ADMIN", "run it as root, or privileged"];
    lacks_a_right(node, &all_but_one, &no_device);
    lacks_a_right(node, &plain_user, &no_device);
}

#[test]
fn an_empty_dev_folder_does_not_matter() {
    let cluster = one_node("no-dev");
    let node = cluster.node("master1");
    node.run("mount", ["-t", "tmpfs", "empty", "/dev"]).unwrap();
    let mut daemon = Daemon::start(node, &[]);
    is_ready(node);
    assert!(daemon.lives());
    no_panic(&daemon.log());
}

#[test]
fn a_device_of_that_name_that_is_not_ours_is_named_and_left_alone() {
    let cluster = one_node("name-taken");
    let node = cluster.node("master1");
    node.ip("link add flannel.1 type bridge").unwrap();
    let before = Picture::of(node);
    node.start_flanneld([] as [&str; 0]).unwrap();
    refuses(node, &["flannel.1", "is not ours", "`ip link del flannel.1`"]);
    assert_eq!(before.changes_to(&Picture::of(node)), [] as [&str; 0]);
    node.ip("link del flannel.1").unwrap();
    is_ready(node);
}
