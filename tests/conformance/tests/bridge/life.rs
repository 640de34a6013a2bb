//! From ADD to DEL: devices, addresses, routes and settings on both sides.

use conformance_tests::version::{ALL, COMMON, WITH_LISTS};
use conformance_tests::{Stage, scenarios};
use serde_json::{Value, json};

use super::{add, del, gateway, host_end, layer2, plain, taken};

scenarios! { "bridge":
    ALL.as_slice() =>
        a_pod_of_ipv4_is_connected_and_disconnected,
        a_pod_of_ipv6_is_connected_and_disconnected,
        a_pod_of_both_families_is_connected_and_disconnected,
        a_pod_that_never_was_is_disconnected;
    &["0.1.0", "0.2.0"] => two_addresses_of_a_family_need_a_newer_version, a_pod_without_addresses_needs_a_newer_version;
    WITH_LISTS =>
        a_pod_may_have_several_addresses_of_a_family,
        a_pod_may_have_no_address,
        the_result_lists_bridge_host_end_and_pod_end;
    COMMON =>
        a_bridge_that_is_there_is_kept_as_it_is,
        the_bridge_keeps_its_mac_while_pods_come_and_go,
        two_pods_on_one_bridge_reach_each_other,
        many_pods_come_and_go_at_once,
        an_interface_that_is_there_already_is_refused,
        a_failed_add_leaves_nothing_behind,
        dns_of_the_network_replaces_that_of_ipam,
        dns_of_ipam_is_handed_on,
        forwarding_is_turned_on_for_the_families_of_the_gateway,
        without_a_gateway_the_bridge_has_no_address,
        a_pod_announces_its_address_and_waits_for_no_probes,
        routes_have_their_own_gateways_or_that_of_the_address,
        a_route_may_have_an_mtu_and_a_priority,
        the_gateway_of_ipv6_waits_for_no_probes,
        an_ipam_without_addresses_is_refused,
        an_ipam_that_is_not_there_is_refused;
}

fn life(stage: &Stage, subnets: &[&str], gateways: &[&str], given: &[&str]) {
    stage.site.pod("pod1");
    let config = gateway(stage, subnets);
    let result = add(stage, &config).run().result();
    assert_eq!(stage.site.addresses(None, "br0"), gateways);
    assert_eq!(stage.site.addresses(Some("pod1"), "eth0"), given);
    let defaults: Vec<_> = gateways.iter().map(|gateway| gateway.split('/').next().unwrap()).collect();
    let defaults: Vec<_> = defaults.iter().map(|gateway| default_route(gateway)).collect();
    assert_eq!(stage.site.routes(Some("pod1")), defaults);
    ends_are_right(stage, &result);
    del(stage, &config).run().nothing();
    assert_eq!(stage.site.devices(Some("pod1")), [""; 0]);
    assert_eq!(stage.site.devices(None), ["br0"]);
    assert_eq!(taken(stage), [""; 0]);
    del(stage, &config).run().nothing();
}

fn default_route(gateway: &str) -> String {
    let metric = if gateway.contains(':') { " metric 1024" } else { "" };
    format!("default via {gateway} dev eth0{metric}")
}

/// Both ends of the pair are up and have a MAC each, and the port of the bridge is an ordinary one.
fn ends_are_right(stage: &Stage, result: &Value) {
    let names = stage.site.devices(None);
    let [bridge, host_end] = &names[..] else { panic!("{names:?}") };
    let (bridge, host_end) = (stage.site.device(None, bridge), stage.site.device(None, host_end));
    let pod_end = stage.site.device(Some("pod1"), "eth0");
    assert_eq!(
        (bridge["ifname"].as_str(), bridge["linkinfo"]["info_kind"].as_str()),
        (Some("br0"), Some("bridge"))
    );
    assert_eq!(bridge["linkinfo"]["info_data"]["vlan_filtering"], 0);
    assert_eq!(bridge["promiscuity"], 0);
    assert_eq!(
        (host_end["master"].as_str(), host_end["linkinfo"]["info_kind"].as_str()),
        (Some("br0"), Some("veth"))
    );
    let port = &host_end["linkinfo"]["info_slave_data"];
    assert_eq!((&port["hairpin"], &port["isolated"]), (&json!(false), &json!(false)));
    for device in [&bridge, &host_end, &pod_end] {
        assert_eq!(device["operstate"], "UP", "{device}");
        assert_eq!(device["mtu"], 1500);
    }
    let macs = [&bridge["address"], &host_end["address"], &pod_end["address"]].map(Value::to_string);
    assert!(macs[0] != macs[1] && macs[1] != macs[2] && macs[0] != macs[2], "{macs:?}");
    if stage.at_least("0.3.0") {
        let expected = json!([
            {"name": "br0", "mac": bridge["address"]},
            {"name": host_end["ifname"], "mac": host_end["address"]},
            {"name": "eth0", "mac": pod_end["address"], "sandbox": "/run/netns/pod1"}]);
        assert_eq!(result["interfaces"], expected);
    }
}

