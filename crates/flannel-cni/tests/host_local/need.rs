//! An exhausted range: what is not stamped is freed if nothing on the machine uses it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use flannel_cni::plugins::host_local::Machine;
use flannel_cni::version::Version;
use flannel_kernel::NetlinkError;
use flannel_kernel::netns::{Namespace, run_inside};
use rustix::io::Errno;
use serde_json::{Value, json};

use crate::node::{Node, owned_by};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Four addresses, .2 to .5, all of Go's, of which .4 is the oldest and .5 the next; a file has the router's name.
fn full(node: &Node) -> Value {
    for (name, age) in
        [("10.1.2.1", 50), ("10.1.2.2", 10), ("10.1.2.3", 20), ("10.1.2.4", 40), ("10.1.2.5", 30)]
    {
        node.write(name, &owned_by(&format!("go-{name}")));
        let then = SystemTime::now() - Duration::from_secs(age);
        File::options().write(true).open(node.file(name)).unwrap().set_modified(then).unwrap();
    }
    node.config(Version::NEWEST, &json!({ "subnet": "10.1.2.0/29", "rangeEnd": "10.1.2.5" }))
}

#[test]
fn the_oldest_that_nothing_uses_is_freed() {
    let mut node = Node::new();
    let config = full(&node);
    node.machine.in_use = |_| Ok([ip("10.1.2.4")].into());
    assert_eq!(node.status(&config), Ok(()));
    assert_eq!(node.add("a", &config), Ok(vec!["10.1.2.5/29".into()]));
    assert_eq!(node.add("b", &config), Ok(vec!["10.1.2.3/29".into()]));
    assert_eq!(node.add("c", &config), Ok(vec!["10.1.2.2/29".into()]));
    let exhausted = "no IP addresses available in range set: 10.1.2.1-10.1.2.5";
    assert_eq!(node.add("d", &config), Err(format!("failed to allocate for range 0: {exhausted}")));
    let status = node.status(&config).unwrap_err();
    assert_eq!((status.code, status.msg.as_str()), (50, exhausted));
    let owners = ["go-10.1.2.1", "c", "b", "go-10.1.2.4", "a"].map(owned_by);
    assert_eq!(node.reservations().into_iter().map(|(_, owner)| owner).collect::<Vec<_>>(), owners);
}

#[test]
fn nobody_is_asked_while_there_is_a_free_address() {
    let mut node = Node::new();
    let config = full(&node);
    std::fs::remove_file(node.file("10.1.2.3")).unwrap();
    node.machine.in_use = |_| panic!("asked");
    assert_eq!(node.add("a", &config), Ok(vec!["10.1.2.3/29".into()]));
}

#[test]
fn ours_of_this_boot_are_not_freed_even_if_nothing_uses_them() {
    let mut node = Node::new();
    let config = full(&node);
    for id in ["a", "b", "c", "d"] {
        node.add(id, &config).unwrap();
    }
    node.machine.in_use = |_| panic!("there is nothing to ask for");
    node.add("e", &config).unwrap_err();
}

#[test]
fn nothing_is_freed_if_nobody_can_tell_what_is_in_use() {
    let mut node = Node::new();
    let config = full(&node);
    node.machine.in_use = |_| Err(NetlinkError::from(Errno::NOMEM).into());
    let mut request = node.request(flannel_cni::request::Command::Add, "a", &config);
    request.netns = None;
    let error = node.add_request(&request).unwrap_err();
    assert_eq!(error.details, "nor can any be freed: cannot list neighbours: Cannot allocate memory");
    assert_eq!(node.reservations().len(), 5);
}

#[test]
fn a_wish_does_not_free_anything() {
    let node = Node::new();
    let config = full(&node);
    let mut request = node.request(flannel_cni::request::Command::Add, "a", &config);
    request.args = "IP=10.1.2.4".into();
    let words = "failed to allocate for range 0: requested IP address 10.1.2.4 is not available in range set \
                 10.1.2.1-10.1.2.5";
    assert_eq!(node.add_request(&request).unwrap_err().msg, words);
}

