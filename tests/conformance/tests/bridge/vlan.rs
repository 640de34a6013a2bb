//! VLANs of the pod's port, and the gateway inside a VLAN.

use conformance_tests::version::{COMMON, WITH_LISTS};
use conformance_tests::{Stage, not_run, scenarios};
use serde_json::{Value, json};

use super::{add, del, gateway, host_end, layer2, plain};

scenarios! { "bridge":
    WITH_LISTS =>
        a_port_is_in_its_vlan_only,
        a_gateway_inside_a_vlan_has_a_device_of_its_own;
    COMMON =>
        a_port_may_keep_the_vlan_of_the_bridge,
        a_trunk_carries_its_vlans_with_their_tags,
        a_trunk_may_have_a_vlan_without_tag,
        a_vlan_without_tag_may_be_in_the_trunk_too,
        a_trunk_of_nothing_makes_a_bridge_that_knows_vlans,
        every_subnet_has_its_gateway_inside_a_vlan,
        an_old_gateway_inside_a_vlan_gives_way_when_no_pod_uses_it,
        pods_of_different_vlans_do_not_reach_each_other,
        a_second_pod_uses_the_gateway_of_the_first;
}

/// The kernel of a test machine may have none.
fn needs_vlans(stage: &Stage) {
    if !stage.site.try_sh("ip link add try type bridge vlan_filtering 1 && ip link del try").status.success()
    {
        not_run("the bridges of this kernel know no VLANs");
    }
    stage.site.pod("pod1");
}

/// The VLANs of a port: number, and whether untagged packets are of it.
fn vlans(stage: &Stage, port: &str) -> Vec<(u64, bool)> {
    let list = stage.site.json(&format!("bridge -j vlan show dev {port}"));
    let vlans = list[0]["vlans"].as_array().cloned().unwrap_or_default();
    vlans
        .iter()
        .map(|vlan| (vlan["vlan"].as_u64().unwrap(), vlan["flags"].to_string().contains("PVID")))
        .collect()
}

fn attached(stage: &Stage, keys: Value) -> Vec<(u64, bool)> {
    let result = add(stage, &layer2(stage, keys)).run().result();
    assert_eq!(stage.site.device(None, "br0")["linkinfo"]["info_data"]["vlan_filtering"], 1);
    vlans(stage, &host_end(&result))
}

fn a_port_is_in_its_vlan_only(stage: &Stage) {
    needs_vlans(stage);
    assert_eq!(attached(stage, json!({"vlan": 100})), [(100, true)]);
    del(stage, &layer2(stage, json!({"vlan": 100}))).run().nothing();
    assert_eq!(stage.site.devices(None), ["br0"]);
}

fn a_port_may_keep_the_vlan_of_the_bridge(stage: &Stage) {
    needs_vlans(stage);
    assert_eq!(attached(stage, json!({"vlan": 100, "preserveDefaultVlan": true})), [(1, false), (100, true)]);
}

fn a_trunk_carries_its_vlans_with_their_tags(stage: &Stage) {
    needs_vlans(stage);
    let keys = json!({"vlanTrunk": [{"id": 101}, {"minID": 200, "maxID": 203}, {"id": 201}]});
    assert_eq!(
        attached(stage, keys),
        [(1, true), (101, false), (200, false), (201, false), (202, false), (203, false)]
    );
}

fn a_trunk_may_have_a_vlan_without_tag(stage: &Stage) {
    needs_vlans(stage);
    let keys = json!({"vlan": 100, "vlanTrunk": [{"id": 101}]});
    assert_eq!(attached(stage, keys), [(100, true), (101, false)]);
}

fn a_vlan_without_tag_may_be_in_the_trunk_too(stage: &Stage) {
    needs_vlans(stage);
    let keys = json!({"vlan": 101, "vlanTrunk": [{"id": 101}, {"id": 102}]});
    assert_eq!(attached(stage, keys), [(101, true), (102, false)]);
}

fn a_trunk_of_nothing_makes_a_bridge_that_knows_vlans(stage: &Stage) {
    needs_vlans(stage);
    assert_eq!(attached(stage, json!({"vlanTrunk": []})), [(1, true)]);
}

