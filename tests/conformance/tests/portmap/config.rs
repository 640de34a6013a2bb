//! What can be configured, and what is refused.

use conformance_tests::version::{COMMON, WITH_LISTS};
use conformance_tests::{Stage, scenarios};
use serde_json::{Value, json};

use super::{add, del, ports, result, rules};

scenarios! { "portmap":
    WITH_LISTS =>
        without_an_earlier_plugin_it_is_refused,
        without_mappings_nothing_is_touched,
        the_result_of_earlier_plugins_is_handed_on;
    COMMON =>
        a_port_of_zero_is_refused,
        a_backend_of_another_name_is_refused,
        conditions_of_the_other_backend_are_refused,
        a_mark_must_be_one_bit,
        a_mark_and_a_chain_of_others_exclude_each_other,
        del_needs_neither_mappings_nor_result,
        keys_of_mappings_are_found_in_any_case,
        mappings_of_null_are_none,
        an_address_of_the_host_side_is_not_the_pods,
        an_address_without_interface_is_the_pods,
        a_pod_without_address_gets_no_rule;
}

const HTTP: &[(u16, u16, &str)] = &[(8080, 80, "tcp")];

fn without_an_earlier_plugin_it_is_refused(stage: &Stage) {
    let mut config = ports(stage, HTTP, json!({}));
    config["prevResult"] = Value::Null;
    add(stage, &config).run().fails(999, "must be called as chained plugin");
}

fn without_mappings_nothing_is_touched(stage: &Stage) {
    stage.site.pod("pod1");
    let config = ports(stage, &[], json!({}));
    add(stage, &config).run().result();
    del(stage, &config).run().nothing();
    assert_eq!(rules(stage), [""; 0]);
}

fn the_result_of_earlier_plugins_is_handed_on(stage: &Stage) {
    stage.site.pod("pod1");
    let mut config = ports(stage, HTTP, json!({}));
    config["prevResult"]["dns"] = json!({"nameservers": ["192.0.2.1"]});
    config["prevResult"]["routes"] = json!([{"dst": "0.0.0.0/0", "gw": "10.22.0.1"}]);
    assert_eq!(add(stage, &config).run().result(), config["prevResult"]);
}

fn a_port_of_zero_is_refused(stage: &Stage) {
    add(stage, &ports(stage, &[(0, 80, "tcp")], json!({}))).run().fails(999, "Invalid host port number: 0");
    add(stage, &ports(stage, &[(80, 0, "tcp")], json!({})))
        .run()
        .fails(999, "Invalid container port number: 0");
    assert_eq!(rules(stage), [""; 0]);
}

fn a_backend_of_another_name_is_refused(stage: &Stage) {
    let config = ports(stage, HTTP, json!({"backend": "ebpf"}));
    add(stage, &config).run().fails(999, "unrecognized backend \"ebpf\"");
}

fn conditions_of_the_other_backend_are_refused(stage: &Stage) {
    let of_iptables = json!({"backend": "nftables", "conditionsV4": ["!", "-d", "192.0.2.0/24"]});
    let words = "nftables backend was requested but configuration contains iptables-specific options";
    add(stage, &ports(stage, HTTP, of_iptables)).run().fails(999, words);
    let words = "iptables backend was requested but configuration contains nftables-specific options";
    let of_nftables = json!({"backend": "iptables", "conditionsV6": ["ip6", "daddr", "!=", "fd00::/8"]});
    add(stage, &ports(stage, HTTP, of_nftables)).run().fails(999, words);
    assert_eq!(rules(stage), [""; 0]);
}

fn a_mark_must_be_one_bit(stage: &Stage) {
    for bit in [-1, 32] {
        let config = ports(stage, HTTP, json!({"markMasqBit": bit}));
        add(stage, &config).run().fails(999, "MasqMarkBit must be between 0 and 31");
    }
}

fn a_mark_and_a_chain_of_others_exclude_each_other(stage: &Stage) {
    let config = ports(stage, HTTP, json!({"markMasqBit": 5, "externalSetMarkChain": "KUBE-MARK-MASQ"}));
    add(stage, &config).run().fails(999, "Cannot specify externalSetMarkChain and markMasqBit");
}

fn del_needs_neither_mappings_nor_result(stage: &Stage) {
    let config = stage.config("mynet", "portmap", json!({}));
    del(stage, &config).run().nothing();
    del(stage, &config).unset("CNI_NETNS").run().nothing();
}

fn keys_of_mappings_are_found_in_any_case(stage: &Stage) {
    stage.site.pod("pod1");
    let mut config = ports(stage, &[], json!({}));
    let mapping = json!({"HostPort": 8080, "ContainerPort": 80, "Protocol": "tcp", "HostIP": ""});
    config["runtimeConfig"] = json!({"PortMappings": [mapping]});
    add(stage, &config).run().result();
    assert!(rules(stage).iter().any(|rule| rule.contains("10.22.0.2:80")), "{:?}", rules(stage));
}

fn mappings_of_null_are_none(stage: &Stage) {
    let mut config = ports(stage, &[], json!({}));
    for nothing in [json!({"portMappings": null}), Value::Null] {
        config["runtimeConfig"] = nothing;
        add(stage, &config).run().result();
        del(stage, &config).run().nothing();
    }
}

fn an_address_of_the_host_side_is_not_the_pods(stage: &Stage) {
    stage.site.pod("pod1");
    let mut config = ports(stage, HTTP, json!({}));
    config["prevResult"] = result(stage, &["10.0.0.1/24", "10.0.0.2/24"]);
    config["prevResult"]["ips"][0]["interface"] = 0.into();
    add(stage, &config).run().result();
    let rules = rules(stage);
    assert!(rules.iter().any(|rule| rule.contains("10.0.0.2:80")), "{rules:?}");
    assert!(!rules.iter().any(|rule| rule.contains("10.0.0.1:80")), "{rules:?}");
}

fn an_address_without_interface_is_the_pods(stage: &Stage) {
    let mut config = ports(stage, HTTP, json!({}));
    config["prevResult"]["ips"][0]["interface"] = Value::Null;
    add(stage, &config).run().result();
    assert!(rules(stage).iter().any(|rule| rule.contains("10.22.0.2:80")));
}

fn a_pod_without_address_gets_no_rule(stage: &Stage) {
    let mut config = ports(stage, HTTP, json!({}));
    config["prevResult"] = result(stage, &[]);
    add(stage, &config).run().result();
    assert_eq!(rules(stage), [""; 0]);
}
