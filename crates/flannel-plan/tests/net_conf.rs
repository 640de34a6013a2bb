//! net-conf.json: the files that Go flannel was run with are read as it reads them, and of a broken one every
//! fault is told.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

use std::path::Path;

use flannel_plan::allocate::fits;
use flannel_plan::config::{Backend, DEFAULT_VXLAN_PORT, NetworkConfig, PodNetwork, VxlanConfig};
use flannel_plan::family::{ByFamily, Family};
use ipnet::IpNet;
use proptest::prelude::*;

const VXLAN: VxlanConfig = VxlanConfig {
    vni: 1,
    port: DEFAULT_VXLAN_PORT,
    mtu: None,
    gbp: false,
    learning: false,
    direct_routing: false,
};

fn pods(network: &str, subnet_len: u8, min: &str, max: &str) -> PodNetwork {
    PodNetwork {
        network: network.parse().unwrap(),
        subnet_len,
        subnet_min: min.parse().unwrap(),
        subnet_max: max.parse().unwrap(),
    }
}

fn usual_v4() -> PodNetwork {
    pods("10.244.0.0/16", 24, "10.244.1.0", "10.244.255.0")
}

fn usual_v6() -> PodNetwork {
    pods("fd00:244::/48", 64, "fd00:244:0:1::", "fd00:244:0:ffff::")
}

fn v4_only(backend: Backend) -> NetworkConfig {
    NetworkConfig {
        networks: ByFamily { v4: Some(usual_v4()), v6: None },
        nftables: false,
        non_masquerade_cidrs: vec![],
        backend,
    }
}

fn golden(case: &str) -> NetworkConfig {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(case).join("net-conf.json");
    NetworkConfig::parse(&std::fs::read_to_string(path).expect(case)).expect(case)
}

#[test]
fn the_files_that_go_flannel_ran_with_are_read_as_it_reads_them() {
    let vxlan = || Backend::Vxlan(VXLAN);
    let both = ByFamily { v4: Some(usual_v4()), v6: Some(usual_v6()) };
    let direct = VxlanConfig { vni: 4000, port: 4789, direct_routing: true, ..VXLAN };
    let nftables = |config| NetworkConfig { nftables: true, ..config };
    let of = |networks, backend| NetworkConfig { networks, backend, ..v4_only(Backend::Alloc) };
    let cases = [
        ("flanneld/alloc", v4_only(Backend::Alloc)),
        ("flanneld/blackhole", v4_only(vxlan())),
        ("flanneld/host-gw", v4_only(Backend::HostGw)),
        ("flanneld/host-gw-dual", of(both, Backend::HostGw)),
        (
            "flanneld/subnetlen",
            of(
                ByFamily { v4: Some(pods("10.244.0.0/16", 28, "10.244.10.0", "10.244.99.0")), v6: None },
                vxlan(),
            ),
        ),
        ("flanneld/udp", v4_only(Backend::Missing("udp".to_owned()))),
        ("flanneld/v6only", of(ByFamily { v4: None, v6: Some(usual_v6()) }, vxlan())),
        ("flanneld/vxlan", v4_only(vxlan())),
        ("flanneld/vxlan-directrouting", v4_only(Backend::Vxlan(direct))),
        ("flanneld/vxlan-dual", of(both, vxlan())),
        (
            "flanneld/vxlan-dual-nft",
            nftables(of(both, Backend::Vxlan(VxlanConfig { direct_routing: true, ..VXLAN }))),
        ),
        ("flanneld/vxlan-ipmasq", v4_only(vxlan())),
        ("flanneld/vxlan-ipmasq-nft", nftables(v4_only(vxlan()))),
        (
            "flanneld/vxlan-mtu-gbp",
            v4_only(Backend::Vxlan(VxlanConfig { mtu: Some(1300), gbp: true, ..VXLAN })),
        ),
        ("kubernetes/host-gw", v4_only(Backend::HostGw)),
        ("kubernetes/vxlan", v4_only(vxlan())),
        ("kubernetes/vxlan-directrouting", v4_only(Backend::Vxlan(direct))),
    ];
    for (case, expected) in cases {
        assert_eq!(golden(case), expected, "{case}");
    }
}

