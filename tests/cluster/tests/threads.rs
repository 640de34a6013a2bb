//! The threads of a running flanneld are those that ARCHITECTURE.md lists.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use cluster_tests::{Cluster, Daemon, VXLAN, options, wait_until};
use flannel_lab::{LabOptions, Topology};

/// The first column of the table of threads; the first thread has the name of the program.
fn listed() -> BTreeSet<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ARCHITECTURE.md");
    let text = fs::read_to_string(file).unwrap();
    let (_, rest) = text.split_once("\n## The threads of flanneld\n").unwrap();
    let table = rest.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let rows = table.take_while(|line| line.starts_with('|'));
    let names = rows.map(|row| row.split('|').nth(1).unwrap().trim().trim_matches('`'));
    names.map(|name| if name == "main" { "flanneld" } else { name }.to_owned()).collect()
}

fn running(pid: u32) -> BTreeSet<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names.map(|name| name.trim().to_owned()).collect()
}

#[test]
fn a_flanneld_that_runs_has_the_threads_that_its_architecture_lists() {
    let one = LabOptions { topology: Topology::flat(1).unwrap(), ..options(VXLAN) };
    let cluster = Cluster::up("threads", one);
    let daemon = Daemon::start(cluster.node("master1"), &[]);
    wait_until("flanneld to have its threads", || {
        let found = running(daemon.pid());
        if found == listed() { Ok(()) } else { Err(format!("{found:?}, listed {:?}", listed())) }
    });
}
