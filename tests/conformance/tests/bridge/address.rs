//! The bridge's own addresses, and MAC addresses that somebody asked for.

use conformance_tests::version::COMMON;
use conformance_tests::{Stage, scenarios};
use serde_json::{Value, json};

use super::{add, gateway, plain};

scenarios! { "bridge":
    COMMON =>
        another_address_of_ipv4_is_refused,
        another_address_of_ipv4_is_replaced_by_force,
        an_overlapping_address_of_ipv6_is_refused,
        an_overlapping_address_of_ipv6_is_replaced_by_force,
        an_old_gateway_gives_way_when_no_pod_uses_it,
        an_old_gateway_stays_beside_the_new_while_pods_use_it,
        disjoint_addresses_of_ipv6_live_together,
        a_gateway_that_somebody_removed_is_put_back,
        a_bridge_that_is_down_is_raised,
        a_device_that_is_no_bridge_is_refused,
        a_mac_can_be_asked_for_by_args,
        a_mac_of_the_runtime_comes_before_the_others,
        a_mac_of_the_configuration_comes_before_that_of_args,
        a_mac_that_is_none_is_refused,
        a_mac_in_args_is_not_held_against_ipam,
        a_default_route_of_ipam_is_made_once;
}

fn on_bridge(stage: &Stage, addresses: &[&str]) {
    stage.site.pod("pod1");
    stage.site.sh("ip link add br0 type bridge; ip link set br0 up");
    for address in addresses {
        stage
            .site
            .sh(&format!("ip addr add {address} dev br0 nodad 2>/dev/null || ip addr add {address} dev br0"));
    }
}

fn force(stage: &Stage, subnet: &str) -> Value {
    let mut config = gateway(stage, &[subnet]);
    config["forceAddress"] = true.into();
    config
}

fn another_address_of_ipv4_is_refused(stage: &Stage) {
    on_bridge(stage, &["10.0.0.1/8"]);
    let words = "\"br0\" already has an IP address different from 10.1.2.1/24";
    add(stage, &gateway(stage, &["10.1.2.0/24"])).run().fails(999, words);
    assert_eq!(stage.site.addresses(None, "br0"), ["10.0.0.1/8"]);
}

fn another_address_of_ipv4_is_replaced_by_force(stage: &Stage) {
    on_bridge(stage, &["10.0.0.1/8"]);
    add(stage, &force(stage, "10.1.2.0/24")).run().result();
    assert_eq!(stage.site.addresses(None, "br0"), ["10.1.2.1/24"]);
}

fn an_overlapping_address_of_ipv6_is_refused(stage: &Stage) {
    on_bridge(stage, &["fd00:1::1/32"]);
    let words = "\"br0\" already has an IP address different from fd00:1:2::1/64";
    add(stage, &gateway(stage, &["fd00:1:2::/64"])).run().fails(999, words);
    assert_eq!(stage.site.addresses(None, "br0"), ["fd00:1::1/32"]);
}

fn an_overlapping_address_of_ipv6_is_replaced_by_force(stage: &Stage) {
    on_bridge(stage, &["fd00:1::1/32"]);
    add(stage, &force(stage, "fd00:1:2::/64")).run().result();
    assert_eq!(stage.site.addresses(None, "br0"), ["fd00:1:2::1/64"]);
}

/// What a node finds whose subnet has changed, say because it was reset: its pods must start all the same.
fn an_old_gateway_gives_way_when_no_pod_uses_it(stage: &Stage) {
    on_bridge(stage, &["10.0.0.1/8", "fd00:1::1/32"]);
    add(stage, &gateway(stage, &["10.1.2.0/24", "fd00:1:2::/64"])).run().result();
    assert_eq!(stage.site.addresses(None, "br0"), ["10.1.2.1/24", "fd00:1:2::1/64"]);
}

fn an_old_gateway_stays_beside_the_new_while_pods_use_it(stage: &Stage) {
    on_bridge(stage, &[]);
    stage.site.pod("pod2");
    add(stage, &gateway(stage, &["10.7.0.0/24"])).run().result();
    let answer = add(stage, &gateway(stage, &["10.1.2.0/24"])).pod("pod2").container("b").run();
    answer.result();
    assert!(
        answer.stderr.contains("\"br0\" already has") || answer.stderr.contains("br0 already has"),
        "{}",
        answer.stderr
    );
    assert_eq!(stage.site.addresses(None, "br0"), ["10.7.0.1/24", "10.1.2.1/24"]);
    stage.site.sh("ip netns exec pod1 ping -c 1 -W 2 10.7.0.1; ip netns exec pod2 ping -c 1 -W 2 10.1.2.1");
}

