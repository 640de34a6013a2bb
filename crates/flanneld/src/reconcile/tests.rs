//! The loop body on a kernel in memory.

use fake_kernel::Fake;
use flannel_kernel::NetlinkError;
use flannel_plan::desired::{self, plan};
use flannel_plan::family::{ByFamily, Family};
use flannel_plan::finding::{Code, texts};
use flannel_plan::firewall::Firewall;
use flannel_plan::inputs::Inputs;
use flannel_plan::observation::{LinkFact, Observation};
use flannel_plan::rules::{SourcePorts, System, TableId};
use flannel_plan::state::{Link, LinkKind};

use super::*;

const FIRST_START: &str = include_str!("../../../flannel-plan/tests/cases/first-start/inputs.json");

fn inputs() -> Inputs {
    serde_json::from_str(FIRST_START).unwrap()
}

fn eth0() -> LinkFact {
    let (mac, kind) = ("02:00:00:00:00:e0".parse().unwrap(), LinkKind::Other("veth".into()));
    let link =
        Link { name: "eth0".parse().unwrap(), mac: Some(mac), mtu: 1500, up: true, alias: "".into(), kind };
    LinkFact { index: 2, link, running: true, loopback: false }
}

fn empty() -> Fake {
    Fake::new(Observation { links: vec![eth0()], ..Observation::default() })
}

fn settle_on(kernel: &mut Fake, admit: &mut impl FnMut(&Change) -> Admission) -> Settlement {
    settle_for(&inputs(), kernel, admit)
}

fn settle_for(
    inputs: &Inputs,
    kernel: &mut Fake,
    admit: &mut impl FnMut(&Change) -> Admission,
) -> Settlement {
    let scope = desired::scope(&inputs.node, &inputs.config, &inputs.own.subnets, &[]);
    let observed = ownership::observed(&scope, &kernel.observe(&scope).unwrap());
    settle(&plan(inputs).unwrap(), &scope, observed, kernel, admit).unwrap()
}

fn all(_: &Change) -> Admission {
    Admission::Made
}

fn refused() -> NetlinkError {
    NetlinkError { errno: rustix::io::Errno::INVAL, message: None }
}

fn key_of(kind: &str) -> Key {
    let plan = plan(&inputs()).unwrap();
    plan.desired.iter().map(Item::key).find(|key| key.kind() == kind).unwrap()
}

fn kinds(done: &[(Key, &str)]) -> Vec<&'static str> {
    done.iter().map(|(key, _)| key.kind()).collect()
}

#[test]
fn an_empty_node_is_built_in_order_and_the_second_look_finds_nothing() {
    let mut kernel = empty();
    let end = settle_on(&mut kernel, &mut all);
    let order =
        ["link", "address", "sysctl", "fdb", "fdb", "neighbour", "neighbour", "route", "route", "file"];
    assert_eq!((kinds(&end.done), end.observations, end.is_wired()), (order.to_vec(), 2, true));
    let again = settle_on(&mut kernel, &mut all);
    assert_eq!((again.done, again.observations), (vec![], 1));
}

#[test]
fn a_lost_device_returns_with_its_peers_and_the_file_is_not_touched() {
    let mut kernel = empty();
    settle_on(&mut kernel, &mut all);
    kernel.lose_link("flannel.1".parse().unwrap());
    let end = settle_on(&mut kernel, &mut all);
    assert_eq!(
        kinds(&end.done),
        ["link", "address", "sysctl", "fdb", "fdb", "neighbour", "neighbour", "route", "route"]
    );
}

#[test]
fn a_node_that_cannot_be_wired_has_no_subnet_file_and_says_why() {
    let mut kernel = empty();
    kernel.refuses.insert(key_of("address"), refused());
    let end = settle_on(&mut kernel, &mut all);
    assert!(kernel.now.files.is_empty());
    assert!(!end.is_wired());
    assert_eq!(end.failures.iter().map(|trouble| trouble.key.kind()).collect::<Vec<_>>(), ["address"]);
    assert_eq!(end.left, BTreeSet::from([key_of("address"), key_of("file")]));
}

