use serde_json::json;

use super::*;
use crate::request::Command;

fn request(config: Value, args: &str) -> Request {
    let Value::Object(config) = config else { panic!("{config} is no object") };
    Request {
        command: Command::Add,
        container_id: "dummy".into(),
        netns: Some("/some/where".into()),
        ifname: "eth0".into(),
        args: args.into(),
        path: Vec::new(),
        version: Version::parse(config.get("cniVersion").and_then(Value::as_str).unwrap_or("0.3.1")).unwrap(),
        network: "mynet".into(),
        config,
    }
}

fn read(config: Value) -> Config {
    Config::read(&request(config, "")).unwrap()
}

fn words(config: Value) -> String {
    Config::read(&request(config, "")).unwrap_err().msg
}

fn sets(config: Value) -> Vec<String> {
    read(config).sets.iter().map(RangeSet::to_string).collect()
}

fn wished(config: Value, args: &str) -> Vec<String> {
    Config::read(&request(config, args)).unwrap().requested.iter().map(IpAddr::to_string).collect()
}

fn single() -> Value {
    json!({
        "type": "host-local", "subnet": "10.1.2.0/24",
        "rangeStart": "10.1.2.9", "rangeEnd": "10.1.2.20", "gateway": "10.1.2.30",
    })
}

#[test]
fn the_old_form_is_one_set_of_one_range() {
    let range = RawRange {
        subnet: Some("10.1.2.0/24".parse().unwrap()),
        start: Some("10.1.2.9".parse().unwrap()),
        end: Some("10.1.2.20".parse().unwrap()),
        gateway: Some("10.1.2.30".parse().unwrap()),
    };
    let expected = Config {
        folder: "/var/lib/cni/networks/mynet".into(),
        sets: vec![RangeSet::check(&[range]).unwrap()],
        routes: Vec::new(),
        resolv_conf: None,
        requested: Vec::new(),
    };
    assert_eq!(read(json!({ "type": "ipvlan", "ipam": single() })), expected);
}

#[test]
fn the_new_form_is_a_list_of_sets() {
    let ranges = json!([
        [{ "subnet": "10.1.2.0/24", "rangeStart": "10.1.2.9", "rangeEnd": "10.1.2.20" }, { "subnet": "10.1.4.0/24" }],
        [{ "Subnet": "11.1.2.0/24", "RangeStart": "11.1.2.9", "RANGEEND": "11.1.2.20", "gateway": null }],
    ]);
    let expected = ["10.1.2.9-10.1.2.20,10.1.4.1-10.1.4.254", "11.1.2.9-11.1.2.20"];
    assert_eq!(sets(json!({ "ipam": { "ranges": ranges } })), expected);
}

#[test]
fn the_runtimes_sets_come_first_then_the_old_form_then_the_new() {
    let mut ipam = single();
    ipam["ranges"] = json!([[{ "subnet": "11.1.2.0/24" }]]);
    let runtime = json!({ "irrelevant": "a", "ipRanges": [[{ "Subnet": "12.1.3.0/24" }]] });
    let expected = ["12.1.3.1-12.1.3.254", "10.1.2.9-10.1.2.20", "11.1.2.1-11.1.2.254"];
    assert_eq!(sets(json!({ "RuntimeConfig": runtime, "ipam": ipam })), expected);
}

#[test]
fn requested_addresses_of_all_sources_are_one_list_without_doubles() {
    let config = json!({ "ipam": single() });
    assert_eq!(wished(config.clone(), ""), [""; 0]);
    assert_eq!(wished(config.clone(), "IP=10.1.2.10"), ["10.1.2.10"]);
    assert_eq!(wished(config.clone(), "IP=10.1.2.11/24"), ["10.1.2.11"]);
    assert_eq!(wished(config.clone(), "IP=::ffff:10.1.2.11"), ["10.1.2.11"]);
    assert_eq!(wished(config.clone(), "IP="), [""; 0]);
    assert_eq!(wished(config, "MAC=c2:11:22:33:44:55;IP=10.1.2.10"), ["10.1.2.10"]);
    let everything = json!({
        "args": { "cni": { "ips": ["10.1.2.11/24", "11.11.11.11", "2001:DB8:1::11/64"] } },
        "runtimeConfig": { "ips": ["192.168.0.1", "192.168.0.5/24", "10.1.2.10"] },
        "ipam": single(),
    });
    let expected = ["10.1.2.10", "10.1.2.11", "11.11.11.11", "2001:db8:1::11", "192.168.0.1", "192.168.0.5"];
    assert_eq!(wished(everything, "IP=10.1.2.10/24"), expected);
}

