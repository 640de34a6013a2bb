//! Somebody else changes what is ours.

use flannel_plan::state::Key;

use super::super::*;
use super::memory::*;
use super::stage::*;

/// The objects that were repaired, and how often, by the report.
fn repaired(stage: &Stage) -> Vec<(String, u64)> {
    let report = stage.report();
    let repairs = report["repairs"].as_array().unwrap().iter();
    repairs
        .map(|repair| (repair["object"].as_str().unwrap().to_owned(), repair["count"].as_u64().unwrap()))
        .collect()
}

fn route_to(net: &str) -> String {
    format!("+ route {net}.0/24 via {net}.0 dev flannel.1 onlink")
}

#[test]
fn a_device_that_is_deleted_comes_back_with_all_that_was_on_it() {
    let mut stage = Stage::ready();
    let before = stage.objects();
    stage.changes();
    stage.kernel().lose_link("flannel.1".parse().unwrap());
    stage.wake(Wake::Observation);
    let made: Vec<_> = before[..9].iter().map(|object| format!("+ {object}")).collect();
    assert_eq!(stage.changes(), made, "all but rules and file");
    assert_eq!((stage.objects(), stage.readyz()), (before, vec![READY.to_owned()]));
    stage.wait(Duration::from_secs(1));
    assert_eq!(repaired(&stage).len(), 9);
}

#[test]
fn a_route_that_is_deleted_comes_back() {
    let mut stage = Stage::ready();
    stage.changes();
    stage.kernel().now.routes.retain(|fact| fact.route.destination != net("10.244.2.0/24"));
    stage.wake(Wake::Observation);
    assert_eq!((stage.changes(), stage.readyz()), (vec![route_to("10.244.2")], vec![READY.to_owned()]));
    stage.wait(Duration::from_secs(1));
    assert_eq!(repaired(&stage), [("route 10.244.2.0/24".to_owned(), 1)]);
}

#[test]
fn a_route_that_somebody_else_made_stays() {
    let mut stage = Stage::ready();
    stage.changes();
    let theirs = route("10.99.0.0/16", Some("10.0.0.7"), "eth0".parse().unwrap(), 4);
    stage.kernel().now.routes.push(theirs);
    stage.wake(Wake::Observation);
    assert_eq!((stage.changes(), stage.kernel().now.routes.last()), (vec![], Some(&theirs)));
}

#[test]
fn a_rule_that_is_deleted_comes_back() {
    let mut stage = Stage::ready();
    let before = stage.kernel().now.rules.clone();
    stage.changes();
    let chains = &mut stage.kernel().now.rules.tables[0].chains;
    let chain = chains.iter_mut().find(|chain| chain.rules.len() == 6).unwrap();
    let taken = chain.rules.remove(0);
    stage.wake(Wake::Observation);
    let table = "rules nftables ip flannel-ipv4";
    let [change] = &stage.changes()[..] else { panic!("one change") };
    assert!(change.starts_with(&format!("~ {table} postrtg 5")), "{change}");
    let rules = |stage: &mut Stage| {
        let chains = stage.kernel().now.rules.tables[0].chains.clone();
        chains.into_iter().map(|chain| chain.rules.len()).collect::<Vec<_>>()
    };
    assert_eq!(rules(&mut stage), [6, 2, 1, 1]);
    assert_eq!(before.tables[0].chains[0].rules[0].rule, taken.rule);
    assert_eq!(stage.readyz(), [READY]);
    stage.wait(Duration::from_secs(1));
    assert_eq!(repaired(&stage), [(table.to_owned(), 1)]);
}

#[test]
fn a_table_that_is_deleted_comes_back() {
    let mut stage = Stage::ready();
    let before = stage.kernel().now.rules.clone();
    stage.changes();
    stage.kernel().now.rules.tables.clear();
    stage.wake(Wake::Observation);
    assert_eq!((stage.changes().len(), stage.readyz()), (1, vec![READY.to_owned()]));
    assert_eq!(stage.kernel().now.rules, before);
}

#[test]
fn a_subnet_file_that_is_deleted_or_overwritten_comes_back() {
    let mut stage = Stage::ready();
    let before = stage.kernel().now.files.clone();
    stage.kernel().now.files.clear();
    stage.wake(Wake::Observation);
    assert_eq!(stage.kernel().now.files, before);
    stage.kernel().now.files[0].content = "FLANNEL_MTU=9000\n".into();
    stage.wake(Wake::Observation);
    assert_eq!(stage.kernel().now.files, before);
}

