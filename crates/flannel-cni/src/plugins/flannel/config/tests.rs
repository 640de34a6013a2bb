//! What the delegate is given, for every key and both families.

use super::*;
use crate::request::Environment;

fn request(config: &Value) -> Request {
    let environment = Environment { command: "ADD".into(), path: "/".into(), ..Environment::default() };
    let mut config = config.clone();
    config["name"] = "cbr0".into();
    Request::read(&environment, config.to_string().as_bytes()).unwrap()
}

fn env(text: &str) -> SubnetEnv {
    SubnetEnv::parse(&format!("{text}\nFLANNEL_MTU=1472\nFLANNEL_IPMASQ=true")).unwrap()
}

fn v4() -> SubnetEnv {
    env("FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.17.1/24")
}

fn made(config: Value, env: Option<&SubnetEnv>) -> Result<Value, String> {
    let request = request(&config);
    let made = Config::read(&request).and_then(|config| config.delegate(env));
    made.map(Value::Object).map_err(|error| error.to_string())
}

#[test]
fn without_settings_the_delegate_is_a_bridge_with_the_nodes_subnet() {
    let expected = json!({
        "name": "cbr0", "type": "bridge", "ipMasq": false, "mtu": 1472, "isGateway": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.17.0/24"}]], "routes": [{"dst": "10.1.0.0/16"}]},
    });
    assert_eq!(made(json!({}), Some(&v4())), Ok(expected.clone()));
    assert_eq!(made(json!({"delegate": null, "ipam": null, "subnetFile": ""}), Some(&v4())), Ok(expected));
}

#[test]
fn every_family_has_a_range_and_every_network_a_route() {
    let both = env("FLANNEL_NETWORK=10.1.0.0/16,10.2.0.0/16\nFLANNEL_SUBNET=10.1.17.1/24\n\
         FLANNEL_IPV6_NETWORK=fc00::/48,fc01::/48\nFLANNEL_IPV6_SUBNET=fc00::1/64");
    let ipam = made(json!({}), Some(&both)).unwrap()["ipam"].clone();
    let expected = json!({
        "type": "host-local",
        "ranges": [[{"subnet": "10.1.17.0/24"}], [{"subnet": "fc00::/64"}]],
        "routes": [{"dst": "10.1.0.0/16"}, {"dst": "10.2.0.0/16"}, {"dst": "fc00::/48"}, {"dst": "fc01::/48"}],
    });
    assert_eq!(ipam, expected);
    let v6 = env("FLANNEL_IPV6_NETWORK=fc00::/48\nFLANNEL_IPV6_SUBNET=fc00::1/64");
    assert_eq!(made(json!({}), Some(&v6)).unwrap()["ipam"]["ranges"], json!([[{"subnet": "fc00::/64"}]]));
}

#[test]
fn what_the_user_says_stays() {
    let said = json!({"delegate": {
        "type": "ptp", "ipMasq": true, "mtu": 9000, "hairpinMode": true, "isGateway": null, "cniVersion": "0.1.0",
    }});
    let expected = json!({
        "name": "cbr0", "type": "ptp", "ipMasq": true, "mtu": 9000, "hairpinMode": true, "isGateway": null,
        "cniVersion": "0.1.0",
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.17.0/24"}]], "routes": [{"dst": "10.1.0.0/16"}]},
    });
    assert_eq!(made(said, Some(&v4())), Ok(expected));
    let bridge = made(json!({"delegate": {"isGateway": false}}), Some(&v4())).unwrap();
    assert_eq!(bridge["isGateway"], json!(false));
    let ptp = made(json!({"delegate": {"type": "ptp"}}), Some(&v4())).unwrap();
    assert_eq!(ptp.get("isGateway"), None);
}

#[test]
fn the_users_ipam_keeps_its_keys_and_its_routes_come_first() {
    let said = json!({"ipam": {
        "type": "my-ipam", "unknown-param": 1, "subnet": "10.9.0.0/16", "ranges": [],
        "routes": [{"dst": "192.168.9.0/24", "gw": "10.1.17.9"}],
    }});
    let expected = json!({
        "type": "my-ipam", "unknown-param": 1, "subnet": "10.9.0.0/16", "ranges": [[{"subnet": "10.1.17.0/24"}]],
        "routes": [{"dst": "192.168.9.0/24", "gw": "10.1.17.9"}, {"dst": "10.1.0.0/16"}],
    });
    assert_eq!(made(said, Some(&v4())).unwrap()["ipam"], expected);
}

#[test]
fn version_and_runtime_config_are_handed_on_and_nothing_else() {
    let said = json!({
        "cniVersion": "0.3.1", "delegate": {"cniVersion": "1.0.0", "runtimeConfig": {"x": 1}},
        "runtimeConfig": {"portMappings": []}, "capabilities": {"portMappings": true},
        "args": {}, "dns": {}, "prevResult": {}, "cni.dev/valid-attachments": [],
    });
    let made = made(said, Some(&v4())).unwrap();
    assert_eq!(
        (&made["cniVersion"], &made["runtimeConfig"]),
        (&json!("0.3.1"), &json!({"portMappings": []}))
    );
    let mut keys: Vec<_> = made.as_object().unwrap().keys().collect();
    keys.sort();
    assert_eq!(keys, ["cniVersion", "ipMasq", "ipam", "isGateway", "mtu", "name", "runtimeConfig", "type"]);
}

#[test]
fn without_subnets_the_delegate_can_only_give_back() {
    let expected = json!({
        "name": "cbr0", "type": "bridge", "ipMasq": true, "isGateway": true,
        "ipam": {"type": "host-local", "dataDir": "/d", "ranges": [[{"subnet": "192.0.2.0/24"}]]},
    });
    assert_eq!(made(json!({"ipam": {"dataDir": "/d"}}), None), Ok(expected));
}

#[test]
fn what_flannel_sets_must_not_be_set() {
    let told = |delegate: Value| made(json!({"delegate": delegate}), Some(&v4())).unwrap_err();
    let must =
        |key: &str| format!("'delegate' dictionary must not have '{key}' field, it'll be set by flannel");
    assert_eq!(told(json!({"name": "x"})), must("name"));
    assert_eq!(told(json!({"ipam": {}})), must("ipam"));
    let kind = "'delegate' dictionary, if present, must have (string) 'type' field";
    assert_eq!(told(json!({"type": 1})), kind);
    assert_eq!(told(json!({"type": null})), kind);
    assert!(told(json!([])).contains("delegate must be an object"));
}

#[test]
fn the_files_are_where_go_has_them_unless_told() {
    let plain = request(&json!({}));
    assert_eq!((Config::read(&plain).unwrap().subnet_file, data_dir(&plain)), (SUBNET_FILE, Ok(DATA_DIR)));
    let told = request(&json!({"subnetFile": "/s", "dataDir": "/d"}));
    assert_eq!((Config::read(&told).unwrap().subnet_file, data_dir(&told)), ("/s", Ok("/d")));
}
