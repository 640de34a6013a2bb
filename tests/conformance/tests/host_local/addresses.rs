//! Which address is given: the next one, one that was asked for, or none.

use conformance_tests::version::{COMMON, WITH_LISTS};
use conformance_tests::{Stage, scenarios};
use serde_json::{Value, json};

use super::{add, addresses, given, last_given, network, owned, refused, subnet};

scenarios! { "host-local":
    COMMON =>
        a_range_is_walked_from_its_start_and_then_exhausted,
        the_walk_goes_on_behind_the_last_given_and_comes_round,
        the_last_given_is_tried_last,
        a_last_given_outside_of_the_range_is_ignored,
        a_released_address_is_not_given_again_at_once,
        the_walk_goes_on_in_the_next_range_of_the_set,
        the_gateway_is_never_given,
        the_network_and_the_broadcast_address_are_never_given,
        bounds_that_are_named_are_given,
        an_address_can_be_asked_for_by_args,
        an_address_can_be_asked_for_by_configuration,
        an_address_can_be_asked_for_by_the_runtime,
        a_prefix_behind_an_asked_for_address_is_ignored,
        an_address_that_is_taken_is_refused,
        the_gateway_is_refused_when_asked_for,
        an_address_of_no_range_is_refused,
        a_container_that_asks_twice_is_refused,
        addresses_asked_for_are_found_in_their_sets;
    WITH_LISTS => every_address_asked_for_must_be_used;
}

fn a_range_is_walked_from_its_start_and_then_exhausted(stage: &Stage) {
    let config = subnet(stage, "192.168.1.0/29");
    for last in 2..=6 {
        assert_eq!(given(stage, &config, &format!("c{last}")), [format!("192.168.1.{last}/29")]);
    }
    refused(stage, &config, "c7", "no IP addresses available in range set: 192.168.1.1-192.168.1.6");
}

fn the_walk_goes_on_behind_the_last_given_and_comes_round(stage: &Stage) {
    let config = subnet(stage, "192.168.1.0/29");
    last_given(stage, 0, "192.168.1.3");
    let walked: Vec<_> = (0..5).flat_map(|number| given(stage, &config, &format!("c{number}"))).collect();
    assert_eq!(walked, [4, 5, 6, 2, 3].map(|last| format!("192.168.1.{last}/29")));
    refused(stage, &config, "c7", "no IP addresses available");
}

fn the_last_given_is_tried_last(stage: &Stage) {
    let config = subnet(stage, "192.168.1.0/29");
    last_given(stage, 0, "192.168.1.5");
    for taken in [2, 3, 4, 6] {
        stage.site.write(&format!("/var/lib/cni/networks/mynet/192.168.1.{taken}"), "other\r\neth0");
    }
    assert_eq!(given(stage, &config, "c"), ["192.168.1.5/29"]);
}

fn a_last_given_outside_of_the_range_is_ignored(stage: &Stage) {
    last_given(stage, 0, "192.168.2.3");
    assert_eq!(given(stage, &subnet(stage, "192.168.1.0/29"), "a"), ["192.168.1.2/29"]);
    last_given(stage, 0, "no address");
    assert_eq!(given(stage, &subnet(stage, "192.168.1.0/29"), "b"), ["192.168.1.3/29"]);
}

fn a_released_address_is_not_given_again_at_once(stage: &Stage) {
    let config = subnet(stage, "192.168.1.0/29");
    assert_eq!(given(stage, &config, "a"), ["192.168.1.2/29"]);
    stage.call("DEL", "host-local", &config).container("a").run().nothing();
    assert_eq!(given(stage, &config, "b"), ["192.168.1.3/29"]);
}

fn the_walk_goes_on_in_the_next_range_of_the_set(stage: &Stage) {
    let ranges = json!([[{"subnet": "10.0.0.0/30"}, {"subnet": "10.0.1.0/30"}]]);
    let config = network(stage, json!({"ranges": ranges}));
    last_given(stage, 0, "10.0.0.2");
    assert_eq!(given(stage, &config, "a"), ["10.0.1.2/30"]);
    assert_eq!(given(stage, &config, "b"), ["10.0.0.2/30"]);
    refused(
        stage,
        &config,
        "c",
        "no IP addresses available in range set: 10.0.0.1-10.0.0.2,10.0.1.1-10.0.1.2",
    );
}

fn the_gateway_is_never_given(stage: &Stage) {
    let range = json!({"subnet": "10.0.0.0/29", "gateway": "10.0.0.3"});
    let config = network(stage, json!({"ranges": [[range]]}));
    let walked: Vec<_> = (0..5).flat_map(|number| given(stage, &config, &format!("c{number}"))).collect();
    assert_eq!(walked, [1, 2, 4, 5, 6].map(|last| format!("10.0.0.{last}/29")));
}

fn the_network_and_the_broadcast_address_are_never_given(stage: &Stage) {
    let config = subnet(stage, "10.0.0.0/30");
    last_given(stage, 0, "10.0.0.2");
    assert_eq!(given(stage, &config, "a"), ["10.0.0.2/30"]);
    refused(stage, &config, "b", "no IP addresses available");
}

