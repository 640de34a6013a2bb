//! Many at once, processes that are killed, and writes that fail: no address twice, none blocked.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use flannel_cni::version::Version;
use serde_json::{Value, json};

use crate::node::{Node, owned_by};

/// How a child of this test program is told what it is.
const CHILD: &str = "HOST_LOCAL_CHILD";

fn config(node: &Node) -> Value {
    let ranges = json!([[{ "subnet": "10.1.2.0/24" }], [{ "subnet": "fd00::/120" }]]);
    node.config(Version::NEWEST, &json!({ "ranges": ranges }))
}

#[test]
fn fifty_at_once_get_fifty_addresses() {
    let node = Node::new();
    let config = config(&node);
    let given: Vec<Vec<String>> = std::thread::scope(|scope| {
        let add = |number: usize| node.add(&format!("c{number}"), &config).unwrap();
        let threads: Vec<_> = (0..50).map(|number| scope.spawn(move || add(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let distinct: BTreeSet<String> = given.into_iter().flatten().collect();
    assert_eq!(distinct.len(), 100);
    assert_eq!(node.reservations().len(), 100);
}

#[test]
fn fifty_processes_at_once_get_fifty_addresses() {
    let node = Node::new();
    let mut children: Vec<Child> = (0..50).map(|number| child(&node, "once", number)).collect();
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    let owners: BTreeSet<String> = node.reservations().into_iter().map(|(_, owner)| owner).collect();
    assert_eq!((owners.len(), node.reservations().len()), (50, 100));
}

#[test]
fn an_empty_file_blocks_nothing() {
    let node = Node::new();
    let config = config(&node);
    for number in 2..255 {
        node.write(&format!("10.1.2.{number}"), if number % 2 == 0 { "" } else { " \n" });
    }
    node.write("last_reserved_ip.0", "10.1.2.9");
    assert_eq!(node.add("a", &config), Ok(vec!["10.1.2.10/24".into(), "fd00::2/120".into()]));
    assert_eq!(fs::read_to_string(node.file("10.1.2.10")).unwrap(), owned_by("a"));
}

#[test]
fn an_address_is_not_kept_if_its_add_fails() {
    for set in [0, 1] {
        let node = Node::new();
        let config = config(&node);
        // A folder in its place: the note of the last address cannot be written.
        fs::create_dir_all(node.file(&format!("last_reserved_ip.{set}"))).unwrap();
        let words = node.add("a", &config).unwrap_err();
        let address = ["10.1.2.2", "fd00::2"][set];
        let what = format!("cannot note {address} as the last reserved address in");
        assert_eq!(words, format!("{what} {}: Is a directory (os error 21)", node.folder().display()));
        fs::remove_dir(node.file(&format!("last_reserved_ip.{set}"))).unwrap();
        assert_eq!(node.reservations(), []);
    }
}

#[test]
fn what_is_no_file_is_passed_over() {
    let node = Node::new();
    let config = config(&node);
    fs::create_dir_all(node.file("10.1.2.2")).unwrap();
    std::os::unix::fs::symlink("lock", node.file("10.1.2.3")).unwrap();
    assert_eq!(node.add("a", &config).unwrap()[0], "10.1.2.4/24");
    node.del("a", &config).unwrap();
    assert!(node.file("10.1.2.2").is_dir() && node.file("10.1.2.3").is_symlink());
}

/// A child of this program that does what is asked on the node.
fn child(node: &Node, what: &str, number: usize) -> Child {
    let told = json!({ "what": what, "number": number, "data": node.data.path(), "run": node.machine.run });
    Command::new(std::env::current_exe().unwrap())
        .args(["crashes::a_child_does_what_it_is_told", "--exact", "--nocapture"])
        .env(CHILD, told.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn a_child_does_what_it_is_told() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let told: Value = serde_json::from_str(&told).unwrap();
    let mut node = Node::new();
    node.machine.run = told["run"].as_str().unwrap().into();
    let mut config = config(&node);
    config["ipam"]["dataDir"] = told["data"].clone();
    let number = told["number"].as_u64().unwrap();
    if told["what"] == "once" {
        node.add(&format!("c{number}"), &config).unwrap();
        return;
    }
    // Until it is killed. Every second container stays, so that there is something to shift and to skip.
    for step in 0_u64.. {
        let id = format!("c{number}-{step}");
        node.add(&id, &config).unwrap();
        if step % 2 == 0 {
            node.del(&id, &config).unwrap();
        }
        if step >= 20 {
            node.del(&format!("c{number}-{}", step - 1 + step % 2 - 18), &config).unwrap();
        }
        if step == 0 {
            std::io::stdout().write_all(b"\nworking\n").unwrap();
        }
    }
}

/// A number that looks like any other, from 0 to `below`.
fn any(seed: u64, below: u64) -> u64 {
    let mixed = (seed ^ (seed >> 7)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 33) % below
}

/// Lets a child work for a moment, and ends it in the midst of whatever it does.
fn kill_at_work(node: &Node, round: usize) {
    let mut child = child(node, "work", round);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == "working"));
    let end = Instant::now() + Duration::from_micros(any(u64::try_from(round).unwrap() + 1, 4000));
    while Instant::now() < end {
        std::hint::spin_loop();
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Every reservation is whole, and nobody has two of a family.
fn assert_sound(node: &Node) -> BTreeSet<String> {
    let mut held: BTreeMap<(String, bool), String> = BTreeMap::new();
    for (address, content) in node.reservations() {
        let (id, ifname) = content.split_once("\r\n").unwrap_or_else(|| panic!("{address}: {content:?}"));
        assert_eq!(ifname, "eth0");
        let former = held.insert((id.to_owned(), address.contains(':')), address.clone());
        assert_eq!(former, None, "{id} has two, one of them {address}");
    }
    held.into_keys().map(|(id, _)| id).collect()
}

#[test]
fn a_process_that_is_killed_blocks_nothing_and_gives_nothing_twice() {
    let node = Node::new();
    let config = config(&node);
    for round in 0..60 {
        kill_at_work(&node, round);
        for id in assert_sound(&node) {
            // Known or not: the runtime asks again, and frees.
            let held = node
                .reservations()
                .into_iter()
                .any(|(ip, owner)| owner == owned_by(&id) && !ip.contains(':'));
            assert!(!held || node.add(&id, &config).is_err(), "{id} got another address");
            node.del(&id, &config).unwrap();
        }
        assert_eq!(node.reservations(), []);
    }
    let leftovers: Vec<PathBuf> =
        fs::read_dir(node.data.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(leftovers, [node.folder()]);
    let given: BTreeSet<String> =
        (0..253).flat_map(|number| node.add(&format!("c{number}"), &config).unwrap()).collect();
    assert_eq!(given.len(), 2 * 253);
    let exhausted =
        "failed to allocate for range 0: no IP addresses available in range set: 10.1.2.1-10.1.2.254";
    assert_eq!(node.add("more", &config), Err(exhausted.into()));
}
