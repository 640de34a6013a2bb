//! A fresh network namespace for one test, with a NIC that is one end of a cable, and `ip` to check against.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::net::IpAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use flannel_kernel::netns::{Namespace, run_inside};
use flannel_kernel::{Kernel, Linux};
use flannel_plan::diff::Change;
use flannel_plan::link_name::LinkName;
use flannel_plan::mac::Mac;
use flannel_plan::observation::{Observation, Scope};
use flannel_plan::state::{
    Address, FdbEntry, Item, Link, LinkKind, Neighbour, PROTOCOL, Route, RouteKind, Vxlan,
};
use rustix::thread::UnshareFlags;

/// The mark of the instance under test.
pub const INSTANCE: &str = "flannel: test";

/// Runs a test in a namespace of its own: `nic` has 10.0.0.1/24 and fd00::1/64, its cable ends in `far`.
pub fn with_a_nic(test: impl FnOnce(&mut Linux) + Send) {
    with_an_ipv4_nic(|kernel| {
        sh("ip addr add fd00::1/64 dev nic nodad");
        test(kernel);
    });
}

/// The same without the IPv6 address, which the kernel would mention whenever it finds the time.
pub fn with_an_ipv4_nic(test: impl FnOnce(&mut Linux) + Send) {
    in_a_namespace(|| {
        sh("ip link set lo up
            ip link add nic type veth peer name far
            ip link set nic up && ip link set far up
            ip addr add 10.0.0.1/24 dev nic");
        test(&mut Linux::open().unwrap());
    });
}

/// The same with `flannel.1`.
pub fn with_flannel_1(test: impl FnOnce(&mut Linux) + Send) {
    with_a_nic(|kernel| {
        apply(kernel, &create([link(flannel_1()), address("flannel.1", "10.244.1.0/32")]));
        test(kernel);
    });
}

/// The same with `flannel-v6.1`.
pub fn with_flannel_v6_1(test: impl FnOnce(&mut Linux) + Send) {
    with_a_nic(|kernel| {
        apply(kernel, &create([link(flannel_v6_1()), address("flannel-v6.1", "fd00:244:0:1::/128")]));
        test(kernel);
    });
}

/// Runs a test in an empty namespace of its own.
pub fn in_a_namespace(test: impl FnOnce() + Send) {
    run_inside(&Namespace::Fresh, test).unwrap();
}

/// Runs a test in a namespace with a `/run` of its own, where legacy iptables has its lock.
#[allow(unsafe_code, reason = "a thread of its own gets mounts of its own")]
pub fn in_a_node(test: impl FnOnce() + Send) {
    in_a_namespace(|| {
        // SAFETY: the descriptors of the thread stay shared.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.unwrap();
        sh("mount --make-rprivate / && mount -t tmpfs none /run");
        test();
    });
}

/// Runs commands of the shell and gives what they print; they must not fail.
pub fn sh(script: &str) -> String {
    let out = Command::new("sh").args(["-e", "-c", script]).output().unwrap();
    assert!(out.status.success(), "{script}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// The lines that a command prints, with single spaces between the words.
pub fn lines(script: &str) -> Vec<String> {
    sh(script).lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// Asks again and again until it is so; gives up after a time that only a failing test takes.
pub fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        assert!(Instant::now() < end, "waited in vain until {what}");
    }
}

pub fn name(text: &str) -> LinkName {
    text.parse().unwrap()
}

pub fn mac(last: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, last])
}

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The device of every test, over `nic`.
pub fn flannel_1() -> Link {
    Link {
        name: name("flannel.1"),
        mac: Some(mac(1)),
        mtu: 1450,
        up: true,
        alias: INSTANCE.into(),
        kind: LinkKind::Vxlan(Vxlan {
            vni: 1,
            port: 8472,
            lower: Some(name("nic")),
            local: Some(ip("10.0.0.1")),
            learning: false,
            gbp: false,
        }),
    }
}

/// The same for IPv6.
pub fn flannel_v6_1() -> Link {
    let mut link = Link { name: name("flannel-v6.1"), mac: Some(mac(61)), mtu: 1430, ..flannel_1() };
    vxlan(&mut link).local = Some(ip("fd00::1"));
    link
}

