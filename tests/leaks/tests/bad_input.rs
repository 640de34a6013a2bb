//! Wrong input, one fault at a time: the right code, words that name the fault, and nothing changed.

mod cases;

use std::fs;
use std::path::Path;

use leak_tests::{Answer, Call, Firewall, Network, Node, Pod, RECORDS, Scan, Step, on_a_node};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::{Value, json};

use cases::{CONFIGS, Case, ENVIRONMENTS, PORTMAPS, SUBNET_FILES, with};

const ID: &str = "badpod";

#[test]
fn a_wrong_environment_is_named_and_changes_nothing() {
    on_a_node(|node| Trial::begin(node).of(Step::Flannel, &ENVIRONMENTS));
}

#[test]
fn a_wrong_configuration_is_named_and_changes_nothing() {
    on_a_node(|node| Trial::begin(node).of(Step::Flannel, &CONFIGS));
}

#[test]
fn wrong_ports_and_results_are_named_and_change_nothing() {
    on_a_node(|node| Trial::begin(node).of(Step::Portmap, &PORTMAPS));
}

#[test]
fn a_wrong_file_of_flanneld_is_named_and_changes_nothing() {
    on_a_node(|node| {
        let mut trial = Trial::begin(node);
        let good = fs::read_to_string("/run/flannel/subnet.env").unwrap();
        for (what, text, words) in SUBNET_FILES {
            node.set_subnet_env(text);
            let answer = trial.call(Step::Flannel, "ADD").run();
            node.set_subnet_env(&good);
            trial.judge(what, &answer, (999, "failed to load flannel 'subnet.env' file: "));
            trial.judge(what, &answer, (999, words));
        }
        fs::remove_file("/run/flannel/subnet.env").unwrap();
        let answer = trial.call(Step::Flannel, "ADD").run();
        node.set_subnet_env(&good);
        trial.judge("no file", &answer, (11, "open /run/flannel/subnet.env: no such file or directory. Check the flannel pod log for this node."));
        trial.end();
    });
}

#[test]
fn a_configuration_that_is_cut_anywhere_is_refused_by_every_command_and_changes_nothing() {
    on_a_node(|node| {
        let trial = Trial::begin(node);
        for step in [Step::Flannel, Step::Portmap] {
            let whole = trial.call(step, "ADD");
            for length in 0..whole.stdin.len() {
                let command = ["ADD", "DEL", "CHECK", "GC", "STATUS"][length % 5];
                let cut = whole.clone().set("CNI_COMMAND", command).stdin(&whole.stdin[..length]);
                let (code, words) = cut.run().error();
                assert!(
                    code == 6 && words.starts_with("error unmarshall network config: "),
                    "{length}: {code} {words}"
                );
            }
        }
        node.expect(&trial.peace, "configurations were cut");
    });
}

#[test]
fn versions_that_a_command_is_not_in_are_refused() {
    on_a_node(|node| {
        let mut trial = Trial::begin(node);
        let cases =
            [("CHECK", "0.3.1"), ("GC", "1.0.0"), ("STATUS", "1.0.0"), ("CHECK", ""), ("GC", "0.4.0")];
        for (command, version) in cases {
            for step in [Step::Flannel, Step::Portmap] {
                let answer = with(trial.call(step, command), "/cniVersion", version).run();
                let words = format!("config version does not allow {command}");
                trial.judge(&format!("{command} in {version:?}"), &answer, (1, &words));
            }
        }
        trial.end();
    });
}

#[test]
fn an_exhausted_range_is_told_and_leaves_nothing() {
    on_a_node(|node| {
        let mut trial = Trial::begin(node);
        let small = "/var/lib/small.env";
        let text = "FLANNEL_NETWORK=10.9.0.0/16\nFLANNEL_SUBNET=10.9.0.1/30\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n";
        fs::write(small, text).unwrap();
        node.make_netns(["first"]);
        let add = |trial: &Trial| {
            let call = with(trial.call(Step::Flannel, "ADD"), "/subnetFile", small);
            with(with(call, "/name", "small"), "/delegate/bridge", "cni1")
        };
        let first = add(&trial).set("CNI_CONTAINERID", "first").set("CNI_NETNS", "/run/netns/first");
        first.run().result();
        trial.peace = node.scan();
        let words =
            "failed to allocate for range 0: no IP addresses available in range set: 10.9.0.1-10.9.0.2";
        let answer = add(&trial).run();
        trial.judge("no address is left", &answer, (999, words));
        let status = with(add(&trial), "/cniVersion", "1.1.0").set("CNI_COMMAND", "STATUS").run();
        trial.judge("the node is full", &status, (50, "no IP addresses available"));
        trial.end();
    });
}

