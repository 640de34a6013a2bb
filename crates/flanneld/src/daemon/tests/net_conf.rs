//! A net-conf that changes: followed, held back for each of the causes, or not to be read.

use flannel_plan::state::{Key, LinkKind, Vxlan};

use super::super::*;
use super::memory::*;
use super::stage::*;

const STAYS: &str = "this node cannot follow it, and the one before stays in force";

/// The store's net-conf becomes this.
fn say(stage: &mut Stage, config: &str) {
    stage.changes();
    stage.store.say(|snapshot| snapshot.config = net_conf(config));
    stage.listen();
}

fn vxlan(rest: &str) -> String {
    VXLAN.replace(r#""Type":"vxlan""#, &format!(r#""Type":"vxlan"{rest}"#))
}

/// The one note of a node on which the new net-conf changed nothing.
fn held_back(stage: &mut Stage, before: &[String]) -> String {
    let lasting: Vec<_> =
        stage.changes().into_iter().filter(|change| !change.contains(" link fltry")).collect();
    assert_eq!((lasting, &*stage.objects()), (vec![], before));
    let [note] = &stage.notes()[..] else { panic!("{:?}", stage.notes()) };
    note.clone()
}

#[test]
fn a_new_mtu_is_followed() {
    let mut stage = Stage::ready();
    say(&mut stage, &vxlan(r#","MTU":1400"#));
    let link = |mtu: u32| {
        format!(
            "link flannel.1 up mac 02:00:00:00:00:01 mtu {mtu} vxlan id 1 port 8472 over eth0 from 10.0.0.21"
        )
    };
    let file = "file subnet.env (0644, 96 bytes)";
    let expected = [format!("~ {} -> {}", link(1450), link(1350)), format!("~ {file} -> {file}")];
    assert_eq!((stage.changes(), &stage.objects()[0]), (expected.to_vec(), &link(1350)));
    assert!(stage.subnet_env().unwrap().contains("FLANNEL_MTU=1350\n"));
    assert_eq!(stage.readyz(), [READY]);
}

#[test]
fn another_tunnel_is_followed_and_the_old_one_removed() {
    let mut stage = Stage::ready();
    say(&mut stage, &vxlan(r#","VNI":7"#));
    let objects = stage.objects();
    assert!(objects[0].starts_with("link flannel.7 up"), "{objects:?}");
    assert!(!objects.iter().any(|object| object.contains("flannel.1 ")), "{objects:?}");
    assert!(stage.kernel().now.links.iter().all(|fact| fact.link.name != "flannel.1".parse().unwrap()));
}

#[test]
fn a_pod_network_that_would_leave_pods_behind_is_held_back() {
    let mut stage = Stage::ready();
    let before = stage.objects();
    say(&mut stage, &VXLAN.replace("10.244.0.0/16", "10.99.0.0/16"));
    let note = held_back(&mut stage, &before);
    assert!(
        note.starts_with("net-conf: the pod network changed from 10.244.0.0/16 to 10.99.0.0/16: "),
        "{note}"
    );
}

#[test]
fn a_family_that_the_node_has_no_address_of_is_held_back() {
    let mut stage = Stage::ready();
    let before = stage.objects();
    say(
        &mut stage,
        &VXLAN.replace(
            r#""EnableNFTables""#,
            r#""EnableIPv6":true,"IPv6Network":"fd00:244::/48","EnableNFTables""#,
        ),
    );
    let note = held_back(&mut stage, &before);
    assert!(note.starts_with("net-conf: ") && note.ends_with(STAYS) && note.contains("IPv6"), "{note}");
}

#[test]
fn a_tunnel_that_another_device_has_is_held_back() {
    let mut stage = Stage::ready();
    let mut theirs = stage.kernel().now.links.last().unwrap().clone();
    theirs.link.name = "vxlan.calico".parse().unwrap();
    theirs.link.alias = "".into();
    theirs.index = 77;
    let LinkKind::Vxlan(kind) = &theirs.link.kind else { panic!("a tunnel") };
    theirs.link.kind = LinkKind::Vxlan(Vxlan { vni: 7, ..kind.clone() });
    stage.kernel().now.links.push(theirs);
    let before = stage.objects();
    say(&mut stage, &vxlan(r#","VNI":7"#));
    let note = held_back(&mut stage, &before);
    assert!(note.contains("vxlan.calico") && note.ends_with(STAYS), "{note}");
}

#[test]
fn a_device_that_the_kernel_cannot_make_is_held_back_and_tried_again() {
    let mut stage = Stage::ready();
    let before = stage.objects();
    let moved =
        |objects: &[String]| objects.iter().map(|object| object.replace("8472", "4790")).collect::<Vec<_>>();
    let trial = Key::Link(format!("fltry{}", std::process::id()).parse().unwrap());
    stage.kernel().refuses.insert(trial, denied());
    say(&mut stage, &vxlan(r#","Port":4790"#));
    let note = held_back(&mut stage, &before);
    assert!(note.starts_with("net-conf: cannot create link flannel.1 up"), "{note}");
    assert!(note.contains(DENIED) && note.ends_with(STAYS), "{note}");
    assert!(stage.rests_for() <= Duration::from_secs(1));
    stage.kernel().refuses.clear();
    stage.wait(Duration::from_secs(1));
    assert_eq!((stage.readyz(), stage.objects()), (vec![READY.to_owned()], moved(&before)));
    assert!(stage.changes()[0].starts_with("+ link fltry"), "tried under another name");
}

#[test]
fn a_backend_that_there_is_not_is_held_back() {
    let mut stage = Stage::ready();
    let before = stage.objects();
    say(&mut stage, &VXLAN.replace("vxlan", "udp"));
    let note = held_back(&mut stage, &before);
    assert!(note.starts_with("net-conf: ") && note.contains("udp") && note.ends_with(STAYS), "{note}");
}

#[test]
fn a_lease_that_is_missing_holds_back_until_it_is_there() {
    let mut stage = Stage::ready();
    plug_in(&mut stage.kernel().now, "eth1", "2001:db8::21/64", "veth");
    let eth0 = "eth0".parse().unwrap();
    stage.kernel().now.addresses.last_mut().unwrap().link = eth0;
    let before = stage.objects();
    stage.store.refuse(Some(refusal));
    let dual = VXLAN.replace(
        r#""EnableNFTables""#,
        r#""EnableIPv6":true,"IPv6Network":"fd00:244::/48","EnableNFTables""#,
    );
    say(&mut stage, &dual);
    let note = held_back(&mut stage, &before);
    assert_eq!(
        note,
        format!("net-conf: waiting for a lease: {REFUSAL}; the one before stays in force until then")
    );
}

#[test]
fn a_net_conf_that_cannot_be_read_is_held_back_also_across_a_restart() {
    let mut stage = Stage::ready();
    let before = stage.objects();
    say(&mut stage, "{");
    let note = held_back(&mut stage, &before);
    assert!(note.starts_with("net-conf: net-conf.json ") && note.ends_with(STAYS), "{note}");
    let mut stage = stage.restart();
    assert_eq!(held_back(&mut stage, &before), note);
    say(&mut stage, VXLAN);
    assert_eq!((stage.changes(), stage.readyz()), (vec![], vec![READY.to_owned()]));
}

#[test]
fn a_first_start_with_a_net_conf_that_cannot_be_read_builds_nothing_and_says_why() {
    let mut stage = Stage::start(host(), Memory::of("{", None, &[]));
    let [reason] = &stage.reasons()[..] else { panic!("one reason") };
    assert!(reason.starts_with("net-conf.json "), "{reason}");
    assert_eq!(stage.changes(), [""; 0]);
}

#[test]
fn peers_are_followed_while_a_net_conf_is_held_back() {
    let mut stage = Stage::ready();
    say(&mut stage, &VXLAN.replace("vxlan", "udp"));
    stage.store.say(|snapshot| snapshot.peers.push(Arc::new(peer(4))));
    stage.listen();
    assert_eq!((stage.changes().len(), stage.notes().len()), (3, 1));
}
