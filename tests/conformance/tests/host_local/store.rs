//! What is kept on disk, and what ADD, CHECK and DEL make of it.

use std::os::unix::fs::PermissionsExt;

use conformance_tests::version::{ALL, COMMON, WITH_CHECK, WITH_LISTS};
use conformance_tests::{Stage, scenarios, wait_until};
use rustix::fs::{FlockOperation, flock};
use serde_json::json;

use super::{add, addresses, given, network, owned, refused, subnet};

scenarios! { "host-local":
    ALL.as_slice() =>
        addresses_are_given_and_taken_back,
        a_container_gets_one_address_for_each_interface,
        a_second_add_of_the_same_interface_is_refused,
        an_unknown_container_is_released_without_complaint,
        the_first_add_on_a_host_says_nothing_about_missing_files;
    COMMON =>
        an_entry_without_interface_is_released_too,
        an_entry_with_white_space_is_found,
        an_entry_without_interface_counts_as_the_containers,
        files_are_readable_by_their_owner_only,
        another_folder_can_be_chosen,
        a_release_frees_every_address_of_the_container,
        the_lock_of_go_is_respected,
        many_at_once_get_different_addresses,
        an_empty_entry_is_free,
        a_refused_add_keeps_what_the_container_had,
        addresses_of_before_a_reboot_are_free,
        an_address_that_nobody_uses_is_given_when_there_is_no_other,
        an_address_that_a_pod_uses_is_never_given_twice;
    WITH_CHECK => check_finds_the_address_of_the_container, check_finds_an_entry_without_interface;
    WITH_LISTS => the_order_of_results_is_that_of_the_ranges;
}

const MYNET: &str = "/var/lib/cni/networks/mynet";

