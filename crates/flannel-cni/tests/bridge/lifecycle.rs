//! A pod is attached and detached: every family, every version.

use flannel_cni::version::Version;
use serde_json::{Value, json};

use crate::stage::*;

/// Subnets, the pod's addresses with their gateways, and the default routes.
type Family = (&'static [&'static str], &'static [(&'static str, &'static str)]);

const V4: Family = (&["10.22.0.0/16"], &[("10.22.0.2/16", "10.22.0.1")]);
const V6: Family = (&["fd00:22::/64"], &[("fd00:22::2/64", "fd00:22::1")]);
const DUAL: Family =
    (&["10.22.0.0/16", "fd00:22::/64"], &[("10.22.0.2/16", "10.22.0.1"), ("fd00:22::2/64", "fd00:22::1")]);
const THREE: Family = (
    &["192.168.0.0/24", "fd00:22::/64", "fd00:23::/64"],
    &[("192.168.0.2/24", "192.168.0.1"), ("fd00:22::2/64", "fd00:22::1"), ("fd00:23::2/64", "fd00:23::1")],
);

fn default_routes(addresses: &[(&str, &str)]) -> Vec<Value> {
    let v4 = addresses.iter().find(|(address, _)| address.contains('.')).map(|(_, gw)| ("0.0.0.0/0", gw));
    let v6 = addresses.iter().find(|(address, _)| address.contains(':')).map(|(_, gw)| ("::/0", gw));
    v4.into_iter().chain(v6).map(|(dst, gw)| json!({"dst": dst, "gw": gw})).collect()
}

/// What a result of a version must be; names and hardware addresses are random, and taken from what was said.
fn expected(version: Version, said: &Value, pod: &Pod, addresses: &[(&str, &str)]) -> Value {
    let routes = default_routes(addresses);
    if version < Version::V0_3_0 {
        let mut result = json!({"cniVersion": version.as_str(), "dns": {}});
        for (address, gateway) in addresses {
            let (key, mark) = if address.contains('.') { ("ip4", '.') } else { ("ip6", ':') };
            let of_family = |route: &&Value| route["dst"].as_str().unwrap().contains(mark);
            let routes: Vec<_> = routes.iter().filter(of_family).collect();
            result[key] = json!({"ip": address, "gateway": gateway, "routes": routes});
        }
        return result;
    }
    let interface =
        |place: usize, name: &Value| json!({"name": name, "mac": said["interfaces"][place]["mac"]});
    let mut inside = interface(2, &json!("eth0"));
    inside["sandbox"] = json!(pod.netns);
    let ips: Vec<_> = addresses
        .iter()
        .map(|(address, gateway)| {
            let mut ip = json!({"interface": 2, "address": address, "gateway": gateway});
            if version < Version::V1_0_0 {
                ip["version"] = json!(if address.contains('.') { "4" } else { "6" });
            }
            ip
        })
        .collect();
    let port = interface(1, &said["interfaces"][1]["name"]);
    let mut result = json!({
        "cniVersion": version.as_str(),
        "interfaces": [interface(0, &json!("cni0")), port, inside],
        "ips": ips,
        "routes": routes,
    });
    if version < Version::V1_0_0 {
        result["dns"] = json!({});
    }
    result
}

fn mac_of(device: &str) -> String {
    let link = sh(&format!("ip -o link show {device}"));
    link.split_whitespace().skip_while(|word| *word != "link/ether").nth(1).unwrap().to_owned()
}

/// What the host and the pod look like after an ADD.
fn assert_attached(pod: &Pod, gateways: &[(&str, &str)]) {
    assert_eq!(devices(), ["cni0", "veth"]);
    let prefix = |address: &str| address.split('/').nth(1).unwrap().to_owned();
    let on_bridge: Vec<_> =
        gateways.iter().map(|(address, gateway)| format!("{gateway}/{}", prefix(address))).collect();
    assert_eq!(addresses("cni0"), on_bridge);
    assert_eq!(sh("ip -o -6 addr show dev cni0 scope global tentative"), "");
    let given: Vec<_> = gateways.iter().map(|(address, _)| (*address).to_owned()).collect();
    assert_eq!(pod.inside(|| addresses("eth0")), given);
    assert_eq!(pod.lines("ip -o addr show dev eth0 scope global tentative"), [""; 0]);
    let link = pod.lines("ip -o link show eth0").remove(0);
    assert!(link.contains("UP,LOWER_UP") && link.contains("state UP"), "{link}");
    let routes: Vec<_> =
        pod.lines("ip route show default; ip -6 route show default").iter().map(|line| via(line)).collect();
    let wanted: Vec<_> =
        default_routes(gateways).iter().map(|route| route["gw"].as_str().unwrap().to_owned()).collect();
    assert_eq!(routes, wanted);
}