fn sh(command: &str) {
    let done = Command::new("sh").args(["-ec", command]).status().unwrap();
    assert!(done.success(), "{command}");
}

/// A process in a network namespace of its own, as the first process of a pod is.
struct Pod(Child);

impl Pod {
    fn start() -> Self {
        let mut pod = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo ready; read _"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(pod.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self(pod)
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_pod_a_neighbour_a_route_and_an_address_of_the_host_use_an_address() {
    let mut node = Node::new();
    node.machine = Machine { boot: node.machine.boot, run: node.machine.run, ..Machine::this() };
    // Addresses that no other test has in its namespaces.
    let names = ["198.18.251.2", "198.18.251.3", "198.18.251.4", "198.18.251.5", "198.18.251.6"];
    let v6 = ["2001:2:0:fb::2", "2001:2:0:fb::3", "2001:2:0:fb::4", "2001:2:0:fb::5"];
    for name in names.iter().chain(&v6) {
        node.write(name, &owned_by("go"));
    }
    let ranges = json!([
        [{ "subnet": "198.18.251.0/29" }],
        [{ "subnet": "2001:2:0:fb::/64", "rangeEnd": "2001:2:0:fb::5" }],
    ]);
    let config = node.config(Version::NEWEST, &json!({ "ranges": ranges }));
    run_inside(&Namespace::Fresh, || {
        let pod = Pod::start();
        sh(&format!(
            "ip link add host0 type veth peer name eth0 netns {pod}
             ip link set host0 up
             nsenter -t {pod} -n ip address add 198.18.251.2/29 dev eth0
             nsenter -t {pod} -n ip address add 2001:2:0:fb::2/64 dev eth0 nodad
             ip neigh add 198.18.251.3 lladdr 02:00:00:00:00:03 dev host0 nud stale
             ip neigh add 2001:2:0:fb::3 lladdr 02:00:00:00:00:03 dev host0 nud permanent
             ip neigh add 198.18.251.6 dev host0 nud failed
             ip route add 198.18.251.4/32 dev host0
             ip route add 2001:2:0:fb::4/128 dev host0
             ip address add 198.18.251.5/32 dev host0",
            pod = pod.0.id(),
        ));
        let given = vec!["198.18.251.6/29".to_owned(), "2001:2:0:fb::5/64".to_owned()];
        assert_eq!(node.add("a", &config), Ok(given));
        node.add("b", &config).unwrap_err();
        drop(pod); // and with it the veth, its neighbours and its routes
        node.add("b", &config).unwrap();
    })
    .unwrap();
}

#[test]
fn a_namespace_without_a_process_uses_its_addresses_if_it_has_a_name_beside_the_containers() {
    let mut node = Node::new();
    node.machine = Machine { boot: node.machine.boot, run: node.machine.run, ..Machine::this() };
    node.write("198.18.252.2", &owned_by("go"));
    let config = node.config(Version::NEWEST, &json!({ "subnet": "198.18.252.0/30" }));
    let mut request = node.request(flannel_cni::request::Command::Add, "a", &config);
    let names = tempfile::tempdir().unwrap();
    request.netns = Some(names.path().join("new"));
    let pod = Pod::start();
    let process = pod.0.id();
    sh(&format!("nsenter -t {process} -n ip address add 198.18.252.2/30 dev lo"));
    // An open file keeps the namespace when its last process is gone.
    let held = File::open(format!("/proc/{process}/ns/net")).unwrap();
    let name = names.path().join("pod");
    symlink(format!("/proc/{}/fd/{}", std::process::id(), held.as_raw_fd()), &name).unwrap();
    std::fs::write(names.path().join("lost"), "a file where a namespace was mounted").unwrap();
    drop(pod);
    node.add_request(&request).unwrap_err();
    std::fs::remove_file(name).unwrap();
    assert_eq!(node.add_request(&request), Ok(vec!["198.18.252.2/30".into()]));
}