fn bounds_that_are_named_are_given(stage: &Stage) {
    let range = json!({"subnet": "10.0.0.0/30", "rangeStart": "10.0.0.0", "rangeEnd": "10.0.0.3"});
    let config = network(stage, json!({"ranges": [[range]]}));
    let walked: Vec<_> = (0..3).flat_map(|number| given(stage, &config, &format!("c{number}"))).collect();
    assert_eq!(walked, ["10.0.0.0/30", "10.0.0.2/30", "10.0.0.3/30"]);
}

fn an_address_can_be_asked_for_by_args(stage: &Stage) {
    let config = subnet(stage, "10.1.2.0/24");
    let result = add(stage, &config, "dummy").set("CNI_ARGS", "IP=10.1.2.88").run().result();
    assert_eq!(addresses(&result), ["10.1.2.88/24"]);
    let args = "IgnoreUnknown=1;K8S_POD_NAME=x;IP=10.1.2.89";
    let result = add(stage, &config, "other").set("CNI_ARGS", args).run().result();
    assert_eq!(addresses(&result), ["10.1.2.89/24"]);
    assert_eq!(given(stage, &config, "third"), ["10.1.2.90/24"], "the walk goes on behind it");
}

fn an_address_can_be_asked_for_by_configuration(stage: &Stage) {
    let mut config = subnet(stage, "10.1.2.0/24");
    config["args"] = json!({"cni": {"ips": ["10.1.2.88"]}, "other": 1});
    assert_eq!(given(stage, &config, "dummy"), ["10.1.2.88/24"]);
}

fn an_address_can_be_asked_for_by_the_runtime(stage: &Stage) {
    let mut config = subnet(stage, "10.1.2.0/24");
    config["runtimeConfig"] = json!({"ips": ["10.1.2.88"]});
    assert_eq!(given(stage, &config, "dummy"), ["10.1.2.88/24"]);
}

fn a_prefix_behind_an_asked_for_address_is_ignored(stage: &Stage) {
    let mut config = subnet(stage, "10.1.2.0/24");
    config["runtimeConfig"] = json!({"ips": ["10.1.2.88/16"]});
    assert_eq!(given(stage, &config, "dummy"), ["10.1.2.88/24"]);
}

fn an_address_that_is_taken_is_refused(stage: &Stage) {
    let mut config = subnet(stage, "10.1.2.0/24");
    config["args"] = json!({"cni": {"ips": ["10.1.2.88"]}});
    assert_eq!(given(stage, &config, "dummy"), ["10.1.2.88/24"]);
    refused(
        stage,
        &config,
        "other",
        "requested IP address 10.1.2.88 is not available in range set 10.1.2.1-10.1.2.254",
    );
}

fn the_gateway_is_refused_when_asked_for(stage: &Stage) {
    let mut config = subnet(stage, "10.1.2.0/24");
    config["args"] = json!({"cni": {"ips": ["10.1.2.1"]}});
    refused(stage, &config, "dummy", "requested ip 10.1.2.1 is subnet's gateway");
}

fn an_address_of_no_range_is_refused(stage: &Stage) {
    let range = json!({"subnet": "10.1.2.0/24", "rangeStart": "10.1.2.10", "rangeEnd": "10.1.2.20"});
    let mut config = network(stage, json!({"ranges": [[range]]}));
    for outside in ["10.1.2.9", "10.1.2.21", "10.1.3.11"] {
        config["args"] = json!({"cni": {"ips": [outside]}});
        refused(stage, &config, "dummy", &format!("failed to allocate all requested IPs: {outside}"));
    }
}

/// One container, one address in a set: also when it asks for another one by name.
fn a_container_that_asks_twice_is_refused(stage: &Stage) {
    let mut config = subnet(stage, "10.1.2.0/24");
    assert_eq!(given(stage, &config, "dummy"), ["10.1.2.2/24"]);
    config["args"] = json!({"cni": {"ips": ["10.1.2.88"]}});
    refused(
        stage,
        &config,
        "dummy",
        "10.1.2.2 has been allocated to dummy, duplicate allocation is not allowed",
    );
}

fn addresses_asked_for_are_found_in_their_sets(stage: &Stage) {
    let ranges =
        json!([[{"subnet": "172.16.1.0/24"}, {"subnet": "10.1.2.0/24"}], [{"subnet": "2001:db8:1::/48"}]]);
    let mut config = network(stage, json!({"ranges": ranges}));
    config["args"] = json!({"cni": {"ips": ["2001:db8:1::999", "10.1.2.88"]}});
    assert_eq!(given(stage, &config, "dummy"), ["10.1.2.88/24", "2001:db8:1::999/48"]);
}

fn every_address_asked_for_must_be_used(stage: &Stage) {
    let mut config = subnet(stage, "10.1.2.0/24");
    config["args"] = json!({"cni": {"ips": ["10.1.2.77", "10.1.2.88"]}});
    refused(stage, &config, "dummy", "failed to allocate all requested IPs: 10.1.2.");
    config["args"] = Value::Null;
    let call = add(stage, &config, "dummy").set("CNI_ARGS", "IP=10.9.9.9");
    call.run().fails(999, "failed to allocate all requested IPs: 10.9.9.9");
    assert_eq!(owned(stage.site.files("/var/lib/cni/networks")), []);
}
