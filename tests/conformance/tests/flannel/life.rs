//! From ADD to DEL on a node of flanneld.

use conformance_tests::version::ALL;
use conformance_tests::{Stage, scenarios};
use serde_json::{Value, json};

use super::{SUBNET_ENV, V4, add, del, network, plain, records, taken};

scenarios! { "flannel":
    ALL.as_slice() =>
        a_pod_of_ipv4_comes_and_goes,
        a_pod_of_ipv6_comes_and_goes,
        a_pod_of_both_families_comes_and_goes;
    &["0.3.1", "0.4.0", "1.0.0"] =>
        a_pod_has_routes_to_every_network,
        two_pods_reach_each_other,
        folder_and_file_can_be_chosen,
        masquerade_is_the_delegates_when_it_is_not_flannelds,
        the_record_is_private;
    &["0.4.0", "1.0.0", "1.1.0"] => check_sees_that_the_pods_address_is_gone;
    &["1.1.0"] => garbage_collection_frees_addresses_and_records, status_needs_the_subnet, status_is_that_of_the_delegate;
}

fn life(stage: &Stage, env: &str, record: Value, given: &[&str]) {
    stage.site.pod("pod1");
    stage.site.write(SUBNET_ENV, env);
    let config = network(stage, json!({}));
    let result = add(stage, &config).run().result();
    assert_eq!(stage.site.addresses(Some("pod1"), "eth0"), given);
    if stage.at_least("0.3.0") {
        assert_eq!(result["ips"].as_array().unwrap().len(), given.len());
        assert_eq!(result["interfaces"][0]["name"], "cni0");
    }
    let mut expected = json!({"name": "cbr0", "type": "bridge", "ipMasq": false, "mtu": 1472, "isGateway": true,
        "cniVersion": stage.version, "ipam": record});
    expected["ipam"]["type"] = "host-local".into();
    expected.sort_all_objects();
    assert_eq!(
        stage.site.read("/var/lib/cni/flannel/c0ffee01"),
        Some(expected.to_string()),
        "as Go's writes it"
    );
    del(stage, &config).run().nothing();
    assert_eq!((records(stage), taken(stage), stage.site.devices(Some("pod1"))), (vec![], vec![], vec![]));
    del(stage, &config).run().nothing();
}

fn a_pod_of_ipv4_comes_and_goes(stage: &Stage) {
    let env =
        "FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.17.1/24\nFLANNEL_MTU=1472\nFLANNEL_IPMASQ=true\n";
    let record = json!({"ranges": [[{"subnet": "10.1.17.0/24"}]], "routes": [{"dst": "10.1.0.0/16"}]});
    life(stage, env, record, &["10.1.17.2/24"]);
}

fn a_pod_of_ipv6_comes_and_goes(stage: &Stage) {
    let env = "FLANNEL_IPV6_NETWORK=fc00::/48\nFLANNEL_IPV6_SUBNET=fc00:0:0:1::1/64\nFLANNEL_MTU=1472\nFLANNEL_IPMASQ=true\n";
    let record = json!({"ranges": [[{"subnet": "fc00:0:0:1::/64"}]], "routes": [{"dst": "fc00::/48"}]});
    life(stage, env, record, &["fc00:0:0:1::2/64"]);
}

fn a_pod_of_both_families_comes_and_goes(stage: &Stage) {
    let env = "FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.17.1/24\nFLANNEL_IPV6_NETWORK=fc00::/48\n\
        FLANNEL_IPV6_SUBNET=fc00:0:0:1::1/64\nFLANNEL_MTU=1472\nFLANNEL_IPMASQ=true\n";
    let ranges = json!([[{"subnet": "10.1.17.0/24"}], [{"subnet": "fc00:0:0:1::/64"}]]);
    let record = json!({"ranges": ranges, "routes": [{"dst": "10.1.0.0/16"}, {"dst": "fc00::/48"}]});
    life(stage, env, record, &["10.1.17.2/24", "fc00:0:0:1::2/64"]);
}

fn a_pod_has_routes_to_every_network(stage: &Stage) {
    stage.site.pod("pod1");
    stage.site.write(SUBNET_ENV, V4.replace("10.244.0.0/16", "10.244.0.0/16,192.168.0.0/16"));
    add(stage, &plain(stage)).run().result();
    let mut routes = stage.site.routes(Some("pod1"));
    routes.sort();
    let gateway = "via 10.244.3.1 dev eth0";
    assert_eq!(routes, ["10.244.0.0/16", "192.168.0.0/16", "default"].map(|to| format!("{to} {gateway}")));
    assert_eq!(stage.site.device(Some("pod1"), "eth0")["mtu"], 1450);
}

