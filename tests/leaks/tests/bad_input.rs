//! Wrong input, one fault at a time: the right code, words that name the fault, and nothing changed.

use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use leak_tests::{Answer, Call, Firewall, Network, Node, Pod, RECORDS, Scan, Step, on_a_node};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::{Value, json};

const ID: &str = "badpod";

/// What is tried: a change of a good ADD, the code, and a part of the words.
type Case = (&'static str, fn(Call) -> Call, u64, &'static str);

const ENVIRONMENTS: [Case; 35] = [
    ("no id", |call| call.unset("CNI_CONTAINERID"), 4, "required env variables [CNI_CONTAINERID] missing"),
    ("an empty id", |call| call.set("CNI_CONTAINERID", ""), 4, "[CNI_CONTAINERID] missing"),
    (
        "an id that climbs",
        |call| call.set("CNI_CONTAINERID", "../x"),
        4,
        "invalid characters in containerID; ../x",
    ),
    ("an id with a slash", |call| call.set("CNI_CONTAINERID", "a/b"), 4, "invalid characters in containerID"),
    (
        "an id that is a folder",
        |call| call.set("CNI_CONTAINERID", ".."),
        4,
        "invalid characters in containerID",
    ),
    (
        "an id like an option",
        |call| call.set("CNI_CONTAINERID", "-x"),
        4,
        "invalid characters in containerID",
    ),
    (
        "an id of two lines",
        |call| call.set("CNI_CONTAINERID", "a\nb"),
        4,
        "invalid characters in containerID",
    ),
    (
        "an id with its line's end",
        |call| call.set("CNI_CONTAINERID", "a\n"),
        4,
        "invalid characters in containerID",
    ),
    (
        "an id that is no text",
        |call| call.set("CNI_CONTAINERID", no_text()),
        4,
        "invalid characters in containerID",
    ),
    ("an id for no chain", |call| call.set("CNI_CONTAINERID", "x".repeat(250)), 999, "xxx"),
    ("an id for no file", |call| call.set("CNI_CONTAINERID", "x".repeat(300)), 999, "File name too long"),
    ("no interface", |call| call.unset("CNI_IFNAME"), 4, "required env variables [CNI_IFNAME] missing"),
    ("an interface that climbs", |call| call.set("CNI_IFNAME", "../x"), 4, "interface name contains / or :"),
    ("an interface that is a folder", |call| call.set("CNI_IFNAME", ".."), 4, "interface name is . or .."),
    ("an interface of two lines", |call| call.set("CNI_IFNAME", "a\nb"), 4, "or whitespace characters"),
    (
        "an interface with a colon",
        |call| call.set("CNI_IFNAME", "eth0:1"),
        4,
        "interface name contains / or :",
    ),
    ("a long interface", |call| call.set("CNI_IFNAME", "x".repeat(300)), 4, "interface name is too long"),
    ("an interface that is no text", |call| call.set("CNI_IFNAME", no_text()), 4, "interface name"),
    ("an interface with a pattern", |call| call.set("CNI_IFNAME", "eth%d"), 4, "%"),
    ("no namespace", |call| call.unset("CNI_NETNS"), 4, "required env variables [CNI_NETNS] missing"),
    ("a lost namespace", |call| call.set("CNI_NETNS", "/run/netns/gone"), 999, "no such file or directory"),
    (
        "a file for a namespace",
        |call| call.set("CNI_NETNS", "/etc/passwd"),
        999,
        "unknown FS magic on \"/etc/passwd\"",
    ),
    (
        "a folder for a namespace",
        |call| call.set("CNI_NETNS", "/run/netns"),
        999,
        "unknown FS magic on \"/run/netns\"",
    ),
    ("a device for a namespace", |call| call.set("CNI_NETNS", "/dev/null"), 999, "\"/dev/null\""),
    (
        "another kind of namespace",
        |call| call.set("CNI_NETNS", "/proc/self/ns/mnt"),
        999,
        "/proc/self/ns/mnt",
    ),
    ("a long namespace", |call| call.set("CNI_NETNS", "/x".repeat(5000)), 999, "file name too long"),
    (
        "a namespace of two lines",
        |call| call.set("CNI_NETNS", "/run/netns/a\nb"),
        999,
        "no such file or directory",
    ),
    ("the node's own namespace", |call| call.set("CNI_NETNS", "/proc/1/ns/net"), 8, "should not be the same"),
    (
        "the plugin's own namespace",
        |call| call.set("CNI_NETNS", "/proc/self/ns/net"),
        8,
        "should not be the same",
    ),
    ("no path", |call| call.unset("CNI_PATH"), 4, "required env variables [CNI_PATH] missing"),
    (
        "a path to nothing",
        |call| call.set("CNI_PATH", "/nowhere"),
        999,
        "failed to find plugin \"bridge\" in path [/nowhere]",
    ),
    ("an unknown command", |call| call.set("CNI_COMMAND", "FOO"), 4, "unknown CNI_COMMAND: FOO"),
    ("a command in small letters", |call| call.set("CNI_COMMAND", "add"), 4, "unknown CNI_COMMAND: add"),
    ("arguments without a value", |call| call.set("CNI_ARGS", "a"), 999, "ARGS: invalid pair \"a\""),
    (
        "an address of another range",
        |call| call.set("CNI_ARGS", "IgnoreUnknown=1;IP=1.2.3.4"),
        999,
        "failed to allocate all requested IPs: 1.2.3.4",
    ),
];

