use std::path::PathBuf;

use serde_json::json;

use super::*;
use crate::request::Command;
use crate::version::Version;

fn request(config: Value, args: &str) -> Request {
    Request {
        command: Command::Add,
        container_id: "c0ffee01".into(),
        netns: Some(PathBuf::from("/run/netns/pod")),
        ifname: "eth0".into(),
        args: args.into(),
        path: Vec::new(),
        version: Version::V1_0_0,
        network: "mynet".into(),
        config: config.as_object().unwrap().clone(),
    }
}

fn read(config: Value) -> Result<Config, CniError> {
    Config::read(&request(config, ""))
}

fn refusal(config: Value) -> String {
    read(config).unwrap_err().msg
}

#[test]
fn an_empty_configuration_means_cni0_for_frames_alone() {
    let expected = Config {
        bridge: "cni0".parse().unwrap(),
        router: Router::Absent,
        force_address: false,
        masquerade: None,
        mtu: None,
        port: Port::default(),
        promiscuous: false,
        vlan: None,
        trunk: None,
        keeps_default_vlan: false,
        checks_mac: false,
        dad: Dad::Disabled,
        inside: Inside::Raised,
        ipam: None,
        dns: None,
        mac: None,
    };
    assert_eq!(read(json!({})), Ok(expected.clone()));
    let empty = json!({"ipam": {}, "mtu": 0, "vlan": 0, "vlanTrunk": null, "dns": {}, "uplinkInterface": 1});
    assert_eq!(read(empty), Ok(expected));
}

#[test]
fn every_key_is_read_without_regard_to_case() {
    let config = json!({
        "Bridge": "mynet0", "isgateway": true, "isDefaultGateway": true, "forceAddress": true, "ipMasq": true,
        "ipMasqBackend": "nftables", "mtu": 1400, "hairpinMode": true, "vlan": 100,
        "vlanTrunk": [{"minID": 200, "maxID": 202}, {"ID": 101}, {"id": 201}], "preserveDefaultVlan": true,
        "macspoofchk": true, "enabledad": true, "portIsolation": true, "ipam": {"type": "host-local"},
        "dns": {"nameservers": ["10.1.0.1"], "domain": "x.y"}, "RuntimeConfig": {"mac": "c2:11:22:33:44:55"},
    });
    let expected = Config {
        bridge: "mynet0".parse().unwrap(),
        router: Router::OfEverything,
        force_address: true,
        masquerade: Some(Masquerade { backend: Some("nftables".into()) }),
        mtu: Some(1400),
        port: Port { hairpin: true, isolated: true },
        promiscuous: false,
        vlan: Some(100),
        trunk: Some(vec![101, 200, 201, 202]),
        keeps_default_vlan: true,
        checks_mac: true,
        dad: Dad::Enabled,
        inside: Inside::Raised,
        ipam: Some("host-local".into()),
        dns: Some(Dns { nameservers: vec!["10.1.0.1".into()], domain: "x.y".into(), ..Dns::default() }),
        mac: Some("c2:11:22:33:44:55".parse().unwrap()),
    };
    assert_eq!(read(config), Ok(expected));
}

#[test]
fn the_gateway_of_everything_is_a_gateway_too() {
    for (config, router) in [
        (json!({"isGateway": true}), Router::OfTheNetwork),
        (json!({"isDefaultGateway": true}), Router::OfEverything),
    ] {
        assert_eq!(read(config).map(|config| config.router), Ok(router));
    }
}

#[test]
fn what_cannot_be_together_is_refused() {
    let both = json!({"disableContainerInterface": true, "ipam": {"type": "host-local"}});
    assert_eq!(refusal(both), "cannot use IPAM when DisableContainerInterface flag is set");
    let both = json!({"hairpinMode": true, "promiscMode": true});
    assert_eq!(refusal(both), "cannot set hairpin mode and promiscuous mode at the same time");
}

