//! A daemon that is told to end does so, whatever it does at that moment, and as process 1 of a container too.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cluster_tests::{Cluster, Daemon, VXLAN, options, wait_until};
use flannel_lab::{LabOptions, Signal, Topology, wait_for};
use rustix::process::{Pid, kill_process};

/// Three seconds are promised; a busy machine may take its time, but no child is waited for so briefly.
const LIMIT: Duration = Duration::from_secs(9);

fn one_node(name: &str) -> Cluster {
    Cluster::up(name, LabOptions { topology: Topology::flat(1).unwrap(), ..options(VXLAN) })
}

fn has_said(daemon: &Daemon, words: &str) {
    wait_until(&format!("flanneld to say {words:?}"), || {
        let log = daemon.log();
        if log.contains(words) { Ok(()) } else { Err(log) }
    });
}

/// Its first child.
fn child_of(pid: u32) -> Pid {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    Pid::from_raw(text.split_whitespace().next().unwrap().parse().unwrap()).unwrap()
}

#[test]
fn process_1_that_is_told_to_stop_while_it_starts_does_not_forget_it() {
    let cluster = one_node("first-moments");
    let node = cluster.node("master1");
    // The start waits for its port, and goes on once that is free.
    let port = node.inside(|| TcpListener::bind("127.0.0.1:8081")).unwrap().unwrap();
    let mut daemon = Daemon::start_under(node, &["unshare", "--pid", "--fork", "--kill-child"], &[], &[]);
    has_said(&daemon, "flanneld starts");
    kill_process(child_of(daemon.pid()), Signal::TERM).unwrap();
    drop(port);
    let (status, took) = daemon.ended();
    println!("ended after {took:?}");
    assert_eq!(status.code(), Some(0), "{}", daemon.log());
}

/// A folder with programs in the place of iptables that never end, and tell in a file that they were started.
fn hanging_programs(folder: &Path) {
    for name in ["iptables", "ip6tables"]
        .iter()
        .flat_map(|name| ["", "-save", "-restore"].map(|end| format!("{name}{end}")))
    {
        let path = folder.join(name);
        fs::write(&path, format!("#!/bin/sh\n: > {}/started\nexec sleep 120\n", folder.display())).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// A daemon whose iptables hangs, the moment it does; and the folder of those programs.
fn daemon_that_hangs(cluster: &Cluster) -> (Daemon, PathBuf) {
    let folder = std::env::temp_dir().join(flannel_lab::unique_name("hanging-programs"));
    fs::create_dir(&folder).unwrap();
    hanging_programs(&folder);
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let daemon = Daemon::start_under(cluster.node("master1"), &[], &["--ip-masq"], &[("PATH", &path)]);
    wait_until("the loop to hang in a program", || {
        if folder.join("started").exists() { Ok(()) } else { Err(daemon.log()) }
    });
    (daemon, folder)
}

#[test]
fn a_loop_that_hangs_does_not_keep_the_daemon_alive() {
    let cluster = one_node("hanging-loop");
    let (mut daemon, folder) = daemon_that_hangs(&cluster);
    daemon.signal(Signal::TERM);
    let (status, took) = daemon.ended();
    println!("ended after {took:?}");
    assert_eq!(status.code(), Some(0), "{}", daemon.log());
    assert!(took < LIMIT, "{took:?}");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn programs_that_hang_are_killed_and_the_loop_comes_round() {
    let cluster = one_node("hanging-programs");
    let node = cluster.node("master1");
    let (daemon, folder) = daemon_that_hangs(&cluster);
    wait_for("the loop to get past them", Duration::from_secs(180), || {
        let log = daemon.log();
        if log.contains("lease held") { Ok(()) } else { Err(log) }
    })
    .unwrap();
    assert_eq!(node.http_get(8081, "/healthz").unwrap().0, 200);
    fs::remove_dir_all(folder).unwrap();
}