fn a_pod_of_ipv4_is_connected_and_disconnected(stage: &Stage) {
    life(stage, &["10.1.2.0/24"], &["10.1.2.1/24"], &["10.1.2.2/24"]);
}

fn a_pod_of_ipv6_is_connected_and_disconnected(stage: &Stage) {
    life(stage, &["2001:db8::/64"], &["2001:db8::1/64"], &["2001:db8::2/64"]);
}

fn a_pod_of_both_families_is_connected_and_disconnected(stage: &Stage) {
    let gateways = ["192.168.0.1/24", "fd00::1/64"];
    life(stage, &["192.168.0.0/24", "fd00::/64"], &gateways, &["192.168.0.2/24", "fd00::2/64"]);
}

fn a_pod_that_never_was_is_disconnected(stage: &Stage) {
    stage.site.pod("pod1");
    del(stage, &gateway(stage, &["10.1.2.0/24"])).run().nothing();
    del(stage, &layer2(stage, json!({}))).run().nothing();
    assert_eq!(stage.site.devices(None), [""; 0]);
}

fn two_addresses_of_a_family_need_a_newer_version(stage: &Stage) {
    stage.site.pod("pod1");
    let config = gateway(stage, &["fd00::/64", "fd01::/64"]);
    let words = format!("CNI version {} does not support more than 1 address per family", stage.version);
    add(stage, &config).run().fails(999, &words);
    del(stage, &config).run().fails(999, &words);
}

fn a_pod_without_addresses_needs_a_newer_version(stage: &Stage) {
    stage.site.pod("pod1");
    add(stage, &layer2(stage, json!({}))).run().fails(999, "cannot convert: no valid IP addresses");
}

fn a_pod_may_have_several_addresses_of_a_family(stage: &Stage) {
    stage.site.pod("pod1");
    let config = gateway(stage, &["192.168.0.0/24", "fd00::/64", "2001:db8::/64"]);
    let result = add(stage, &config).run().result();
    let mut given = stage.site.addresses(Some("pod1"), "eth0");
    given.sort();
    assert_eq!(given, ["192.168.0.2/24", "2001:db8::2/64", "fd00::2/64"]);
    let mut gateways = stage.site.addresses(None, "br0");
    gateways.sort();
    assert_eq!(gateways, ["192.168.0.1/24", "2001:db8::1/64", "fd00::1/64"]);
    let routes = json!([{"dst": "0.0.0.0/0", "gw": "192.168.0.1"}, {"dst": "::/0", "gw": "fd00::1"}]);
    assert_eq!(result["routes"], routes, "one default route for each family");
    del(stage, &config).run().nothing();
    assert_eq!(stage.site.devices(None), ["br0"]);
}

fn a_pod_may_have_no_address(stage: &Stage) {
    stage.site.pod("pod1");
    let result = add(stage, &layer2(stage, json!({}))).run().result();
    assert_eq!((result["interfaces"].as_array().unwrap().len(), &result["ips"]), (3, &Value::Null));
    assert_eq!(stage.site.addresses(Some("pod1"), "eth0"), [""; 0]);
    assert_eq!(stage.site.device(Some("pod1"), "eth0")["operstate"], "UP");
    del(stage, &layer2(stage, json!({}))).run().nothing();
    assert_eq!(stage.site.devices(None), ["br0"]);
}

