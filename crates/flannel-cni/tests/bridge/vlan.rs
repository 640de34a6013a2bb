//! VLANs, on a kernel whose bridges know them.

use serde_json::{Value, json};

use crate::stage::*;

/// Runs a test on a host, unless its bridges know no VLANs, and says so.
fn with_vlans(test: impl FnOnce(&Stage) + Send) {
    on_a_host(|stage| {
        let can = "ip link add probe type bridge vlan_filtering 1 && ip link del probe";
        let out = std::process::Command::new("sh").args(["-c", can]).output().unwrap();
        if out.status.success() {
            test(stage);
        } else {
            eprintln!("not run: bridges of this kernel know no VLANs");
        }
    });
}

fn frames_only(stage: &Stage, more: Value) -> Value {
    let mut config = stage.network(more);
    let keys = config.as_object_mut().unwrap();
    keys.remove("ipam");
    keys.remove("isDefaultGateway");
    config
}

/// The VLANs of a device: number and marks.
fn vlans(device: &str) -> Vec<String> {
    let all = lines(&format!("bridge -compressvlans vlan show dev {device}"));
    all[1..].iter().map(|line| line.trim_start_matches(&format!("{device} ")).to_owned()).collect()
}

#[test]
fn a_port_gets_the_vlans_of_the_configuration() {
    let trunk = json!([{"id": 101}, {"minID": 200, "maxID": 210}]);
    let native = "1 PVID Egress Untagged";
    let cases: [(Value, &[&str]); 6] = [
        (json!({"vlan": 100}), &["100 PVID Egress Untagged"]),
        (
            json!({"vlan": 100, "preserveDefaultVlan": true}),
            &["1 Egress Untagged", "100 PVID Egress Untagged"],
        ),
        (json!({"vlanTrunk": trunk}), &[native, "101", "200-210"]),
        (json!({"vlan": 100, "vlanTrunk": trunk}), &["100 PVID Egress Untagged", "101", "200-210"]),
        (json!({"vlan": 101, "vlanTrunk": trunk}), &["101 PVID Egress Untagged", "200-210"]),
        (json!({"vlanTrunk": []}), &[native]),
    ];
    for (more, expected) in cases {
        with_vlans(|stage| {
            let config = frames_only(stage, more);
            let pod = stage.pod("c0ffee01");
            let said = stage.add(&pod, &config).unwrap();
            assert!(sh("ip -d link show cni0").contains("vlan_filtering 1"));
            assert_eq!(vlans(said["interfaces"][1]["name"].as_str().unwrap()), expected);
            assert_eq!(stage.check(&pod, &with_result(&config, &said)), Ok(Value::Null));
            assert_eq!(stage.del(&pod, &config), Ok(Value::Null));
            assert_eq!(devices(), ["cni0"]);
        });
    }
}

#[test]
fn the_gateway_of_a_vlan_is_a_device_of_its_own() {
    let subnets: [&[&str]; 4] = [
        &["10.22.0.0/16"],
        &["fd00:22::/64"],
        &["10.22.0.0/16", "fd00:22::/64"],
        &["10.22.0.0/16", "fd00:22::/64", "fd00:23::/64"],
    ];
    for subnets in subnets {
        with_vlans(|stage| {
            let config = stage.network(json!({"vlan": 100, "ipam": stage.ipam(subnets)}));
            let (pod, other) = (stage.pod("c0ffee01"), stage.pod("c0ffee02"));
            let said = stage.add(&pod, &config).unwrap();
            assert_eq!(devices(), ["cni0", "cni0.100", "veth", "veth"]);
            assert_eq!(said["interfaces"][3]["name"], "cni0.100");
            assert_eq!(addresses("cni0"), [""; 0]);
            assert_eq!(addresses("cni0.100").len(), subnets.len());
            for line in lines("bridge vlan show | grep ' 100 '") {
                assert!(line.ends_with("100 PVID Egress Untagged"), "{line}");
            }
            stage.add(&other, &config).unwrap();
            let gateways: Vec<_> =
                said["ips"].as_array().unwrap().iter().map(|ip| ip["gateway"].as_str().unwrap()).collect();
            for gateway in gateways {
                other.inside(|| sh(&format!("ping -c1 -W2 {gateway}")));
            }
            assert_eq!(stage.check(&pod, &with_result(&config, &said)), Ok(Value::Null));
            stage.del(&pod, &config).unwrap();
            stage.del(&other, &config).unwrap();
            assert_eq!(devices(), ["cni0", "cni0.100", "veth"]);
        });
    }
}

#[test]
fn an_old_gateway_of_a_vlan_is_replaced_when_nobody_uses_it() {
    with_vlans(|stage| {
        let config = |subnet| stage.network(json!({"vlan": 100, "ipam": stage.ipam(&[subnet])}));
        let pod = stage.pod("c0ffee01");
        stage.add(&pod, &config("10.22.0.0/24")).unwrap();
        stage.del(&pod, &config("10.22.0.0/24")).unwrap();
        stage.add(&pod, &config("10.23.0.0/24")).unwrap();
        assert_eq!(addresses("cni0.100"), ["10.23.0.1/24"]);
    });
}
