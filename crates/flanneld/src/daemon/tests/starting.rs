//! From nothing, from a reboot and from a restart.

use fake_kernel::Fake;
use flannel_plan::observation::Observation;

use super::super::*;
use super::memory::*;
use super::stage::*;
use crate::wake::Bell;

#[test]
fn a_first_start_builds_the_node_in_order_and_is_ready() {
    let mut stage = Stage::ready();
    let built = [
        "link flannel.1 up mac 02:00:00:00:00:01 mtu 1450 vxlan id 1 port 8472 over eth0 from 10.0.0.21",
        "address 10.244.1.0/32 dev flannel.1",
        "sysctl net/ipv6/conf/flannel.1/accept_ra = 0",
        "fdb 02:00:00:00:00:02 dev flannel.1 to 10.0.0.22",
        "fdb 02:00:00:00:00:03 dev flannel.1 to 10.0.0.23",
        "neighbour 10.244.2.0 dev flannel.1 mac 02:00:00:00:00:02",
        "neighbour 10.244.3.0 dev flannel.1 mac 02:00:00:00:00:03",
        "route 10.244.2.0/24 via 10.244.2.0 dev flannel.1 onlink",
        "route 10.244.3.0/24 via 10.244.3.0 dev flannel.1 onlink",
        "rules nftables ip flannel-ipv4 postrtg 6 forward 2 notrack-in 1 notrack-out 1",
        "file subnet.env (0644, 96 bytes)",
    ];
    assert_eq!(stage.changes(), built.map(|object| format!("+ {object}")));
    assert_eq!(stage.objects(), built);
    let subnet_env = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_MTU=1450\n\
                      FLANNEL_IPMASQ=true\n";
    assert_eq!(stage.subnet_env().as_deref(), Some(subnet_env));
    assert_eq!((stage.readyz(), stage.store.heard()), (vec![READY.to_owned()], Some(READY_IN_STORE)));
    assert_eq!((stage.store.published(), stage.rests_for()), (0, SAFETY_INTERVAL));
}

#[test]
fn a_tunnel_too_small_for_ipv6_is_asked_for_no_setting_of_ipv6() {
    let mut small = host();
    for fact in small.now.links.iter_mut() {
        fact.link.mtu = 600;
    }
    let mut stage = Stage::start(small, Memory::of(VXLAN, Some(own_lease()), &[peer(2)]));
    assert_eq!(stage.readyz(), [READY]);
    assert!(stage.objects()[0].contains(" mtu 550 "), "{:?}", stage.objects());
    assert!(!stage.objects().iter().any(|object| object.starts_with("sysctl")), "{:?}", stage.objects());
}

#[test]
fn a_node_without_a_lease_claims_one_and_keeps_the_mac_that_it_made() {
    let mut stage = Stage::start(host(), Memory::of(VXLAN, None, &[]));
    let detail = serde_json::to_value(&stage.store.own().unwrap().announcement.detail.v4).unwrap();
    let device = format!("link flannel.1 up mac {} mtu 1450 ", detail["VtepMAC"].as_str().unwrap());
    assert!(stage.objects()[0].starts_with(&device), "{device} {:?}", stage.objects());
    assert_eq!(stage.store.published(), 1);
    assert_eq!(stage.readyz(), [READY]);
    let mut stage = stage.restart();
    assert_eq!((stage.changes(), stage.store.published()), (vec![], 1));
}

#[test]
fn nothing_is_built_before_the_store_has_taken_what_this_node_says_of_itself() {
    let old = lease("worker1", 1, "10.0.0.99");
    let store = Memory::of(VXLAN, Some(old), &[peer(2)]);
    store.refuse(Some(refusal));
    let mut stage = Stage::start(host(), store);
    assert_eq!((stage.changes(), stage.subnet_env()), (vec![], None));
    assert_eq!(stage.reasons(), [format!("waiting for a lease: {REFUSAL}")]);
    stage.store.be_away(Some(refusal));
    stage.listen();
    stage.wait(Duration::from_secs(1));
    assert_eq!(stage.reasons(), [format!("waiting for a lease: {REFUSAL}")], "and is told once");
    stage.store.be_away(None);
    stage.store.refuse(None);
    stage.wait(Duration::from_secs(30));
    assert_eq!((stage.readyz(), stage.store.published()), (vec![READY.to_owned()], 1));
    assert_eq!(stage.objects().len(), 8);
}

#[test]
fn nothing_is_done_before_the_store_has_said_anything() {
    let mut stage = Stage::start(host(), Memory::default());
    stage.wait(Duration::from_secs(3600));
    assert_eq!((stage.changes(), stage.kernel().now.clone()), (vec![], host().now));
    assert_eq!(stage.reasons(), ["waiting for the lease store"]);
}

#[test]
fn a_restart_finds_an_empty_diff_and_tells_the_store_nothing() {
    let mut stage = Stage::ready();
    let before = stage.kernel().now.clone();
    let mut stage = stage.restart();
    assert_eq!((stage.changes(), &stage.kernel().now), (vec![], &before));
    assert_eq!((stage.readyz(), stage.store.published()), (vec![READY.to_owned()], 0));
}

#[test]
fn a_reboot_gives_the_same_node_again() {
    let mut stage = Stage::ready();
    let before = stage.objects();
    *stage.kernel() = host();
    let mut stage = stage.restart();
    assert_eq!((stage.objects(), stage.readyz()), (before, vec![READY.to_owned()]));
}

#[test]
fn what_go_flannel_left_is_taken_over_and_nothing_of_it_is_lost() {
    let mut stage = Stage::ready();
    let before = stage.objects();
    // Go marks nothing: its device has no alias, its routes are of protocol boot, its entries have no mark.
    let now = &mut stage.kernel().now;
    now.links.iter_mut().for_each(|fact| fact.link.alias = "".into());
    now.routes.iter_mut().filter(|fact| fact.route.onlink).for_each(|fact| fact.route.protocol = 3);
    now.neighbours.iter_mut().for_each(|neighbour| neighbour.protocol = 0);
    now.fdb.iter_mut().for_each(|entry| entry.marked = false);
    let mut stage = stage.restart();
    let kinds: Vec<_> = stage.changes().iter().map(|change| change[..6].to_owned()).collect();
    assert_eq!(kinds, ["~ link", "~ fdb ", "~ fdb ", "~ neig", "~ neig", "~ rout", "~ rout"]);
    assert_eq!((stage.objects(), stage.readyz()), (before, vec![READY.to_owned()]));
}

#[test]
fn a_stop_changes_nothing() {
    let mut stage = Stage::ready();
    let before = stage.kernel().now.clone();
    stage.changes();
    let bell = Bell::default();
    bell.ring(Wake::Stop);
    stage.daemon.run(&mut Alarm::new(bell));
    assert_eq!((stage.changes(), &stage.kernel().now), (vec![], &before));
}

#[test]
fn a_host_without_an_interface_is_not_touched_until_it_has_one() {
    let store = Memory::of(VXLAN, Some(own_lease()), &[]);
    let firewall = host().now.firewall;
    let mut stage = Stage::start(Fake::new(Observation { firewall, ..Observation::default() }), store);
    let [reason] = &stage.reasons()[..] else { panic!("one reason") };
    assert!(reason.starts_with("no network interface can carry the pod network"), "{reason}");
    assert_eq!(stage.changes(), [""; 0]);
    stage.kernel().now = host().now;
    stage.wake(Wake::Observation);
    assert_eq!((stage.readyz(), stage.objects().len()), (vec![READY.to_owned()], 5));
}