#[test]
fn the_families_that_are_on_have_a_network() {
    let config = golden("flanneld/vxlan-dual");
    assert_eq!(config.families(), [Family::V4, Family::V6]);
    assert_eq!(config.network(Family::V6), Some("fd00:244::/48".parse().unwrap()));
    let config = golden("flanneld/v6only");
    assert_eq!(config.families(), [Family::V6]);
    assert_eq!(config.network(Family::V4), None);
}

#[test]
fn subnets_get_the_defaults_of_go_flannel_in_both_families() {
    let cases = [
        ("10.3.5.7/16", pods("10.3.0.0/16", 24, "10.3.1.0", "10.3.255.0")),
        ("10.3.0.0/22", pods("10.3.0.0/22", 24, "10.3.1.0", "10.3.3.0")),
        ("10.3.0.0/23", pods("10.3.0.0/23", 25, "10.3.0.128", "10.3.1.128")),
        ("10.3.0.0/28", pods("10.3.0.0/28", 30, "10.3.0.4", "10.3.0.12")),
        ("255.255.0.0/16", pods("255.255.0.0/16", 24, "255.255.1.0", "255.255.255.0")),
    ];
    for (network, expected) in cases {
        let text = format!(r#"{{"Network":"{network}"}}"#);
        assert_eq!(NetworkConfig::parse(&text).unwrap().networks.v4, Some(expected), "{network}");
    }
    let cases = [
        ("fc00::5/48", pods("fc00::/48", 64, "fc00:0:0:1::", "fc00:0:0:ffff::")),
        ("fc00::/62", pods("fc00::/62", 64, "fc00:0:0:1::", "fc00:0:0:3::")),
        ("fc00::/63", pods("fc00::/63", 65, "fc00:0:0:0:8000::", "fc00:0:0:1:8000::")),
        ("fc00::/124", pods("fc00::/124", 126, "fc00::4", "fc00::c")),
        ("8000::/1", pods("8000::/1", 64, "8000:0:0:1::", "ffff:ffff:ffff:ffff::")),
    ];
    for (network, expected) in cases {
        let text = format!(r#"{{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"{network}"}}"#);
        assert_eq!(NetworkConfig::parse(&text).unwrap().networks.v6, Some(expected), "{network}");
    }
}

fn vxlan(config: VxlanConfig) -> NetworkConfig {
    v4_only(Backend::Vxlan(config))
}

#[track_caller]
fn check(cases: impl IntoIterator<Item = (&'static str, &'static str, NetworkConfig)>) {
    for (what, text, expected) in cases {
        assert_eq!(NetworkConfig::parse(text), Ok(expected), "{what}");
    }
}

#[test]
fn keys_are_matched_as_go_matches_them() {
    check([
        (
            "keys in any case, also in the backend",
            r#"{"NETWORK":"10.244.0.0/16","backend":{"TYPE":"VXLAN","vni":7}}"#,
            vxlan(VxlanConfig { vni: 7, ..VXLAN }),
        ),
        (
            "the last of several, whatever their case",
            r#"{"Network":"10.9.0.0/16","network":"10.244.0.0/16",
                "Backend":{"Type":"udp"},"Backend":{"vni":1,"VNI":2,"vni":3,"Type":"udp","type":"vxlan"}}"#,
            vxlan(VxlanConfig { vni: 3, ..VXLAN }),
        ),
        (
            "unknown keys",
            r#"{"Network":"10.244.0.0/16","Color":{"a":[1]},"Backend":{"Type":"vxlan","MacPrefix":"0E-2A"}}"#,
            vxlan(VXLAN),
        ),
    ]);
}

#[test]
fn what_is_not_said_has_the_default_of_go_flannel() {
    check([
        (
            "null changes nothing",
            r#"{"EnableIPv4":null,"EnableIPv6":null,"EnableNFTables":null,"Network":"10.244.0.0/16",
                "SubnetLen":null,"IPv6SubnetMin":null,"IPv6SubnetMax":null,
                "Backend":{"Type":"vxlan","Type":null,"VNI":9,"VNI":null,"Port":null,"MTU":null,"GBP":null}}"#,
            vxlan(VxlanConfig { vni: 9, ..VXLAN }),
        ),
        (
            "zero is as good as absent",
            r#"{"Network":"10.244.0.0/16","SubnetLen":0,"SubnetMin":"0.0.0.0","SubnetMax":"0.0.0.0",
                "Backend":{"Type":"vxlan","Port":0,"MTU":0}}"#,
            vxlan(VXLAN),
        ),
        ("no backend is udp", r#"{"Network":"10.244.0.0/16"}"#, v4_only(Backend::Missing("udp".to_owned()))),
        (
            "the keys of a backend that we do not have are not looked at",
            r#"{"Network":"10.244.0.0/16","Backend":{"Type":"Wireguard","MTU":"large","VNI":-1}}"#,
            v4_only(Backend::Missing("wireguard".to_owned())),
        ),
        (
            "a family that is off needs no network",
            r#"{"Network":"10.244.0.0/16","IPv6Network":"fd00::/126","Backend":{"Type":"vxlan"}}"#,
            vxlan(VXLAN),
        ),
    ]);
}