#[test]
fn a_full_disk_is_told_and_leaves_nothing() {
    on_a_node(|node| {
        let mut trial = Trial::begin(node);
        // Room for so many files: folder, lock, address, last address, record and draft each may be the first
        // that finds none.
        for room in 1..12 {
            let options = std::ffi::CString::new(format!("size=64k,nr_inodes={room}")).unwrap();
            mount("small", "/run/small", "tmpfs", MountFlags::empty(), Some(&*options)).unwrap();
            let call =
                with(trial.call(Step::Flannel, "ADD"), "/ipam", json!({"dataDir": "/run/small/networks"}));
            let call = with(call, "/dataDir", "/run/small/flannel");
            let answer = call.run();
            if answer.status == Some(1) {
                let told = answer.error();
                let is_right = told.0 == 999 && told.1.contains("No space left on device");
                assert!(is_right, "room for {room} files: {told:?}");
            }
            call.set("CNI_COMMAND", "DEL").run().nothing();
            let left = files("/run/small");
            let shared = |path: &String| path.ends_with("/lock") || path.contains("/last_reserved_ip.");
            assert!(left.iter().all(shared), "room for {room} files: {left:?}");
            unmount("/run/small", UnmountFlags::DETACH).unwrap();
            trial.look("a full disk", &[]);
        }
        trial.end();
    });
}

#[test]
fn a_disk_that_filled_up_keeps_nothing_from_being_freed() {
    on_a_node(|node| {
        let mut trial = Trial::begin(node);
        for command in ["DEL", "GC"] {
            let options = c"size=64k,nr_inodes=16";
            mount("small", "/run/small", "tmpfs", MountFlags::empty(), Some(options)).unwrap();
            let call =
                with(trial.call(Step::Flannel, "ADD"), "/ipam", json!({"dataDir": "/run/small/networks"}));
            let call = with(call, "/dataDir", "/run/small/flannel");
            call.run().result();
            // Somebody tidied up, and filled the disk: there is no lock, and no room for another.
            fs::remove_file("/run/small/networks/cbr0/lock").unwrap();
            let filled = (0..100).take_while(|number| fs::write(format!("/run/small/{number}"), "").is_ok());
            assert!(filled.count() < 20, "the disk is not full");
            let mut config: Value = serde_json::from_slice(&call.stdin).unwrap();
            config["cni.dev/valid-attachments"] = json!([{"containerID": "pod1", "ifname": "eth0"}]);
            call.clone().config(&config).set("CNI_COMMAND", command).run().nothing();
            let left = files("/run/small/networks");
            assert_eq!(left, ["/run/small/networks/cbr0/last_reserved_ip.0"], "after {command}");
            call.set("CNI_COMMAND", "DEL").run().nothing();
            unmount("/run/small", UnmountFlags::DETACH).unwrap();
            trial.look("a disk that filled up", &[]);
        }
        trial.end();
    });
}

#[test]
fn odd_names_that_are_allowed_work_and_leave_nothing() {
    on_a_node(|node| {
        for firewall in [Firewall::Nftables, Firewall::Iptables] {
            let network = Network::new(firewall);
            let empty = network.warm_up(node);
            // The longest that fits into the name of a chain.
            let long = "x".repeat(230);
            let hex = "0123456789abcdef".repeat(4);
            for id in ["a..b", "0", "A_b.c-D", "lock", "last_reserved_ip.0", "10.244.1.77", &hex, &long] {
                let mut pod = Pod { id: id.to_owned(), port: 30_000, result: None };
                node.make_netns(["odd"]);
                let netns = "/run/netns/odd";
                for step in Step::of("ADD") {
                    let call = network.call(node, "ADD", step, &pod).set("CNI_NETNS", netns);
                    pod.result = Some(call.run().result());
                }
                network.expect_rules(&node.scan(), &pod);
                for command in ["CHECK", "DEL"] {
                    for step in Step::of(command) {
                        network.call(node, command, step, &pod).set("CNI_NETNS", netns).run().nothing();
                    }
                }
                node.remove_netns("odd");
                node.expect(&empty, &format!("pod {id} came"));
            }
        }
    });
}