#[test]
fn routes_and_places_are_passed_on() {
    let config = read(json!({
        "ipam": {
            "subnet": "10.1.2.0/24", "dataDir": "/data", "resolvConf": "/etc/resolv.conf",
            "routes": [{ "dst": "0.0.0.0/0" }, { "dst": "192.168.0.7/16", "GW": "1.1.1.1", "mtu": 1400, "table": 0 }],
        },
    }));
    let route = |dst: &str| Route {
        dst: dst.parse().unwrap(),
        gw: None,
        mtu: 0,
        advmss: 0,
        priority: 0,
        table: None,
        scope: None,
    };
    let second =
        Route { gw: Some("1.1.1.1".parse().unwrap()), mtu: 1400, table: Some(0), ..route("192.168.0.7/16") };
    assert_eq!(config.routes, [route("0.0.0.0/0"), second]);
    assert_eq!(config.folder, PathBuf::from("/data/mynet"));
    assert_eq!(config.resolv_conf, Some(PathBuf::from("/etc/resolv.conf")));
}

#[test]
fn what_makes_no_sense_is_refused_in_the_words_of_go() {
    let ranges = |ranges: Value| json!({ "ipam": { "ranges": ranges } });
    for (config, text) in [
        (json!({ "type": "host-local" }), "IPAM config missing 'ipam' key"),
        (json!({ "ipam": null }), "IPAM config missing 'ipam' key"),
        (json!({ "ipam": {} }), "no IP ranges specified"),
        (ranges(json!([])), "no IP ranges specified"),
        (ranges(json!([[]])), "invalid range set 0: empty range set"),
        (ranges(json!([[{}]])), "invalid range set 0: IP <nil> not v4 nor v6"),
        (ranges(json!([[{ "subnet": "10.1.2.0" }]])), "invalid CIDR address: 10.1.2.0"),
        (ranges(json!([[{ "subnet": "10.1.2.0/24", "gateway": "x" }]])), "invalid IP address: x"),
        (
            ranges(json!([[{ "subnet": "10.1.0.0/22" }, { "subnet": "10.1.2.0/24" }]])),
            "invalid range set 0: subnets 10.1.0.1-10.1.3.254 and 10.1.2.1-10.1.2.254 overlap",
        ),
        (
            ranges(json!([[{ "subnet": "10.1.0.0/22" }, { "subnet": "2001:db8:5::/64" }]])),
            "invalid range set 0: mixed address families",
        ),
        (
            ranges(json!([[{ "subnet": "10.2.0.0/24" }], [{ "subnet": "10.1.2.1/24" }]])),
            "invalid range set 1: Network has host bits set. For a subnet mask of length 24 the network \
             address is 10.1.2.0",
        ),
        (
            ranges(json!([
                [{ "subnet": "10.1.2.0/24" }, { "subnet": "10.2.2.0/24" }],
                [{ "subnet": "10.1.4.0/24" }, { "subnet": "10.1.2.0/24" }],
            ])),
            "range set 0 overlaps with 1",
        ),
        (
            json!({ "ipam": single(), "runtimeConfig": { "ips": ["10.1.2"] } }),
            "cannot understand ip: invalid IP address 10.1.2",
        ),
    ] {
        assert_eq!(words(config.clone()), text, "{config}");
    }
}

#[test]
fn before_0_3_0_there_is_one_address_of_a_family() {
    for (version, refused) in [("0.1.0", true), ("0.2.0", true), ("0.3.0", false), ("1.1.0", false)] {
        let config = |second: &str| {
            let ranges = json!([[{ "subnet": "10.1.2.0/24" }], [{ "subnet": second }]]);
            json!({ "cniVersion": version, "ipam": { "ranges": ranges } })
        };
        let text = format!("CNI version {version} does not support more than 1 address per family");
        let outcome = Config::read(&request(config("11.1.2.0/24"), "")).map_err(|error| error.msg);
        assert_eq!(outcome.err(), refused.then_some(text));
        assert_eq!(sets(config("2001:db8:1::/48")).len(), 2);
    }
}
