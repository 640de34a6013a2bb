//! What each key of the configuration does to the devices.

use serde_json::{Value, json};

use crate::stage::*;

/// The port of the only pod, as `bridge` tells it.
fn port() -> String {
    sh("bridge -d link show")
}

#[test]
fn a_pod_without_wishes_gets_plain_devices() {
    on_a_host(|stage| {
        stage.add(&stage.pod("c0ffee01"), &stage.network(json!({}))).unwrap();
        assert!(port().contains("hairpin off") && port().contains("isolated off"), "{}", port());
        let bridge = sh("ip -d link show cni0");
        assert!(bridge.contains("mtu 1500") && bridge.contains("promiscuity 0"), "{bridge}");
        assert!(!bridge.contains("vlan_filtering 1"), "{bridge}");
        let port = sh("ip link show type veth");
        assert!(!port.contains("qlen"), "{port}");
        assert_eq!(sh("cat /proc/sys/net/ipv6/conf/cni0/accept_ra"), "0\n");
        assert_eq!(sh("cat /proc/sys/net/ipv6/conf/veth*/accept_ra"), "0\n");
    });
}

#[test]
fn hairpin_isolation_and_mtu_are_set() {
    on_a_host(|stage| {
        let config = stage.network(json!({"hairpinMode": true, "portIsolation": true, "mtu": 1400}));
        let pod = stage.pod("c0ffee01");
        stage.add(&pod, &config).unwrap();
        assert!(port().contains("hairpin on") && port().contains("isolated on"), "{}", port());
        assert!(sh("ip link show cni0").contains("mtu 1400"));
        assert!(sh("ip link show type veth").contains("mtu 1400"));
        assert!(pod.inside(|| sh("ip link show eth0")).contains("mtu 1400"));
    });
}

#[test]
fn the_mtu_of_a_bridge_that_is_there_stays() {
    on_a_host(|stage| {
        sh("ip link add cni0 type bridge");
        let pod = stage.pod("c0ffee01");
        stage.add(&pod, &stage.network(json!({"mtu": 9000}))).unwrap();
        assert!(pod.inside(|| sh("ip link show eth0")).contains("mtu 9000"));
        stage.del(&pod, &stage.network(json!({"mtu": 9000}))).unwrap();
        stage.add(&pod, &stage.network(json!({"mtu": 1400}))).unwrap();
        stage.del(&pod, &stage.network(json!({}))).unwrap();
        assert!(sh("ip link show cni0").contains("mtu 1500"));
    });
}

#[test]
fn promiscuous_mode_is_set_on_a_new_bridge_and_on_one_that_is_there() {
    for prepare in ["true", "ip link add cni0 type bridge"] {
        on_a_host(|stage| {
            sh(prepare);
            stage.add(&stage.pod("c0ffee01"), &stage.network(json!({"promiscMode": true}))).unwrap();
            assert!(sh("ip link show cni0").contains("PROMISC"));
        });
    }
}

#[test]
fn a_bridge_that_is_there_is_used_and_raised() {
    on_a_host(|stage| {
        sh("ip link add mybr type bridge");
        let before = sh("ip -o link show mybr | cut -d: -f1");
        let said = stage.add(&stage.pod("c0ffee01"), &stage.network(json!({"bridge": "mybr"}))).unwrap();
        assert_eq!(said["interfaces"][0]["name"], "mybr");
        let after = sh("ip -o link show mybr | cut -d: -f1");
        assert_eq!(before, after);
        assert!(sh("ip link show mybr").contains(",UP"));
    });
}

#[test]
fn the_bridge_keeps_its_hardware_address_when_pods_come_and_go() {
    // A bridge that nobody told an address takes the lowest of its ports: it is told when it becomes a router.
    for prepare in ["true", "ip link add cni0 type bridge"] {
        on_a_host(|stage| {
            sh(prepare);
            let config = stage.network(json!({}));
            let mac = || sh("ip -o link show cni0 | sed 's/.*ether //; s/ .*//'");
            let first = stage.pod("c0ffee01");
            let said = stage.add(&first, &config).unwrap();
            let told = mac();
            assert_eq!(said["interfaces"][0]["mac"], told.trim());
            for n in 2..6 {
                let next = stage.pod(&format!("c0ffee0{n}"));
                assert_eq!(stage.add(&next, &config).unwrap()["interfaces"][0]["mac"], told.trim());
                stage.del(&next, &config).unwrap();
                assert_eq!(mac(), told);
            }
            stage.del(&first, &config).unwrap();
            assert_eq!(mac(), told);
        });
    }
}

