//! Which daemon a device belongs to: by the real folder and the pod network, whatever path leads to the folder.

use std::fs;

use cluster_tests::{Cluster, Daemon, is_ready, readyz, wait_until};
use flannel_lab::{Node, Signal};

const NFT: &str = r#"{"Network":"10.244.0.0/16","EnableNFTables":true,"Backend":{"Type":"vxlan"}}"#;
const BLUE: &str = r#"{"Network":"10.99.0.0/16","EnableNFTables":true,"Backend":{"Type":"vxlan","VNI":9}}"#;
/// A folder of its own where the others have theirs, as in a container.
const CONTAINER: [&str; 5] =
    ["unshare", "-m", "sh", "-c", "mount -t tmpfs tmpfs /run/flannel && exec \"$0\" \"$@\""];

/// A daemon with masquerade and its subnet file at a path, ready.
fn started(node: &Node, subnet_file: &str) -> Daemon {
    let daemon = Daemon::start(node, &["--ip-masq", "--subnet-file", subnet_file]);
    is_ready(node);
    daemon
}

fn end(mut daemon: Daemon) {
    daemon.signal(Signal::TERM);
    daemon.ended();
}

/// The number and the mark of a device; none if it is not there.
fn device(node: &Node, name: &str) -> Option<(String, String)> {
    let text = node.ip("-d -o link").unwrap();
    let line = text.lines().find(|line| line.contains(&format!(": {name}: ")))?;
    let mark = line.split_once("alias ").map(|(_, mark)| mark.trim().to_owned()).unwrap_or_default();
    Some((line.split(':').next().unwrap().to_owned(), mark))
}

fn rules(node: &Node) -> Vec<String> {
    let text = node.run("nft", ["list", "ruleset"]).unwrap();
    text.lines().map(|line| line.trim().to_owned()).collect()
}

#[test]
fn another_path_to_the_same_folder_is_the_same_daemon() {
    let cluster = Cluster::flat("linked", 1, NFT);
    let node = cluster.node("master1");
    end(started(node, "/run/flannel/subnet.env"));
    let before = (device(node, "flannel.1"), rules(node));
    node.run("ln", ["-s", "/run/flannel", "/run/linked"]).unwrap();
    let _daemon = started(node, "/run/linked/subnet.env");
    assert_eq!((device(node, "flannel.1"), rules(node)), before);
}

#[test]
fn two_daemons_with_folders_of_their_own_at_one_path_leave_each_other_alone() {
    let cluster = Cluster::flat("same-path", 1, NFT);
    let node = cluster.node("master1");
    fs::create_dir(cluster.store().join("blue")).unwrap();
    fs::write(cluster.store().join("blue/config.json"), BLUE).unwrap();
    let blue = || {
        let own = ["--ip-masq", "--lease-dir", "/var/lib/flannel-store/blue", "--healthz-port", "8082"];
        let daemon = Daemon::start_under(node, &CONTAINER, &own, &[]);
        wait_until("the second daemon to be ready", || match node.http_get(8082, "/readyz") {
            Ok((200, _)) => Ok(()),
            answer => Err(format!("{answer:?}\n{}", daemon.log())),
        });
        daemon
    };
    let red = started(node, "/run/flannel/subnet.env");
    let first = device(node, "flannel.1");
    let other = blue();
    let second = device(node, "flannel.9");
    let together = rules(node);
    assert!(together.iter().any(|line| line.contains("10.244.0.0/16")), "{together:#?}");
    assert!(together.iter().any(|line| line.contains("10.99.0.0/16")), "{together:#?}");
    // Each looks at everything when it starts.
    end(red);
    let red = started(node, "/run/flannel/subnet.env");
    drop(other);
    let other = blue();
    // The folder of a container is another one each time; what it left is adopted all the same.
    assert_eq!(device(node, "flannel.1"), first, "{}\n{}", red.log(), other.log());
    assert_eq!(device(node, "flannel.9").map(|it| it.0), second.map(|it| it.0), "{}", other.log());
    let masquerades = |lines: &[String], net: &str| {
        lines.iter().filter(|line| line.contains(net) && line.contains("masquerade")).count()
    };
    assert_eq!(masquerades(&rules(node), "10.244.0.0/16"), masquerades(&together, "10.244.0.0/16"));
}

#[test]
fn a_device_of_a_daemon_that_is_gone_is_adopted_and_of_one_that_lives_refused() {
    let cluster = Cluster::flat("gone", 1, NFT);
    let node = cluster.node("master1");
    let first = started(node, "/run/first/subnet.env");
    let number = device(node, "flannel.1").map(|it| it.0);
    let arguments = ["--ip-masq", "--subnet-file", "/run/second/subnet.env", "--healthz-port", "8082"];
    let second = Daemon::start(node, &arguments);
    wait_until("the second daemon to say that the device is taken", || {
        match node.http_get(8082, "/readyz") {
            Ok((503, text)) if text.contains("flannel.1") && text.contains("not ours") => Ok(()),
            answer => Err(format!("{answer:?}\n{}", second.log())),
        }
    });
    assert_eq!(readyz(node).0, 200);
    end(first);
    drop(second);
    let _second = started(node, "/run/second/subnet.env");
    assert_eq!(device(node, "flannel.1").map(|it| it.0), number);
}

#[test]
fn the_longest_path_is_no_obstacle_and_a_mark_of_the_first_version_is_ours() {
    let cluster = Cluster::flat("longest", 1, NFT);
    let node = cluster.node("master1");
    let path = format!("/run/{}/{}.env", "a".repeat(200), "b".repeat(200));
    end(started(node, &path));
    let number = device(node, "flannel.1").map(|it| it.0);
    node.run("ip", ["link", "set", "flannel.1", "alias", "flanneld /run/flannel/subnet.env"]).unwrap();
    let _daemon = started(node, "/run/flannel/subnet.env");
    let now = device(node, "flannel.1").unwrap();
    assert_eq!(Some(now.0), number);
    assert!(now.1.starts_with("flanneld subnet.env@") && now.1.ends_with(" 10.244.0.0/16"), "{}", now.1);
}