fn the_result_lists_bridge_host_end_and_pod_end(stage: &Stage) {
    stage.site.pod("pod1");
    let result = add(stage, &gateway(stage, &["10.1.2.0/24"])).run().result();
    let host_end = host_end(&result);
    assert!(
        host_end.len() == 12 && host_end[4..].chars().all(|letter| letter.is_ascii_hexdigit()),
        "{host_end}"
    );
    let mut address = json!({"interface": 2, "address": "10.1.2.2/24", "gateway": "10.1.2.1"});
    if !stage.at_least("1.0.0") {
        address["version"] = "4".into();
    }
    assert_eq!(result["ips"], json!([address]));
    assert_eq!(result["routes"], json!([{"dst": "0.0.0.0/0", "gw": "10.1.2.1"}]));
}

fn a_bridge_that_is_there_is_kept_as_it_is(stage: &Stage) {
    stage.site.pod("pod1");
    stage.site.sh("ip link add br0 mtu 1400 address 02:00:00:00:00:07 type bridge");
    let before = stage.site.device(None, "br0");
    add(stage, &plain(stage, json!({"mtu": 1300}))).run().result();
    let after = stage.site.device(None, "br0");
    assert_eq!((&before["ifindex"], &before["address"]), (&after["ifindex"], &after["address"]));
    assert_eq!(after["operstate"], "UP");
    assert_eq!(stage.site.device(Some("pod1"), "eth0")["mtu"], 1300);
    del(stage, &plain(stage, json!({}))).run().nothing();
    assert_eq!(stage.site.device(None, "br0")["ifindex"], before["ifindex"]);
}

fn the_bridge_keeps_its_mac_while_pods_come_and_go(stage: &Stage) {
    let config = gateway(stage, &["10.1.2.0/24", "fd00::/64"]);
    let mut macs = Vec::new();
    for pod in ["pod1", "pod2", "pod3", "pod4"] {
        stage.site.pod(pod);
        add(stage, &config).pod(pod).container(pod).run().result();
        macs.push(stage.site.device(None, "br0")["address"].clone());
    }
    for pod in ["pod2", "pod1", "pod4", "pod3"] {
        del(stage, &config).pod(pod).container(pod).run().nothing();
        macs.push(stage.site.device(None, "br0")["address"].clone());
    }
    macs.dedup();
    assert_eq!(macs.len(), 1, "{macs:?}");
}

fn two_pods_on_one_bridge_reach_each_other(stage: &Stage) {
    let config = gateway(stage, &["10.1.2.0/24", "fd00::/64"]);
    for pod in ["pod1", "pod2"] {
        stage.site.pod(pod);
        add(stage, &config).pod(pod).container(pod).run().result();
    }
    // A question for an address of IPv6 may come before the kernel listens to it; the next one is a second later.
    for target in ["10.1.2.1", "10.1.2.3", "fd00::3", "fd00::1"] {
        stage.site.sh(&format!("ip netns exec pod1 ping -c 1 -w 5 {target}"));
    }
}

/// The first ones race to make the bridge, the last ones to leave it.
fn many_pods_come_and_go_at_once(stage: &Stage) {
    let config = {
        let mut config = gateway(stage, &["10.1.2.0/24", "fd00::/64"]);
        config["ipMasq"] = true.into();
        config
    };
    let pods: Vec<_> = (0..10).map(|number| format!("p{number}")).collect();
    pods.iter().for_each(|pod| drop(stage.site.pod(pod)));
    let started: Vec<_> =
        pods.iter().map(|pod| add(stage, &config).pod(pod).container(pod).start()).collect();
    started.into_iter().for_each(|call| drop(call.wait().result()));
    stage.site.sh("ip netns exec p0 ping -c 1 -W 5 10.1.2.1");
    assert_eq!((taken(stage).len(), stage.site.devices(None).len()), (20, 11));
    let started: Vec<_> =
        pods.iter().map(|pod| del(stage, &config).pod(pod).container(pod).start()).collect();
    started.into_iter().for_each(|call| call.wait().nothing());
    assert_eq!((taken(stage), stage.site.devices(None)), (vec![], vec!["br0".to_owned()]));
    assert_eq!((stage.site.nat_chains(4), stage.site.nat_chains(6)), (vec![], vec![]));
}

