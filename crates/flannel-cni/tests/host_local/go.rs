//! Go's host-local (Debian's) and ours on one folder: each goes on where the other stopped.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use flannel_cni::version::Version;
use serde_json::{Value, json};

use crate::node::{Node, owned_by};

const GO: &str = "/usr/lib/cni/host-local";

fn config(node: &Node) -> Value {
    // Debian's plugin speaks up to 1.0.0.
    let ranges =
        json!([[{ "subnet": "10.1.2.0/28" }, { "subnet": "10.1.3.0/29" }], [{ "subnet": "fd00::/120" }]]);
    node.config(Version::V1_0_0, &json!({ "ranges": ranges }))
}

/// Who does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Go,
    Ours,
}

impl Who {
    fn add(self, node: &Node, id: &str, config: &Value) -> Result<Vec<String>, String> {
        if self == Self::Ours {
            return node.add(id, config);
        }
        let (exit, told) = go("ADD", id, config);
        match exit {
            true => Ok(told["ips"]
                .as_array()
                .unwrap()
                .iter()
                .map(|ip| ip["address"].as_str().unwrap().to_owned())
                .collect()),
            false => Err(told["msg"].as_str().unwrap().to_owned()),
        }
    }

    fn del(self, node: &Node, id: &str, config: &Value) {
        match self {
            Self::Ours => node.del(id, config).unwrap(),
            Self::Go => assert_eq!(go("DEL", id, config), (true, Value::Null)),
        }
    }

    fn has(self, node: &Node, id: &str, config: &Value) -> bool {
        match self {
            Self::Ours => node.check(id, config).is_ok(),
            Self::Go => go("CHECK", id, config).0,
        }
    }
}

fn go(command: &str, id: &str, config: &Value) -> (bool, Value) {
    assert!(Path::new(GO).exists(), "{GO} is missing: apt-get install containernetworking-plugins");
    let mut plugin = Command::new(GO)
        .env_clear()
        .env("CNI_COMMAND", command)
        .env("CNI_CONTAINERID", id)
        .env("CNI_NETNS", "/some/where")
        .env("CNI_IFNAME", "eth0")
        .env("CNI_PATH", "/usr/lib/cni")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    plugin.stdin.take().unwrap().write_all(config.to_string().as_bytes()).unwrap();
    let output = plugin.wait_with_output().unwrap();
    let told = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.success(), told)
}

#[test]
fn either_sees_finds_and_frees_what_the_other_gave() {
    for (giver, other) in [(Who::Go, Who::Ours), (Who::Ours, Who::Go)] {
        let node = Node::new();
        let config = config(&node);
        // Ours has seen the folder before, and knows nothing of what comes now.
        Who::Ours.add(&node, "first", &config).unwrap();
        let given = vec!["10.1.2.3/28".to_owned(), "fd00::3/120".to_owned()];
        assert_eq!(giver.add(&node, "a", &config), Ok(given));
        let duplicate = "failed to allocate for range 0: 10.1.2.3 has been allocated to a, duplicate allocation \
                         is not allowed";
        assert_eq!(other.add(&node, "a", &config), Err(duplicate.to_owned()));
        assert!(other.has(&node, "a", &config));
        let given = vec!["10.1.2.4/28".to_owned(), "fd00::4/120".to_owned()];
        assert_eq!(other.add(&node, "b", &config), Ok(given));
        other.del(&node, "a", &config);
        assert!(!giver.has(&node, "a", &config));
        giver.del(&node, "b", &config);
        let left = [("10.1.2.2".into(), owned_by("first")), ("fd00::2".into(), owned_by("first"))];
        assert_eq!(node.reservations(), left);
    }
}

/// A number that looks like any other, from 0 to `below`.
fn any(seed: &mut u64, below: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % below
}

#[test]
fn whoever_does_it_the_same_steps_give_the_same_answers_and_the_same_files() {
    let nodes = [(); 3].map(|()| {
        let mut node = Node::new();
        // Go frees nothing in need.
        node.machine.in_use = |_| Err(flannel_kernel::NetlinkError::from(rustix::io::Errno::NOMEM).into());
        node
    });
    let mut seed = 4;
    for step in 0..160 {
        let id = format!("c{}", any(&mut seed, 24));
        let in_turn = if any(&mut seed, 2) == 0 { Who::Go } else { Who::Ours };
        let adds = any(&mut seed, 3) > 0;
        let outcomes = [Who::Go, Who::Ours, in_turn].into_iter().zip(&nodes).map(|(who, node)| {
            let config = config(node);
            if adds {
                return Some(who.add(node, &id, &config));
            }
            who.del(node, &id, &config);
            None
        });
        let outcomes: Vec<_> = outcomes.collect();
        assert_eq!(outcomes[0], outcomes[1], "step {step}");
        assert_eq!(outcomes[0], outcomes[2], "step {step}");
        assert_eq!(nodes[0].files(), nodes[1].files(), "step {step}");
        assert_eq!(nodes[0].files(), nodes[2].files(), "step {step}");
    }
}

#[test]
fn at_the_same_time_they_give_no_address_twice() {
    let node = Node::new();
    let config = config(&node);
    std::thread::scope(|scope| {
        for number in 0..18 {
            let who = if number % 2 == 0 { Who::Go } else { Who::Ours };
            let (node, config) = (&node, &config);
            scope.spawn(move || who.add(node, &format!("c{number}"), config).unwrap());
        }
    });
    let reservations = node.reservations();
    let mut owners: Vec<&String> = reservations.iter().map(|(_, owner)| owner).collect();
    owners.sort();
    owners.dedup();
    assert_eq!((reservations.len(), owners.len()), (36, 18));
}
