//! Free subnets: the lowest one, never one that overlaps, none only if the network is full.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use flannel_plan::allocate::{SubnetClaim, fits, fits_config, free_subnet};
use flannel_plan::config::{NetworkConfig, PodNetwork};
use flannel_plan::family::{ByFamily, overlap};
use ipnet::IpNet;
use proptest::prelude::*;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn network(text: &str, subnet_len: u8) -> PodNetwork {
    let text = match net(text) {
        IpNet::V4(_) => format!(r#"{{"Network":"{text}","SubnetLen":{subnet_len}}}"#),
        IpNet::V6(_) => format!(
            r#"{{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"{text}","IPv6SubnetLen":{subnet_len}}}"#
        ),
    };
    let networks = NetworkConfig::parse(&text).unwrap().networks;
    networks.v4.or(networks.v6).unwrap()
}

/// Every subnet that a network gives out.
fn subnets(network: &PodNetwork) -> Vec<IpNet> {
    let all = network.network.subnets(network.subnet_len).unwrap();
    all.filter(|subnet| (network.subnet_min..=network.subnet_max).contains(&subnet.addr())).collect()
}

#[test]
fn the_first_subnet_is_left_out_and_the_last_is_not() {
    let small = network("10.3.0.0/24", 26);
    assert_eq!(free_subnet(&small, []), Some(net("10.3.0.64/26")));
    let taken = [net("10.3.0.128/26"), net("10.3.0.64/26")];
    assert_eq!(free_subnet(&small, taken), Some(net("10.3.0.192/26")));
    assert_eq!(free_subnet(&small, taken.into_iter().chain([net("10.3.0.192/32")])), None);
}

#[test]
fn a_large_network_is_searched_as_fast_as_a_small_one() {
    let large = network("fd00::/16", 64);
    assert_eq!(free_subnet(&large, [net("fd00::/17")]), Some(net("fd00:8000::/64")));
    assert_eq!(free_subnet(&large, [net("fd00::/17"), net("fd00:8000::/17")]), None);
    assert_eq!(free_subnet(&large, [net("::/0")]), None);
    let at_the_end = network("ff00::/8", 64);
    assert_eq!(free_subnet(&at_the_end, [net("ff00::/8")]), None);
}

fn v4(text: &str) -> ByFamily<IpNet> {
    ByFamily { v4: Some(net(text)), v6: None }
}

#[test]
fn a_node_keeps_what_it_holds_gets_again_what_is_free_and_else_any_that_is() {
    let config = NetworkConfig::parse(r#"{"Network":"10.3.0.0/22","SubnetLen":24}"#).unwrap();
    let taken = [net("10.3.1.0/24"), net("10.3.2.0/25")];
    let nothing = SubnetClaim { kept: &[], previous: &[], taken: &taken, start: 0 };
    let misfit = v4("10.9.1.0/24");
    let kept = [misfit, v4("10.3.2.0/24")];
    assert_eq!(SubnetClaim { kept: &kept, ..nothing }.choose(&config), Ok(v4("10.3.2.0/24")));
    assert_eq!(SubnetClaim { previous: &kept, ..nothing }.choose(&config), Ok(v4("10.3.3.0/24")));
    let previous = [v4("10.3.1.0/24"), v4("10.3.3.7/24")];
    assert_eq!(SubnetClaim { previous: &previous, ..nothing }.choose(&config), Ok(v4("10.3.3.0/24")));
    for (start, subnet) in
        [(0, "10.3.1.0/24"), (2, "10.3.3.0/24"), (3, "10.3.1.0/24"), (u64::MAX, "10.3.1.0/24")]
    {
        let claim = SubnetClaim { taken: &[], start, ..nothing };
        assert_eq!(claim.choose(&config), Ok(v4(subnet)), "{start}");
    }
    let full = [net("10.3.1.0/24"), net("10.3.2.0/23"), net("10.4.0.0/16")];
    let none = SubnetClaim { taken: &full, ..nothing }.choose(&config).unwrap_err();
    assert_eq!(none.to_string(), "no /24 is free in 10.3.0.0/22, 2 leases overlap it");
    assert!(fits_config(&config, &v4("10.3.1.0/24")) && !fits_config(&config, &misfit));
    assert!(!fits_config(&config, &ByFamily::default()));
}

#[test]
fn taken_networks_of_the_other_family_do_not_count() {
    assert_eq!(free_subnet(&network("10.3.0.0/16", 24), [net("::/0")]), Some(net("10.3.1.0/24")));
}

#[test]
fn a_length_that_no_address_has_gives_nothing() {
    let broken = PodNetwork { subnet_len: 33, ..network("10.3.0.0/16", 24) };
    assert_eq!(free_subnet(&broken, []), None);
}

#[test]
fn only_subnets_that_are_given_out_fit() {
    let v4 = network("10.3.0.0/16", 24);
    for subnet in ["10.3.1.0/24", "10.3.255.0/24"] {
        assert!(fits(&v4, net(subnet)), "{subnet}");
    }
    for subnet in ["10.3.0.0/24", "10.4.0.0/24", "10.3.1.0/25", "10.3.1.0/23", "10.3.1.1/24", "fd00::/24"] {
        assert!(!fits(&v4, net(subnet)), "{subnet}");
    }
    assert!(fits(&network("fd00::/48", 64), net("fd00:0:0:1::/64")));
    assert!(!fits(&network("fd00::/48", 64), net("fd00::/64")));
}

fn taken_in(base: u128, bits: u8) -> impl Strategy<Value = IpNet> {
    (0..512u128, 0..=12u8).prop_map(move |(number, shorter)| {
        let length = bits - shorter;
        let address = base + number;
        let net = if bits == 32 {
            IpNet::new(u32::try_from(address).unwrap().to_be_bytes().into(), length)
        } else {
            IpNet::new(address.to_be_bytes().into(), length)
        };
        net.unwrap().trunc()
    })
}

fn situation() -> impl Strategy<Value = (PodNetwork, Vec<IpNet>)> {
    let v4_base = u128::from(u32::from_be_bytes([10, 3, 0, 0]));
    let v6_base = 0xfd00_u128 << 112;
    prop_oneof![
        (25..=30u8, prop::collection::vec(taken_in(v4_base, 32), 0..40))
            .prop_map(|(length, taken)| (network("10.3.0.0/23", length), taken)),
        (121..=126u8, prop::collection::vec(taken_in(v6_base, 128), 0..40))
            .prop_map(|(length, taken)| (network("fd00::/119", length), taken)),
    ]
}

proptest! {
    #[test]
    fn the_free_subnet_is_the_lowest_that_overlaps_nothing((network, taken) in situation()) {
        let expected =
            subnets(&network).into_iter().find(|subnet| !taken.iter().any(|taken| overlap(*subnet, *taken)));
        prop_assert_eq!(free_subnet(&network, taken), expected);
        prop_assert!(expected.is_none_or(|subnet| fits(&network, subnet)));
    }

    #[test]
    fn a_network_gives_out_each_of_its_subnets_once((network, _) in situation()) {
        let mut taken = Vec::new();
        while let Some(free) = free_subnet(&network, taken.iter().copied()) {
            taken.push(free);
        }
        prop_assert_eq!(taken, subnets(&network));
    }
}
