//! Two nodes with two pods each, and a stranger outside of the pod network: every address has a name.
//!
//! `one` and `two` are nodes, `one.a` and `one.b` pods of `one`, `far` is the stranger, who sends what is for `two.a`
//! to `one`, as a load balancer does. The lab knows them as master1, worker1 and worker2.

use std::fs;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use cluster_tests::{Cluster, is_ready, options};
use flannel_lab::{LabOptions, Node, Store, Topology};
use store_tests::Program;

use crate::Family;
use crate::mode::{Folder, Mode};
use crate::netns::Netns;
use crate::services;

/// How long a condition may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Where the lab's nodes have the network of their pods.
const NETWORK: &str = "/etc/cni/net.d/10-flannel.conflist";
/// Every name of an address except those of services.
const NAMES: [&str; 14] = [
    "one.a",
    "one.b",
    "two.a",
    "two.b",
    "one",
    "two",
    "far",
    "far.lo",
    "one.cni0",
    "two.cni0",
    "one.flannel",
    "two.flannel",
    "one.odd",
    "group",
];

/// A lab of one test.
#[derive(Debug)]
pub struct Site {
    cluster: Cluster,
    _folder: Folder,
    pods: Vec<(&'static str, Vec<IpAddr>)>,
}

impl Site {
    /// Brings the nodes up with these daemons in this mode, and everything that packets need.
    pub fn up(name: &str, program: Program, mode: Mode) -> Self {
        let store = match program {
            Program::Ours => Store::Directory,
            Program::Go => Store::etcd(1),
        };
        Self::on(name, store, program, mode)
    }

    /// The same on a store.
    pub fn on(name: &str, store: Store, program: Program, mode: Mode) -> Self {
        let folder = Folder::new();
        let lab = LabOptions {
            topology: Topology::flat(3).unwrap(),
            store,
            flanneld_args: vec!["--ip-masq".to_owned()],
            flanneld_env: mode.environment(&folder),
            ..options(&mode.net_conf())
        };
        let mut site = Self { cluster: Cluster::up(name, lab), _folder: folder, pods: Vec::new() };
        site.start(program);
        site.add_pods();
        site.lay_ways();
        site.wait_settled();
        site
    }

    /// A node: `one`, `two` or `far`.
    pub fn node(&self, name: &str) -> &Node {
        let known = [("one", "master1"), ("two", "worker1"), ("far", "worker2")];
        let (_, found) = known.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("{name}"));
        self.cluster.node(found)
    }

