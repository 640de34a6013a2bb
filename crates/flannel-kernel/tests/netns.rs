//! Work inside a namespace: by process, by name, by path, and on its own thread only.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod sandbox;

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command};

use flannel_kernel::netns::{Namespace, NetnsError, is_another_kind, run_inside};
use flannel_kernel::{Kernel, Linux};
use flannel_plan::observation::Scope;
use rustix::thread::UnshareFlags;
use sandbox::*;

/// A process in a namespace with a device `inside`; it ends with the test.
struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn sleeper() -> Sleeper {
    run_inside(&Namespace::Fresh, || {
        sh("ip link add inside type bridge");
        Sleeper(Command::new("sleep").arg("600").spawn().unwrap())
    })
    .unwrap()
}

fn devices() -> Vec<String> {
    let observation = Linux::open().unwrap().observe(&Scope::default()).unwrap();
    observation.links.iter().map(|fact| fact.link.name.to_string()).collect()
}

#[test]
fn a_fresh_namespace_has_only_the_loopback() {
    assert_eq!(run_inside(&Namespace::Fresh, devices), Ok(vec!["lo".to_owned()]));
}

#[test]
fn the_namespace_of_a_process_is_entered_and_the_own_thread_stays() {
    let sleeper = sleeper();
    in_a_namespace(|| {
        let inside = run_inside(&Namespace::OfProcess(sleeper.0.id()), devices).unwrap();
        assert_eq!(inside, ["lo", "inside"]);
        assert_eq!(devices(), ["lo"]);
        let path = PathBuf::from(format!("/proc/{}/ns/net", sleeper.0.id()));
        assert_eq!(run_inside(&Namespace::AtPath(path), devices).unwrap(), ["lo", "inside"]);
    });
}

#[test]
#[allow(unsafe_code, reason = "a thread of its own gets mounts of its own")]
fn a_named_namespace_is_the_one_of_ip_netns() {
    in_a_namespace(|| {
        // SAFETY: the descriptors of the thread stay shared.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.unwrap();
        sh("mount --make-rprivate / && mount -t tmpfs none /run
            ip netns add blue && ip -n blue link add sky type bridge");
        // A new thread has the mounts of the one that started it.
        let inside = run_inside(&Namespace::Named("blue".to_owned()), devices).unwrap();
        assert_eq!(inside, ["lo", "sky"]);
    });
}

#[test]
fn a_namespace_that_is_not_there_is_named() {
    let error = run_inside(&Namespace::AtPath("/nowhere/net".into()), || ()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot enter the network namespace /nowhere/net: No such file or directory"
    );
    let NetnsError::Enter { path, .. } =
        run_inside(&Namespace::AtPath("/proc/self/ns/uts".into()), || ()).unwrap_err()
    else {
        panic!("another error")
    };
    assert_eq!(path, PathBuf::from("/proc/self/ns/uts"));
}

#[test]
fn a_namespace_of_another_kind_is_told_from_one_of_networks() {
    let is_other = |path: &str| is_another_kind(File::open(path).unwrap());
    assert_eq!(["/proc/self/ns/mnt", "/proc/self/ns/uts"].map(is_other), [true, true]);
    // What is no namespace at all has no kind.
    assert_eq!(["/proc/self/ns/net", "/proc/self/status", "/"].map(is_other), [false, false, false]);
}
