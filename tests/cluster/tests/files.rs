//! What others put in the place of the daemon's files hangs neither it nor those who read them, and it writes until
//! it can.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use cluster_tests::{Cluster, VXLAN, flanneld_path, is_ready, options, readyz, state, wait_until};
use flannel_lab::{LabOptions, Node, Signal, Topology};
use rustix::fs::{CWD, FileType, Mode, mknodat};

const SUBNET_ENV: &str = "/run/flannel/subnet.env";
const STATE: &str = "/run/flannel/state.json";
const SNAPSHOT: &str = "/var/lib/flannel/run-flannel-subnet.env.snapshot.json";
const SNAPSHOT_IN_RUN: &str = "/run/flannel/run-flannel-subnet.env.snapshot.json";

fn one_node(name: &str) -> Cluster {
    let cluster = Cluster::up(name, LabOptions { topology: Topology::flat(1).unwrap(), ..options(VXLAN) });
    fs::create_dir_all(cluster.node("master1").path("/var/lib/flannel")).unwrap();
    start(cluster.node("master1"));
    cluster
}

fn start(node: &Node) {
    node.start_flanneld([] as [&str; 0]).unwrap();
    is_ready(node);
}

fn is_file(node: &Node, path: &str) {
    wait_until(&format!("{path} to be a file"), || match fs::symlink_metadata(node.path(path)) {
        Ok(found) if found.is_file() => Ok(()),
        found => Err(format!("{found:?}\n{}", node.log())),
    });
}

fn remove(path: PathBuf) {
    let _ = fs::remove_dir(&path);
    let _ = fs::remove_file(&path);
}

/// Puts something in the place of a file.
fn put(node: &Node, path: &str, what: &str) {
    let (inside, path) = (path, node.path(path));
    remove(path.clone());
    match what {
        "pipe" => mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap(),
        "folder" => fs::create_dir(path).unwrap(),
        target => drop(node.run("ln", ["-sfT", target, inside]).unwrap()),
    }
}

/// What `flannelctl status` says; it must come to an end.
fn status(node: &Node) -> String {
    let flannelctl = flanneld_path().with_file_name("flannelctl").display().to_string();
    let mut command: Command = node.command("timeout", ["60", &flannelctl, "status"]);
    let output = command.output().unwrap();
    assert_ne!(output.status.code(), Some(124), "it hangs");
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn pipes_and_devices_in_the_place_of_its_files_hang_nobody_and_are_replaced() {
    let cluster = one_node("odd-files");
    let node = cluster.node("master1");
    for what in ["pipe", "/dev/zero"] {
        node.flanneld().stop(Signal::TERM).unwrap();
        [SUBNET_ENV, STATE, SNAPSHOT].iter().for_each(|path| put(node, path, what));
        let said = status(node);
        assert!(said.contains("not a regular file"), "{said}");
        start(node);
        [SUBNET_ENV, STATE, SNAPSHOT].iter().for_each(|path| is_file(node, path));
        put(node, SUBNET_ENV, what);
        is_file(node, SUBNET_ENV);
    }
}

#[test]
fn a_folder_in_the_place_of_a_report_is_told_once_and_the_report_is_written_when_it_is_gone() {
    let cluster = one_node("folder-for-file");
    let node = cluster.node("master1");
    node.flanneld().stop(Signal::TERM).unwrap();
    [STATE, SNAPSHOT].iter().for_each(|path| put(node, path, "folder"));
    start(node);
    let told = |words: &str| node.log().lines().filter(|line| line.contains(words)).count();
    wait_until("both to be told", || {
        let both = ["cannot write the state report", "what the store says cannot be kept"];
        if both.iter().all(|words| told(words) == 1) { Ok(()) } else { Err(node.log()) }
    });
    // Longer than it takes to try again.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(told("cannot write the state report"), 1, "{}", node.log());
    [STATE, SNAPSHOT].iter().for_each(|path| remove(node.path(path)));
    [STATE, SNAPSHOT].iter().for_each(|path| is_file(node, path));
    assert_eq!((state(node)["ready"].as_bool(), readyz(node).0), (Some(true), 200));
}

#[test]
fn a_place_that_lasts_but_is_read_only_is_told_and_given_up_for_run() {
    let cluster = one_node("read-only");
    let node = cluster.node("master1");
    node.flanneld().stop(Signal::TERM).unwrap();
    fs::remove_file(node.path(SNAPSHOT)).unwrap();
    let mount = "mount --bind /var/lib/flannel /var/lib/flannel && mount -o remount,bind,ro /var/lib/flannel";
    node.run("sh", ["-c", mount]).unwrap();
    start(node);
    is_file(node, SNAPSHOT_IN_RUN);
    let log = node.log();
    let told: Vec<_> = log.lines().filter(|line| line.contains("does not outlast a reboot")).collect();
    assert!(told.len() == 1 && told[0].contains(SNAPSHOT_IN_RUN), "{log}");
}