/// Good calls made bad, on a node where a pod lives.
struct Trial<'a> {
    node: &'a Node,
    network: Network,
    pod: Pod,
    peace: Scan,
    faults: Vec<String>,
}

impl<'a> Trial<'a> {
    fn begin(node: &'a Node) -> Self {
        let network = Network::new(Firewall::Nftables);
        network.warm_up(node);
        fs::create_dir_all("/run/ro").unwrap();
        fs::create_dir_all("/run/small").unwrap();
        mount("readonly", "/run/ro", "tmpfs", MountFlags::RDONLY, None).unwrap();
        let mut living = Pod::new(1);
        node.make_netns([&*living.id, ID]);
        network.add(node, &mut living);
        // What flannel would hand to portmap, were it not the input that is tried.
        let result = json!({
            "cniVersion": "1.1.0",
            "interfaces": [
                {"name": "cni0"}, {"name": "veth0"}, {"name": "eth0", "sandbox": format!("/run/netns/{ID}")},
            ],
            "ips": [{"address": "10.244.1.99/24", "gateway": "10.244.1.1", "interface": 2}],
        });
        let pod = Pod { id: ID.into(), result: Some(result), ..Pod::new(2) };
        Self { node, network, pod, peace: node.scan(), faults: Vec::new() }
    }

    fn call(&self, step: Step, command: &str) -> Call {
        let result = self.pod.result.clone().filter(|_| step == Step::Portmap);
        self.network.call(self.node, command, step, &Pod { result, ..self.pod.clone() }).unset("CNI_ARGS")
    }

    fn of(mut self, step: Step, cases: &[Case]) {
        for (what, spoil, code, words) in cases {
            let call = spoil(self.call(step, "ADD"));
            self.judge(what, &call.run(), (*code, words));
            // DEL of the same may be refused as well. One that is right frees what there is.
            let del = call.clone().set("CNI_COMMAND", "DEL").run();
            if del.status != Some(0) {
                del.error();
                self.clean_up(what, &call);
            }
            self.look(what, &[]);
        }
        self.end();
    }

    /// The answer must be this, and nothing may have come or gone, but for a record that DEL would need.
    fn judge(&mut self, what: &str, answer: &Answer, expected: (u64, &str)) {
        if answer.status != Some(1) {
            return self.faults.push(format!("{what}: {answer:?}, not {expected:?}"));
        }
        let told = answer.error();
        if told.0 != expected.0 || !told.1.contains(expected.1) {
            self.faults.push(format!("{what}: told {told:?}, not {expected:?}"));
        }
        self.look(what, &["+ file /var/lib/cni/flannel/"]);
    }

    fn look(&mut self, what: &str, allowed: &[&str]) {
        let mut difference = self.node.scan().difference(&self.peace);
        difference.retain(|fact| !allowed.iter().any(|allowed| fact.starts_with(allowed)));
        if !difference.is_empty() {
            self.faults.push(format!("{what}: changed {difference:#?}"));
            self.peace = self.node.scan();
        }
    }

    /// DEL of the pod of a call, with nothing wrong any more.
    fn clean_up(&mut self, what: &str, call: &Call) {
        let good = self.call(Step::Flannel, "DEL");
        let id = call.environment.get(std::ffi::OsStr::new("CNI_CONTAINERID")).cloned();
        let id = id.unwrap_or_else(|| ID.into());
        let answer = good.set("CNI_CONTAINERID", &id).run();
        if answer.status != Some(0) && answer.error().0 != 4 {
            self.faults.push(format!("{what}: DEL is stuck: {}", answer.stdout));
            let _ = fs::remove_file(Path::new(RECORDS).join(id));
        }
    }

    fn end(self) {
        assert!(self.faults.is_empty(), "{}", self.faults.join("\n"));
    }
}

fn files(folder: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path().to_str().unwrap().to_owned());
    paths
        .flat_map(|path| if fs::metadata(&path).unwrap().is_dir() { files(&path) } else { vec![path] })
        .collect()
}