fn via(route: &str) -> String {
    route.split_whitespace().skip_while(|word| *word != "via").nth(1).unwrap().to_owned()
}

fn lives_and_dies((subnets, gateways): Family, version: Version) {
    on_a_host(|stage| {
        let config = stage.network(json!({"cniVersion": version.as_str(), "ipam": stage.ipam(subnets)}));
        let pod = stage.pod("c0ffee01");
        let said = stage.add(&pod, &config).unwrap();
        assert_eq!(said, expected(version, &said, &pod, gateways));
        assert_attached(&pod, gateways);
        assert_eq!(stage.leased().len(), subnets.len());
        if version >= Version::V0_4_0 {
            assert_eq!(stage.check(&pod, &with_result(&config, &said)), Ok(Value::Null));
        }
        for _ in 0..2 {
            assert_eq!(stage.del(&pod, &config), Ok(Value::Null));
            assert_eq!(stage.leased(), [""; 0]);
            assert_eq!(devices(), ["cni0"]);
            assert_eq!(pod.lines("ip -o link show").len(), 1);
        }
    });
}

#[test]
fn a_pod_with_ipv4_lives_and_dies_in_every_version() {
    Version::ALL.into_iter().for_each(|version| lives_and_dies(V4, version));
}

#[test]
fn a_pod_with_ipv6_lives_and_dies_in_every_version() {
    Version::ALL.into_iter().for_each(|version| lives_and_dies(V6, version));
}

#[test]
fn a_pod_with_both_families_lives_and_dies_in_every_version() {
    Version::ALL.into_iter().for_each(|version| lives_and_dies(DUAL, version));
}

#[test]
fn a_pod_with_three_subnets_lives_and_dies_in_every_version_that_can_tell_them() {
    for version in Version::ALL {
        if version >= Version::V0_3_0 {
            lives_and_dies(THREE, version);
            continue;
        }
        on_a_host(|stage| {
            let config = stage.network(json!({"cniVersion": version.as_str(), "ipam": stage.ipam(THREE.0)}));
            let pod = stage.pod("c0ffee01");
            let text = "does not support more than 1 address per family";
            for (_, message) in [stage.add(&pod, &config).unwrap_err(), stage.del(&pod, &config).unwrap_err()]
            {
                assert!(message.contains(&format!("CNI version {version} {text}")), "{message}");
            }
            assert_eq!(devices(), ["cni0"]);
            assert_eq!(pod.lines("ip -o link show").len(), 1);
        });
    }
}

#[test]
fn the_hardware_addresses_in_the_result_are_those_of_the_devices_and_differ() {
    on_a_host(|stage| {
        let pod = stage.pod("c0ffee01");
        let said = stage.add(&pod, &stage.network(json!({}))).unwrap();
        let mac = |place: usize| said["interfaces"][place]["mac"].as_str().unwrap().to_owned();
        let port = said["interfaces"][1]["name"].as_str().unwrap();
        assert_eq!([mac(0), mac(1)], [mac_of("cni0"), mac_of(port)]);
        assert_eq!(mac(2), pod.inside(|| mac_of("eth0")));
        assert_ne!(mac(0), mac(1));
        assert_ne!(mac(1), mac(2));
    });
}

#[test]
fn packets_flow_to_the_gateway_and_to_other_pods_at_once() {
    on_a_host(|stage| {
        let config = stage.network(json!({"ipam": stage.ipam(DUAL.0)}));
        let (first, second) = (stage.pod("c0ffee01"), stage.pod("c0ffee02"));
        stage.add(&first, &config).unwrap();
        first.inside(|| sh("ping -c1 -W2 10.22.0.1 && ping -c1 -W2 fd00:22::1"));
        stage.add(&second, &config).unwrap();
        second.inside(|| sh("ping -c1 -W2 10.22.0.2 && ping -c1 -W2 fd00:22::2"));
        assert_eq!(sh("cat /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv6/conf/all/forwarding"), "1\n1\n");
        assert_eq!(addresses("cni0"), ["10.22.0.1/16", "fd00:22::1/64"]);
    });
}

#[test]
fn the_name_servers_of_a_file_are_told() {
    on_a_host(|stage| {
        let file = stage.path("resolv.conf");
        std::fs::write(&file, "nameserver 192.0.2.0\nsearch a.b\n").unwrap();
        let mut config = stage.network(json!({}));
        config["ipam"]["resolvConf"] = json!(file);
        let said = stage.add(&stage.pod("c0ffee01"), &config).unwrap();
        assert_eq!(said["dns"], json!({"nameservers": ["192.0.2.0"], "search": ["a.b"]}));
    });
}
