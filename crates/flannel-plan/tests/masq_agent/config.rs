//! The file: keys, defaults, limits and faults.

use std::time::Duration;

use flannel_plan::family::Family;
use flannel_plan::masq_agent::config::{AgentConfig, DefaultNetworks};
use flannel_plan::masq_agent::duration::nanoseconds;
use ipnet::IpNet;
use proptest::prelude::*;

const V4: [Family; 1] = [Family::V4];

fn parse(text: &str) -> Result<AgentConfig, String> {
    AgentConfig::parse(text, DefaultNetworks::Private, &V4).map_err(|faults| faults.to_string())
}

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn usual() -> AgentConfig {
    AgentConfig {
        non_masquerade: nets(&["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"]),
        masq_link_local: false,
        masq_link_local_v6: false,
        resync: Duration::from_secs(60),
        nftables: None,
    }
}

#[test]
fn without_a_file_the_private_networks_are_left_out_or_all_reserved_ones() {
    assert_eq!(AgentConfig::without_file(DefaultNetworks::Private), usual());
    let reserved = AgentConfig::without_file(DefaultNetworks::Reserved);
    let more = ["100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24"];
    let most = ["198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4"];
    let non_masquerade = [usual().non_masquerade, nets(&more), nets(&most)].concat();
    assert_eq!(reserved, AgentConfig { non_masquerade, ..usual() });
}

