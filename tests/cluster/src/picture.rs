//! A node's network as `ip` and `bridge` show it, as a set of lines that can be compared whole.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use flannel_lab::{Node, wait_for};

/// A node's network in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Picture(BTreeSet<String>);

impl Picture {
    /// Looks at a node: devices, addresses, routes of the main table, permanent neighbours, entries of tunnels.
    pub fn of(node: &Node) -> Self {
        let mut lines = BTreeSet::new();
        let mut add = |word: &str, text: String, matters: fn(&str) -> bool| {
            lines.extend(
                text.lines().map(plain).filter(|line| matters(line)).map(|line| format!("{word} {line}")),
            );
        };
        add("link", node.ip("-o link show").unwrap(), |line| !line.starts_with("flannel"));
        add("link", node.ip("-d -o link show type vxlan").unwrap(), |_| true);
        add("address", node.ip("-o address show").unwrap(), is_somebodys_choice);
        add("route", node.ip("-N route show").unwrap(), |_| true);
        add("route", node.ip("-N -6 route show").unwrap(), is_somebodys_choice);
        add("neighbour", node.ip("-N neigh show nud permanent").unwrap(), |_| true);
        add("fdb", node.bridge("fdb show").unwrap(), |line| line.contains(" dev flannel"));
        Self(lines)
    }

    /// What is new in another picture (`+ …`) and what is gone (`- …`).
    pub fn changes_to(&self, after: &Self) -> Vec<String> {
        let gone = self.0.difference(&after.0).map(|line| format!("- {line}"));
        gone.chain(after.0.difference(&self.0).map(|line| format!("+ {line}"))).collect()
    }

    /// The same without our marks: what Go flannel's objects look like.
    pub fn without_marks(&self) -> Self {
        let unmarked = |line: &String| {
            let line = line.split(" alias flanneld ").next().unwrap_or_default();
            [" proto 70", " extern_learn", " nodad", " tentative"]
                .iter()
                .fold(line.to_owned(), |line, mark| line.replace(mark, ""))
        };
        Self(self.0.iter().map(unmarked).collect())
    }

    /// The same without the numbers of folders in our marks: after a loss of power `/run` is another one.
    pub fn without_folders(&self) -> Self {
        let without = |line: &String| match line.split_once(" alias flanneld subnet.env@") {
            Some((before, mark)) => {
                let networks = mark.split_once(' ').map_or("", |(_, networks)| networks);
                format!("{before} alias flanneld subnet.env {networks}")
            }
            None => line.clone(),
        };
        Self(self.0.iter().map(without).collect())
    }

    /// The lines that begin with a text.
    pub fn lines(&self, begin: &str) -> Vec<&str> {
        self.0.iter().map(String::as_str).filter(|line| line.starts_with(begin)).collect()
    }

    /// Whether some line begins with a text.
    pub fn has(&self, begin: &str) -> bool {
        self.0.iter().any(|line| line.starts_with(begin))
    }
}

/// A line without the number of the device, which changes when it is made anew, without its operational state,
/// which follows by itself some time later, and without double spaces.
fn plain(line: &str) -> String {
    let line = line.replace('\\', " ");
    let mut words =
        line.split_whitespace().skip_while(|word| word.trim_end_matches(':').parse::<u32>().is_ok());
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        if word == "state" {
            words.next();
        } else {
            kept.push(word);
        }
    }
    kept.join(" ")
}

/// The kernel gives every device a link-local address, and every IPv6 address a route, by itself and in its time.
fn is_somebodys_choice(line: &str) -> bool {
    let own = line.contains("fe80::") || (line.contains(" proto 2 ") && line.contains(" dev flannel"));
    !own
}

/// Far longer than a repair takes on a machine with other work, and shorter than the pause between two safety looks:
/// a repair that needed one of those is a failure. How long repairs take is for the benches.
pub const BEFORE_A_SAFETY_LOOK: Duration = Duration::from_secs(30);

/// Breaks something on a node and waits until the node is as it was; gives the time that took.
pub fn healed(node: &Node, what: &str, breaking: impl FnOnce()) -> Duration {
    let before = Picture::of(node);
    breaking();
    let start = Instant::now();
    let took = wait_for(what, BEFORE_A_SAFETY_LOOK, || match before.changes_to(&Picture::of(node)) {
        same if same.is_empty() => Ok(start.elapsed()),
        changes => Err(changes.join("\n")),
    });
    took.unwrap()
}

/// The hardware address of a node's device.
pub fn vxlan_mac(node: &Node, device: &str) -> String {
    let line = node.ip(&format!("-o link show {device}")).unwrap();
    line.split_whitespace().skip_while(|word| *word != "link/ether").nth(1).unwrap().to_owned()
}