#[test]
fn the_pods_hardware_address_comes_from_the_runtime_from_args_or_from_the_environment() {
    let (runtime, args, environment) = ("c2:11:22:33:44:55", "c2:11:22:33:44:66", "c2:11:22:33:44:77");
    let cases = [
        (json!({}), environment),
        (json!({"args": {"cni": {"mac": args}}}), args),
        (json!({"args": {"cni": {"mac": args}}, "runtimeConfig": {"mac": runtime}}), runtime),
    ];
    for (more, expected) in cases {
        on_a_host(|stage| {
            let mut pod = stage.pod("c0ffee01");
            // Without IgnoreUnknown too: what is for the bridge is not unknown to IPAM.
            pod.args = format!("MAC={environment}");
            let config = stage.network(more);
            let said = stage.add(&pod, &config).unwrap();
            assert_eq!(said["interfaces"][2]["mac"], expected);
            assert!(pod.inside(|| sh("ip link show eth0")).contains(expected));
            assert_eq!(stage.del(&pod, &config), Ok(Value::Null));
            assert_eq!(stage.leased(), [""; 0]);
        });
    }
}

#[test]
fn name_servers_of_the_configuration_replace_those_of_ipam() {
    on_a_host(|stage| {
        let dns = json!({"nameservers": ["10.1.0.1"], "domain": "x.y", "search": ["a"], "options": ["o"]});
        let said = stage.add(&stage.pod("c0ffee01"), &stage.network(json!({"dns": dns}))).unwrap();
        assert_eq!(said["dns"], dns);
    });
}

#[test]
fn the_settings_inside_are_those_of_gos_plugin() {
    for (more, dad) in [(json!({}), "0"), (json!({"enabledad": true}), "1")] {
        on_a_host(|stage| {
            let pod = stage.pod("c0ffee01");
            let mut config = stage.network(more);
            config["ipam"] = stage.ipam(&["10.22.0.0/16", "fd00:22::/64"]);
            stage.add(&pod, &config).unwrap();
            let setting = |path: &str| pod.inside(|| sh(&format!("cat /proc/sys/net/{path}")));
            assert_eq!(setting("ipv6/conf/eth0/accept_dad"), format!("{dad}\n"));
            assert_eq!(setting("ipv4/conf/eth0/arp_notify"), "1\n");
            assert_eq!(setting("ipv6/conf/eth0/keep_addr_on_down"), "1\n");
            assert_eq!(pod.lines("ip -o addr show dev eth0 scope global tentative"), [""; 0]);
        });
    }
}

#[test]
fn ipv6_is_switched_on_in_a_pod_that_needs_it() {
    on_a_host(|stage| {
        let pod = stage.pod("c0ffee01");
        pod.inside(|| {
            sh("for c in all default lo; do echo 1 >/proc/sys/net/ipv6/conf/$c/disable_ipv6; done")
        });
        let config = stage.network(json!({"ipam": stage.ipam(&["fd00:22::/64"])}));
        stage.add(&pod, &config).unwrap();
        assert_eq!(pod.inside(|| addresses("eth0")), ["fd00:22::2/64"]);
    });
}

#[test]
fn an_ipv6_address_that_another_device_has_is_refused_if_it_is_to_be_checked() {
    on_a_host(|stage| {
        sh("ip link add cni0 type bridge && ip link set cni0 up && ip addr add fd00:22::2/64 dev cni0 nodad");
        let ipam = stage.ipam(&["fd00:22::/64"]);
        let config = stage.network(json!({"enabledad": true, "isDefaultGateway": false, "ipam": ipam}));
        let pod = stage.pod("c0ffee01");
        let (_, message) = stage.add(&pod, &config).unwrap_err();
        // A machine that is busy may not find out in time, and refuses all the same.
        let refusals = [
            "eth0 cannot have fd00:22::2/64: another device on the wire has it",
            "eth0 still has a tentative fd00:22::2/64 after 5 s",
        ];
        assert!(refusals.contains(&&*message), "{message}");
        assert_eq!(stage.leased(), [""; 0]);
    });
}

#[test]
fn routes_of_ipam_are_made_with_all_that_they_say() {
    on_a_host(|stage| {
        let result = json!({
            "cniVersion": "1.1.0",
            "ips": [{"address": "10.22.0.7/24", "gateway": "10.22.0.1"}],
            "routes": [
                {"dst": "10.96.0.0/12"},
                {"dst": "10.97.0.0/16", "gw": "10.22.0.9", "priority": 7, "mtu": 1300, "advmss": 1260},
                {"dst": "10.98.0.0/16", "table": 500, "scope": 253},
            ],
        });
        stage.play_ipam("my-ipam", &format!("[ $CNI_COMMAND = ADD ] && echo '{result}' || true"));
        let pod = stage.pod("c0ffee01");
        let config = stage.network(json!({"isDefaultGateway": false, "ipam": {"type": "my-ipam"}}));
        let said = stage.add(&pod, &config).unwrap();
        assert_eq!(said["routes"], result["routes"]);
        let expected = [
            "10.22.0.0/24 dev eth0 proto kernel scope link src 10.22.0.7",
            "10.96.0.0/12 via 10.22.0.1 dev eth0",
            "10.97.0.0/16 via 10.22.0.9 dev eth0 metric 7 mtu 1300 advmss 1260",
        ];
        assert_eq!(pod.lines("ip route"), expected);
        assert_eq!(pod.lines("ip route show table 500"), ["10.98.0.0/16 dev eth0 scope link"]);
    });
}
