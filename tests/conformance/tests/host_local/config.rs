//! What can be configured, and what is refused.

use conformance_tests::version::{ALL, COMMON, WITH_LISTS};
use conformance_tests::{Stage, scenarios};
use serde_json::{Value, json};

use super::{add, addresses, given, network, refused, subnet};

scenarios! { "host-local":
    ALL.as_slice() =>
        the_old_single_range_is_understood,
        one_address_of_each_family_will_do_in_every_version,
        a_range_that_cannot_be_is_refused_with_the_reason;
    &["0.1.0", "0.2.0"] => two_addresses_of_a_family_need_a_newer_version;
    WITH_LISTS =>
        ranges_of_the_runtime_come_first_and_the_old_form_second,
        routes_are_handed_on_as_they_are;
    COMMON =>
        args_are_strict_unless_told_otherwise,
        an_address_that_is_none_is_refused,
        a_resolv_conf_becomes_dns,
        a_resolv_conf_that_is_missing_is_refused,
        a_configuration_without_ipam_is_refused,
        sets_that_overlap_are_refused,
        a_gateway_may_lie_outside_of_its_subnet;
}

fn the_old_single_range_is_understood(stage: &Stage) {
    let ipam = json!({"subnet": "10.1.2.0/24", "rangeStart": "10.1.2.9", "rangeEnd": "10.1.2.20", "gateway": "10.1.2.30"});
    let result = add(stage, &network(stage, ipam), "dummy").run().result();
    assert_eq!(addresses(&result), ["10.1.2.9/24"]);
    let gateway =
        if stage.at_least("0.3.0") { &result["ips"][0]["gateway"] } else { &result["ip4"]["gateway"] };
    assert_eq!(gateway, "10.1.2.30");
}