fn addresses_are_given_and_taken_back(stage: &Stage) {
    let config =
        network(stage, json!({"ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "2001:db8:1::0/64"}]]}));
    assert_eq!(given(stage, &config, "dummy"), ["10.1.2.2/24", "2001:db8:1::2/64"]);
    let files = stage.site.files(MYNET);
    let expected = [
        ("10.1.2.2", "dummy\r\neth0"),
        ("2001:db8:1::2", "dummy\r\neth0"),
        ("last_reserved_ip.0", "10.1.2.2"),
        ("last_reserved_ip.1", "2001:db8:1::2"),
        ("lock", ""),
    ];
    let expected = expected.map(|(name, content)| (format!("{MYNET}/{name}"), content.to_owned()));
    assert_eq!(files.into_iter().collect::<Vec<_>>(), expected);
    stage.call("DEL", "host-local", &config).container("dummy").run().nothing();
    let left: Vec<_> = stage.site.files(MYNET).into_iter().collect();
    assert_eq!(left, expected[2..]);
}

fn a_container_gets_one_address_for_each_interface(stage: &Stage) {
    let config = subnet(stage, "10.1.2.0/24");
    for (interface, address) in [("eth0", "10.1.2.2/24"), ("eth1", "10.1.2.3/24")] {
        let result = add(stage, &config, "dummy").interface(interface).run().result();
        assert_eq!(addresses(&result), [address]);
    }
    stage.call("DEL", "host-local", &config).container("dummy").run().nothing();
    assert_eq!(owned(stage.site.files(MYNET)), [(format!("{MYNET}/10.1.2.3"), "dummy\r\neth1".to_owned())]);
}

fn a_second_add_of_the_same_interface_is_refused(stage: &Stage) {
    let config = subnet(stage, "10.1.2.0/24");
    assert_eq!(given(stage, &config, "dummy"), ["10.1.2.2/24"]);
    refused(
        stage,
        &config,
        "dummy",
        "10.1.2.2 has been allocated to dummy, duplicate allocation is not allowed",
    );
    assert_eq!(given(stage, &config, "other"), ["10.1.2.3/24"]);
}

fn an_unknown_container_is_released_without_complaint(stage: &Stage) {
    let config = subnet(stage, "10.1.2.0/24");
    stage.call("DEL", "host-local", &config).container("dummy").run().nothing();
    given(stage, &config, "other");
    stage.call("DEL", "host-local", &config).container("dummy").run().nothing();
    assert_eq!(owned(stage.site.files(MYNET)).len(), 1);
}

fn the_first_add_on_a_host_says_nothing_about_missing_files(stage: &Stage) {
    let answer = add(stage, &subnet(stage, "10.1.2.0/24"), "dummy").run();
    answer.result();
    assert_eq!(answer.stderr, "");
}

fn an_entry_without_interface_is_released_too(stage: &Stage) {
    let config = subnet(stage, "10.1.2.0/24");
    stage.site.write(&format!("{MYNET}/10.1.2.7"), "dummy");
    stage.call("DEL", "host-local", &config).container("dummy").run().nothing();
    assert_eq!(owned(stage.site.files(MYNET)), []);
}

fn an_entry_with_white_space_is_found(stage: &Stage) {
    let config = subnet(stage, "10.1.2.0/24");
    stage.site.write(&format!("{MYNET}/10.1.2.7"), "  dummy\r\neth0 \n");
    refused(stage, &config, "dummy", "10.1.2.7 has been allocated to dummy");
    stage.call("DEL", "host-local", &config).container("dummy").run().nothing();
    assert_eq!(owned(stage.site.files(MYNET)), []);
}

fn an_entry_without_interface_counts_as_the_containers(stage: &Stage) {
    let config = subnet(stage, "10.1.2.0/24");
    stage.site.write(&format!("{MYNET}/10.1.2.7"), "dummy");
    refused(stage, &config, "dummy", "10.1.2.7 has been allocated to dummy");
}

fn files_are_readable_by_their_owner_only(stage: &Stage) {
    given(stage, &subnet(stage, "10.1.2.0/24"), "dummy");
    let mode = |name: &str| {
        stage.site.path(format!("{MYNET}{name}")).metadata().unwrap().permissions().mode() & 0o777
    };
    assert_eq!(["", "/10.1.2.2", "/last_reserved_ip.0"].map(mode), [0o755, 0o600, 0o600]);
}

fn another_folder_can_be_chosen(stage: &Stage) {
    let config = network(stage, json!({"subnet": "10.1.2.0/24", "dataDir": "/var/lib/other"}));
    assert_eq!(given(stage, &config, "dummy"), ["10.1.2.2/24"]);
    let owned = owned(stage.site.files("/var/lib/other"));
    assert_eq!(owned, [("/var/lib/other/mynet/10.1.2.2".to_owned(), "dummy\r\neth0".to_owned())]);
    assert!(stage.site.files("/var/lib/cni").is_empty());
}

fn a_release_frees_every_address_of_the_container(stage: &Stage) {
    let config = subnet(stage, "10.1.2.0/24");
    for name in ["10.1.2.7", "10.1.2.9"] {
        stage.site.write(&format!("{MYNET}/{name}"), "dummy\r\neth0");
    }
    stage.site.write(&format!("{MYNET}/10.1.2.8"), "other\r\neth0");
    stage.call("DEL", "host-local", &config).container("dummy").run().nothing();
    assert_eq!(owned(stage.site.files(MYNET)), [(format!("{MYNET}/10.1.2.8"), "other\r\neth0".to_owned())]);
}

/// A plugin of Go holds the lock of a network's folder while it works; so an upgrade never gives one address twice.
fn the_lock_of_go_is_respected(stage: &Stage) {
    let config = subnet(stage, "10.1.2.0/24");
    stage.site.write(&format!("{MYNET}/lock"), "");
    let lock = std::fs::File::open(stage.site.path(format!("{MYNET}/lock"))).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let running = add(stage, &config, "dummy").start();
    wait_until("the plugin waits for the lock", || waits_for(&lock));
    assert_eq!(owned(stage.site.files(MYNET)), []);
    drop(lock);
    assert_eq!(addresses(&running.wait().result()), ["10.1.2.2/24"]);
}

/// Whether somebody waits for a lock on this file; `/proc/locks` marks those with an arrow.
fn waits_for(lock: &std::fs::File) -> bool {
    let inode = format!(":{} ", std::os::unix::fs::MetadataExt::ino(&lock.metadata().unwrap()));
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    locks.lines().any(|line| line.contains("-> FLOCK") && line.contains(&inode))
}

fn many_at_once_get_different_addresses(stage: &Stage) {
    let config = network(stage, json!({"ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "fd00::/64"}]]}));
    let running: Vec<_> = (0..20).map(|number| add(stage, &config, &format!("c{number}")).start()).collect();
    let mut given: Vec<_> = running.into_iter().flat_map(|call| addresses(&call.wait().result())).collect();
    given.sort();
    given.dedup();
    assert_eq!((given.len(), owned(stage.site.files(MYNET)).len()), (40, 40));
}

/// A crash between making a file and writing it must not cost an address for ever.
fn an_empty_entry_is_free(stage: &Stage) {
    let config = subnet(stage, "10.1.2.0/30");
    stage.site.write(&format!("{MYNET}/10.1.2.2"), "");
    assert_eq!(given(stage, &config, "dummy"), ["10.1.2.2/30"]);
    assert_eq!(owned(stage.site.files(MYNET)), [(format!("{MYNET}/10.1.2.2"), "dummy\r\neth0".to_owned())]);
}

/// The first set has a free address, the second one refuses: only what this ADD took is given back.
fn a_refused_add_keeps_what_the_container_had(stage: &Stage) {
    stage.site.write(&format!("{MYNET}/fd00::5"), "dummy\r\neth0");
    let config = network(stage, json!({"ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "fd00::/64"}]]}));
    add(stage, &config, "dummy").run().fails(999, "fd00::5 has been allocated to dummy");
    assert_eq!(owned(stage.site.files(MYNET)), [(format!("{MYNET}/fd00::5"), "dummy\r\neth0".to_owned())]);
}

/// A node that lost power never asks to release what its pods had.
fn addresses_of_before_a_reboot_are_free(stage: &Stage) {
    let config = subnet(stage, "10.1.2.0/30");
    assert_eq!(given(stage, &config, "before"), ["10.1.2.2/30"]);
    refused(stage, &config, "after", "no IP addresses available");
    stage.site.write("/run/boot", "11111111-2222-3333-4444-555555555555\n");
    stage.site.sh("rm -rf /run/flannel-cni; mount --bind /run/boot /proc/sys/kernel/random/boot_id");
    assert_eq!(given(stage, &config, "after"), ["10.1.2.2/30"]);
}

/// Go's entries do not say of which boot they are; when a range is full, it is looked whether anybody has the address.
fn an_address_that_nobody_uses_is_given_when_there_is_no_other(stage: &Stage) {
    let config = subnet(stage, "10.1.2.0/29");
    for last in 2..=6 {
        stage.site.write(&format!("{MYNET}/10.1.2.{last}"), format!("old{last}\r\neth0"));
    }
    let given = given(stage, &config, "new");
    assert!(given[0].starts_with("10.1.2."), "{given:?}");
    assert_eq!(owned(stage.site.files(MYNET)).len(), 5);
}

fn an_address_that_a_pod_uses_is_never_given_twice(stage: &Stage) {
    let config = subnet(stage, "10.1.2.0/30");
    stage.site.write(&format!("{MYNET}/10.1.2.2"), "old\r\neth0");
    stage.site.pod("pod1");
    stage.site.sh("ip -n pod1 link set lo up; ip -n pod1 addr add 10.1.2.2/32 dev lo");
    refused(stage, &config, "new", "no IP addresses available");
}

fn check_finds_the_address_of_the_container(stage: &Stage) {
    let config = subnet(stage, "10.1.2.0/24");
    let result = add(stage, &config, "dummy").run().result();
    let check = || stage.call("CHECK", "host-local", &config).container("dummy").previous(&result).run();
    check().nothing();
    stage.call("DEL", "host-local", &config).container("dummy").run().nothing();
    check().fails(999, "Failed to find address added by container dummy");
}

fn check_finds_an_entry_without_interface(stage: &Stage) {
    stage.site.write(&format!("{MYNET}/10.1.2.7"), "dummy");
    let config = subnet(stage, "10.1.2.0/24");
    stage.call("CHECK", "host-local", &config).container("dummy").run().nothing();
}

fn the_order_of_results_is_that_of_the_ranges(stage: &Stage) {
    let config = network(stage, json!({"ranges": [[{"subnet": "fd00::/64"}], [{"subnet": "10.1.2.0/24"}]]}));
    assert_eq!(given(stage, &config, "dummy"), ["fd00::2/64", "10.1.2.2/24"]);
}
