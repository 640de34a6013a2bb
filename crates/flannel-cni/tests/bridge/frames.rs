//! Bridges for frames alone: no IPAM, no addresses.

use serde_json::{Value, json};

use crate::stage::*;

fn frames_only(stage: &Stage, version: &str, more: Value) -> Value {
    let mut config = stage.network(more);
    let keys = config.as_object_mut().unwrap();
    keys.remove("ipam");
    keys.remove("isDefaultGateway");
    keys.insert("cniVersion".into(), json!(version));
    config
}

#[test]
fn a_pod_is_attached_checked_and_detached_without_addresses() {
    for version in versions_with_interfaces() {
        on_a_host(|stage| {
            let config = frames_only(stage, version, json!({}));
            let pod = stage.pod("c0ffee01");
            let said = stage.add(&pod, &config).unwrap();
            assert_eq!(said["interfaces"].as_array().unwrap().len(), 3);
            assert_eq!((said.get("ips"), said.get("routes")), (None, None));
            assert!(pod.inside(|| sh("ip link show eth0")).contains("state UP"));
            assert_eq!((addresses("cni0"), pod.inside(|| addresses("eth0"))), (vec![], vec![]));
            if version != "0.3.0" && version != "0.3.1" {
                assert_eq!(stage.check(&pod, &with_result(&config, &said)), Ok(Value::Null));
            }
            assert_eq!(stage.del(&pod, &config), Ok(Value::Null));
            assert_eq!(devices(), ["cni0"]);
        });
    }
}

#[test]
fn a_version_that_can_tell_addresses_only_attaches_and_cannot_say_so() {
    for version in ["0.1.0", "0.2.0"] {
        on_a_host(|stage| {
            let config = frames_only(stage, version, json!({}));
            let pod = stage.pod("c0ffee01");
            assert_eq!(stage.add(&pod, &config), internal("cannot convert: no valid IP addresses"));
            // Go's plugin leaves the pod attached, and upstream's tests look for it.
            assert_eq!(devices(), ["cni0", "veth"]);
            assert_eq!(stage.del(&pod, &config), Ok(Value::Null));
            assert_eq!(devices(), ["cni0"]);
        });
    }
}

#[test]
fn the_inside_stays_off_if_that_is_asked_for() {
    for version in versions_with_interfaces() {
        on_a_host(|stage| {
            let config = frames_only(stage, version, json!({"disableContainerInterface": true}));
            let pod = stage.pod("c0ffee01");
            stage.add(&pod, &config).unwrap();
            // Upstream's tests take it for granted.
            assert!(sh("ip -6 addr show dev cni0 scope link").contains("fe80:"));
            let link = pod.inside(|| sh("ip link show eth0"));
            assert!(link.contains("state DOWN") && !link.contains(",UP"), "{link}");
            assert_eq!(pod.lines("ip -o addr show dev eth0"), [""; 0]);
            assert_eq!(stage.del(&pod, &config), Ok(Value::Null));
        });
    }
}

#[test]
fn the_inside_cannot_stay_off_if_it_is_to_have_addresses() {
    on_a_host(|stage| {
        let config = stage.network(json!({"disableContainerInterface": true}));
        let pod = stage.pod("c0ffee01");
        let text = "cannot use IPAM when DisableContainerInterface flag is set";
        assert_eq!(stage.add(&pod, &config), internal(text));
        assert_eq!(devices(), [""; 0]);
        assert_eq!(stage.del(&pod, &config), Ok(Value::Null));
    });
}
