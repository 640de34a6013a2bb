//! The lab without flanneld: machines, cables, addresses, power, and that nothing of it stays behind. Needs root.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::time::Duration;

use flannel_lab::{Flanneld, Lab, LabError, LabOptions, Topology, lab_processes, unique_name, wait_for};

fn options(name: &str) -> LabOptions {
    LabOptions { name: unique_name(name), flanneld: Flanneld::NotStarted, ..LabOptions::default() }
}

fn processes_of(lab: &str) -> usize {
    lab_processes().iter().filter(|process| process.lab == lab).count()
}

/// Where a careless lab would leave folders on the host's disk.
const MOUNT_POINTS: [&str; 6] = [
    "/etc/cni",
    "/opt/cni",
    "/var/lib/cni",
    "/var/lib/flannel",
    "/etc/kube-flannel",
    "/var/lib/flannel-store",
];

/// What the host shows to everybody: its interfaces, routes and mounts, and the folders that a lab mounts on.
fn host() -> [BTreeSet<String>; 4] {
    let ip = |words: &[&str]| {
        let output = Command::new("ip").args(words).output().unwrap();
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    };
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap().lines().map(str::to_owned).collect();
    let folders =
        MOUNT_POINTS.iter().filter(|path| fs::exists(path).unwrap()).map(|path| (*path).to_owned()).collect();
    [ip(&["-o", "link", "show"]), ip(&["route", "show", "table", "all"]), mounts, folders]
}

/// Takes a kept lab down even if the test fails half-way.
struct Kept(String);

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = Lab::remove(&self.0);
    }
}

fn assert_nothing_is_left_of(name: &str) {
    assert_eq!(processes_of(name), 0);
    assert!(!fs::exists(format!("/run/flannel-lab/{name}")).unwrap());
    assert!(!Lab::names().contains(&name.to_owned()));
}

#[test]
fn every_node_reaches_every_node_in_both_families_and_the_host_sees_nothing() {
    let before = host();
    let lab = Lab::up(options("ping")).unwrap();
    for from in lab.nodes() {
        for to in lab.nodes() {
            from.ping(to.v4()).unwrap();
            from.ping(to.v6()).unwrap();
        }
    }
    assert_eq!(host(), before);
    let name = lab.name().to_owned();
    lab.down().unwrap();
    assert_nothing_is_left_of(&name);
    assert_eq!(host(), before);
}

#[test]
fn two_labs_live_side_by_side_and_one_goes_without_the_other() {
    let (first, second) = (Lab::up(options("side")).unwrap(), Lab::up(options("side")).unwrap());
    let name = first.name().to_owned();
    drop(first);
    assert_nothing_is_left_of(&name);
    let (worker1, worker3) = (second.node("worker1").unwrap(), second.node("worker3").unwrap());
    worker1.ping(worker3.v4()).unwrap();
}

#[test]
fn a_name_in_use_is_refused_and_the_message_says_how_to_free_it() {
    let lab = Lab::up(LabOptions { topology: Topology::flat(1).unwrap(), ..options("twice") }).unwrap();
    let again = LabOptions { name: lab.name().to_owned(), ..options("twice") };
    let said = Lab::up(again).unwrap_err().to_string();
    let name = lab.name();
    assert_eq!(
        said,
        format!("lab {name} is there already: take it down with `flannelctl lab down --name {name}`")
    );
    assert!(processes_of(name) > 0);
}

#[test]
fn a_half_made_lab_is_taken_down_whether_or_not_its_folder_is_left() {
    for folder in ["stays", "goes"] {
        let lab = Lab::up(options("half")).unwrap();
        let (name, path) = (lab.name().to_owned(), lab.folder().to_owned());
        let _kept = Kept(name.clone());
        lab.keep();
        fs::remove_file(path.join("lab.json")).unwrap();
        if folder == "goes" {
            fs::remove_dir_all(&path).unwrap();
        }
        assert!(processes_of(&name) > 0);
        Lab::remove(&name).unwrap();
        assert_nothing_is_left_of(&name);
    }
}

#[test]
fn an_interrupt_leaves_nothing_behind() {
    let stopped = options("stop");
    let name = stopped.name.clone();
    stopped.interrupt.raise();
    assert!(matches!(Lab::up(stopped), Err(LabError::Interrupted)));
    assert_nothing_is_left_of(&name);
}