fn an_interface_that_is_there_already_is_refused(stage: &Stage) {
    stage.site.pod("pod1");
    stage.site.sh("ip -n pod1 link add eth0 type bridge");
    let (code, words) = add(stage, &gateway(stage, &["10.1.2.0/24"])).run().error();
    assert!(code == 999 && words.contains("eth0"), "{code} {words}");
    assert_eq!(taken(stage), [""; 0]);
    assert_eq!(stage.site.device(Some("pod1"), "eth0")["linkinfo"]["info_kind"], "bridge");
}

/// What stays after a failure would make the next try fail: runtimes retry before they clean up.
fn a_failed_add_leaves_nothing_behind(stage: &Stage) {
    stage.site.pod("pod1");
    let mut config = gateway(stage, &["10.1.2.0/24"]);
    config["ipam"]["routes"] = json!([{"dst": "10.7.0.0/16", "gw": "172.16.0.1"}]); // which nobody can reach
    add(stage, &config).run().error();
    assert_eq!(taken(stage), [""; 0]);
    assert_eq!(stage.site.devices(None), ["br0"]);
    assert_eq!(stage.site.devices(Some("pod1")), [""; 0]);
    add(stage, &gateway(stage, &["10.1.2.0/24"])).run().result();
}

fn dns_of_the_network_replaces_that_of_ipam(stage: &Stage) {
    stage.site.pod("pod1");
    stage.site.write("/run/resolv.conf", "nameserver 192.0.2.3\nsearch a.example\n");
    let mut config = plain(stage, json!({"dns": {"nameservers": ["192.0.2.9"]}}));
    config["ipam"]["resolvConf"] = "/run/resolv.conf".into();
    assert_eq!(add(stage, &config).run().result()["dns"], json!({"nameservers": ["192.0.2.9"]}));
}

fn dns_of_ipam_is_handed_on(stage: &Stage) {
    stage.site.pod("pod1");
    stage.site.write("/run/resolv.conf", "nameserver 192.0.2.3\nsearch a.example\n");
    let mut config = plain(stage, json!({}));
    config["ipam"]["resolvConf"] = "/run/resolv.conf".into();
    let expected = json!({"nameservers": ["192.0.2.3"], "search": ["a.example"]});
    assert_eq!(add(stage, &config).run().result()["dns"], expected);
}

fn forwarding_is_turned_on_for_the_families_of_the_gateway(stage: &Stage) {
    let settings = ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"];
    let forwarding = || settings.map(|name| stage.site.sysctl(None, name));
    for pod in ["pod1", "pod2", "pod3"] {
        stage.site.pod(pod);
    }
    let mut config = gateway(stage, &["10.1.2.0/24"]);
    config["isDefaultGateway"] = false.into();
    add(stage, &config).run().result();
    assert_eq!(forwarding(), ["0", "0"], "no gateway, no router");
    config["isGateway"] = true.into();
    add(stage, &config).pod("pod2").container("b").run().result();
    assert_eq!(forwarding(), ["1", "0"]);
    let mut config = gateway(stage, &["fd00::/64"]);
    config["bridge"] = "br1".into();
    add(stage, &config).pod("pod3").container("c").run().result();
    assert_eq!(forwarding(), ["1", "1"]);
}

fn without_a_gateway_the_bridge_has_no_address(stage: &Stage) {
    stage.site.pod("pod1");
    let mut config = gateway(stage, &["10.1.2.0/24"]);
    config["isDefaultGateway"] = false.into();
    config["ipam"]["routes"] = json!([{"dst": "10.9.0.0/16"}]);
    let result = add(stage, &config).run().result();
    assert_eq!(result["routes"], json!([{"dst": "10.9.0.0/16"}]));
    assert_eq!(stage.site.addresses(None, "br0"), [""; 0]);
    assert_eq!(stage.site.routes(Some("pod1")), ["10.9.0.0/16 via 10.1.2.1 dev eth0"]);
}