#[test]
fn a_peer_that_fails_is_tried_once_and_harms_nobody() {
    let mut kernel = empty();
    kernel.refuses.insert(key_of("route"), refused());
    let end = settle_on(&mut kernel, &mut all);
    assert!(end.is_wired() && !kernel.now.files.is_empty());
    assert_eq!((end.left, end.failures.len(), end.observations), (BTreeSet::from([key_of("route")]), 1, 2));
    assert_eq!(kernel.now.routes.len(), 1);
}

#[test]
fn a_setting_that_cannot_be_written_does_not_stop_the_node() {
    let mut kernel = empty();
    kernel.refuses.insert(key_of("sysctl"), refused());
    let end = settle_on(&mut kernel, &mut all);
    assert!(end.is_wired() && !kernel.now.files.is_empty());
    assert_eq!(end.left, BTreeSet::from([key_of("sysctl")]));
}

#[test]
fn what_is_not_admitted_is_left_alone_and_named() {
    let mut kernel = empty();
    let route = key_of("route");
    let end = settle_on(&mut kernel, &mut |change| match change.key() == route {
        true => Admission::Held,
        false => Admission::Made,
    });
    assert_eq!((end.held, end.left), (BTreeSet::from([route.clone()]), BTreeSet::from([route])));
    assert_eq!(kernel.now.routes.len(), 1);
}

#[test]
fn what_is_not_proven_to_be_gone_stays_and_nothing_is_wrong_with_it() {
    let mut kernel = empty();
    settle_on(&mut kernel, &mut all);
    let mut old = kernel
        .now
        .routes
        .iter()
        .find(|fact| fact.route.destination.to_string() == "10.244.2.0/24")
        .cloned()
        .unwrap();
    old.route.destination = "10.244.77.0/24".parse().unwrap();
    kernel.now.routes.push(old);
    let end = settle_on(&mut kernel, &mut |change| match change {
        Change::Remove(_) => Admission::Unproven,
        _ => Admission::Made,
    });
    assert_eq!((end.held, end.left), (BTreeSet::new(), BTreeSet::new()));
    assert!(kernel.now.routes.contains(&old));
    settle_on(&mut kernel, &mut all);
    assert!(!kernel.now.routes.contains(&old));
}

#[test]
fn nothing_is_put_on_a_device_of_our_name_that_is_not_ours() {
    let mut bridge = eth0();
    bridge.link.name = "flannel.1".parse().unwrap();
    bridge.link.kind = LinkKind::Other("bridge".into());
    let mut kernel = Fake::new(Observation { links: vec![eth0(), bridge], ..Observation::default() });
    let before = kernel.now.clone();
    let end = settle_on(&mut kernel, &mut all);
    let why = "link flannel.1 up mac 02:00:00:00:00:e0 mtu 1500 bridge is not ours: \
               remove it with `ip link del flannel.1`, or choose another VNI";
    let finding = &end.failures[0].finding;
    assert_eq!((finding.code, finding.text.as_str()), (Code::DeviceInTheWay, why));
    assert!(!end.is_wired());
    assert_eq!((&kernel.now.links, &kernel.now.addresses), (&before.links, &before.addresses));
    assert!(kernel.now.routes.is_empty() && kernel.now.files.is_empty() && kernel.now.sysctls.is_empty());
}