fn one_address_of_each_family_will_do_in_every_version(stage: &Stage) {
    let config =
        network(stage, json!({"ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "2001:db8:1::/48"}]]}));
    assert_eq!(given(stage, &config, "dummy"), ["10.1.2.2/24", "2001:db8:1::2/48"]);
}

fn a_range_that_cannot_be_is_refused_with_the_reason(stage: &Stage) {
    let too_large = json!([[{"subnet": "10.1.2.0/24", "rangeEnd": "10.1.3.1"}]]);
    for (ranges, words) in [
        (json!([]), "no IP ranges specified"),
        (json!([[]]), "invalid range set 0: empty range set"),
        (
            json!([[{"subnet": "10.1.2.0/31"}]]),
            "invalid range set 0: Network 10.1.2.0/31 too small to allocate from",
        ),
        (
            json!([[{"subnet": "fd00::/127"}]]),
            "invalid range set 0: Network fd00::/127 too small to allocate from",
        ),
        (
            json!([[{"subnet": "10.1.2.3/24"}]]),
            "Network has host bits set. For a subnet mask of length 24 the network address is 10.1.2.0",
        ),
        (
            json!([[{"subnet": "fd00::1/64"}]]),
            "Network has host bits set. For a subnet mask of length 64 the network address is fd00::",
        ),
        (
            json!([[{"subnet": "10.1.2.0/24", "rangeStart": "10.1.1.9"}]]),
            "invalid range set 0: RangeStart 10.1.1.9 not in network 10.1.2.0/24",
        ),
        (too_large, "invalid range set 0: RangeEnd 10.1.3.1 not in network 10.1.2.0/24"),
        (
            json!([[{"subnet": "10.1.2.0/24"}, {"subnet": "fd00::/64"}]]),
            "invalid range set 0: mixed address families",
        ),
        (json!([[{"subnet": "10.1.0.0/16"}, {"subnet": "10.1.2.0/24"}]]), "overlap"),
        (json!([[{"subnet": "10.1.2.0/24"}], [{}]]), ""),
        (json!([[{"subnet": "nonsense"}]]), ""),
        (json!([{"subnet": "10.1.2.0/24"}]), ""),
    ] {
        let config = network(stage, json!({"ranges": ranges}));
        let (_, told) = add(stage, &config, "dummy").run().error();
        assert!(told.contains(words), "{ranges}: {told}");
    }
    assert_eq!(stage.site.files("/var/lib/cni/networks").len(), 0);
}

fn two_addresses_of_a_family_need_a_newer_version(stage: &Stage) {
    let config =
        network(stage, json!({"ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "10.1.3.0/24"}]]}));
    let words = format!("CNI version {} does not support more than 1 address per family", stage.version);
    refused(stage, &config, "dummy", &words);
    stage.call("DEL", "host-local", &config).run().fails(999, &words);
}

fn ranges_of_the_runtime_come_first_and_the_old_form_second(stage: &Stage) {
    let mut config =
        network(stage, json!({"subnet": "10.2.0.0/24", "ranges": [[{"subnet": "10.3.0.0/24"}]]}));
    config["runtimeConfig"] = json!({"ipRanges": [[{"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.5"}]]});
    assert_eq!(given(stage, &config, "dummy"), ["10.1.0.5/24", "10.2.0.2/24", "10.3.0.2/24"]);
}

fn routes_are_handed_on_as_they_are(stage: &Stage) {
    let routes =
        json!([{"dst": "0.0.0.0/0"}, {"dst": "192.168.0.0/16", "gw": "10.1.2.9"}, {"dst": "fd00::/8"}]);
    let config = network(stage, json!({"subnet": "10.1.2.0/24", "routes": routes}));
    assert_eq!(add(stage, &config, "dummy").run().result()["routes"], routes);
}

fn args_are_strict_unless_told_otherwise(stage: &Stage) {
    let config = subnet(stage, "10.1.2.0/24");
    let with = |args: &str| add(stage, &config, "dummy").set("CNI_ARGS", args).run();
    with("K8S_POD_NAME=x").fails(999, "K8S_POD_NAME=x");
    with("ip=10.1.2.9").fails(999, "ip=10.1.2.9");
    with("IP=10.1.2.9;").fails(999, "invalid pair");
    with("IP=10.1.2.9=3").fails(999, "invalid pair");
    with("IgnoreUnknown=perhaps").fails(999, "");
    with("IgnoreUnknown=true;X=1").result();
}

fn an_address_that_is_none_is_refused(stage: &Stage) {
    let mut config = subnet(stage, "10.1.2.0/24");
    add(stage, &config, "dummy").set("CNI_ARGS", "IP=nonsense").run().fails(999, "nonsense");
    config["runtimeConfig"] = json!({"ips": ["10.1.2.300"]});
    add(stage, &config, "dummy").run().fails(999, "10.1.2.300");
    assert_eq!(stage.site.files("/var/lib/cni/networks").len(), 0);
}

fn a_resolv_conf_becomes_dns(stage: &Stage) {
    let text = "# a comment\n; another\nnameserver 192.0.2.3\n nameserver\t192.0.2.4 \nsearch a.example b.example\n\
        domain old\ndomain example.org\noptions ndots:2 debug\nnameserver\nsortlist 10.0.0.0\n";
    stage.site.write("/run/resolv.conf", text);
    let config = network(stage, json!({"subnet": "10.1.2.0/24", "resolvConf": "/run/resolv.conf"}));
    let expected = json!({"nameservers": ["192.0.2.3", "192.0.2.4"], "domain": "example.org",
        "search": ["a.example", "b.example"], "options": ["ndots:2", "debug"]});
    assert_eq!(add(stage, &config, "dummy").run().result()["dns"], expected);
}

fn a_resolv_conf_that_is_missing_is_refused(stage: &Stage) {
    let config = network(stage, json!({"subnet": "10.1.2.0/24", "resolvConf": "/run/no.conf"}));
    add(stage, &config, "dummy").run().fails(999, "/run/no.conf");
    assert_eq!(stage.site.files("/var/lib/cni/networks").len(), 0);
}

fn a_configuration_without_ipam_is_refused(stage: &Stage) {
    for config in [stage.config("n", "x", json!({})), stage.config("n", "x", json!({"ipam": Value::Null}))] {
        add(stage, &config, "dummy").run().fails(999, "IPAM config missing 'ipam' key");
    }
}

fn sets_that_overlap_are_refused(stage: &Stage) {
    let ranges = json!([[{"subnet": "10.1.2.0/24"}], [{"subnet": "10.1.0.0/16"}]]);
    let config = network(stage, json!({"ranges": ranges}));
    refused(stage, &config, "dummy", "range set 0 overlaps with 1");
}

fn a_gateway_may_lie_outside_of_its_subnet(stage: &Stage) {
    let config = network(stage, json!({"subnet": "10.1.2.0/30", "gateway": "10.9.9.9"}));
    assert_eq!(given(stage, &config, "a"), ["10.1.2.1/30"]);
    assert_eq!(given(stage, &config, "b"), ["10.1.2.2/30"]);
}