#[test]
fn a_key_replaces_its_default_and_no_other() {
    let cases = [
        ("{}", usual()),
        (
            r#"{"nonMasqueradeCIDRs":["172.16.0.0/12","10.0.0.0/8"],"cidrLimit":64,"masqLinkLocal":true,"resyncInterval":"5s"}"#,
            AgentConfig {
                non_masquerade: nets(&["172.16.0.0/12", "10.0.0.0/8"]),
                masq_link_local: true,
                resync: Duration::from_secs(5),
                ..usual()
            },
        ),
        (
            r#"{"nonMasqueradeCIDRs":["192.168.0.0/16"]}"#,
            AgentConfig { non_masquerade: nets(&["192.168.0.0/16"]), ..usual() },
        ),
        (r#"{"masqLinkLocal":true}"#, AgentConfig { masq_link_local: true, ..usual() }),
        (r#"{"masqLinkLocalIPv6":true}"#, AgentConfig { masq_link_local_v6: true, ..usual() }),
        (r#"{"resyncInterval":"1m30s"}"#, AgentConfig { resync: Duration::from_secs(90), ..usual() }),
        (r#"{"nftables":true}"#, AgentConfig { nftables: Some(true), ..usual() }),
        (r#"{"nftables":false,"colour":"blue"}"#, AgentConfig { nftables: Some(false), ..usual() }),
    ];
    for (text, expected) in cases {
        assert_eq!(parse(text), Ok(expected), "{text}");
    }
}

#[test]
fn keys_and_nothing_are_read_as_go_reads_them() {
    let none = AgentConfig { non_masquerade: vec![], ..usual() };
    for text in
        [r#"{"nonMasqueradeCIDRs":[]}"#, r#"{"nonMasqueradeCIDRs":null}"#, r#"{"NONMASQUERADECIDRS":[]}"#]
    {
        assert_eq!(parse(text), Ok(none.clone()), "{text}");
    }
    let nothing = r#"{"cidrLimit":null,"masqLinkLocal":null,"masqLinkLocalIPv6":null,"resyncInterval":null}"#;
    assert_eq!(parse(nothing), Ok(usual()));
}

#[test]
fn a_time_between_looks_is_never_so_short_that_the_agent_has_no_rest() {
    for text in ["0", "0s", "-5s", "1ns", "1s"] {
        let config = parse(&format!(r#"{{"resyncInterval":"{text}"}}"#)).unwrap();
        assert_eq!(config.resync, Duration::from_secs(1), "{text}");
    }
}

/// So many networks, as JSON.
fn many(count: usize) -> String {
    let nets: Vec<_> = (0..count).map(|n| format!(r#""11.{}.{}.0/25""#, n / 256, n % 256)).collect();
    format!("[{}]", nets.join(","))
}

#[test]
fn more_networks_than_the_limit_are_refused_and_the_file_may_raise_it() {
    let count = |text: &str| parse(text).map(|config| config.non_masquerade.len());
    assert_eq!(count(&format!(r#"{{"nonMasqueradeCIDRs":{}}}"#, many(64))), Ok(64));
    assert_eq!(
        count(&format!(r#"{{"nonMasqueradeCIDRs":{}}}"#, many(65))),
        Err("nonMasqueradeCIDRs is a list of 65, expected at most 64, link-local not counted; set cidrLimit to take more"
            .to_owned())
    );
    assert_eq!(count(&format!(r#"{{"cidrLimit":1000,"nonMasqueradeCIDRs":{}}}"#, many(1000))), Ok(1000));
    assert_eq!(
        count(r#"{"cidrLimit":0,"nonMasqueradeCIDRs":["10.0.0.0/8"]}"#),
        Err("nonMasqueradeCIDRs is a list of 1, expected at most 0, link-local not counted; set cidrLimit to take more"
            .to_owned())
    );
}

#[test]
fn every_fault_of_a_file_is_told_at_once() {
    let text = r#"{"nonMasqueradeCIDRs":["abcdefg","10.256.0.0/16","10.0.0.1/8","10.0.0.0/8",7,"fd00::/8"],
        "cidrLimit":"many","masqLinkLocal":"yes","masqLinkLocalIPv6":1,"resyncInterval":"soon","nftables":"on"}"#;
    let faults = [
        r#"cidrLimit is "many", expected a whole number"#,
        r#"nonMasqueradeCIDRs[0] is "abcdefg", expected a network such as 10.0.0.0/8 or fd00::/8"#,
        r#"nonMasqueradeCIDRs[1] is "10.256.0.0/16", expected a network such as 10.0.0.0/8 or fd00::/8"#,
        r#"nonMasqueradeCIDRs[2] is "10.0.0.1/8", expected 10.0.0.0/8, the network that it is inside of, or the single address 10.0.0.1/32"#,
        r#"nonMasqueradeCIDRs[4] is 7, expected a network such as 10.0.0.0/8 or fd00::/8"#,
        r#"nonMasqueradeCIDRs[5] is "fd00::/8", expected an IPv4 network: IPv6 is off; switch it on with --enable-ipv6"#,
        r#"masqLinkLocal is "yes", expected true or false"#,
        "masqLinkLocalIPv6 is 1, expected true or false",
        r#"nftables is "on", expected true or false"#,
        r#"resyncInterval is "soon", expected a time such as "60s" or "5m""#,
    ];
    assert_eq!(parse(text), Err(faults.join("; ")));
    let both =
        AgentConfig::parse(r#"{"nonMasqueradeCIDRs":["fd00::/8"]}"#, DefaultNetworks::Private, &Family::BOTH);
    assert_eq!(both.map(|config| config.non_masquerade), Ok(nets(&["fd00::/8"])));
}

#[test]
fn a_time_has_to_be_a_text_with_a_unit() {
    for value in ["60", "true", "[]", r#""60""#, r#""""#, r#""1d""#] {
        let fault = parse(&format!(r#"{{"resyncInterval":{value}}}"#)).unwrap_err();
        assert_eq!(fault, format!(r#"resyncInterval is {value}, expected a time such as "60s" or "5m""#));
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(
        text in ".{0,60}",
        value in prop_oneof!["[0-9a-zµμ.+ -]{0,12}", ".{0,12}"],
        key in prop_oneof!["nonMasqueradeCIDRs", "cidrLimit", "masqLinkLocal", "resyncInterval", "nftables"],
    ) {
        let _ = parse(&text);
        let _ = nanoseconds(&value);
        let quoted = serde_json::to_string(&value).unwrap();
        for value in [quoted.clone(), format!("[{quoted}]"), value] {
            let _ = parse(&format!(r#"{{"{key}":{value}}}"#));
        }
    }

    #[test]
    fn every_time_that_go_prints_is_read(hours in 0..100_i64, minutes in 0..60_i64, millis in 0..60_000_i64) {
        let text = format!("{hours}h{minutes}m{}.{:03}s", millis / 1000, millis % 1000);
        prop_assert_eq!(nanoseconds(&text), Some(((hours * 60 + minutes) * 60_000 + millis) * 1_000_000));
    }
}
