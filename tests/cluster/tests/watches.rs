//! A watch that fails comes back: what is broken afterwards is repaired at once again, not by the safety look.
//!
//! Needs `strace`, which makes a call of one thread fail.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cluster_tests::{Cluster, VXLAN, metrics, options, wait_until};
use flannel_lab::{Flanneld, LabOptions, Node, Topology};

/// Far less than the minute that the safety look takes, and far more than a repair.
const AT_ONCE: Duration = Duration::from_secs(25);

fn one_node(name: &str) -> Cluster {
    let topology = Topology::flat(1).unwrap();
    Cluster::up(name, LabOptions { topology, flanneld: Flanneld::Started, ..options(VXLAN) })
}

fn failures(node: &Node, watch: &str) -> f64 {
    metrics(node).get(&format!("flannel_watch_failures_total{{watch=\"{watch}\"}}"))
}

fn has_failed(node: &Node, watch: &str) {
    wait_until(&format!("{watch} to fail"), || match failures(node, watch) {
        0.0 => Err(node.log()),
        _ => Ok(()),
    });
}

/// Breaks something, and waits until it is whole.
fn healed_at_once(what: &str, damage: impl FnOnce(), is_whole: impl Fn() -> bool) {
    let start = Instant::now();
    damage();
    wait_until(what, || if is_whole() { Ok(()) } else { Err("it is still broken".to_owned()) });
    println!("{what}: {:?}", start.elapsed());
    assert!(start.elapsed() < AT_ONCE, "{what}: {:?}", start.elapsed());
}

#[test]
fn the_watch_over_the_subnet_file_comes_back_though_its_folder_was_none_for_a_while() {
    let cluster = one_node("file-watch");
    let node = cluster.node("master1");
    let (folder, file) = (node.path("/run/flannel"), node.path("/run/flannel/subnet.env"));
    wait_until("no folder to be there", || {
        let _ = fs::remove_dir_all(&folder);
        fs::write(&folder, "").map_err(|why| why.to_string())
    });
    has_failed(node, "file-watch");
    fs::remove_file(&folder).unwrap();
    wait_until("the subnet file to be back", || if file.exists() { Ok(()) } else { Err(node.log()) });
    // The safety look is a minute away from now on.
    for _ in 0..2 {
        healed_at_once("the subnet file", || fs::remove_file(&file).unwrap(), || file.exists());
    }
}

/// Makes the calls of a thread fail, by which it hears of the kernel.
struct Deaf(Child);

impl Deaf {
    fn make(node: &Node, thread: &str) -> Self {
        let tasks = format!("/proc/{}/task", node.flanneld().pid().unwrap());
        let is_it = |tid: &str| {
            fs::read_to_string(format!("{tasks}/{tid}/comm")).is_ok_and(|name| name.trim() == thread)
        };
        let tids = fs::read_dir(&tasks).unwrap().map(|task| task.unwrap().file_name().into_string().unwrap());
        let tid = tids.into_iter().find(|tid| is_it(tid)).unwrap();
        let inject = ["-qq", "-e", "inject=recvfrom:error=ENOMEM", "-p", &tid];
        let strace = Command::new("strace").args(inject).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Self(strace.expect("strace is needed"))
    }
}

impl Drop for Deaf {
    fn drop(&mut self) {
        // Not killed: it lets go of the thread first.
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, flannel_lab::Signal::TERM);
        let _ = self.0.wait();
    }
}

#[test]
fn the_watches_over_the_kernel_and_its_rules_come_back_after_an_error() {
    let cluster = one_node("deaf");
    let node = cluster.node("master1");
    for watch in ["kernel-watch", "rule-watch"] {
        let deaf = Deaf::make(node, watch);
        has_failed(node, watch);
        drop(deaf);
        let log = node.log();
        let told =
            log.lines().filter(|line| line.contains("until the watch is back") && line.contains(watch));
        assert_eq!(told.count(), 1, "{log}");
    }
    let has_address = || node.ip("addr show dev flannel.1").unwrap().contains("inet 10.244.");
    let flush = || _ = node.ip("addr flush dev flannel.1").unwrap();
    healed_at_once("an address", flush, has_address);
    healed_at_once("an address again", flush, has_address);
    let rules = || node.run("iptables-save", [] as [&str; 0]).unwrap();
    let whole = rules().lines().filter(|line| line.contains("FLANNEL-FWD")).count();
    let is_whole = || rules().lines().filter(|line| line.contains("FLANNEL-FWD")).count() == whole;
    healed_at_once("rules", || _ = node.run("iptables", ["-F", "FLANNEL-FWD"]).unwrap(), is_whole);
}