fn disjoint_addresses_of_ipv6_live_together(stage: &Stage) {
    on_bridge(stage, &["fd00:1::1/64", "10.7.7.7/24"]);
    add(stage, &gateway(stage, &["fd00:2::/64"])).run().result();
    let mut addresses = stage.site.addresses(None, "br0");
    addresses.sort();
    assert_eq!(addresses, ["10.7.7.7/24", "fd00:1::1/64", "fd00:2::1/64"]);
}

fn a_gateway_that_somebody_removed_is_put_back(stage: &Stage) {
    on_bridge(stage, &[]);
    stage.site.pod("pod2");
    let config = gateway(stage, &["10.1.2.0/24"]);
    add(stage, &config).run().result();
    stage.site.sh("ip addr del 10.1.2.1/24 dev br0");
    add(stage, &config).pod("pod2").container("b").run().result();
    assert_eq!(stage.site.addresses(None, "br0"), ["10.1.2.1/24"]);
}

fn a_bridge_that_is_down_is_raised(stage: &Stage) {
    on_bridge(stage, &["10.1.2.1/24"]);
    stage.site.sh("ip link set br0 down");
    add(stage, &gateway(stage, &["10.1.2.0/24"])).run().result();
    assert_eq!(stage.site.device(None, "br0")["operstate"], "UP");
}

fn a_device_that_is_no_bridge_is_refused(stage: &Stage) {
    stage.site.pod("pod1");
    stage.site.sh("ip link add br0 type veth peer name other");
    let words = "\"br0\" already exists but is not a bridge";
    add(stage, &gateway(stage, &["10.1.2.0/24"])).run().fails(999, words);
    let mut devices = stage.site.devices(None);
    devices.sort();
    assert_eq!(devices, ["br0", "other"]);
}

const MACS: [&str; 3] = ["02:42:00:00:00:01", "02:42:00:00:00:02", "02:42:00:00:00:03"];

fn pod_mac(stage: &Stage) -> Value {
    stage.site.device(Some("pod1"), "eth0")["address"].clone()
}

fn a_mac_can_be_asked_for_by_args(stage: &Stage) {
    stage.site.pod("pod1");
    let args = format!("IgnoreUnknown=1;MAC={}", MACS[0]);
    let result = add(stage, &plain(stage, json!({}))).set("CNI_ARGS", args).run().result();
    assert_eq!(pod_mac(stage), MACS[0]);
    assert_eq!(result["interfaces"][2]["mac"], MACS[0]);
}

fn a_mac_of_the_configuration_comes_before_that_of_args(stage: &Stage) {
    stage.site.pod("pod1");
    let config = plain(stage, json!({"args": {"cni": {"mac": MACS[1]}}}));
    let args = format!("IgnoreUnknown=1;MAC={}", MACS[0]);
    add(stage, &config).set("CNI_ARGS", args).run().result();
    assert_eq!(pod_mac(stage), MACS[1]);
}

fn a_mac_of_the_runtime_comes_before_the_others(stage: &Stage) {
    stage.site.pod("pod1");
    let config = plain(stage, json!({"args": {"cni": {"mac": MACS[1]}}, "RuntimeConfig": {"mac": MACS[2]}}));
    let args = format!("IgnoreUnknown=1;MAC={}", MACS[0]);
    add(stage, &config).set("CNI_ARGS", args).run().result();
    assert_eq!(pod_mac(stage), MACS[2]);
}

fn a_mac_that_is_none_is_refused(stage: &Stage) {
    stage.site.pod("pod1");
    add(stage, &plain(stage, json!({"runtimeConfig": {"mac": "02:42"}}))).run().fails(999, "02:42");
}

/// Who asks the bridge for a MAC need not know that host-local refuses what it does not know.
fn a_mac_in_args_is_not_held_against_ipam(stage: &Stage) {
    stage.site.pod("pod1");
    add(stage, &plain(stage, json!({}))).set("CNI_ARGS", format!("MAC={}", MACS[0])).run().result();
    assert_eq!(pod_mac(stage), MACS[0]);
}

fn a_default_route_of_ipam_is_made_once(stage: &Stage) {
    stage.site.pod("pod1");
    let mut config = plain(stage, json!({}));
    config["ipam"]["routes"] = json!([{"dst": "0.0.0.0/0"}]);
    add(stage, &config).run().result();
    assert_eq!(stage.site.routes(Some("pod1")), ["default via 10.1.2.1 dev eth0"]);
}