fn a_pod_announces_its_address_and_waits_for_no_probes(stage: &Stage) {
    stage.site.pod("pod1");
    let result = add(stage, &gateway(stage, &["10.1.2.0/24", "fd00::/64"])).run().result();
    let of_pod = |name: &str| stage.site.sysctl(Some("pod1"), name);
    assert_eq!(of_pod("net/ipv4/conf/eth0/arp_notify"), "1");
    assert_eq!(of_pod("net/ipv6/conf/eth0/accept_dad"), "0");
    assert_eq!(of_pod("net/ipv6/conf/eth0/keep_addr_on_down"), "1");
    assert_eq!(of_pod("net/ipv6/conf/eth0/disable_ipv6"), "0");
    let host_end = host_end(&result);
    for device in ["br0", &host_end] {
        assert_eq!(stage.site.sysctl(None, &format!("net/ipv6/conf/{device}/accept_ra")), "0", "{device}");
    }
    let state = stage.site.sh("ip -n pod1 -6 addr show dev eth0 scope global tentative");
    assert_eq!(state, "", "the address can be used at once");
}

fn routes_have_their_own_gateways_or_that_of_the_address(stage: &Stage) {
    stage.site.pod("pod1");
    let mut config = gateway(stage, &["10.1.2.0/24", "fd00::/64"]);
    config["ipam"]["routes"] =
        json!([{"dst": "10.7.0.0/16"}, {"dst": "10.8.0.0/16", "gw": "10.1.2.99"}, {"dst": "fd77::/64"}]);
    add(stage, &config).run().result();
    let mut routes = stage.site.routes(Some("pod1"));
    routes.sort();
    let expected = [
        "10.7.0.0/16 via 10.1.2.1 dev eth0",
        "10.8.0.0/16 via 10.1.2.99 dev eth0",
        "default via 10.1.2.1 dev eth0",
        "default via fd00::1 dev eth0 metric 1024",
        "fd77::/64 via fd00::1 dev eth0 metric 1024",
    ];
    assert_eq!(routes, expected);
}

fn a_route_may_have_an_mtu_and_a_priority(stage: &Stage) {
    stage.site.pod("pod1");
    let mut config = plain(stage, json!({"isDefaultGateway": false, "isGateway": true}));
    config["ipam"]["routes"] = json!([{"dst": "10.7.0.0/16", "mtu": 1300, "advmss": 1200, "priority": 77}]);
    add(stage, &config).run().result();
    let expected = ["10.7.0.0/16 via 10.1.2.1 dev eth0 metric 77 mtu 1300 advmss 1200"];
    assert_eq!(stage.site.routes(Some("pod1")), expected);
}

fn the_gateway_of_ipv6_waits_for_no_probes(stage: &Stage) {
    stage.site.pod("pod1");
    add(stage, &gateway(stage, &["fd00::/64"])).run().result();
    assert_eq!(stage.site.sh("ip -6 addr show dev br0 scope global tentative"), "");
    stage.site.sh("ip netns exec pod1 ping -c 1 -W 3 fd00::1");
}

fn an_ipam_without_addresses_is_refused(stage: &Stage) {
    stage.site.pod("pod1");
    let script = "#!/bin/sh\ncat >/dev/null\n[ $CNI_COMMAND != ADD ] || echo '{\"cniVersion\": \"0.3.1\"}'\n";
    stage.site.write("/run/bin/empty", script.replace("0.3.1", stage.version));
    stage.site.sh("chmod +x /run/bin/empty");
    let config = layer2(stage, json!({"ipam": {"type": "empty"}}));
    let path = format!("{}:/run/bin", stage.plugins.folder.display());
    let call = add(stage, &config).set("CNI_PATH", path);
    call.run().fails(999, "IPAM plugin returned missing IP config");
}

fn an_ipam_that_is_not_there_is_refused(stage: &Stage) {
    stage.site.pod("pod1");
    let config = layer2(stage, json!({"ipam": {"type": "not-there"}}));
    add(stage, &config).run().fails(999, "failed to find plugin \"not-there\" in path");
}
