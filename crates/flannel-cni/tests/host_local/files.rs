//! Go's files alone are the truth: what anybody writes there counts at once, and a call opens each of them once, as
//! the kernel tells every watcher of a folder.

use std::fs;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use flannel_cni::version::Version;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use serde_json::{Value, json};

use crate::node::{NETWORK, Node, owned_by};

const MANY: usize = 254;

/// Hears of every file of the folder that is opened.
struct Watcher(OwnedFd);

impl Watcher {
    fn on(node: &Node) -> Self {
        let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&queue, node.folder(), WatchFlags::OPEN).unwrap();
        Self(queue)
    }

    /// The reservations that were opened since the last time.
    fn opened(&self) -> Vec<String> {
        let mut buffer = [MaybeUninit::uninit(); 64 * 1024];
        let mut reader = inotify::Reader::new(&self.0, &mut buffer);
        let mut opened = Vec::new();
        while let Ok(event) = reader.next() {
            assert!(!event.events().contains(ReadFlags::QUEUE_OVERFLOW));
            let name = event.file_name().map(|name| name.to_str().unwrap().to_owned());
            opened.extend(name.filter(|name| name.parse::<IpAddr>().is_ok()));
        }
        opened.sort();
        opened
    }
}

fn config(node: &Node) -> Value {
    node.config(Version::NEWEST, &json!({ "subnet": "10.1.0.0/20" }))
}

/// A folder of many reservations of ours, and what was said to each.
fn filled() -> (Node, Value) {
    let node = Node::new();
    let config = config(&node);
    for number in 0..MANY {
        node.add(&format!("c{number}"), &config).unwrap();
    }
    (node, config)
}

/// The kernel's way to name the index that version 0.1 kept of the folder.
fn index(node: &Node) -> PathBuf {
    let folder = fs::metadata(node.folder()).unwrap();
    node.machine.run.join(format!("{NETWORK}-{:x}-{:x}", folder.dev(), folder.ino()))
}

#[test]
fn a_call_opens_every_reservation_once() {
    let (node, config) = filled();
    let all: Vec<String> = node.reservations().into_iter().map(|(address, _)| address).collect();
    let watcher = Watcher::on(&node);
    node.add("new", &config).unwrap();
    assert_eq!(watcher.opened(), all);
    node.check("c7", &config).unwrap();
    assert_eq!(watcher.opened().len(), MANY + 1);
    node.del("c7", &config).unwrap();
    assert_eq!(watcher.opened().len(), MANY + 1);
    node.del("c7", &config).unwrap();
    assert_eq!(watcher.opened().len(), MANY);
}

#[test]
fn what_others_wrote_is_seen() {
    let (node, config) = filled();
    for number in 0..3 {
        node.write(&format!("10.1.15.{number}"), &owned_by(&format!("go{number}")));
    }
    fs::remove_file(node.file("10.1.0.5")).unwrap();
    node.write("10.1.0.5", &owned_by("go4"));
    node.write("10.1.0.6", &owned_by("go5")); // into the file of ours, which is the same one after it
    node.add("new", &config).unwrap();
    for id in ["go0", "go4", "go5", "c77"] {
        let error = node.add(id, &config).unwrap_err();
        assert!(error.contains(&format!("has been allocated to {id}, duplicate")), "{error}");
    }
    node.add("c3", &config).unwrap();
    node.add("c4", &config).unwrap();
}

#[test]
fn an_index_of_version_0_1_is_ignored_and_removed() {
    let node = Node::new();
    let config = config(&node);
    node.add("a", &config).unwrap();
    fs::create_dir_all(&node.machine.run).unwrap();
    fs::write(index(&node), "fl-hl-01").unwrap();
    fs::write(node.machine.run.join("another"), "").unwrap();
    assert_eq!(node.add("b", &config), Ok(vec!["10.1.0.3/20".into()]));
    assert!(!index(&node).exists());
    fs::remove_file(node.machine.run.join("another")).unwrap();
    fs::write(index(&node), "").unwrap();
    node.del("a", &config).unwrap();
    assert!(!node.machine.run.exists());
    assert_eq!(node.reservations(), [("10.1.0.3".into(), owned_by("b"))]);
}

#[test]
fn a_change_right_after_ours_is_seen() {
    // The kernel's clock stands still for milliseconds, and inodes are used again: neither would tell.
    let node = Node::new();
    let config = config(&node);
    for number in 0..300 {
        let id = format!("c{number}");
        node.add(&id, &config).unwrap();
        let address = node.files()["last_reserved_ip.0"].clone();
        let id_of_go = format!("go{number}");
        fs::remove_file(node.file(&address)).unwrap();
        node.write(&address, &owned_by(&id_of_go));
        let words = node.add(&id_of_go, &config).unwrap_err();
        assert!(words.contains(&format!("{address} has been allocated to {id_of_go}")), "{words}");
        node.del(&id_of_go, &config).unwrap();
        assert_eq!(node.reservations(), []);
    }
}