#[test]
fn a_fight_is_named_and_damped_and_over_when_nobody_fights() {
    let mut stage = Stage::ready();
    stage.changes();
    let lose = |stage: &mut Stage| {
        stage.kernel().now.routes.retain(|fact| fact.route.destination != net("10.244.2.0/24"))
    };
    for _ in 0..10 {
        lose(&mut stage);
        stage.wake(Wake::Observation);
        assert_eq!(stage.changes(), [route_to("10.244.2")]);
    }
    assert_eq!(stage.notes(), ["route 10.244.2.0/24: something keeps undoing it"]);
    lose(&mut stage);
    stage.wake(Wake::Observation);
    assert_eq!(stage.changes(), [""; 0], "held");
    assert!(stage.rests_for() <= Duration::from_secs(1));
    stage.wait(stage.rests_for());
    assert_eq!(stage.changes(), [route_to("10.244.2")], "but right once a second");
    stage.wait(Duration::from_secs(10));
    assert_eq!((stage.changes(), stage.readyz()), (vec![], vec![READY.to_owned()]));
}

#[test]
fn a_node_that_cannot_be_wired_is_not_ready_and_has_no_subnet_file() {
    let mut kernel = host();
    let address = Key::Address("flannel.1".parse().unwrap(), net("10.244.1.0/32"));
    kernel.refuses.insert(address, denied());
    let mut stage = Stage::start(kernel, Memory::of(VXLAN, Some(own_lease()), &[peer(2)]));
    let [reason] = &stage.reasons()[..] else { panic!("one reason") };
    assert!(
        reason.starts_with(&format!("cannot create address 10.244.1.0/32 dev flannel.1: {DENIED}")),
        "{reason}"
    );
    assert_eq!((stage.subnet_env(), stage.rests_for()), (None, 2 * FIRST_RETRY));
    stage.kernel().refuses.clear();
    stage.wait(2 * FIRST_RETRY);
    assert!(stage.subnet_env().is_some());
    assert_eq!((stage.readyz(), stage.rests_for()), (vec![READY.to_owned()], SAFETY_INTERVAL));
}

#[test]
fn trouble_that_is_shorter_than_a_blink_does_not_make_a_node_unready() {
    let mut stage = Stage::ready();
    let address = Key::Address("flannel.1".parse().unwrap(), net("10.244.1.0/32"));
    stage.kernel().now.addresses.retain(|fact| fact.link != "flannel.1".parse().unwrap());
    stage.kernel().refuses.insert(address, denied());
    stage.wake(Wake::Observation);
    assert_eq!(stage.readyz()[0], READY);
    stage.wait(Duration::from_secs(6));
    assert_eq!(stage.reasons().len(), 1);
    assert!(stage.subnet_env().is_some(), "pods that run go on");
    stage.kernel().refuses.clear();
    stage.wait(Duration::from_secs(60));
    assert_eq!(stage.readyz(), [READY]);
}

#[test]
fn an_interface_that_loses_its_address_leaves_everything_as_it_is_and_is_named() {
    let mut stage = Stage::ready();
    let before = stage.objects();
    stage.changes();
    let eth0 = stage.kernel().now.addresses[0];
    stage.kernel().now.addresses.remove(0);
    stage.wake(Wake::Observation);
    stage.wait(Duration::from_secs(6));
    assert_eq!((stage.changes(), stage.objects()), (vec![], before));
    let note = "no network interface can carry the pod network: default route is eth0: it has no IPv4 address; eth0 stays \
                in force; name the interface, with --iface=NAME or --iface=ADDRESS";
    assert_eq!(stage.notes(), [note]);
    stage.kernel().now.addresses.insert(0, eth0);
    stage.wake(Wake::Observation);
    assert_eq!((stage.changes(), stage.readyz()), (vec![], vec![READY.to_owned()]));
}

#[test]
fn an_interface_with_another_address_is_followed_and_told_to_the_store() {
    let mut stage = Stage::ready();
    stage.changes();
    stage.kernel().now.addresses[0].address = "10.0.0.77/24".parse().unwrap();
    stage.wake(Wake::Observation);
    let told = stage.store.own().unwrap().announcement.public;
    assert_eq!((told.v4, stage.store.published()), ("10.0.0.77".parse().ok(), 1));
    let link = |from: &str| {
        format!("link flannel.1 up mac 02:00:00:00:00:01 mtu 1450 vxlan id 1 port 8472 over eth0 from {from}")
    };
    assert_eq!(stage.changes(), [format!("~ {} -> {}", link("10.0.0.21"), link("10.0.0.77"))]);
    assert_eq!(stage.readyz(), [READY]);
}