pub fn vxlan(link: &mut Link) -> &mut Vxlan {
    match &mut link.kind {
        LinkKind::Vxlan(vxlan) => vxlan,
        LinkKind::Other(kind) => panic!("{kind} is not vxlan"),
    }
}

pub fn link(link: Link) -> Item {
    Item::Link(Box::new(link))
}

pub fn address(device: &str, address: &str) -> Item {
    Item::Address(Address { link: name(device), address: address.parse().unwrap() })
}

pub fn fdb(device: &str, last: u8, destination: &str) -> Item {
    let destination = Some(ip(destination));
    Item::Fdb(FdbEntry { link: name(device), mac: mac(last), destination, marked: true })
}

pub fn neighbour(device: &str, address: &str, last: u8) -> Item {
    Item::Neighbour(Neighbour {
        link: name(device),
        address: ip(address),
        mac: mac(last),
        protocol: PROTOCOL,
    })
}

pub fn route(device: &str, destination: &str, via: &str) -> Item {
    Item::Route(Route {
        destination: destination.parse().unwrap(),
        kind: RouteKind::Unicast,
        via: Some(ip(via)),
        link: Some(name(device)),
        onlink: true,
        protocol: PROTOCOL,
    })
}

/// All items of one peer behind `flannel.1`.
pub fn peer(n: u8) -> [Item; 3] {
    let base = format!("10.244.{n}.0");
    [
        fdb("flannel.1", n, &format!("10.0.0.{n}")),
        neighbour("flannel.1", &base, n),
        route("flannel.1", &format!("{base}/24"), &base),
    ]
}

pub fn scope() -> Scope {
    Scope { instance: INSTANCE.into(), links: vec![name("flannel.1")], ..Scope::default() }
}

pub fn observe(kernel: &mut Linux) -> Observation {
    kernel.observe(&scope()).unwrap()
}

/// Everything in a look on devices that carry our mark, as items.
pub fn ours(kernel: &mut Linux) -> Vec<Item> {
    ours_in(observe(kernel))
}

/// The same in a look that was taken.
pub fn ours_in(observation: Observation) -> Vec<Item> {
    let links: Vec<_> = observation
        .links
        .iter()
        .filter(|fact| &*fact.link.alias == INSTANCE)
        .map(|fact| fact.link.clone())
        .collect();
    let is_ours = |device: LinkName| links.iter().any(|link| link.name == device);
    let addresses =
        observation.addresses.iter().filter(|fact| is_ours(fact.link) && !is_link_local(fact.address.addr()));
    let mut items: Vec<_> = addresses
        .map(|fact| Item::Address(Address { link: fact.link, address: fact.address }))
        .chain(observation.fdb.into_iter().map(Item::Fdb))
        .chain(observation.neighbours.into_iter().map(Item::Neighbour))
        .chain(
            observation
                .routes
                .iter()
                .map(|fact| Item::Route(fact.route))
                .filter(|item| item.link().is_some_and(is_ours)),
        )
        .collect();
    items.extend(links.into_iter().map(link));
    items.sort_by(Item::cmp_object);
    items
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

pub fn create(items: impl IntoIterator<Item = Item>) -> Vec<Change> {
    items.into_iter().map(Change::Create).collect()
}

pub fn remove(items: impl IntoIterator<Item = Item>) -> Vec<Change> {
    items.into_iter().map(Change::Remove).collect()
}

pub fn replace(from: Item, to: Item) -> Vec<Change> {
    vec![Change::Replace { from, to }]
}

/// Applies changes that must all succeed.
pub fn apply(kernel: &mut Linux, changes: &[Change]) {
    assert_eq!(kernel.apply(changes), []);
}

/// Applies one change that must fail, and gives the error and the hint as an operator reads them.
pub fn complaint(kernel: &mut Linux, change: Change) -> (String, Option<String>) {
    let mut failures = kernel.apply(std::slice::from_ref(&change));
    assert_eq!(failures.len(), 1, "{change} was meant to fail");
    let failure = failures.remove(0);
    assert_eq!(failure.change, change);
    (failure.why.to_string(), failure.why.hint())
}
