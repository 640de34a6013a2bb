//! What somebody else breaks is put right at once, peers included, counted and named.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use cluster_tests::{
    BEFORE_A_SAFETY_LOOK, Cluster, VXLAN_DUAL, healed, metrics, ping_all, state, vxlan_mac, wait_until,
};
use flannel_lab::Node;

const HOST_GW_DUAL: &str = r#"{"Network":"10.244.0.0/16","EnableIPv6":true,"IPv6Network":"fd00:244::/48","Backend":{"Type":"host-gw"}}"#;

/// One family of a node, and of the peer whose objects are broken.
pub struct Target<'a> {
    node: &'a Node,
    /// `-4` or `-6`.
    family: &'static str,
    device: &'static str,
    own_address: String,
    peer_subnet: String,
    peer_base: String,
    peer_mac: String,
    /// A router of the underlay that is not there.
    router: &'static str,
    /// An address of the underlay that is nobody's.
    nobody: &'static str,
}

impl<'a> Target<'a> {
    pub fn v4(cluster: &'a Cluster, node: &str, peer: &str) -> Self {
        let (node, leases) = (cluster.node(node), cluster.leases());
        let peer_subnet = leases.subnet_of(peer);
        Self {
            node,
            family: "-4",
            device: "flannel.1",
            own_address: leases.subnet_of(node.name()).replace("/24", "/32"),
            peer_base: peer_subnet.replace("/24", ""),
            peer_subnet,
            peer_mac: vxlan_mac(cluster.node(peer), "flannel.1"),
            router: "10.0.0.253",
            nobody: "10.0.0.99",
        }
    }

    pub fn v6(cluster: &'a Cluster, node: &str, peer: &str) -> Self {
        let (node, leases) = (cluster.node(node), cluster.leases());
        let peer_subnet = leases.subnet6_of(peer);
        Self {
            node,
            family: "-6",
            device: "flannel-v6.1",
            own_address: leases.subnet6_of(node.name()).replace("/64", "/128"),
            peer_base: peer_subnet.replace("/64", ""),
            peer_subnet,
            peer_mac: vxlan_mac(cluster.node(peer), "flannel-v6.1"),
            router: "fd00:10::fd",
            nobody: "fd00:10::99",
        }
    }
}

/// What has to be put right: so many objects of each kind.
pub enum Repairs {
    Exactly(&'static str),
    AtLeast(&'static [(&'static str, u32)]),
}

/// Something to break.
pub struct Break {
    what: &'static str,
    how: Vec<String>,
    repairs: Repairs,
}

use Repairs::{AtLeast, Exactly};

/// Single objects of one peer.
pub fn small_breaks(target: &Target<'_>) -> Vec<Break> {
    let Target { family, device, peer_subnet, peer_base, peer_mac, router, nobody, .. } = target;
    let one = |what, how, kind| Break { what, how: vec![how], repairs: Exactly(kind) };
    let stray_neighbour =
        format!("ip neigh replace {peer_base} lladdr 02:00:00:00:00:77 dev {device} nud permanent");
    let stray_entry = format!("bridge fdb replace {peer_mac} dev {device} dst {nobody} self permanent");
    vec![
        one("a route is deleted", format!("ip {family} route del {peer_subnet}"), "route"),
        one(
            "a route leads elsewhere",
            format!("ip {family} route replace {peer_subnet} via {router}"),
            "route",
        ),
        one("a forwarding entry is deleted", format!("bridge fdb del {peer_mac} dev {device}"), "fdb"),
        one("a forwarding entry leads elsewhere", stray_entry, "fdb"),
        one("a neighbour is deleted", format!("ip neigh del {peer_base} dev {device}"), "neighbour"),
        one("a neighbour has another hardware address", stray_neighbour, "neighbour"),
        one("the device has another MTU", format!("ip link set {device} mtu 1290"), "link"),
        one("the device has lost its mark", format!("ip link set {device} alias x"), "link"),
    ]
}