const CONFIGS: [Case; 31] = [
    ("nothing", |call| call.stdin(""), 6, "error unmarshall network config"),
    ("a list", |call| call.stdin("[]"), 6, "error unmarshall network config"),
    ("a number", |call| call.stdin("7"), 6, "error unmarshall network config"),
    ("two objects", |call| call.stdin("{} {}"), 6, "error unmarshall network config"),
    ("bytes", |call| call.stdin(vec![0xff; 100]), 6, "error unmarshall network config"),
    ("a deep hole", |call| call.stdin("[".repeat(1_000_000)), 6, "error unmarshall network config"),
    ("null", |call| call.stdin("null"), 7, "missing network name"),
    ("no name", |call| without(call, "/name"), 7, "missing network name"),
    (
        "a name that climbs",
        |call| with(call, "/name", "../x"),
        7,
        "invalid characters found in network name; ../x",
    ),
    (
        "a name of two lines",
        |call| with(call, "/name", "a\nb"),
        7,
        "invalid characters found in network name",
    ),
    ("a name that is a number", |call| with(call, "/name", 7), 6, "error unmarshall network config"),
    ("a name for no folder", |call| with(call, "/name", "x".repeat(300)), 999, "File name too long"),
    (
        "an unknown version",
        |call| with(call, "/cniVersion", "9.9.9"),
        1,
        "incompatible CNI versions; config is \"9.9.9\"",
    ),
    (
        "a short version",
        |call| with(call, "/cniVersion", "1.0"),
        1,
        "incompatible CNI versions; config is \"1.0\"",
    ),
    (
        "a version of words",
        |call| with(call, "/cniVersion", "new"),
        1,
        "incompatible CNI versions; config is \"new\"",
    ),
    ("a version that is a number", |call| with(call, "/cniVersion", 1), 6, "cniVersion"),
    ("a delegate with a name", |call| with(call, "/delegate/name", "x"), 999, "must not have 'name' field"),
    (
        "a delegate with ipam",
        |call| with(call, "/delegate/ipam", json!({})),
        999,
        "must not have 'ipam' field",
    ),
    ("a delegate of no type", |call| with(call, "/delegate/type", 7), 999, "must have (string) 'type' field"),
    (
        "a delegate that climbs",
        |call| with(call, "/delegate/type", "../bridge"),
        999,
        "invalid plugin name: ../bridge",
    ),
    (
        "an unknown delegate",
        |call| with(call, "/delegate/type", "nothing"),
        999,
        "failed to find plugin \"nothing\" in path",
    ),
    ("a bridge that climbs", |call| with(call, "/delegate/bridge", "../x"), 999, "../x"),
    (
        "a bridge with a long name",
        |call| with(call, "/delegate/bridge", "x".repeat(16)),
        999,
        "xxxxxxxxxxxxxxxx",
    ),
    (
        "a bridge that is none",
        |call| with(call, "/delegate/bridge", "lo"),
        999,
        "\"lo\" already exists but is not a bridge",
    ),
    (
        "a VLAN too many",
        |call| with(call, "/delegate/vlan", 5000),
        999,
        "invalid VLAN ID 5000 (must be between 0 and 4094)",
    ),
    (
        "hairpin and promiscuous",
        |call| with(call, "/delegate/promiscMode", true),
        999,
        "cannot set hairpin mode and promiscuous mode at the same time",
    ),
    ("an MTU that is a text", |call| with(call, "/delegate/mtu", "big"), 6, "mtu"),
    (
        "an unknown firewall",
        |call| with(call, "/delegate/ipMasqBackend", "pf"),
        999,
        "unknown ipmasq backend \"pf\"",
    ),
    ("a hardware address of words", |call| with(call, "/runtimeConfig", json!({"mac": "xx"})), 999, "xx"),
    ("an unwritable folder of records", |call| with(call, "/dataDir", "/run/ro/x"), 999, "/run/ro/x"),
    (
        "an unwritable folder of addresses",
        |call| with(call, "/ipam", json!({"dataDir": "/run/ro/x"})),
        999,
        "/run/ro/x",
    ),
];