fn a_gateway_inside_a_vlan_has_a_device_of_its_own(stage: &Stage) {
    needs_vlans(stage);
    let config = plain(stage, json!({"vlan": 100}));
    let result = add(stage, &config).run().result();
    let interfaces = result["interfaces"].as_array().unwrap();
    assert_eq!((interfaces.len(), &interfaces[3]["name"]), (4, &json!("br0.100")));
    let gateway = stage.site.device(None, "br0.100");
    assert_eq!(gateway["linkinfo"]["info_kind"], "veth");
    assert_eq!(interfaces[3]["mac"], gateway["address"]);
    assert_eq!(stage.site.addresses(None, "br0.100"), ["10.1.2.1/24"]);
    assert_eq!(stage.site.addresses(None, "br0"), [""; 0]);
    assert_eq!(vlans(stage, gateway["link"].as_str().unwrap()), [(100, true)]);
    assert_eq!(stage.site.devices(None).len(), 4);
    stage.site.sh("ip netns exec pod1 ping -c 1 -W 2 10.1.2.1");
    del(stage, &config).run().nothing();
    assert_eq!(stage.site.devices(None).len(), 3, "the gateway stays, as the bridge does");
}

fn every_subnet_has_its_gateway_inside_a_vlan(stage: &Stage) {
    needs_vlans(stage);
    stage.site.pod("pod2");
    let mut config = gateway(stage, &["10.1.2.0/24", "fd00:1::/64", "fd00:2::/64"]);
    config["vlan"] = 100.into();
    let result = add(stage, &config).run().result();
    add(stage, &config).pod("pod2").container("b").run().result();
    let mut addresses = stage.site.addresses(None, "br0.100");
    addresses.sort();
    assert_eq!(addresses, ["10.1.2.1/24", "fd00:1::1/64", "fd00:2::1/64"]);
    for address in ["10.1.2.1", "fd00:1::1", "fd00:2::1"] {
        stage.site.sh(&format!("ip netns exec pod2 ping -c 1 -w 5 {address}"));
    }
    if stage.at_least("0.4.0") {
        stage.call("CHECK", "bridge", &config).previous(&result).run().nothing();
    }
}

fn an_old_gateway_inside_a_vlan_gives_way_when_no_pod_uses_it(stage: &Stage) {
    needs_vlans(stage);
    let config = |subnet| {
        let mut config = gateway(stage, &[subnet]);
        config["vlan"] = 100.into();
        config
    };
    add(stage, &config("10.1.2.0/24")).run().result();
    del(stage, &config("10.1.2.0/24")).run().nothing();
    add(stage, &config("10.1.3.0/24")).run().result();
    assert_eq!(stage.site.addresses(None, "br0.100"), ["10.1.3.1/24"]);
}

fn pods_of_different_vlans_do_not_reach_each_other(stage: &Stage) {
    needs_vlans(stage);
    for (pod, vlan) in [("pod1", 100), ("pod2", 100), ("pod3", 200)] {
        if pod != "pod1" {
            stage.site.pod(pod);
        }
        let config = plain(stage, json!({"vlan": vlan, "isDefaultGateway": false}));
        add(stage, &config).pod(pod).container(pod).run().result();
    }
    stage.site.sh("ip netns exec pod1 ping -c 1 -W 2 10.1.2.3");
    assert!(!stage.site.try_sh("ip netns exec pod1 ping -c 1 -W 1 10.1.2.4").status.success());
}

fn a_second_pod_uses_the_gateway_of_the_first(stage: &Stage) {
    needs_vlans(stage);
    stage.site.pod("pod2");
    let config = plain(stage, json!({"vlan": 100}));
    add(stage, &config).run().result();
    let before = stage.site.device(None, "br0.100");
    add(stage, &config).pod("pod2").container("b").run().result();
    let after = stage.site.device(None, "br0.100");
    assert_eq!((&before["ifindex"], &before["address"]), (&after["ifindex"], &after["address"]));
    for (from, to) in [("pod1", "10.1.2.3"), ("pod2", "10.1.2.1")] {
        stage.site.sh(&format!("ip netns exec {from} ping -c 1 -W 2 {to}"));
    }
}