    /// The lab.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    fn start(&self, program: Program) {
        let nodes = ["one", "two"].map(|name| self.node(name));
        nodes.iter().for_each(|node| store_tests::start(node, program));
        nodes.iter().for_each(|node| is_ready(node));
    }

    /// On both nodes at once: a new bridge waits a second or two for its IPv6 address.
    fn add_pods(&mut self) {
        let add = |names: [&'static str; 2]| {
            names.map(|name| {
                let pod = self.node(&name[..3]).add_pod(&name.replace('.', "-")).unwrap();
                (name, pod.addresses().collect())
            })
        };
        let (one, two) = thread::scope(|scope| {
            let two = scope.spawn(|| add(["two.a", "two.b"]));
            (add(["one.a", "one.b"]), two.join().unwrap())
        });
        self.pods.extend(one.into_iter().chain(two));
    }

    /// Makes the pods of both nodes anew, on a network of this text.
    pub fn renew_pods(&mut self, network: &str) {
        for node in ["one", "two"].map(|name| self.node(name)) {
            node.pods().unwrap().into_iter().for_each(|pod| pod.remove().unwrap());
            fs::write(node.disk_path(NETWORK), network).unwrap();
        }
        let before = std::mem::take(&mut self.pods);
        self.add_pods();
        let (far, old) = (self.node("far"), before.into_iter().find(|(name, _)| *name == "two.a"));
        for address in old.into_iter().flat_map(|(_, addresses)| addresses) {
            let family = Family::of(address);
            let (new, via) = (self.address("two.a", family), self.address("one", family));
            far.ip(&format!("route del {address}")).unwrap();
            far.ip(&format!("route add {new} via {via}")).unwrap();
        }
        self.wait_settled();
    }

    /// Addresses and routes that a cluster would have from its surroundings.
    fn lay_ways(&self) {
        let [one, two, far] = ["one", "two", "far"].map(|name| self.node(name));
        for family in Family::BOTH {
            // An address that the kernel does not choose by itself.
            let (length, whole, services, flag, nodad) = match family {
                Family::V4 => (32, 24, 24, "-4", ""),
                Family::V6 => (128, 64, 112, "-6", " nodad preferred_lft 0"),
            };
            let address = |name: &str| self.address(name, family);
            far.ip(&format!("address add {}/{length} dev lo{nodad}", address("far.lo"))).unwrap();
            one.ip(&format!("address add {}/{length} dev eth0{nodad}", address("one.odd"))).unwrap();
            for node in [one, two] {
                node.ip(&format!("{flag} route add {} via {}", address("far.lo"), address("far"))).unwrap();
            }
            let ways = [
                (format!("{}/{whole}", address("one.flannel")), "one"),
                (format!("{}/{whole}", address("two.flannel")), "two"),
                (address("two.a").to_string(), "one"),
                (format!("{}/{services}", service(0, family)), "one"),
            ];
            for (to, via) in ways {
                far.ip(&format!("{flag} route add {to} via {}", address(via))).unwrap();
            }
        }
    }

    /// Makes the services and marks of the truth table on the first node.
    pub fn with_services(self) -> Self {
        for family in Family::BOTH {
            self.load(self.node("one"), &services::table(&self, family));
        }
        self
    }

    /// Gives `nft` rules on a node.
    pub fn load(&self, node: &Node, rules: &str) {
        let mut child = node.command("nft", ["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "nft refuses:\n{rules}");
    }

    fn wait_settled(&self) {
        for (from, to) in [("one-a", "two.a"), ("one-b", "two.b")] {
            let pods = self.node("one").pods().unwrap();
            let pod = pods.iter().find(|pod| pod.name() == from).unwrap();
            for family in Family::BOTH {
                pod.wait_ping(self.address(to, family), PATIENCE).unwrap();
            }
        }
    }

    /// Where a name sends and receives.
    pub fn netns(&self, name: &str) -> Netns {
        match name.split_once('.') {
            Some((node, "a" | "b")) => {
                let pods = self.node(node).pods().unwrap();
                Netns::of_pod(pods.iter().find(|pod| pod.name() == name.replace('.', "-")).unwrap())
            }
            Some((node, _)) => Netns::of_node(self.node(node)),
            None => Netns::of_node(self.node(name)),
        }
    }

    /// The address that a name stands for.
    pub fn address(&self, name: &str, family: Family) -> IpAddr {
        let of_subnet = |node: &str, last: u16| {
            let pod = if node == "one" { "one.a" } else { "two.a" };
            ending(self.address(pod, family), last)
        };
        match name {
            "one" | "two" | "far" if family == Family::V4 => self.node(name).v4(),
            "one" | "two" | "far" => self.node(name).v6(),
            "far.lo" if family == Family::V4 => Ipv4Addr::new(192, 0, 2, 77).into(),
            "far.lo" => Ipv6Addr::new(0x2001, 0xdb8, 0x77, 0, 0, 0, 0, 0x77).into(),
            "group" if family == Family::V4 => Ipv4Addr::new(239, 1, 1, 1).into(),
            "group" => Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 1, 3).into(),
            "one.flannel" | "two.flannel" => of_subnet(&name[..3], 0),
            "one.cni0" | "two.cni0" => of_subnet(&name[..3], 1),
            "one.odd" => of_subnet("one", 200),
            _ => match (services::number_of(name), self.pods.iter().find(|(pod, _)| *pod == name)) {
                (Some(number), _) => service(number, family),
                (_, Some((_, addresses))) => {
                    *addresses.iter().find(|address| Family::of(**address) == family).unwrap()
                }
                _ => panic!("nobody is called {name}"),
            },
        }
    }

    /// The name of an address.
    pub fn name_of(&self, address: IpAddr) -> String {
        let family = Family::of(address);
        let known = NAMES.iter().find(|name| self.address(name, family) == address);
        known.map_or_else(|| address.to_string(), |name| (*name).to_owned())
    }
}

/// An address of the services' network.
fn service(number: u16, family: Family) -> IpAddr {
    match family {
        Family::V4 => ending(Ipv4Addr::new(10, 96, 7, 0).into(), number),
        Family::V6 => Ipv6Addr::new(0xfd00, 0x96, 0, 0, 0, 0, 0, number).into(),
    }
}

/// The same address with another last part.
fn ending(address: IpAddr, last: u16) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            Ipv4Addr::new(a, b, c, u8::try_from(last).unwrap()).into()
        }
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, last).into()
        }
    }
}
