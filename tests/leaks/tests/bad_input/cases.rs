//! The wrong inputs: what each changes of a good ADD, and how it must be refused.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use leak_tests::Call;
use serde_json::{Value, json};

/// What is tried: a change of a good ADD, the code, and a part of the words.
pub(super) type Case = (&'static str, fn(Call) -> Call, u64, &'static str);

/// Variables.
pub(super) const ENVIRONMENTS: [Case; 35] = [
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

/// Configurations of flannel.
pub(super) const CONFIGS: [Case; 31] = [
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

/// Files of flanneld: the text, and a part of the words.
pub(super) const SUBNET_FILES: [(&str, &str, &str); 6] = [
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

/// Configurations of portmap.
pub(super) const PORTMAPS: [Case; 17] = [
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

fn no_text() -> OsString {
    OsString::from_vec(vec![b'a', 0xff, 0xfe])
}

/// The configuration with another value at a place; objects on the way are made.
pub(super) fn with(call: Call, pointer: &str, value: impl Into<Value>) -> Call {
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
