//! Kernel settings and files, also where they cannot be written.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod sandbox;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use flannel_kernel::{Kernel, Linux};
use flannel_plan::diff::Change;
use flannel_plan::family::{ByFamily, Family};
use flannel_plan::observation::{ObserveOptions, Scope};
use flannel_plan::pod_bridge::BridgeNetfilter;
use flannel_plan::state::{File, Item, Sysctl};
use rustix::thread::{CapabilitySet, UnshareFlags};
use sandbox::*;

fn sysctl(path: &str, value: &str) -> Item {
    Item::Sysctl(Box::new(Sysctl { path: path.into(), value: value.into() }))
}

fn file(path: &str, content: &str, mode: u32) -> Item {
    Item::File(Box::new(File { path: path.into(), content: content.into(), mode }))
}

/// Runs a test with mounts of its own: a tmpfs of 64 KiB on `/mnt`.
#[allow(unsafe_code, reason = "a thread of its own gets mounts of its own")]
fn with_a_small_disk(test: impl FnOnce(&mut Linux) + Send) {
    in_a_namespace(|| {
        // SAFETY: the descriptors of the thread stay shared.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.unwrap();
        sh("mount --make-rprivate / && mount -t tmpfs -o size=64k none /mnt");
        test(&mut Linux::open().unwrap());
    });
}

fn found(kernel: &mut Linux, path: &str) -> Vec<Item> {
    let scope = Scope { files: vec![path.into()], ..Scope::default() };
    kernel.observe(&scope).unwrap().files.into_iter().map(|file| Item::File(Box::new(file))).collect()
}

#[test]
fn a_setting_is_written_and_read_back_in_its_namespace() {
    with_a_nic(|kernel| {
        let path = "net/ipv6/conf/nic/accept_ra";
        let scope = Scope { sysctls: vec![path.into(), "net/no/such".into()], ..Scope::default() };
        apply(kernel, &[Change::Create(sysctl(path, "0"))]);
        let Item::Sysctl(expected) = sysctl(path, "0") else { panic!("a sysctl") };
        assert_eq!(kernel.observe(&scope).unwrap().sysctls, [*expected]);
        apply(kernel, &replace(sysctl(path, "0"), sysctl(path, "1")));
        assert_eq!(sh("cat /proc/sys/net/ipv6/conf/nic/accept_ra"), "1\n");
        apply(kernel, &remove([sysctl(path, "1")]));
    });
}

#[test]
fn a_device_has_settings_of_ipv6_only_while_its_mtu_can_carry_it() {
    with_a_nic(|kernel| {
        let path = "net/ipv6/conf/nic/accept_ra";
        let scope = Scope { sysctls: vec![path.into()], ..Scope::default() };
        for (mtu, settings) in [(1280, 1), (1279, 0), (1280, 1)] {
            sh(&format!("ip link set nic mtu {mtu}"));
            assert_eq!(kernel.observe(&scope).unwrap().sysctls.len(), settings, "MTU {mtu}");
        }
    });
}

#[test]
fn whether_bridges_with_pods_call_iptables_is_read_and_unknown_where_it_is_hidden() {
    with_a_nic(|kernel| {
        sh("ip link add cni0 type bridge && ip addr add 10.244.3.1/24 dev cni0");
        let pod_subnets = ByFamily { v4: "10.244.3.0/24".parse().ok(), v6: "fd00:244:3::/64".parse().ok() };
        let options = ObserveOptions { pod_subnets, ..ObserveOptions::default() };
        let scope = Scope { options, ..Scope::default() };
        let path = format!("/proc/sys/{}", BridgeNetfilter::sysctl(Family::V4).replace('.', "/"));
        let is_hidden = !fs::exists(&path).unwrap();
        for (value, expected) in [("0", BridgeNetfilter::Off), ("1", BridgeNetfilter::On)] {
            let expected = if is_hidden { BridgeNetfilter::Unknown } else { expected };
            _ = fs::write(&path, value);
            let found = kernel.observe(&scope).unwrap().bridge_netfilter;
            assert_eq!(found, ByFamily { v4: Some(expected), v6: None }, "no pod has an IPv6 address");
        }
    });
}

#[test]
fn a_setting_of_a_device_with_a_dot_in_its_name_is_found() {
    with_flannel_1(|kernel| {
        apply(kernel, &[Change::Create(sysctl("net/ipv6/conf/flannel.1/accept_ra", "0"))]);
        assert_eq!(sh("cat /proc/sys/net/ipv6/conf/flannel.1/accept_ra"), "0\n");
    });
}

#[test]
fn a_setting_that_is_not_there_or_not_below_proc_sys_fails() {
    with_a_nic(|kernel| {
        let (error, _) = complaint(kernel, Change::Create(sysctl("net/no/such", "1")));
        assert_eq!(error, "cannot create sysctl net/no/such = 1: No such file or directory");
        let (error, _) = complaint(kernel, Change::Create(sysctl("../../mnt/x", "1")));
        assert_eq!(
            error,
            "cannot create sysctl ../../mnt/x = 1: Invalid argument: not a path below /proc/sys"
        );
    });
}