/// What takes more with it. Of a device that went down and came up, what is seen depends on the moment.
fn large_breaks(target: &Target<'_>) -> Vec<Break> {
    let Target { family, device, own_address, .. } = target;
    let several =
        |what, how: &[String], repairs| Break { what, how: how.to_vec(), repairs: AtLeast(repairs) };
    let (down, up) = (format!("ip link set {device} down"), format!("ip link set {device} up"));
    vec![
        several(
            "the address is deleted",
            &[format!("ip address del {own_address} dev {device}")],
            &[("address", 1)],
        ),
        several(
            "the device is down",
            std::slice::from_ref(&down),
            &[("link", 1), ("neighbour", 3), ("route", 3)],
        ),
        several("the device went down and up", &[down, up], &[("neighbour", 3), ("route", 3)]),
        several(
            "all routes of the device are flushed",
            &[format!("ip {family} route flush dev {device}")],
            &[("route", 3)],
        ),
        several(
            "the device has another hardware address",
            &[format!("ip link set {device} address 02:00:00:00:00:99")],
            &[("link", 1), ("neighbour", 3)],
        ),
        several(
            "the device is deleted",
            &[format!("ip link del {device}")],
            &[("link", 1), ("address", 1), ("fdb", 3), ("neighbour", 3), ("route", 3)],
        ),
    ]
}

pub fn act(node: &Node, how: &str) {
    let (program, words) = how.split_once(' ').unwrap();
    match program {
        "bridge" => node.bridge(words).unwrap(),
        _ => node.ip(words).unwrap(),
    };
}

fn repairs_by_kind(node: &Node) -> BTreeMap<String, f64> {
    metrics(node).labelled("flannel_repairs_total")
}

/// The repairs since, if they are those that were to be.
fn judge(before: &BTreeMap<String, f64>, node: &Node, repairs: &Repairs) -> Result<(), String> {
    let mut since = repairs_by_kind(node);
    since.retain(|kind, count| {
        *count -= before.get(kind).copied().unwrap_or_default();
        *count > 0.0
    });
    let count = |kind: &str| since.get(&format!("kind={kind}")).copied().unwrap_or_default();
    let good = match repairs {
        Exactly(kind) => since == BTreeMap::from([(format!("kind={kind}"), 1.0)]),
        AtLeast(kinds) => kinds.iter().all(|(kind, least)| count(kind) >= f64::from(*least)),
    };
    if good { Ok(()) } else { Err(format!("{since:?}")) }
}

pub fn check(node: &Node, breaks: Vec<Break>) {
    for Break { what, how, repairs } in breaks {
        let before = repairs_by_kind(node);
        let took = healed(node, what, || how.iter().for_each(|how| act(node, how)));
        println!("{}: {what} ({}): whole again after {took:?}", node.name(), how.join(", "));
        wait_until(&format!("the repair to be counted: {what}"), || judge(&before, node, &repairs));
    }
}

/// Every object of the device has been repaired by now, and state.json names each.
fn check_names(target: &Target<'_>) {
    let Target { device, own_address, peer_subnet, peer_base, peer_mac, .. } = target;
    let expected = BTreeSet::from([
        format!("link {device}"),
        format!("address {own_address} dev {device}"),
        format!("fdb {peer_mac} dev {device}"),
        format!("neighbour {peer_base} dev {device}"),
        format!("route {peer_subnet}"),
    ]);
    wait_until("state.json to name what was repaired", || {
        let repairs = state(target.node)["repairs"].clone();
        let named =
            repairs.as_array().into_iter().flatten().filter(|repair| repair["count"].as_u64() >= Some(1));
        let named: BTreeSet<_> =
            named.filter_map(|repair| Some(repair["object"].as_str()?.to_owned())).collect();
        if expected.is_subset(&named) {
            Ok(())
        } else {
            Err(format!("{named:#?} lacks some of {expected:#?}"))
        }
    });
}