#[test]
fn a_peer_that_has_our_earlier_subnet_is_reached_at_the_first_try() {
    let mut kernel = empty();
    settle_on(&mut kernel, &mut all);
    let mut swapped = inputs();
    // What the kernel connected for pods of the earlier subnet went with them.
    swapped.routes.retain(|route| route.destination != swapped.own.subnets.v4.unwrap());
    let mut peer = (*swapped.peers[0]).clone();
    std::mem::swap(&mut peer.subnets, &mut swapped.own.subnets);
    swapped.peers[0] = std::sync::Arc::new(peer);
    let end = settle_for(&swapped, &mut kernel, &mut all);
    assert_eq!((end.failures, end.left, end.observations), (vec![], BTreeSet::new(), 2));
    let verbs: Vec<_> = end.done.iter().map(|(key, verb)| (key.kind(), *verb)).collect();
    assert_eq!(verbs[..2], [("address", "create"), ("address", "remove")], "{verbs:?}");
}

/// A node that keeps its rules in iptables.
fn with_rules() -> Inputs {
    let mut inputs = inputs();
    (inputs.node.ip_masq, inputs.node.forward_rules) = (true, true);
    inputs.firewall = Firewall {
        system: Some(System::IptablesNft),
        source_ports: ByFamily { v4: Some(SourcePorts::Randomised), v6: None },
        untracked: vec![Family::V4],
        notes: vec![],
    };
    inputs
}

fn settle_rules(kernel: &mut Fake) -> Settlement {
    let inputs = with_rules();
    let scope = desired::scope(&inputs.node, &inputs.config, &inputs.own.subnets, &[]);
    let scope = Scope { system: inputs.firewall.system, ..scope };
    let observed = ownership::observed(&scope, &kernel.observe(&scope).unwrap());
    settle(&plan(&inputs).unwrap(), &scope, observed, kernel, &mut all).unwrap()
}

fn rules_of(name: &str) -> Key {
    Key::Rules(TableId { system: System::IptablesNft, family: Family::V4, name: name.into() })
}

#[test]
fn rules_come_after_the_routes_and_before_the_file_and_stay() {
    let mut kernel = empty();
    let end = settle_rules(&mut kernel);
    assert_eq!(kinds(&end.done)[7..], ["route", "route", "rules", "rules", "rules", "file"]);
    assert!(end.is_wired());
    assert_eq!(kinds(&settle_rules(&mut kernel).done), [] as [&str; 0]);
    kernel.now.rules.tables[0].chains.clear();
    assert_eq!(kinds(&settle_rules(&mut kernel).done), ["rules"]);
}

#[test]
fn a_node_without_its_rules_is_not_wired_but_untracked_packets_are_no_condition() {
    for (table, wired) in [("nat", false), ("filter", false), ("raw", true)] {
        let mut kernel = empty();
        kernel.refuses.insert(rules_of(table), refused());
        let end = settle_rules(&mut kernel);
        assert_eq!((end.is_wired(), !kernel.now.files.is_empty()), (wired, wired), "{table}");
        assert!(end.left.contains(&rules_of(table)), "{table}");
    }
}

#[test]
fn what_cannot_be_looked_at_is_left_as_it_is_and_named() {
    let mut kernel = empty();
    let (system, family) = (System::IptablesNft, Family::V4);
    let unreadable = Unreadable { system, family, table: Some("nat".into()), why: "it is foggy".to_owned() };
    let elsewhere = Unreadable { system: System::IptablesLegacy, table: None, ..unreadable.clone() };
    kernel.now.rules.unreadable = vec![unreadable, elsewhere];
    let end = settle_rules(&mut kernel);
    assert!(!end.is_wired() && kernel.now.files.is_empty());
    assert_eq!(end.left, BTreeSet::from([rules_of("nat"), key_of("file")]));
    let text = "rules iptables nat cannot be looked at";
    let finding = Finding::new(Code::RulesUnreadable, rules_of("nat"), text).because("it is foggy");
    assert_eq!(end.failures, [Trouble { key: rules_of("nat"), finding }]);
    assert_eq!(texts(&end.unseen), ["rules of IPv4 in iptables (legacy) cannot be looked at: it is foggy"]);
    kernel.now.rules.unreadable.clear();
    let end = settle_rules(&mut kernel);
    assert_eq!((kinds(&end.done), end.is_wired()), (vec!["rules", "file"], true));
}
