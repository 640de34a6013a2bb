//! Reservations and reboots: ours of another boot are free, what is not stamped stays.

use std::fs;

use flannel_cni::version::Version;
use serde_json::{Value, json};

use crate::node::{BOOT, NEXT_BOOT, Node, owned_by};

/// Two addresses: .2 and .3.
fn two(node: &Node) -> Value {
    node.config(Version::NEWEST, &json!({ "subnet": "10.1.2.0/29", "rangeEnd": "10.1.2.3" }))
}

fn stamp(node: &Node, name: &str) -> Option<String> {
    let mut stamp = [0; 64];
    let length = rustix::fs::getxattr(node.file(name), "user.flannel.boot", &mut stamp).ok()?;
    Some(String::from_utf8(stamp[..length].to_vec()).unwrap())
}

fn unstamp(node: &Node, name: &str) {
    rustix::fs::removexattr(node.file(name), "user.flannel.boot").unwrap();
}

#[test]
fn a_reservation_carries_the_boot_and_its_content_stays_that_of_go() {
    let node = Node::new();
    node.add("a", &two(&node)).unwrap();
    assert_eq!(stamp(&node, "10.1.2.2"), Some(BOOT.to_owned()));
    assert_eq!(fs::read_to_string(node.file("10.1.2.2")).unwrap(), owned_by("a"));
}

#[test]
fn reservations_of_another_boot_are_given_anew() {
    let mut node = Node::new();
    let config = two(&node);
    node.add("a", &config).unwrap();
    node.add("b", &config).unwrap();
    node.add("c", &config).unwrap_err();
    node.reboot();
    assert_eq!(node.status(&config), Ok(()));
    assert_eq!(node.add("c", &config), Ok(vec!["10.1.2.2/29".into()]));
    assert_eq!(stamp(&node, "10.1.2.2"), Some(NEXT_BOOT.to_owned()));
    assert_eq!(node.add("d", &config), Ok(vec!["10.1.2.3/29".into()]));
    node.add("e", &config).unwrap_err();
    let owners = [("10.1.2.2".into(), owned_by("c")), ("10.1.2.3".into(), owned_by("d"))];
    assert_eq!(node.reservations(), owners);
}

#[test]
fn a_container_that_comes_again_after_a_reboot_holds_one_address() {
    let mut node = Node::new();
    let config = two(&node);
    node.add("a", &config).unwrap();
    node.reboot();
    assert_eq!(node.check("a", &config).unwrap_err().code, 999);
    assert_eq!(node.add("a", &config), Ok(vec!["10.1.2.3/29".into()]));
    assert_eq!(node.reservations(), [("10.1.2.3".into(), owned_by("a"))]);
}

#[test]
fn del_frees_what_another_boot_left() {
    let mut node = Node::new();
    let config = two(&node);
    node.add("a", &config).unwrap();
    node.reboot();
    node.del("a", &config).unwrap();
    assert_eq!(node.reservations(), []);
}

#[test]
fn a_reservation_without_a_stamp_outlives_a_reboot() {
    let mut node = Node::new();
    let config = two(&node);
    node.machine.in_use = |_| Ok(["10.1.2.2".parse().unwrap()].into());
    node.write("10.1.2.2", &owned_by("go"));
    node.add("a", &config).unwrap();
    node.reboot();
    assert_eq!(node.add("b", &config), Ok(vec!["10.1.2.3/29".into()]));
    node.add("c", &config).unwrap_err();
    assert_eq!(node.reservations()[0], ("10.1.2.2".into(), owned_by("go")));
}

#[test]
fn where_files_cannot_be_stamped_ours_stay_while_they_are_used_and_no_longer() {
    let mut node = Node::new();
    let config = two(&node);
    node.machine.in_use = |_| Ok(["10.1.2.2".parse().unwrap(), "10.1.2.3".parse().unwrap()].into());
    node.add("a", &config).unwrap();
    unstamp(&node, "10.1.2.2");
    node.add("b", &config).unwrap();
    unstamp(&node, "10.1.2.3");
    node.add("c", &config).unwrap_err();
    node.reboot();
    node.machine.in_use = |_| Ok([].into());
    assert_eq!(node.add("c", &config), Ok(vec!["10.1.2.2/29".into()]));
    assert_eq!(node.add("d", &config), Ok(vec!["10.1.2.3/29".into()]));
}

#[test]
fn a_file_that_took_the_place_of_ours_is_not_taken_for_ours() {
    let mut node = Node::new();
    let config = two(&node);
    node.machine.in_use = |_| Ok(["10.1.2.2".parse().unwrap()].into());
    node.add("a", &config).unwrap();
    // Go frees and gives the address in the same moment; the inode is used again.
    fs::remove_file(node.file("10.1.2.2")).unwrap();
    node.write("10.1.2.2", &owned_by("go"));
    node.reboot();
    assert_eq!(node.add("b", &config), Ok(vec!["10.1.2.3/29".into()]));
    node.add("c", &config).unwrap_err();
    node.add("go", &config).unwrap_err();
    assert_eq!(node.reservations()[0], ("10.1.2.2".into(), owned_by("go")));
}

#[test]
fn without_a_boot_id_nothing_is_stamped_and_nothing_is_freed() {
    let mut node = Node::new();
    let config = two(&node);
    node.add("a", &config).unwrap();
    node.machine.boot = None;
    node.machine.in_use = |_| Err(flannel_kernel::NetlinkError::from(rustix::io::Errno::NOMEM).into());
    assert_eq!(node.add("b", &config), Ok(vec!["10.1.2.3/29".into()]));
    assert_eq!(stamp(&node, "10.1.2.3"), None);
    node.add("a", &config).unwrap_err();
    node.add("c", &config).unwrap_err();
    node.del("a", &config).unwrap();
    assert_eq!(node.reservations(), [("10.1.2.3".into(), owned_by("b"))]);
}
