//! What Go flannel made of the same leases on the same addresses, and what a node shows, in the same words.
//!
//! Takes a captured case, gives its net-conf, its leases and, for each node, the lines of each output.

mod rules;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use cluster_tests::PeerLease;
use flannel_lab::Node;
use serde_json::{Value, json};

pub use rules::saved;

/// The outputs that were captured of each node.
pub const OUTPUTS: [&str; 10] = [
    "link.txt",
    "address.txt",
    "route.txt",
    "route6.txt",
    "neighbour.txt",
    "fdb.txt",
    "iptables.txt",
    "ip6tables.txt",
    "nft.txt",
    "subnet.env",
];

/// Which half of a captured case is used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Families {
    AsCaptured,
    /// The IPv6 half of a dual stack: at IPv6 alone Go itself fails, its nodes take each other's lease.
    Ipv6Alone,
}

/// A captured case.
pub struct Golden {
    folder: PathBuf,
    families: Families,
}

impl Golden {
    pub fn new(case: &str, families: Families) -> Self {
        let plan = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/flannel-plan");
        Self { folder: plan.join("tests/golden/flanneld").join(case), families }
    }

    pub fn net_conf(&self) -> String {
        let text = fs::read_to_string(self.folder.join("net-conf.json")).unwrap();
        let mut conf: Value = serde_json::from_str(&text).unwrap();
        if self.families == Families::Ipv6Alone {
            conf["EnableIPv4"] = json!(false);
            conf.as_object_mut().unwrap().remove("Network");
        }
        conf.to_string()
    }

    /// The arguments that matter for what was made.
    pub fn arguments(&self) -> Vec<String> {
        let command = fs::read_to_string(self.folder.join("command")).unwrap_or_default();
        let masquerade = command.split_whitespace().find(|word| *word == "--ip-masq");
        masquerade.into_iter().map(str::to_owned).collect()
    }

    /// Go's leases, each with the name of its node, which Go does not know.
    pub fn leases(&self) -> Vec<PeerLease> {
        let text = fs::read_to_string(self.folder.join("etcd.txt")).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let pairs = lines.chunks(2).filter_map(|pair| {
            let key = pair[0].strip_prefix("/coreos.com/network/subnets/")?;
            Some((key, serde_json::from_str(pair[1]).unwrap()))
        });
        pairs.map(|(key, value)| self.lease(key, value)).collect()
    }

    fn lease(&self, key: &str, value: Value) -> PeerLease {
        let owner = match value["PublicIP"].as_str().unwrap() {
            "10.0.0.21" => "worker1",
            "10.0.0.22" => "worker2",
            _ => "worker3",
        };
        let lease = PeerLease { key: key.to_owned(), value }.with("Owner", json!(owner));
        match self.families {
            Families::AsCaptured => lease,
            Families::Ipv6Alone => {
                let key = format!("0.0.0.0-0&{}", key.split_once('&').unwrap().1);
                PeerLease { key, ..lease }.with("PublicIP", json!("0.0.0.0")).without("BackendData")
            }
        }
    }

    /// The lines of one output of a node, with the differences that we want: the MTU over IPv6, where Go promises
    /// packets that do not fit, and two rules of nftables, which say something else than those of iptables.
    pub fn lines(&self, node: &str, output: &str) -> BTreeSet<String> {
        let captured = format!("w{}", node.strip_prefix("worker").unwrap());
        let text = fs::read_to_string(self.folder.join(captured).join(output)).unwrap_or_default();
        let v6 = self.net_conf().contains("IPv6Network");
        let text = if v6 { text.replace("FLANNEL_MTU=1450", "FLANNEL_MTU=1430") } else { text };
        let is_v4 = |line: &String| {
            let words = ["10.244.", "flannel.1", "FLANNEL_NETWORK"];
            output == "iptables.txt" || words.iter().any(|word| line.contains(word))
        };
        in_lines(output, &text)
            .into_iter()
            .filter(|line| self.families == Families::AsCaptured || !is_v4(line))
            .collect()
    }
}

/// The lines of one output of a running node, without our marks.
pub fn lines_of(node: &Node, output: &str) -> BTreeSet<String> {
    let ip = |words: &str| node.ip(words).unwrap();
    let lines = in_lines(
        output,
        &match output {
            "link.txt" => ip("-d link show type vxlan"),
            "address.txt" => ip("address show type vxlan"),
            "route.txt" => ip("-d route show table main"),
            "route6.txt" => ip("-d -6 route show table main"),
            "neighbour.txt" => ip("neigh show nud permanent"),
            "fdb.txt" => node.bridge("fdb show").unwrap(),
            "iptables.txt" => node.run("iptables-save", [] as [&str; 0]).unwrap(),
            "ip6tables.txt" => node.run("ip6tables-save", [] as [&str; 0]).unwrap(),
            "nft.txt" => node.run("nft", ["list", "ruleset"]).unwrap(),
            _ => fs::read_to_string(node.path("/run/flannel/subnet.env")).unwrap(),
        },
    );
    let about_tunnels = |line: &String| output != "fdb.txt" || line.contains(" dev flannel");
    // The kernel's own routes for link-local addresses were not captured.
    lines.into_iter().filter(|line| about_tunnels(line) && !line.starts_with("unicast fe80::/64")).collect()
}

/// The lines of an output, so that they can be compared as a set.
fn in_lines(output: &str, text: &str) -> BTreeSet<String> {
    match output {
        "iptables.txt" | "ip6tables.txt" => rules::saved(text),
        "nft.txt" => rules::listed(text),
        _ => joined(text),
    }
}

/// What stands in one output and not in the other, or depends on time, or is our mark.
const DROPPED: [&str; 6] = [
    " extern_learn",
    " nodad",
    " tentative",
    " valid_lft forever preferred_lft forever",
    " table main",
    " proto 70",
];

/// The lines of an output of `ip`: continued lines joined, without the numbers of devices.
fn joined(text: &str) -> BTreeSet<String> {
    let text = text.replace("\n    ", " ").replace(" proto 70 scope", " proto boot scope");
    text.lines().map(plain).filter(|line| !line.is_empty()).collect()
}

fn plain(line: &str) -> String {
    let is_number = |word: &&str| word.trim_end_matches(':').parse::<u32>().is_ok() && word.ends_with(':');
    let words: Vec<&str> = line.split_whitespace().skip_while(is_number).collect();
    let line = words.join(" ");
    let line = line.split(" alias flanneld ").next().unwrap_or_default();
    let line = DROPPED.iter().fold(line.to_owned(), |line, dropped| line.replace(dropped, ""));
    // `ip address` shows the hardware address too, which was not captured there.
    match (line.split_once(" link/ether "), line.split_once(" inet")) {
        (Some((head, _)), Some((_, addresses))) => format!("{head} inet{addresses}"),
        _ => line,
    }
}