#[test]
fn a_read_only_setting_fails_with_a_way_out() {
    with_a_small_disk(|kernel| {
        sh("mount -o bind,ro /proc/sys /proc/sys");
        let (error, hint) = complaint(kernel, Change::Create(sysctl("net/ipv4/ip_forward", "1")));
        assert_eq!(error, "cannot create sysctl net/ipv4/ip_forward = 1: Read-only file system");
        assert_eq!(
            hint.unwrap(),
            "the file system is read-only: mount it writable into the container, or run privileged"
        );
    });
}

#[test]
fn a_file_is_written_whole_with_its_mode_and_its_folder() {
    with_a_small_disk(|kernel| {
        // A thread shares its umask with nobody once its mounts are its own.
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        let path = "/mnt/run/flannel/subnet.env";
        assert_eq!(found(kernel, path), []);
        let first = file(path, "FLANNEL_MTU=1450\n", 0o644);
        apply(kernel, &create([first.clone()]));
        assert_eq!(found(kernel, path), std::slice::from_ref(&first));
        let second = file(path, "FLANNEL_MTU=1430\n", 0o640);
        apply(kernel, &replace(first, second.clone()));
        assert_eq!(found(kernel, path), std::slice::from_ref(&second));
        assert_eq!(lines("ls -A /mnt/run/flannel"), ["subnet.env"]);
        apply(kernel, &remove([second.clone()]));
        assert_eq!(found(kernel, path), []);
        apply(kernel, &remove([second]));
    });
}

#[test]
fn a_full_disk_leaves_the_old_content_and_no_draft() {
    with_a_small_disk(|kernel| {
        let path = "/mnt/subnet.env";
        let old = file(path, "FLANNEL_MTU=1450\n", 0o644);
        apply(kernel, &create([old.clone()]));
        let large = file(path, &"x".repeat(100_000), 0o644);
        let (error, hint) = complaint(kernel, Change::Replace { from: old.clone(), to: large });
        assert_eq!(
            error,
            "cannot replace file /mnt/subnet.env (0644, 100000 bytes): No space left on device"
        );
        assert_eq!(hint.unwrap(), "the file system is full: free some space");
        assert_eq!(found(kernel, path), [old]);
        assert_eq!(lines("ls -A /mnt"), ["subnet.env"]);
    });
}

#[test]
fn a_read_only_disk_leaves_the_old_content() {
    with_a_small_disk(|kernel| {
        let path = "/mnt/subnet.env";
        let old = file(path, "FLANNEL_MTU=1450\n", 0o644);
        apply(kernel, &create([old.clone()]));
        sh("mount -o remount,ro /mnt");
        let new = file(path, "FLANNEL_MTU=1430\n", 0o644);
        let (error, _) = complaint(kernel, Change::Replace { from: old.clone(), to: new });
        assert_eq!(error, "cannot replace file /mnt/subnet.env (0644, 17 bytes): Read-only file system");
        let (error, _) = complaint(kernel, Change::Remove(old.clone()));
        assert_eq!(error, "cannot remove file /mnt/subnet.env (0644, 17 bytes): Read-only file system");
        assert_eq!(found(kernel, path), [old]);
    });
}

#[test]
fn a_file_that_is_no_text_is_read_with_marks() {
    with_a_small_disk(|kernel| {
        fs::write("/mnt/odd", b"a\xffb").unwrap();
        fs::set_permissions("/mnt/odd", fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(found(kernel, "/mnt/odd"), [file("/mnt/odd", "a\u{fffd}b", 0o600)]);
    });
}

#[test]
fn a_folder_in_the_place_of_a_file_does_not_end_the_look_and_is_named_when_written() {
    with_a_small_disk(|kernel| {
        sh("mkdir /mnt/subnet.env");
        assert_eq!(found(kernel, "/mnt/subnet.env"), []);
        let (error, _) = complaint(kernel, Change::Create(file("/mnt/subnet.env", "x", 0o644)));
        assert_eq!(error, "cannot create file /mnt/subnet.env (0644, 1 bytes): Is a directory");
        assert_eq!(lines("ls -A /mnt"), ["subnet.env"]);
    });
}

#[test]
fn without_the_capability_the_error_names_it() {
    with_a_nic(|kernel| {
        let mut all = rustix::thread::capabilities(None).unwrap();
        all.effective.remove(CapabilitySet::NET_ADMIN);
        rustix::thread::set_capabilities(None, all).unwrap();
        let (error, hint) = complaint(kernel, Change::Create(link(flannel_1())));
        assert_eq!(error, format!("cannot create {}: Operation not permitted", flannel_1()));
        assert_eq!(
            hint.unwrap(),
            "flanneld needs the capability CAP_NET_ADMIN: run it as root, or privileged"
        );
    });
}