#[test]
fn whatever_somebody_breaks_is_whole_again_within_a_second_counted_and_named() {
    let cluster = Cluster::running("drift", VXLAN_DUAL);
    let targets = [Target::v4(&cluster, "worker1", "worker3"), Target::v6(&cluster, "worker2", "worker3")];
    for target in &targets {
        check(target.node, small_breaks(target));
        check(target.node, large_breaks(target));
        check_names(target);
    }
    ping_all(&cluster.nodes().iter().collect::<Vec<_>>());
}

#[test]
fn a_direct_route_that_somebody_breaks_is_whole_again_within_a_second() {
    let cluster = Cluster::running("drift-direct", HOST_GW_DUAL);
    let (node, leases) = (cluster.node("worker1"), cluster.leases());
    for (family, subnet, other) in [
        ("-4", leases.subnet_of("worker2"), "10.0.0.20"),
        ("-6", leases.subnet6_of("worker2"), "fd00:10::20"),
    ] {
        let one = |what, how| Break { what, how: vec![how], repairs: Exactly("route") };
        let to_nowhere = format!("ip {family} route replace blackhole {subnet}");
        check(
            node,
            vec![
                one("a direct route is deleted", format!("ip {family} route del {subnet}")),
                one(
                    "a direct route leads to another node",
                    format!("ip {family} route replace {subnet} via {other}"),
                ),
                one("a direct route drops packets", to_nowhere),
            ],
        );
    }
    let rack = ["master1", "worker1", "worker2"].map(|name| cluster.node(name));
    ping_all(&rack);
}

/// Nothing announces these; whatever is announced is a reason to look at everything.
#[test]
fn a_file_and_a_setting_that_somebody_broke_are_put_right_with_the_next_look() {
    let cluster = Cluster::flat("drift-quiet", 1, VXLAN_DUAL);
    cluster.start(&["master1"]);
    let node = cluster.node("master1");
    let (file, setting) =
        (node.path("/run/flannel/subnet.env"), "/proc/sys/net/ipv6/conf/flannel.1/accept_ra");
    let text = fs::read_to_string(&file).unwrap();
    fs::remove_file(&file).unwrap();
    node.run("sh", ["-c", &format!("echo 1 > {setting}")]).unwrap();
    node.ip("link set flannel.1 mtu 1290").unwrap();
    wait_until("file and setting to be as before", || {
        let found = (fs::read_to_string(&file).unwrap_or_default(), node.run("cat", [setting]).unwrap());
        if found == (text.clone(), "0\n".to_owned()) { Ok(()) } else { Err(format!("{found:?}")) }
    });
}

/// Somebody does something to a file.
type Breakage = fn(&std::path::Path);

#[test]
fn the_subnet_file_is_put_back_when_it_or_its_folder_is_removed_or_overwritten() {
    let cluster = Cluster::running("drift-file", cluster_tests::VXLAN);
    let node = cluster.node("worker1");
    let file = node.path("/run/flannel/subnet.env");
    let content = fs::read_to_string(&file).unwrap();
    let breaks: [(&str, Breakage); 3] = [
        ("removed", |file| fs::remove_file(file).unwrap()),
        ("overwritten", |file| fs::write(file, "FLANNEL_MTU=9000\n").unwrap()),
        ("removed with its folder", |file| fs::remove_dir_all(file.parent().unwrap()).unwrap()),
    ];
    for (what, break_it) in breaks {
        let start = std::time::Instant::now();
        break_it(&file);
        wait_until(&format!("the file to be back after being {what}"), || match fs::read_to_string(&file) {
            Ok(found) if found == content => Ok(()),
            found => Err(format!("{found:?}")),
        });
        println!("{what}: back after {:?}", start.elapsed());
        assert!(start.elapsed() < BEFORE_A_SAFETY_LOOK, "{what}: {:?}", start.elapsed());
    }
    wait_until("the file to be named among the repairs", || {
        let named = state(node)["repairs"].to_string();
        if named.contains("file /run/flannel/subnet.env") { Ok(()) } else { Err(named) }
    });
}