#[test]
fn networks_to_which_pods_keep_their_address_are_read_in_both_families() {
    let text =
        r#"{"Network":"10.244.0.0/16","nonMasqueradeCIDRs":["172.16.0.0/12","10.0.0.0/8","fd00::/8"]}"#;
    let expected = ["172.16.0.0/12", "10.0.0.0/8", "fd00::/8"].map(|net| net.parse::<IpNet>().unwrap());
    assert_eq!(NetworkConfig::parse(text).unwrap().non_masquerade_cidrs, expected);
    for none in ["null", "[]"] {
        let text = format!(r#"{{"Network":"10.244.0.0/16","NonMasqueradeCIDRs":{none}}}"#);
        assert_eq!(NetworkConfig::parse(&text).unwrap().non_masquerade_cidrs, [], "{none}");
    }
}

#[test]
fn bounds_of_both_families_are_taken_as_given() {
    let text = r#"{"Network":"10.0.0.0/8","SubnetLen":20,"SubnetMin":"10.10.0.0","SubnetMax":"10.99.0.0",
        "EnableIPv6":true,"IPv6Network":"FD00:0244::0/48","IPv6SubnetLen":64,
        "IPv6SubnetMin":"fd00:244:0:0010::","IPv6SubnetMax":"fd00:244:0:0010::"}"#;
    let networks = ByFamily {
        v4: Some(pods("10.0.0.0/8", 20, "10.10.0.0", "10.99.0.0")),
        v6: Some(pods("fd00:244::/48", 64, "fd00:244:0:10::", "fd00:244:0:10::")),
    };
    assert_eq!(NetworkConfig::parse(text).unwrap().networks, networks);
}

fn any_net() -> impl Strategy<Value = IpNet> {
    prop_oneof![
        (any::<u32>(), 0..=32u8)
            .prop_map(|(address, length)| IpNet::new(address.to_be_bytes().into(), length)),
        (any::<u128>(), 0..=128u8)
            .prop_map(|(address, length)| IpNet::new(address.to_be_bytes().into(), length)),
    ]
    .prop_map(|net| net.unwrap())
}

proptest! {
    #[test]
    fn the_bounds_of_every_accepted_network_are_subnets_of_it(net in any_net(), length in 0..=130u8) {
        let text = match net {
            IpNet::V4(_) => format!(r#"{{"Network":"{net}","SubnetLen":{length}}}"#),
            IpNet::V6(_) => format!(
                r#"{{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"{net}","IPv6SubnetLen":{length}}}"#
            ),
        };
        if let Ok(config) = NetworkConfig::parse(&text) {
            let pods = config.networks.v4.or(config.networks.v6).unwrap();
            prop_assert_eq!(pods.network, net.trunc());
            for bound in [pods.subnet_min, pods.subnet_max] {
                prop_assert!(net.contains(&bound) && fits(&pods, IpNet::new(bound, pods.subnet_len).unwrap()));
            }
        }
    }

    #[test]
    fn no_text_makes_the_reader_panic(
        text in r#"(?s)([{}\[\],:0-9"]|"Network"|"Backend":\{|"Type"|"VNI"|null|true|\PC){0,40}"#,
    ) {
        let _ = NetworkConfig::parse(&text).map_err(|faults| faults.to_string());
    }
}