#[test]
fn a_vlan_is_a_number_from_0_to_4094() {
    for (id, vlan) in [(0, None), (1, Some(1)), (4094, Some(4094))] {
        assert_eq!(read(json!({"vlan": id})).map(|config| config.vlan), Ok(vlan));
    }
    for id in [-100, 4095, 5000, 65536 + 1] {
        let expected = format!("invalid VLAN ID {id} (must be between 0 and 4094)");
        assert_eq!(refusal(json!({"vlan": id})), expected);
    }
}

#[test]
fn a_trunk_is_a_sorted_set_of_vlans() {
    for (trunk, vlans) in [
        (json!(null), None),
        (json!([]), Some(vec![])),
        (json!([{"minID": 10, "maxID": 13}]), Some(vec![10, 11, 12, 13])),
        (json!([{"id": 20}]), Some(vec![20])),
        (json!([{"id": 20}, {"minID": 10, "maxID": 12}, null, {"id": 11}]), Some(vec![10, 11, 12, 20])),
        (json!([{"minID": 4093, "maxID": 4094, "id": 1}]), Some(vec![1, 4093, 4094])),
    ] {
        let config = read(json!({"vlanTrunk": trunk})).unwrap();
        assert_eq!(config.wants_vlans(), vlans.is_some());
        assert_eq!(config.trunk, vlans);
    }
}

#[test]
fn a_trunk_that_is_wrong_is_refused_in_upstreams_words() {
    let together = "minID and maxID should be configured simultaneously";
    for (item, expected) in [
        (json!({"minID": 0, "maxID": 10}), "incorrect trunk minID parameter".to_owned()),
        (json!({"minID": 5000, "maxID": 6000}), "incorrect trunk minID parameter".to_owned()),
        (json!({"minID": 10, "maxID": 0}), "incorrect trunk maxID parameter".to_owned()),
        (json!({"minID": 10, "maxID": 4095}), "incorrect trunk maxID parameter".to_owned()),
        (json!({"minID": 1000, "maxID": 10}), "minID is greater than maxID in trunk parameter".to_owned()),
        (json!({"minID": 1}), format!("{together}, maxID is missing")),
        (json!({"maxID": 1}), format!("{together}, minID is missing")),
        (json!({"id": 0}), "incorrect trunk id parameter".to_owned()),
        (json!({"id": 4095}), "incorrect trunk id parameter".to_owned()),
    ] {
        assert_eq!(refusal(json!({"vlanTrunk": [item]})), expected);
    }
}

#[test]
fn name_servers_are_replaced_if_anything_is_said_even_an_empty_list() {
    let dns = |dns: Value| read(json!({"dns": dns})).unwrap().dns;
    assert_eq!(dns(json!({"nameservers": null, "domain": ""})), None);
    assert_eq!(dns(json!({"search": []})), Some(Dns::default()));
    assert_eq!(dns(json!({"domain": "x"})), Some(Dns { domain: "x".into(), ..Dns::default() }));
}

#[test]
fn the_mac_of_the_runtime_counts_before_that_of_args_and_that_of_the_environment() {
    let (runtime, args, environment) = ("02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:03");
    let by = |mac: Value, cni: Value| json!({"runtimeConfig": {"mac": mac}, "args": {"cni": {"mac": cni}}});
    let in_environment = format!("IgnoreUnknown=1;MAC={environment};K8S_POD_NAME=x");
    for (config, expected) in [
        (by(json!(runtime), json!(args)), runtime),
        (by(json!(null), json!(args)), args),
        (by(json!(""), json!("")), environment),
        (json!({"runtimeConfig": null, "args": {}}), environment),
    ] {
        let read = Config::read(&request(config, &in_environment)).unwrap();
        assert_eq!(read.mac, Some(expected.parse().unwrap()));
    }
    assert!(
        refusal(by(json!("nonsense"), json!(null)))
            .starts_with("mac: \"nonsense\" is not a hardware address")
    );
    let unknown = Config::read(&request(json!({}), "IP=10.0.0.1")).unwrap_err().msg;
    assert_eq!(unknown, "ARGS: unknown args [\"IP=10.0.0.1\"]");
}
