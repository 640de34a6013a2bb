//! CHECK: is everything as ADD left it?

use conformance_tests::version::WITH_CHECK;
use conformance_tests::{Answer, Stage, scenarios};
use serde_json::{Value, json};

use super::{add, del, gateway, host_end, layer2};

scenarios! { "bridge":
    WITH_CHECK =>
        check_is_content_with_what_add_made,
        check_needs_the_result_of_add,
        check_sees_that_something_is_gone,
        check_sees_another_mac,
        check_sees_another_namespace,
        check_asks_ipam_too,
        check_of_a_pod_without_addresses_succeeds;
}

fn added(stage: &Stage) -> (Value, Value) {
    stage.site.pod("pod1");
    let config = gateway(stage, &["10.1.2.0/24", "fd00::/64"]);
    let result = add(stage, &config).run().result();
    (config, result)
}

fn check(stage: &Stage, config: &Value, result: &Value) -> Answer {
    stage.call("CHECK", "bridge", config).previous(result).run()
}

fn check_is_content_with_what_add_made(stage: &Stage) {
    let (config, result) = added(stage);
    check(stage, &config, &result).nothing();
    del(stage, &config).run().nothing();
    check(stage, &config, &result).error();
}

fn check_needs_the_result_of_add(stage: &Stage) {
    let (config, _) = added(stage);
    stage.call("CHECK", "bridge", &config).run().fails(999, "prevResult");
}

fn check_sees_that_something_is_gone(stage: &Stage) {
    for (number, harm) in [
        "ip -n pod1 addr del 10.1.2.X/24 dev eth0",
        "ip -n pod1 addr del fd00::X/64 dev eth0",
        "ip -n pod1 route del default",
        "ip link set VETH nomaster",
        "ip link del VETH",
        "ip link del br0",
    ]
    .into_iter()
    .enumerate()
    {
        let (config, result) = added(stage);
        check(stage, &config, &result).nothing();
        let harm = harm.replace("VETH", &host_end(&result)).replace(".X", &format!(".{}", number + 2));
        let harm = harm.replace("::X", &format!("::{}", number + 2));
        stage.site.sh(&harm);
        let (code, words) = check(stage, &config, &result).error();
        assert_eq!(code, 999, "{harm}: {words}");
        del(stage, &config).run().nothing();
        stage.site.remove_pod("pod1");
    }
}

fn check_sees_another_mac(stage: &Stage) {
    let (config, result) = added(stage);
    for interface in [0, 2] {
        let mut other = result.clone();
        other["interfaces"][interface]["mac"] = "02:00:00:00:00:01".into();
        check(stage, &config, &other).fails(999, "02:00:00:00:00:01");
    }
}

fn check_sees_another_namespace(stage: &Stage) {
    let (config, mut result) = added(stage);
    result["interfaces"][2]["sandbox"] = "/run/netns/other".into();
    check(stage, &config, &result).fails(999, "/run/netns/pod1");
    stage.call("CHECK", "bridge", &config).previous(&result).pod("gone").run().fails(999, "/run/netns/gone");
}

fn check_asks_ipam_too(stage: &Stage) {
    let (config, result) = added(stage);
    stage.site.sh("rm /var/lib/cni/networks/mynet/10.1.2.2 /var/lib/cni/networks/mynet/fd00::2");
    check(stage, &config, &result).fails(999, "Failed to find address");
}

/// Go's asks for a plugin without a name.
fn check_of_a_pod_without_addresses_succeeds(stage: &Stage) {
    stage.site.pod("pod1");
    let config = layer2(stage, json!({}));
    let result = add(stage, &config).run().result();
    check(stage, &config, &result).nothing();
}
