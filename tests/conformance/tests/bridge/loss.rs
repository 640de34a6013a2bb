//! DEL when something is missing: nothing may stay, whatever was lost.

use conformance_tests::version::COMMON;
use conformance_tests::{Stage, scenarios};
use serde_json::{Value, json};

use super::{add, del, plain, taken};

scenarios! { "bridge":
    COMMON =>
        a_namespace_that_is_gone_costs_no_address,
        a_namespace_that_nobody_names_costs_no_address,
        a_namespace_that_left_a_file_costs_no_address,
        a_device_that_is_gone_costs_no_address,
        a_namespace_that_is_gone_leaves_no_masquerade,
        a_namespace_that_is_gone_leaves_no_check_of_macs,
        a_namespace_that_nobody_names_leaves_no_rule,
        an_ipam_that_fails_does_not_keep_rules_and_devices,
        a_bridge_that_is_gone_is_no_reason_to_fail;
}

const BACKENDS: [&str; 2] = ["iptables", "nftables"];

fn with_rules(stage: &Stage, backend: &str) -> Value {
    plain(stage, json!({"ipMasq": true, "ipMasqBackend": backend, "macspoofchk": true}))
}

/// Everything that names the container.
fn rules(stage: &Stage) -> Vec<String> {
    let tables = [4, 6].into_iter().flat_map(|family| stage.site.iptables(family)).chain(stage.site.nft());
    tables.filter(|line| line.contains("c0ffee01") || line.starts_with(":CNI-")).collect()
}

fn a_namespace_that_is_gone_costs_no_address(stage: &Stage) {
    stage.site.pod("pod1");
    add(stage, &plain(stage, json!({}))).run().result();
    stage.site.remove_pod("pod1");
    del(stage, &plain(stage, json!({}))).run().nothing();
    assert_eq!(taken(stage), [""; 0]);
}

fn a_namespace_that_nobody_names_costs_no_address(stage: &Stage) {
    stage.site.pod("pod1");
    add(stage, &plain(stage, json!({}))).run().result();
    del(stage, &plain(stage, json!({}))).unset("CNI_NETNS").run().nothing();
    assert_eq!(taken(stage), [""; 0]);
}

fn a_namespace_that_left_a_file_costs_no_address(stage: &Stage) {
    stage.site.pod("pod1");
    add(stage, &plain(stage, json!({}))).run().result();
    stage.site.remove_pod("pod1");
    stage.site.write("/run/netns/pod1", "");
    del(stage, &plain(stage, json!({}))).run().nothing();
    assert_eq!(taken(stage), [""; 0]);
}

fn a_device_that_is_gone_costs_no_address(stage: &Stage) {
    for backend in BACKENDS {
        stage.site.pod("pod1");
        add(stage, &plain(stage, json!({"ipMasq": true, "ipMasqBackend": backend}))).run().result();
        stage.site.sh("ip -n pod1 link del eth0");
        del(stage, &plain(stage, json!({"ipMasq": true, "ipMasqBackend": backend}))).run().nothing();
        assert_eq!((taken(stage), rules(stage)), (vec![], vec![]), "{backend}");
        stage.site.remove_pod("pod1");
    }
}

fn a_namespace_that_is_gone_leaves_no_masquerade(stage: &Stage) {
    for backend in BACKENDS {
        stage.site.pod("pod1");
        let config = plain(stage, json!({"ipMasq": true, "ipMasqBackend": backend}));
        add(stage, &config).run().result();
        stage.site.remove_pod("pod1");
        del(stage, &config).run().nothing();
        assert_eq!((taken(stage), rules(stage)), (vec![], vec![]), "{backend}");
    }
}

fn a_namespace_that_is_gone_leaves_no_check_of_macs(stage: &Stage) {
    stage.site.pod("pod1");
    let config = plain(stage, json!({"macspoofchk": true}));
    add(stage, &config).run().result();
    stage.site.remove_pod("pod1");
    del(stage, &config).run().nothing();
    assert_eq!(rules(stage), [""; 0]);
}

fn a_namespace_that_nobody_names_leaves_no_rule(stage: &Stage) {
    for backend in BACKENDS {
        stage.site.pod("pod1");
        add(stage, &with_rules(stage, backend)).run().result();
        del(stage, &with_rules(stage, backend)).unset("CNI_NETNS").run().nothing();
        assert_eq!((taken(stage), rules(stage)), (vec![], vec![]), "{backend}");
        stage.site.remove_pod("pod1");
    }
}

fn an_ipam_that_fails_does_not_keep_rules_and_devices(stage: &Stage) {
    stage.site.pod("pod1");
    let config = with_rules(stage, "iptables");
    add(stage, &config).run().result();
    let failing =
        "#!/bin/sh\ncat >/dev/null\necho '{\"code\": 11, \"msg\": \"the store is away\"}'\nexit 1\n";
    stage.site.write("/run/bin/host-local", failing);
    stage.site.sh("chmod +x /run/bin/host-local");
    let path = format!("/run/bin:{}", stage.plugins.folder.display());
    del(stage, &config).set("CNI_PATH", path).run().fails(11, "the store is away");
    assert_eq!((rules(stage), stage.site.devices(Some("pod1"))), (vec![], vec![]));
    del(stage, &config).run().nothing();
    assert_eq!(taken(stage), [""; 0]);
}

fn a_bridge_that_is_gone_is_no_reason_to_fail(stage: &Stage) {
    stage.site.pod("pod1");
    add(stage, &plain(stage, json!({}))).run().result();
    stage.site.sh("ip link del br0");
    del(stage, &plain(stage, json!({}))).run().nothing();
    assert_eq!((taken(stage), stage.site.devices(None)), (vec![], vec![]));
}
