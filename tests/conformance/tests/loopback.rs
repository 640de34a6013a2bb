//! The loopback plugin: `lo` up and down.

use std::path::Path;

use conformance_tests::version::{ALL, WITH_CHECK};
use conformance_tests::{Stage, scenarios};
use serde_json::{Value, json};

scenarios! { "loopback":
    ALL.as_slice() =>
        add_raises_lo_and_del_lowers_it,
        the_result_has_the_form_of_its_version,
        del_of_a_namespace_that_is_gone_succeeds,
        add_without_a_namespace_fails;
    &["0.3.1", "1.0.0"] =>
        the_result_of_earlier_plugins_is_handed_on,
        an_address_that_is_not_for_loopback_is_refused,
        del_of_a_namespace_that_left_a_file_succeeds;
    WITH_CHECK => check_fails_when_lo_is_down;
}

fn config(stage: &Stage) -> Value {
    stage.config("lo", "loopback", json!({}))
}

fn is_up(stage: &Stage) -> bool {
    stage.site.device(Some("pod1"), "lo")["flags"].to_string().contains("UP")
}

fn add_raises_lo_and_del_lowers_it(stage: &Stage) {
    stage.site.pod("pod1");
    assert!(!is_up(stage));
    stage.call("ADD", "loopback", &config(stage)).interface("anything").run().result();
    assert!(is_up(stage));
    assert_eq!(stage.site.all_addresses(Some("pod1"), "lo"), ["127.0.0.1/8", "::1/128"]);
    stage.call("DEL", "loopback", &config(stage)).interface("anything").run().nothing();
    assert!(!is_up(stage));
    stage.call("DEL", "loopback", &config(stage)).run().nothing();
}

fn the_result_has_the_form_of_its_version(stage: &Stage) {
    stage.site.pod("pod1");
    let result = stage.call("ADD", "loopback", &config(stage)).run().result();
    let lo = json!([{"name": "lo", "mac": "00:00:00:00:00:00", "sandbox": "/run/netns/pod1"}]);
    let (v4, v6) = ("127.0.0.1/8", "::1/128");
    let expected = match stage.version {
        "0.1.0" | "0.2.0" => json!({"ip4": {"ip": v4}, "ip6": {"ip": v6}, "dns": {}}),
        "1.0.0" | "1.1.0" => {
            json!({"interfaces": lo, "ips": [{"interface": 0, "address": v4}, {"interface": 0, "address": v6}]})
        }
        _ => {
            let ips =
                [("4", v4), ("6", v6)].map(|(v, ip)| json!({"version": v, "interface": 0, "address": ip}));
            json!({"interfaces": lo, "ips": ips, "dns": {}})
        }
    };
    let mut expected = expected;
    expected["cniVersion"] = stage.version.into();
    assert_eq!(result, expected);
}

fn del_of_a_namespace_that_is_gone_succeeds(stage: &Stage) {
    stage.call("DEL", "loopback", &config(stage)).pod("gone").run().nothing();
    stage.call("DEL", "loopback", &config(stage)).unset("CNI_NETNS").run().nothing();
}

fn add_without_a_namespace_fails(stage: &Stage) {
    stage.call("ADD", "loopback", &config(stage)).pod("gone").run().fails(999, "/run/netns/gone");
}

fn del_of_a_namespace_that_left_a_file_succeeds(stage: &Stage) {
    stage.site.write("/run/netns/pod1", "");
    stage.call("DEL", "loopback", &config(stage)).run().nothing();
    assert!(Path::new(&stage.site.path("/run/netns/pod1")).exists(), "whose it is, we do not know");
}

fn the_result_of_earlier_plugins_is_handed_on(stage: &Stage) {
    stage.site.pod("pod1");
    let previous = json!({"cniVersion": stage.version, "interfaces": [{"name": "eth9"}], "routes": [{"dst": "10.0.0.0/8"}]});
    let result = stage.call("ADD", "loopback", &config(stage)).previous(&previous).run().result();
    assert_eq!((&result["interfaces"], &result["routes"]), (&previous["interfaces"], &previous["routes"]));
    assert!(is_up(stage));
}

fn an_address_that_is_not_for_loopback_is_refused(stage: &Stage) {
    stage.site.pod("pod1");
    stage.site.sh("ip -n pod1 addr add 10.1.1.1/32 dev lo");
    let words = "loopback interface found with non-loopback address";
    stage.call("ADD", "loopback", &config(stage)).run().fails(999, words);
}

fn check_fails_when_lo_is_down(stage: &Stage) {
    stage.site.pod("pod1");
    let result = stage.call("ADD", "loopback", &config(stage)).run().result();
    stage.call("CHECK", "loopback", &config(stage)).previous(&result).run().nothing();
    stage.site.sh("ip -n pod1 link set lo down");
    stage
        .call("CHECK", "loopback", &config(stage))
        .previous(&result)
        .run()
        .fails(999, "loopback interface is down");
}
