//! The bridge's own addresses when the node's subnet changes, and default routes that come from IPAM.

use serde_json::json;

use crate::stage::*;

#[test]
fn an_old_gateway_that_nobody_uses_is_replaced() {
    on_a_host(|stage| {
        let (old, new) =
            (stage.network(json!({})), stage.network(json!({"ipam": stage.ipam(&["10.23.0.0/24"])})));
        let pod = stage.pod("c0ffee01");
        stage.add(&pod, &old).unwrap();
        stage.del(&pod, &old).unwrap();
        stage.add(&pod, &new).unwrap();
        assert_eq!(addresses("cni0"), ["10.23.0.1/24"]);
        pod.inside(|| sh("ping -c1 -W2 10.23.0.1"));
    });
}

#[test]
fn an_old_gateway_that_pods_use_stays_beside_the_new_one_until_they_are_gone() {
    on_a_host(|stage| {
        let (old, new) =
            (stage.network(json!({})), stage.network(json!({"ipam": stage.ipam(&["10.23.0.0/24"])})));
        let (first, second, third) = (stage.pod("c0ffee01"), stage.pod("c0ffee02"), stage.pod("c0ffee03"));
        stage.add(&first, &old).unwrap();
        stage.add(&second, &new).unwrap();
        assert_eq!(addresses("cni0"), ["10.22.0.1/16", "10.23.0.1/24"]);
        first.inside(|| sh("ping -c1 -W2 10.22.0.1 && ping -c1 -W2 10.23.0.2"));
        second.inside(|| sh("ping -c1 -W2 10.23.0.1 && ping -c1 -W2 10.22.0.2"));
        stage.del(&first, &old).unwrap();
        stage.add(&third, &new).unwrap();
        assert_eq!(addresses("cni0"), ["10.22.0.1/16", "10.23.0.1/24"]);
    });
}

#[test]
fn an_old_gateway_goes_in_any_case_if_that_is_asked_for() {
    on_a_host(|stage| {
        let old = stage.network(json!({}));
        let new = stage.network(json!({"forceAddress": true, "ipam": stage.ipam(&["10.23.0.0/24"])}));
        stage.add(&stage.pod("c0ffee01"), &old).unwrap();
        stage.add(&stage.pod("c0ffee02"), &new).unwrap();
        assert_eq!(addresses("cni0"), ["10.23.0.1/24"]);
    });
}

#[test]
fn gateways_of_other_ipv6_networks_stay() {
    on_a_host(|stage| {
        sh("ip link add cni0 type bridge && ip addr add fd00:99::1/64 dev cni0 nodad");
        let config = stage.network(json!({"ipam": stage.ipam(&["fd00:22::/64"])}));
        stage.add(&stage.pod("c0ffee01"), &config).unwrap();
        assert_eq!(addresses("cni0"), ["fd00:22::1/64", "fd00:99::1/64"]);
    });
}

#[test]
fn an_ipv6_gateway_of_the_same_network_is_replaced() {
    on_a_host(|stage| {
        sh("ip link add cni0 type bridge && ip addr add fd00:22::9/48 dev cni0 nodad");
        let config = stage.network(json!({"ipam": stage.ipam(&["fd00:22::/64"])}));
        stage.add(&stage.pod("c0ffee01"), &config).unwrap();
        assert_eq!(addresses("cni0"), ["fd00:22::1/64"]);
    });
}

#[test]
fn two_subnets_of_one_family_have_two_gateways() {
    on_a_host(|stage| {
        let config = stage.network(json!({"ipam": stage.ipam(&["10.22.0.0/24", "10.23.0.0/24"])}));
        for (n, id) in ["c0ffee01", "c0ffee02"].iter().enumerate() {
            let pod = stage.pod(id);
            stage.add(&pod, &config).unwrap();
            assert_eq!(addresses("cni0"), ["10.22.0.1/24", "10.23.0.1/24"]);
            let given = [format!("10.22.0.{}/24", n + 2), format!("10.23.0.{}/24", n + 2)];
            assert_eq!(pod.inside(|| addresses("eth0")), given);
        }
    });
}

#[test]
fn a_gateway_that_somebody_removed_comes_back_with_the_next_pod() {
    on_a_host(|stage| {
        let config = stage.network(json!({}));
        stage.add(&stage.pod("c0ffee01"), &config).unwrap();
        sh("ip addr flush dev cni0 && ip link set cni0 down");
        stage.add(&stage.pod("c0ffee02"), &config).unwrap();
        assert_eq!(addresses("cni0"), ["10.22.0.1/16"]);
        assert!(sh("ip link show cni0").contains(",UP"));
    });
}

#[test]
fn a_default_route_of_ipam_without_a_gateway_is_the_default_route() {
    on_a_host(|stage| {
        let mut config = stage.network(json!({"ipam": stage.ipam(&["10.22.0.0/16", "fd00:22::/64"])}));
        config["ipam"]["routes"] = json!([{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]);
        let pod = stage.pod("c0ffee01");
        let said = stage.add(&pod, &config).unwrap();
        assert_eq!(said["routes"], config["ipam"]["routes"]);
        assert_eq!(pod.lines("ip route show default"), ["default via 10.22.0.1 dev eth0"]);
        let v6 = "default via fd00:22::1 dev eth0 metric 1024 pref medium";
        assert_eq!(pod.lines("ip -6 route show default"), [v6]);
        assert_eq!(stage.check(&pod, &with_result(&config, &said)), Ok(serde_json::Value::Null));
    });
}

#[test]
fn a_bridge_that_is_no_router_has_no_address_and_the_host_does_not_forward() {
    on_a_host(|stage| {
        sh("echo 0 >/proc/sys/net/ipv4/ip_forward");
        let pod = stage.pod("c0ffee01");
        stage.add(&pod, &stage.network(json!({"isDefaultGateway": false}))).unwrap();
        assert_eq!(addresses("cni0"), [""; 0]);
        assert_eq!(pod.lines("ip route show default"), [""; 0]);
        assert_eq!(sh("cat /proc/sys/net/ipv4/ip_forward"), "0\n");
    });
}