const SUBNET_FILES: [(&str, &str, &str); 6] = [
    (
        "an empty file",
        "",
        "is missing FLANNEL_NETWORK, FLANNEL_IPV6_NETWORK, FLANNEL_SUBNET, FLANNEL_IPV6_SUBNET, FLANNEL_MTU, FLANNEL_IPMASQ",
    ),
    (
        "no MTU",
        "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_IPMASQ=false\n",
        "is missing FLANNEL_MTU",
    ),
    (
        "a key without a value",
        "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n",
        "FLANNEL_SUBNET",
    ),
    (
        "no network",
        "FLANNEL_NETWORK=10.244.0.0/99\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n",
        "10.244.0.0/99",
    ),
    (
        "an MTU of words",
        "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_MTU=big\nFLANNEL_IPMASQ=false\n",
        "is missing FLANNEL_MTU",
    ),
    ("bytes", "\u{0}\u{1}\u{2}=\u{3}\n", "is missing FLANNEL_NETWORK"),
];

const PORTMAPS: [Case; 17] = [
    ("no result before", |call| without(call, "/prevResult"), 999, "must be called as chained plugin"),
    (
        "a result that is a text",
        |call| with(call, "/prevResult", "{\"ips\":"),
        999,
        "could not parse prevResult",
    ),
    ("a result of a list", |call| with(call, "/prevResult", json!([])), 999, "could not parse prevResult"),
    (
        "addresses that are a text",
        |call| with(call, "/prevResult/ips", "10.0.0.1/24"),
        999,
        "could not parse prevResult",
    ),
    (
        "an address without its network",
        |call| with(call, "/prevResult/ips/0/address", "10.244.1.7"),
        999,
        "could not parse prevResult",
    ),
    (
        "an address cut short",
        |call| with(call, "/prevResult/ips/0/address", "10.244."),
        999,
        "could not parse prevResult",
    ),
    (
        "a result of another age",
        |call| with(call, "/prevResult/cniVersion", "0.2.0"),
        999,
        "could not parse prevResult",
    ),
    (
        "an interface that is a text",
        |call| with(call, "/prevResult/interfaces/0", "cni0"),
        999,
        "could not parse prevResult",
    ),
    ("host port 0", |call| port(call, "hostPort", json!(0)), 999, "Invalid host port number: 0"),
    ("host port below 0", |call| port(call, "hostPort", json!(-1)), 999, "-1"),
    ("host port 70000", |call| port(call, "hostPort", json!(70_000)), 999, "70000"),
    ("a host port in words", |call| port(call, "hostPort", json!("http")), 999, "hostPort"),
    (
        "container port 0",
        |call| port(call, "containerPort", json!(0)),
        999,
        "Invalid container port number: 0",
    ),
    ("an unknown protocol", |call| port(call, "protocol", json!("x; drop")), 999, "x; drop"),
    ("an unknown backend", |call| with(call, "/backend", "pf"), 999, "unrecognized backend \"pf\""),
    (
        "conditions of the other firewall",
        |call| with(call, "/conditionsV4", json!(["-s", "1.2.3.4"])),
        999,
        "iptables-specific options [conditionsV4]",
    ),
    (
        "ports that are an object",
        |call| with(call, "/runtimeConfig/portMappings", json!({"hostPort": 80})),
        999,
        "portMappings",
    ),
];

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

fn no_text() -> std::ffi::OsString {
    std::ffi::OsString::from_vec(vec![b'a', 0xff, 0xfe])
}

/// The configuration with another value at a place; objects on the way are made.
fn with(call: Call, pointer: &str, value: impl Into<Value>) -> Call {
    let mut config: Value = serde_json::from_slice(&call.stdin).unwrap();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = config.pointer_mut(parent).unwrap_or_else(|| panic!("no {parent}"));
    match key.parse::<usize>() {
        Ok(place) => parent[place] = value.into(),
        Err(_) => parent[key] = value.into(),
    }
    call.config(&config)
}

fn without(call: Call, pointer: &str) -> Call {
    let mut config: Value = serde_json::from_slice(&call.stdin).unwrap();
    config.as_object_mut().unwrap().remove(pointer.trim_start_matches('/'));
    call.config(&config)
}

fn port(call: Call, key: &str, value: Value) -> Call {
    let pointer = format!("/runtimeConfig/portMappings/0/{key}");
    with(call, &pointer, value)
}
