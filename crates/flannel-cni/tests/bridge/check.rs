//! CHECK: says nothing about a pod as it was left, and names what somebody broke.

use serde_json::{Value, json};

use crate::stage::*;

fn attached(test: impl FnOnce(&Stage, &Pod, &Value) + Send) {
    on_a_host(|stage| {
        let config = stage.network(json!({"ipam": stage.ipam(&["10.22.0.0/16", "fd00:22::/64"])}));
        let pod = stage.pod("c0ffee01");
        let said = stage.add(&pod, &config).unwrap();
        let config = with_result(&config, &said);
        assert_eq!(stage.check(&pod, &config), Ok(Value::Null));
        test(stage, &pod, &config);
    });
}

fn words(outcome: Result<Value, NetlinkError>) -> String {
    let (code, message) = outcome.unwrap_err();
    assert_eq!(code, 999);
    message
}

#[test]
fn a_check_needs_the_result_of_the_add() {
    attached(|stage, pod, config| {
        let mut config = config.clone();
        config.as_object_mut().unwrap().remove("prevResult");
        assert_eq!(words(stage.check(pod, &config)), "Required prevResult missing");
    });
}

#[test]
fn ipam_is_asked_too() {
    attached(|stage, pod, config| {
        std::fs::remove_file(stage.path("networks/mynet/10.22.0.2")).unwrap();
        let text = "host-local: Failed to find address added by container c0ffee01";
        assert_eq!(words(stage.check(pod, config)), text);
    });
}

#[test]
fn an_address_or_route_that_somebody_took_is_named() {
    attached(|stage, pod, config| {
        pod.inside(|| sh("ip route del default"));
        assert_eq!(words(stage.check(pod, config)), "Expected route 0.0.0.0/0 via 10.22.0.1 was not found");
        pod.inside(|| sh("ip addr del 10.22.0.2/16 dev eth0"));
        let both = "Failed to match addr 10.22.0.2/16 on interface; Expected route 0.0.0.0/0 via 10.22.0.1 was not found";
        assert_eq!(words(stage.check(pod, config)), both);
    });
}

#[test]
fn a_veth_that_somebody_pulled_is_named() {
    attached(|stage, pod, config| {
        let port = config["prevResult"]["interfaces"][1]["name"].as_str().unwrap();
        sh(&format!("ip link set {port} nomaster"));
        assert_eq!(words(stage.check(pod, config)), "CNI veth created for bridge cni0 was not found");
        sh(&format!("ip link del {port}"));
        assert_eq!(words(stage.check(pod, config)), "Container interface eth0 was not found");
    });
}

#[test]
fn a_bridge_that_somebody_changed_or_removed_is_named() {
    attached(|stage, pod, config| {
        sh("ip link set cni0 promisc on");
        let promiscuous = "Bridge interface cni0 has promisc mode on, configured off";
        assert_eq!(words(stage.check(pod, config)), promiscuous);
        sh("ip link set cni0 promisc off && ip link set cni0 address 02:00:00:00:00:01");
        assert!(words(stage.check(pod, config)).starts_with("Bridge interface cni0 Mac doesn't match: "));
        sh("ip link del cni0");
        let gone = "CNI created bridge cni0 in host namespace was not found";
        assert_eq!(words(stage.check(pod, config)), gone);
    });
}

#[test]
fn a_result_of_another_namespace_is_named() {
    attached(|stage, pod, config| {
        let mut config = config.clone();
        config["prevResult"]["interfaces"][2]["sandbox"] = json!("/run/netns/other");
        let text = "Sandbox in prevResult /run/netns/other doesn't match configured netns: ";
        assert!(words(stage.check(pod, &config)).starts_with(text));
    });
}
