//! `kill -9` at every single call to the kernel by which ADD and DEL change something, one after the other: what a
//! random moment would hit once in a thousand years is hit here, too. Needs `strace`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use leak_tests::{Answer, Firewall, Network, Node, Pod, Scan, Step, on_a_node};

/// DEL waits for the kernel itself; only a program that outlives a killed plugin may take a moment, or a few on a
/// machine with other work.
const LIMIT: Duration = Duration::from_secs(15);
/// The calls to the kernel that change something outside of the plugin, or wait for what does.
const CHANGING: [&str; 26] = [
    "clone",
    "clone3",
    "close",
    "exit_group",
    "flock",
    "fsetxattr",
    "ftruncate",
    "futex",
    "link",
    "linkat",
    "mkdir",
    "mkdirat",
    "pwrite64",
    "rename",
    "renameat2",
    "sendmsg",
    "sendto",
    "setns",
    "unlink",
    "unlinkat",
    "utimensat",
    "vfork",
    "wait4",
    "waitid",
    "write",
    "writev",
];
const VICTIM: &str = "victim";

#[test]
fn nothing_is_left_wherever_add_is_killed_with_nftables() {
    on_a_node(|node| Steps::begin(node, Firewall::Nftables).kill_each("ADD"));
}

#[test]
fn nothing_is_left_wherever_del_is_killed_with_nftables() {
    on_a_node(|node| Steps::begin(node, Firewall::Nftables).kill_each("DEL"));
}

#[test]
fn nothing_is_left_wherever_add_is_killed_with_iptables() {
    on_a_node(|node| Steps::begin(node, Firewall::Iptables).kill_each("ADD"));
}

#[test]
fn nothing_is_left_wherever_del_is_killed_with_iptables() {
    on_a_node(|node| Steps::begin(node, Firewall::Iptables).kill_each("DEL"));
}

struct Steps<'a> {
    node: &'a Node,
    network: Network,
    /// The node with an empty namespace.
    peace: Scan,
    /// What was left, and after what.
    left: Vec<(String, Vec<String>)>,
}

impl<'a> Steps<'a> {
    fn begin(node: &'a Node, firewall: Firewall) -> Self {
        let network = Network::new(firewall);
        network.warm_up(node);
        node.make_netns([VICTIM]);
        Self { node, network, peace: node.scan(), left: Vec::new() }
    }

    fn kill_each(mut self, verb: &str) {
        for (place, step) in Step::of(verb).iter().enumerate() {
            let moments = self.moments(verb, place);
            moments.iter().for_each(|moment| self.kill(verb, place, moment));
            println!("{verb} of {step:?} was killed at each of {} calls to the kernel", moments.len());
        }
        assert!(self.left.is_empty(), "{:#?}", self.left);
    }

    /// Every call by which a plugin may change something: its name, and which of that name it is.
    ///
    /// A kill between two of them finds what a kill right before the second one finds.
    fn moments(&self, verb: &str, place: usize) -> BTreeSet<(String, usize)> {
        let file = "/run/strace";
        let (pod, answer) = self.call(verb, place, &["strace", "-qqq", "-o", file]);
        assert_eq!(answer.status, Some(0), "{answer:?}");
        let text = fs::read_to_string(file).unwrap();
        fs::remove_file(file).unwrap();
        self.network.del(self.node, &pod);
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let calls = text.lines().filter_map(|line| {
            let (name, arguments) = line.split_once('(')?;
            let count = counts.entry(name).or_default();
            *count += 1;
            let changes = CHANGING.contains(&name) || name == "openat" && arguments.contains("O_CREAT");
            changes.then(|| (name.to_owned(), *count))
        });
        calls.collect()
    }

    fn kill(&mut self, verb: &str, place: usize, (name, number): &(String, usize)) {
        let inject = format!("inject={name}:signal=KILL:when={number}");
        let strace = ["strace", "-qqq", "-o", "/dev/null", "-e", &inject];
        let (pod, answer) = self.call(verb, place, &strace);
        // A plugin with threads does not make the same calls each time.
        assert!(answer.was_killed() || answer.status == Some(0), "{answer:?}");
        self.network.del(self.node, &pod);
        let left = self.node.difference(&self.peace, LIMIT);
        if !left.is_empty() {
            let what = format!("{verb} of {:?} was killed at {name} {number}", Step::of(verb)[place]);
            self.left.push((what, left));
            self.peace = self.node.scan();
        }
    }

    /// Calls the plugins as a runtime does up to the one at `place`, which another program runs.
    fn call(&self, verb: &str, place: usize, by: &[&str]) -> (Pod, Answer) {
        let mut pod = Pod { id: VICTIM.into(), ..Pod::new(100) };
        if verb == "DEL" {
            self.network.add(self.node, &mut pod);
        }
        let steps = Step::of(verb);
        for step in &steps[..place] {
            let answer = self.network.call(self.node, verb, *step, &pod).run();
            if verb == "ADD" {
                pod.result = Some(answer.result());
            }
        }
        let answer = self.network.call(self.node, verb, steps[place], &pod).under(by).run();
        (pod, answer)
    }
}
