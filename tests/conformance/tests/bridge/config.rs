//! The settings of the bridge, and those that exclude each other.

use conformance_tests::version::COMMON;
use conformance_tests::{Stage, scenarios};
use serde_json::{Value, json};

use super::{add, del, host_end, layer2, plain};

scenarios! { "bridge":
    COMMON =>
        promiscuous_mode_is_turned_on,
        hairpin_mode_is_written_to_the_port,
        the_mtu_is_that_of_pair_and_new_bridge,
        isolation_is_written_to_the_port,
        a_pods_end_can_stay_down,
        a_pods_end_that_stays_down_gets_no_address,
        hairpin_and_promiscuous_mode_exclude_each_other,
        a_vlan_must_be_one,
        a_trunk_must_be_one,
        a_value_of_another_type_is_refused,
        keys_that_nobody_knows_are_ignored,
        duplicates_can_be_looked_for,
        the_bridge_of_no_name_is_cni0;
}

fn port(stage: &Stage, result: &Value) -> Value {
    stage.site.device(None, &host_end(result))["linkinfo"]["info_slave_data"].clone()
}

fn promiscuous_mode_is_turned_on(stage: &Stage) {
    stage.site.pod("pod1");
    let config = plain(stage, json!({"promiscMode": true}));
    let result = add(stage, &config).run().result();
    assert!(stage.site.device(None, "br0")["flags"].to_string().contains("PROMISC"));
    assert_eq!(port(stage, &result)["hairpin"], false);
}

fn hairpin_mode_is_written_to_the_port(stage: &Stage) {
    stage.site.pod("pod1");
    let result = add(stage, &plain(stage, json!({"hairpinMode": true}))).run().result();
    assert_eq!(port(stage, &result)["hairpin"], true);
}

fn the_mtu_is_that_of_pair_and_new_bridge(stage: &Stage) {
    stage.site.pod("pod1");
    let result = add(stage, &plain(stage, json!({"mtu": 1450}))).run().result();
    for (pod, device) in [(None, "br0"), (None, &*host_end(&result)), (Some("pod1"), "eth0")] {
        assert_eq!(stage.site.device(pod, device)["mtu"], 1450, "{device}");
    }
}

fn isolation_is_written_to_the_port(stage: &Stage) {
    stage.site.pod("pod1");
    let result = add(stage, &plain(stage, json!({"portIsolation": true}))).run().result();
    assert_eq!(port(stage, &result)["isolated"], true);
}

fn a_pods_end_can_stay_down(stage: &Stage) {
    stage.site.pod("pod1");
    let config = layer2(stage, json!({"disableContainerInterface": true}));
    add(stage, &config).run().result();
    assert_eq!(stage.site.device(Some("pod1"), "eth0")["operstate"], "DOWN");
    assert_eq!(stage.site.all_addresses(Some("pod1"), "eth0"), [""; 0]);
    del(stage, &config).run().nothing();
    assert_eq!(stage.site.devices(Some("pod1")), [""; 0]);
}

fn a_pods_end_that_stays_down_gets_no_address(stage: &Stage) {
    stage.site.pod("pod1");
    let words = "cannot use IPAM when DisableContainerInterface flag is set";
    add(stage, &plain(stage, json!({"disableContainerInterface": true}))).run().fails(999, words);
    assert_eq!(stage.site.devices(None), [""; 0]);
}

fn hairpin_and_promiscuous_mode_exclude_each_other(stage: &Stage) {
    stage.site.pod("pod1");
    let words = "cannot set hairpin mode and promiscuous mode at the same time";
    add(stage, &plain(stage, json!({"hairpinMode": true, "promiscMode": true}))).run().fails(999, words);
    assert_eq!(stage.site.devices(None), [""; 0]);
}

fn a_vlan_must_be_one(stage: &Stage) {
    stage.site.pod("pod1");
    for vlan in [-100, 5000, 4095] {
        let words = format!("invalid VLAN ID {vlan} (must be between 0 and 4094)");
        add(stage, &plain(stage, json!({"vlan": vlan}))).run().fails(999, &words);
    }
    add(stage, &plain(stage, json!({"vlan": 0}))).run().result();
}

fn a_trunk_must_be_one(stage: &Stage) {
    stage.site.pod("pod1");
    for (trunk, words) in [
        (json!({"minID": 10}), "minID and maxID should be configured simultaneously, maxID is missing"),
        (json!({"maxID": 10}), "minID and maxID should be configured simultaneously, minID is missing"),
        (json!({"minID": 20, "maxID": 10}), "minID is greater than maxID in trunk parameter"),
        (json!({"minID": -1, "maxID": 10}), "incorrect trunk minID parameter"),
        (json!({"minID": 4095, "maxID": 4096}), "incorrect trunk minID parameter"),
        (json!({"minID": 10, "maxID": 4095}), "incorrect trunk maxID parameter"),
        (json!({"id": -1}), "incorrect trunk id parameter"),
        (json!({"id": 4095}), "incorrect trunk id parameter"),
    ] {
        add(stage, &plain(stage, json!({"vlanTrunk": [trunk]}))).run().fails(999, words);
    }
    assert_eq!(stage.site.devices(None), [""; 0]);
}

fn a_value_of_another_type_is_refused(stage: &Stage) {
    stage.site.pod("pod1");
    for (key, value) in
        [("mtu", json!("1500")), ("isGateway", json!("true")), ("bridge", json!(7)), ("vlan", json!(1.5))]
    {
        let mut config = plain(stage, json!({}));
        config[key] = value;
        add(stage, &config).run().error();
    }
    assert_eq!(stage.site.devices(None), [""; 0]);
}

fn keys_that_nobody_knows_are_ignored(stage: &Stage) {
    stage.site.pod("pod1");
    add(stage, &plain(stage, json!({"uplinkInterface": "eth7", "capabilities": {"mac": true}, "x": [1]})))
        .run()
        .result();
}

fn duplicates_can_be_looked_for(stage: &Stage) {
    stage.site.pod("pod1");
    add(stage, &plain(stage, json!({"enabledad": true}))).run().result();
    for name in ["enhanced_dad", "accept_dad"] {
        assert_eq!(stage.site.sysctl(Some("pod1"), &format!("net/ipv6/conf/eth0/{name}")), "1", "{name}");
    }
}

fn the_bridge_of_no_name_is_cni0(stage: &Stage) {
    stage.site.pod("pod1");
    let mut config = plain(stage, json!({}));
    config["bridge"] = Value::Null;
    let result = add(stage, &config).run().result();
    assert_eq!(result["interfaces"][0]["name"], "cni0");
    assert!(stage.site.devices(None).contains(&"cni0".to_owned()));
}
