//! Reservations and reboots: ours of another boot are free, what is not stamped stays.

use std::fs;

use flannel_cni::version::Version;
use serde_json::{Value, json};

use crate::place::{BOOT, NEXT_BOOT, Place, owned_by};

/// Two addresses: .2 and .3.
fn two(place: &Place) -> Value {
    place.config(Version::NEWEST, &json!({ "subnet": "10.1.2.0/29", "rangeEnd": "10.1.2.3" }))
}

fn stamp(place: &Place, name: &str) -> Option<String> {
    let mut stamp = [0; 64];
    let length = rustix::fs::getxattr(place.file(name), "user.flannel.boot", &mut stamp).ok()?;
    Some(String::from_utf8(stamp[..length].to_vec()).unwrap())
}

fn unstamp(place: &Place, name: &str) {
    rustix::fs::removexattr(place.file(name), "user.flannel.boot").unwrap();
}

#[test]
fn a_reservation_carries_the_boot_and_its_content_stays_that_of_go() {
    let place = Place::new();
    place.add("a", &two(&place)).unwrap();
    assert_eq!(stamp(&place, "10.1.2.2"), Some(BOOT.to_owned()));
    assert_eq!(fs::read_to_string(place.file("10.1.2.2")).unwrap(), owned_by("a"));
}

#[test]
fn reservations_of_another_boot_are_given_anew() {
    let mut place = Place::new();
    let config = two(&place);
    place.add("a", &config).unwrap();
    place.add("b", &config).unwrap();
    place.add("c", &config).unwrap_err();
    place.reboot();
    assert_eq!(place.status(&config), Ok(()));
    assert_eq!(place.add("c", &config), Ok(vec!["10.1.2.2/29".into()]));
    assert_eq!(stamp(&place, "10.1.2.2"), Some(NEXT_BOOT.to_owned()));
    assert_eq!(place.add("d", &config), Ok(vec!["10.1.2.3/29".into()]));
    place.add("e", &config).unwrap_err();
    let owners = [("10.1.2.2".into(), owned_by("c")), ("10.1.2.3".into(), owned_by("d"))];
    assert_eq!(place.reservations(), owners);
}

#[test]
fn a_container_that_comes_again_after_a_reboot_holds_one_address() {
    let mut place = Place::new();
    let config = two(&place);
    place.add("a", &config).unwrap();
    place.reboot();
    assert_eq!(place.check("a", &config).unwrap_err().code, 999);
    assert_eq!(place.add("a", &config), Ok(vec!["10.1.2.3/29".into()]));
    assert_eq!(place.reservations(), [("10.1.2.3".into(), owned_by("a"))]);
}

#[test]
fn del_frees_what_another_boot_left() {
    let mut place = Place::new();
    let config = two(&place);
    place.add("a", &config).unwrap();
    place.reboot();
    place.del("a", &config).unwrap();
    assert_eq!(place.reservations(), []);
}

#[test]
fn a_reservation_without_a_stamp_outlives_a_reboot() {
    let mut place = Place::new();
    let config = two(&place);
    place.machine.in_use = |_| Ok(["10.1.2.2".parse().unwrap()].into());
    place.write("10.1.2.2", &owned_by("go"));
    place.add("a", &config).unwrap();
    place.reboot();
    assert_eq!(place.add("b", &config), Ok(vec!["10.1.2.3/29".into()]));
    place.add("c", &config).unwrap_err();
    assert_eq!(place.reservations()[0], ("10.1.2.2".into(), owned_by("go")));
}

#[test]
fn where_files_cannot_be_stamped_ours_stay_while_they_are_used_and_no_longer() {
    let mut place = Place::new();
    let config = two(&place);
    place.machine.in_use = |_| Ok(["10.1.2.2".parse().unwrap(), "10.1.2.3".parse().unwrap()].into());
    place.add("a", &config).unwrap();
    unstamp(&place, "10.1.2.2");
    place.add("b", &config).unwrap();
    unstamp(&place, "10.1.2.3");
    place.add("c", &config).unwrap_err();
    place.reboot();
    place.machine.in_use = |_| Ok([].into());
    assert_eq!(place.add("c", &config), Ok(vec!["10.1.2.2/29".into()]));
    assert_eq!(place.add("d", &config), Ok(vec!["10.1.2.3/29".into()]));
}

#[test]
fn a_file_that_took_the_place_of_ours_is_not_taken_for_ours() {
    let mut place = Place::new();
    let config = two(&place);
    place.machine.in_use = |_| Ok(["10.1.2.2".parse().unwrap()].into());
    place.add("a", &config).unwrap();
    // Go frees and gives the address in the same moment; the inode is used again.
    fs::remove_file(place.file("10.1.2.2")).unwrap();
    place.write("10.1.2.2", &owned_by("go"));
    place.reboot();
    assert_eq!(place.add("b", &config), Ok(vec!["10.1.2.3/29".into()]));
    place.add("c", &config).unwrap_err();
    place.add("go", &config).unwrap_err();
    assert_eq!(place.reservations()[0], ("10.1.2.2".into(), owned_by("go")));
}

#[test]
fn without_a_boot_id_nothing_is_stamped_and_nothing_is_freed() {
    let mut place = Place::new();
    let config = two(&place);
    place.add("a", &config).unwrap();
    place.machine.boot = None;
    place.machine.in_use = |_| Err(flannel_kernel::NetlinkError::from(rustix::io::Errno::NOMEM).into());
    assert_eq!(place.add("b", &config), Ok(vec!["10.1.2.3/29".into()]));
    assert_eq!(stamp(&place, "10.1.2.3"), None);
    place.add("a", &config).unwrap_err();
    place.add("c", &config).unwrap_err();
    place.del("a", &config).unwrap();
    assert_eq!(place.reservations(), [("10.1.2.3".into(), owned_by("b"))]);
}