#[test]
fn a_lab_that_was_kept_is_found_again_by_its_name() {
    let lab = Lab::up(options("kept")).unwrap();
    let (name, pid) = (lab.name().to_owned(), lab.node("worker1").unwrap().pid());
    let _kept = Kept(name.clone());
    lab.keep();
    let found = Lab::open(&name).unwrap();
    assert_eq!(found.node("worker1").unwrap().pid(), pid);
    found.node("worker1").unwrap().ping(found.node("worker3").unwrap().v6()).unwrap();
    assert_eq!(
        found.node("worker9").unwrap_err().to_string(),
        format!("lab {name} has no worker9: it has master1, worker1, worker2, worker3")
    );
    found.down().unwrap();
    assert_nothing_is_left_of(&name);
}

#[test]
fn a_power_failure_takes_memory_and_processes_and_leaves_the_disk() {
    let lab = Lab::up(options("power")).unwrap();
    let (worker1, worker2) = (lab.node("worker1").unwrap(), lab.node("worker2").unwrap());
    worker1.run("sh", ["-c", "echo kept > /var/lib/cni/a; echo kept > /etc/b; echo lost > /run/c"]).unwrap();
    let mac = worker1.ip("-o link show eth0").unwrap();
    worker1.power_off().unwrap();
    assert!(worker2.ping(worker1.v4()).is_err());
    assert!(matches!(worker1.run("true", [""; 0]), Err(LabError::PoweredOff(node)) if node == "worker1"));
    assert_eq!(fs::read_to_string(worker1.disk_path("/var/lib/cni/a")).unwrap(), "kept\n");
    worker1.power_on().unwrap();
    let files = worker1.run("sh", ["-c", "cat /var/lib/cni/a /etc/b; ls /run; hostname"]).unwrap();
    assert_eq!(files, "kept\nkept\nworker1\n");
    let ether = |line: &str| {
        line.split_whitespace().skip_while(|word| *word != "link/ether").nth(1).map(str::to_owned)
    };
    assert_eq!(ether(&worker1.ip("-o link show eth0").unwrap()), ether(&mac));
    worker1.ping(lab.node("worker3").unwrap().v4()).unwrap();
    assert!(!fs::exists("/etc/b").unwrap());
}

#[test]
fn every_boot_of_every_node_has_a_number_of_its_own() {
    let lab = Lab::up(LabOptions { topology: Topology::flat(2).unwrap(), ..options("boot") }).unwrap();
    let boot = |node: &str| lab.node(node).unwrap().run("cat", ["/proc/sys/kernel/random/boot_id"]).unwrap();
    let (first, other) = (boot("worker1"), boot("master1"));
    lab.node("worker1").unwrap().power_off().unwrap();
    lab.node("worker1").unwrap().power_on().unwrap();
    let ours = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let numbers = BTreeSet::from([first, other, boot("worker1"), ours]);
    assert!(numbers.len() == 4 && numbers.iter().all(|number| number.len() == 37), "{numbers:?}");
}

#[test]
fn a_pulled_cable_cuts_a_node_off_until_it_is_plugged_in() {
    let lab = Lab::up(options("cable")).unwrap();
    let (worker1, worker2) = (lab.node("worker1").unwrap(), lab.node("worker2").unwrap());
    worker1.unplug().unwrap();
    assert!(matches!(worker2.ping(worker1.v4()), Err(LabError::NoAnswer { .. })));
    worker1.plug().unwrap();
    // worker2 asked for its neighbour in vain; it asks again only after some seconds.
    let answers = || worker2.ping(worker1.v4()).map_err(|why| why.to_string());
    wait_for("worker1 to answer", Duration::from_secs(20), answers).unwrap();
}

#[test]
fn forty_nodes_of_one_segment_reach_each_other() {
    let lab = Lab::up(LabOptions { topology: Topology::flat(40).unwrap(), ..options("flat") }).unwrap();
    lab.node("master1").unwrap().ping(lab.node("worker39").unwrap().v4()).unwrap();
    lab.node("worker39").unwrap().ping(lab.node("worker1").unwrap().v6()).unwrap();
}