fn two_pods_reach_each_other(stage: &Stage) {
    stage.site.write(SUBNET_ENV, V4);
    for pod in ["pod1", "pod2"] {
        stage.site.pod(pod);
        add(stage, &plain(stage)).pod(pod).container(pod).run().result();
    }
    stage.site.sh("ip netns exec pod1 ping -c 1 -W 2 10.244.3.3");
}

fn folder_and_file_can_be_chosen(stage: &Stage) {
    stage.site.pod("pod1");
    stage.site.write("/run/other.env", V4);
    let config = network(stage, json!({"subnetFile": "/run/other.env", "dataDir": "/var/lib/other"}));
    add(stage, &config).run().result();
    let found: Vec<_> = stage.site.files("/var/lib/other").into_keys().collect();
    assert_eq!((found, records(stage)), (vec!["/var/lib/other/c0ffee01".to_owned()], vec![]));
    del(stage, &config).run().nothing();
    assert_eq!((stage.site.files("/var/lib/other").len(), taken(stage)), (0, vec![]));
}

fn masquerade_is_the_delegates_when_it_is_not_flannelds(stage: &Stage) {
    stage.site.pod("pod1");
    stage.site.write(SUBNET_ENV, V4.replace("IPMASQ=true", "IPMASQ=false"));
    add(stage, &plain(stage)).run().result();
    assert_eq!(stage.site.nat_chains(4).len(), 1);
    del(stage, &plain(stage)).run().nothing();
    assert_eq!(stage.site.nat_chains(4), [""; 0]);
}

fn the_record_is_private(stage: &Stage) {
    use std::os::unix::fs::PermissionsExt;
    stage.site.pod("pod1");
    stage.site.write(SUBNET_ENV, V4);
    add(stage, &plain(stage)).run().result();
    let mode = |path| stage.site.path(path).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("/var/lib/cni/flannel"), mode("/var/lib/cni/flannel/c0ffee01")), (0o700, 0o600));
}

fn check_sees_that_the_pods_address_is_gone(stage: &Stage) {
    stage.site.pod("pod1");
    stage.site.write(SUBNET_ENV, V4);
    let result = add(stage, &plain(stage)).run().result();
    let check = || stage.call("CHECK", "flannel", &plain(stage)).previous(&result).run();
    check().nothing();
    stage.site.sh("ip -n pod1 addr del 10.244.3.2/24 dev eth0");
    check().error();
}

fn garbage_collection_frees_addresses_and_records(stage: &Stage) {
    stage.site.write(SUBNET_ENV, V4.replace("IPMASQ=true", "IPMASQ=false"));
    for pod in ["pod1", "pod2"] {
        stage.site.pod(pod);
        add(stage, &plain(stage)).pod(pod).container(pod).run().result();
    }
    let mut config = plain(stage);
    config["cni.dev/valid-attachments"] = json!([{"containerID": "pod2", "ifname": "eth0"}]);
    stage
        .call("GC", "flannel", &config)
        .unset("CNI_CONTAINERID")
        .unset("CNI_NETNS")
        .unset("CNI_IFNAME")
        .run()
        .nothing();
    assert_eq!(
        (taken(stage), records(stage)),
        (vec!["10.244.3.3".to_owned()], vec!["/var/lib/cni/flannel/pod2".to_owned()])
    );
    assert_eq!(stage.site.nat_chains(4).len(), 1);
}

fn status_needs_the_subnet(stage: &Stage) {
    let status = || stage.call("STATUS", "flannel", &plain(stage)).run();
    status().fails(50, "subnet.env");
    stage.site.write(SUBNET_ENV, V4);
    status().nothing();
    stage.site.write(SUBNET_ENV, "FLANNEL_MTU=x\n");
    status().fails(50, "");
}

fn status_is_that_of_the_delegate(stage: &Stage) {
    stage.site.pod("pod1");
    stage.site.write(SUBNET_ENV, V4.replace("10.244.3.1/24", "10.244.3.1/30"));
    let status = || stage.call("STATUS", "flannel", &plain(stage)).run();
    status().nothing();
    add(stage, &plain(stage)).run().result();
    status().fails(50, "10.244.3");
}
