//! flannel-lab as a person uses it: the built program, its output and its exit codes. Needs root and a built
//! flanneld.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use flannel_lab::{lab_processes, unique_name, wait_for};

const LIMIT: Duration = Duration::from_secs(60);

/// A lab that is gone when the test is, in a folder of its own, so that no other test sweeps it.
struct TestLab {
    name: String,
    folder: PathBuf,
}

impl TestLab {
    fn new(purpose: &str) -> Self {
        let name = unique_name(purpose);
        let folder = PathBuf::from(format!("/run/flannel-lab-test-{name}"));
        Self { name, folder }
    }

    fn command(&self, verb: &str, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flannel-lab"));
        command.env("FLANNEL_LAB_DIR", &self.folder).stdin(Stdio::null());
        command.args([verb, "--name", &self.name]).args(words);
        command
    }

    fn run(&self, verb: &str, words: &[&str]) -> Output {
        self.command(verb, words).output().unwrap()
    }

    /// What it prints; it must succeed.
    fn said(&self, verb: &str, words: &[&str]) -> String {
        let output = self.run(verb, words);
        assert!(output.status.success(), "{verb}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The table of pings, once all are answered: on a busy machine the first may be lost.
    fn pings_that_answer(&self) -> String {
        let table = || {
            let output = self.run("ping", &[]);
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            if output.status.success() { Ok(said) } else { Err(said) }
        };
        wait_for("every pod to answer", LIMIT, table).unwrap()
    }

    fn processes(&self) -> usize {
        lab_processes().iter().filter(|process| process.lab == self.name).count()
    }

    /// Begins to bring it up, and returns when it is half-made.
    fn half_up(&self) -> Child {
        let quiet =
            |command: &mut Command| command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let child = quiet(&mut self.command("up", &[]));
        wait_for("a half-made lab", LIMIT, || {
            if self.processes() > 4 { Ok(()) } else { Err("too early".to_owned()) }
        })
        .unwrap();
        child
    }

    fn assert_nothing_is_left(&self) {
        assert_eq!(self.processes(), 0);
        assert!(!self.folder.exists());
    }
}

impl Drop for TestLab {
    fn drop(&mut self) {
        let _ = self.run("down", &[]);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn send(child: &Child, signal: &str) {
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn a_lab_comes_up_is_looked_at_broken_healed_and_goes() {
    let lab = TestLab::new("verbs");
    let up = lab.said("up", &["--dual-stack"]);
    assert!(up.contains("leaf02 30.0.0.254") && up.contains(&format!("lab {} is up", lab.name)), "{up}");
    let status = lab.said("status", &[]);
    assert_eq!(status.matches("ready").count(), 4, "{status}");
    let table = lab.pings_that_answer();
    assert_eq!((table.matches('✓').count(), table.matches('✗').count()), (32, 0), "{table}");
    assert_eq!(lab.said("exec", &["worker3", "hostname"]), "worker3\n");
    assert!(lab.said("exec", &["--pod", "pod1", "worker3", "ip", "address"]).contains("10.244."));
    assert_eq!(lab.run("exec", &["worker1", "sh", "-c", "exit 7"]).status.code(), Some(7));
    let broken = lab.said("break", &["worker1", "link"]);
    assert!(
        broken.contains("ip link del flannel.1") && broken.contains("repaired by flanneld after"),
        "{broken}"
    );
    let off = lab.said("break", &["worker3", "power"]);
    assert!(off.contains(&format!("flannelctl lab heal --name {} worker3", lab.name)), "{off}");
    assert!(lab.said("status", &[]).contains("off"));
    let healed = lab.said("heal", &["worker3"]);
    assert!(
        healed.starts_with("worker3: power on\nworker3: flanneld started\nworker3: pod pod1"),
        "{healed}"
    );
    assert_eq!(lab.said("heal", &["worker3"]), "worker3: nothing to heal\n");
    assert_eq!(lab.said("down", &[]), format!("lab {} is down\n", lab.name));
    lab.assert_nothing_is_left();
}

#[test]
fn ping_fails_if_a_pod_gives_no_answer() {
    let lab = TestLab::new("lost");
    lab.said("up", &["--backend", "host-gw", "--racks", "2", "--nodes", "2"]);
    let output = lab.run("ping", &[]);
    let table = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(table.ends_with("2 without an answer\n"), "{table}");
}

#[test]
fn ctrl_c_while_a_lab_comes_up_takes_down_what_was_made() {
    for signal in ["-INT", "-TERM"] {
        let lab = TestLab::new("stopped");
        let mut child = lab.half_up();
        send(&child, signal);
        assert_eq!(child.wait().unwrap().code(), Some(130));
        lab.assert_nothing_is_left();
    }
}

#[test]
fn down_removes_what_a_killed_tool_left_half_made() {
    let lab = TestLab::new("killed");
    let mut child = lab.half_up();
    send(&child, "-KILL");
    child.wait().unwrap();
    assert!(lab.processes() > 0);
    assert_eq!(lab.said("down", &[]), format!("lab {} is down\n", lab.name));
    lab.assert_nothing_is_left();
}

#[test]
fn a_lab_that_is_not_there_is_an_error_that_says_how_to_make_it() {
    let lab = TestLab::new("absent");
    for verb in ["status", "ping", "down"] {
        let output = lab.run(verb, &[]);
        assert_eq!(output.status.code(), Some(1));
        let name = &lab.name;
        let expected =
            format!("flannel-lab: no lab {name}: bring one up with `flannelctl lab up --name {name}`\n");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), expected);
    }
}

#[test]
fn the_demo_shows_all_scenes_and_leaves_nothing() {
    let lab = TestLab::new("demo");
    let mut command = Command::new(env!("CARGO_BIN_EXE_flannel-lab"));
    let output = command.env("FLANNEL_LAB_DIR", &lab.folder).arg("demo").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("0 processes and 0 folders are left"), "{said}");
    assert!(!said.contains('\x1b'));
    assert!(!lab.folder.exists());
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flannel-lab"));
    let mut child = command.args(["completions", "bash"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_lab_on_etcd_shows_its_servers_and_the_leases_that_are_there() {
    let lab = TestLab::new("ctl-etcd");
    let up = lab.said("up", &["--store", "etcd", "--racks", "1", "--nodes", "2"]);
    assert!(up.contains("etcd of the lease store: store1 10.0.0.11"), "{up}");
    let keys =
        lab.said("exec", &["store1", "etcdctl", "get", "--prefix", "--keys-only", "/coreos.com/network"]);
    assert_eq!(
        keys.lines().filter(|key| key.starts_with("/coreos.com/network/subnets/10.244.")).count(),
        2,
        "{keys}"
    );
    let status = lab.said("status", &[]);
    assert_eq!(status.matches("│ 10.244.").count() + status.matches("┆ 10.244.").count(), 2, "{status}");
    lab.pings_that_answer();
    lab.said("down", &[]);
    assert!(!lab_processes().iter().any(|process| process.lab == lab.name), "etcd goes with its lab");
}

#[test]
fn members_are_only_for_etcd() {
    let lab = TestLab::new("ctl-members");
    let output = lab.run("up", &["--etcd-members", "3"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (output.status.code(), &*said),
        (Some(1), "flannel-lab: --etcd-members is for --store etcd\n")
    );
}
