//! The choice of the device below the pod network, on hosts made of a few words each.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::net::IpAddr;

use flannel_plan::config::NetworkConfig;
use flannel_plan::family::{ByFamily, Family};
use flannel_plan::inputs::HostRoute;
use flannel_plan::link_name::LinkName;
use flannel_plan::mac::Mac;
use flannel_plan::observation::{AddressFact, LinkFact, Observation, RouteFact};
use flannel_plan::state::{Link, LinkKind, PROTOCOL, PROTOCOL_BOOT, Route, RouteKind};
use flannel_plan::underlay::{
    Choice, Host, NoUnderlay, Pattern, RejectedCandidate, Underlay, UnderlayOptions, announced_from,
    best_route, choose, on_link,
};

fn name(text: &str) -> LinkName {
    text.parse().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A host from lines such as `eth0 mtu 1400`, `eth0 has 10.0.0.1/24 temporary` and
/// `to default via 10.0.0.254 dev eth0 metric 100`; words that it does not know stop the test.
fn host(text: &str) -> Observation {
    let mut observation = Observation::default();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["to", to, ref rest @ ..] => observation.routes.push(route(to, rest)),
            [link, "has", address, ref rest @ ..] => observation.addresses.push(AddressFact {
                link: name(link),
                address: address.parse().unwrap(),
                permanent: !rest.contains(&"leased"),
                temporary: rest.contains(&"temporary"),
                deprecated: rest.contains(&"deprecated"),
                unusable: rest.contains(&"tentative"),
            }),
            [link, ref rest @ ..] => observation.links.push(device(link, rest)),
            [] => unreachable!(),
        }
    }
    observation
}

fn after<'a>(words: &[&'a str], word: &str) -> Option<&'a str> {
    words.iter().skip_while(|found| **found != word).nth(1).copied()
}

fn device(link: &str, words: &[&str]) -> LinkFact {
    LinkFact {
        index: 1,
        link: Link {
            name: name(link),
            mac: Some(Mac([2, 0, 0, 0, 0, 1])),
            mtu: after(words, "mtu").map_or(1500, |mtu| mtu.parse().unwrap()),
            up: !words.contains(&"down"),
            alias: "".into(),
            kind: LinkKind::Other("ether".into()),
        },
        running: !words.contains(&"down") && !words.contains(&"no-carrier"),
        loopback: link == "lo",
    }
}

fn route(to: &str, words: &[&str]) -> RouteFact {
    let kind = match words.first() {
        Some(&"multipath") => RouteKind::Multipath,
        Some(&"blackhole") => RouteKind::Blackhole,
        _ => RouteKind::Unicast,
    };
    let destination = match to {
        "default" => Family::V4.everything(),
        "default6" => Family::V6.everything(),
        net => net.parse().unwrap(),
    };
    let route = Route {
        destination,
        kind,
        via: after(words, "via").map(ip),
        link: after(words, "dev").map(name),
        onlink: false,
        protocol: if words.contains(&"ours") { PROTOCOL } else { PROTOCOL_BOOT },
    };
    let metric = after(words, "metric").map_or(0, |metric| metric.parse().unwrap());
    RouteFact { route, metric, source: after(words, "src").map(ip) }
}

fn wishes(families: &[Family]) -> UnderlayOptions {
    UnderlayOptions { families: families.to_vec(), ..UnderlayOptions::default() }
}

fn iface(families: &[Family], ifaces: &[&str]) -> UnderlayOptions {
    UnderlayOptions { ifaces: ifaces.iter().map(|text| (*text).to_owned()).collect(), ..wishes(families) }
}

fn pattern(families: &[Family], matches: &[&str]) -> UnderlayOptions {
    let matches = matches.iter().map(|text| (*text).to_owned()).collect();
    UnderlayOptions { patterns: vec![Pattern { text: "x".to_owned(), matches }], ..wishes(families) }
}

fn by_family(texts: &[&str]) -> ByFamily<IpAddr> {
    let mut addresses = ByFamily::default();
    for text in texts {
        *addresses.slot(Family::of(ip(text))) = Some(ip(text));
    }
    addresses
}

fn underlay(link: &str, addresses: &[&str]) -> Underlay {
    let addresses = by_family(addresses);
    Underlay { link: name(link), mtu: 1500, addresses, public: addresses }
}

const OWN: &str = "flannel.1";

const PODS: &str = r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}"#;

fn choose_on(
    wishes: &UnderlayOptions,
    observation: &Observation,
    current: Option<&Underlay>,
) -> Result<Choice, NoUnderlay> {
    choose_in(&NetworkConfig::parse(PODS).unwrap(), wishes, observation, current)
}

fn choose_in(
    config: &NetworkConfig,
    wishes: &UnderlayOptions,
    observation: &Observation,
    current: Option<&Underlay>,
) -> Result<Choice, NoUnderlay> {
    let own = ByFamily { v4: Some("10.244.1.0/24".parse().unwrap()), v6: None };
    choose(wishes, Host { observation, links: &[name(OWN)], networks: &config.networks, own }, current)
}

fn chosen(wishes: &UnderlayOptions, observation: &Observation) -> Choice {
    choose_on(wishes, observation, None).unwrap()
}

fn again(wishes: &UnderlayOptions, host_now: &str, current: &Underlay) -> Choice {
    choose_on(wishes, &host(host_now), Some(current)).unwrap()
}

fn choice(wishes: &UnderlayOptions, observation: &Observation) -> Underlay {
    chosen(wishes, observation).underlay
}

fn refusals(wishes: &UnderlayOptions, observation: &Observation) -> Vec<String> {
    refused(wishes, observation).refused.iter().map(RejectedCandidate::to_string).collect()
}

fn refused(wishes: &UnderlayOptions, observation: &Observation) -> NoUnderlay {
    choose_on(wishes, observation, None).unwrap_err()
}

const V4: &[Family] = &[Family::V4];
const V6: &[Family] = &[Family::V6];
const DUAL: &[Family] = &[Family::V4, Family::V6];

/// Two interfaces, both families, the default routes on the first.
const HOST: &str = "
    lo mtu 65536
    lo has 127.0.0.1/8
    lo has ::1/128
    eth0
    eth0 has 10.0.0.1/24
    eth0 has fd00:1::1/64
    eth0 has fe80::1/64
    eth1
    eth1 has 192.168.7.1/24
    eth1 has fd00:2::1/64
    flannel.1 mtu 1450
    flannel.1 has 10.244.1.0/32
    to default via 10.0.0.254 dev eth0 metric 100
    to default6 via fe80::ff dev eth0
    to 10.0.0.0/24 dev eth0 src 10.0.0.1
    to 192.168.7.0/24 dev eth1 src 192.168.7.1
    to fd00:2::/64 dev eth1
    to 10.244.2.0/24 via 10.244.2.0 dev flannel.1 ours
";

#[test]
fn without_a_wish_the_default_route_decides() {
    let observation = host(HOST);
    assert_eq!(choice(&wishes(V4), &observation), underlay("eth0", &["10.0.0.1"]));
    assert_eq!(choice(&wishes(V6), &observation), underlay("eth0", &["fd00:1::1"]));
    let choice = chosen(&wishes(DUAL), &observation);
    let reasons = [
        "eth0: the default route leads through it",
        "eth0: 10.0.0.1, its only usable IPv4 address",
        "eth0: fd00:1::1, the best of its 2 usable IPv6 addresses",
    ];
    let underlay = underlay("eth0", &["10.0.0.1", "fd00:1::1"]);
    assert_eq!(choice, Choice { underlay, reasons: reasons.map(str::to_owned).to_vec(), note: None });
}

#[test]
fn of_several_default_routes_the_lowest_metric_counts_and_ours_never() {
    let observation = host(
        "eth0
         eth0 has 10.0.0.1/24
         eth1
         eth1 has 10.1.0.1/24
         flannel.1
         flannel.1 has 10.244.1.0/32
         to default blackhole metric 1
         to default via 10.244.2.0 dev flannel.1
         to default via 10.0.0.254 dev eth0 ours
         to default via 10.0.0.254 dev eth0 metric 200
         to default via 10.1.0.254 dev eth1 metric 100",
    );
    assert_eq!(choice(&wishes(V4), &observation), underlay("eth1", &["10.1.0.1"]));
}

#[test]
fn a_default_route_that_decides_nothing_is_told() {
    let multipath = host("eth0\n eth0 has 10.0.0.1/24\n to default multipath");
    assert_eq!(
        refused(&wishes(V4), &multipath),
        NoUnderlay {
            refused: vec![RejectedCandidate {
                candidate: "default route".to_owned(),
                reason: "the route 0.0.0.0/0 leads several ways at once".to_owned(),
            }],
            present: vec!["eth0 up 10.0.0.1/24".to_owned()],
            hint: "name the interface, with --iface=NAME or --iface=ADDRESS".to_owned(),
        }
    );
    assert_eq!(refusals(&wishes(V4), &host("eth0")), ["default route: the host has none"]);
    let apart = host(&HOST.replace("via fe80::ff dev eth0", "via fe80::ff dev eth1"));
    assert_eq!(
        refusals(&wishes(DUAL), &apart),
        ["default route: that of IPv4 leads through eth0 and that of IPv6 through eth1"]
    );
}

#[test]
fn one_default_route_is_enough_where_the_device_has_both_families() {
    let without_v6 = HOST.replace("to default6 via fe80::ff dev eth0", "");
    let choice = chosen(&wishes(DUAL), &host(&without_v6));
    assert_eq!(choice.underlay, underlay("eth0", &["10.0.0.1", "fd00:1::1"]));
    assert_eq!(
        choice.reasons[0],
        "eth0: the default route leads through it; IPv6 has no default route, but eth0 has fd00:1::1"
    );
    let link_local_only = without_v6.replace("eth0 has fd00:1::1/64", "");
    assert_eq!(
        refusals(&wishes(DUAL), &host(&link_local_only)),
        ["default route: there is none of IPv6, and eth0 of the other has no global IPv6 address"]
    );
}

#[test]
fn an_interface_is_named_by_name_or_by_an_address_of_either_family() {
    let observation = host(HOST);
    assert_eq!(choice(&iface(V4, &["eth1"]), &observation), underlay("eth1", &["192.168.7.1"]));
    let eth1 = underlay("eth1", &["192.168.7.1", "fd00:2::1"]);
    for text in ["eth1", "192.168.7.1", "fd00:2::1", "::ffff:192.168.7.1"] {
        assert_eq!(choice(&iface(DUAL, &[text]), &observation), eth1, "{text}");
    }
    assert_eq!(choice(&iface(DUAL, &["fe80::1"]), &observation), underlay("eth0", &["10.0.0.1", "fe80::1"]));
}

#[test]
fn the_first_wish_that_can_be_fulfilled_wins_and_the_others_are_told() {
    let observation = host(&format!("eth2 down\n eth2 has 10.2.0.1/24\n{HOST}"));
    let wanted = iface(V4, &["eth9", "10.9.9.9", "fd00:1::1", "lo", "flannel.1", "eth2", "10.2.0.1", "eth0"]);
    let reasons = [
        "--iface=eth9: the host has no interface of this name",
        "--iface=10.9.9.9: no interface has this address",
        "--iface=fd00:1::1: IPv6 is not on in the network configuration",
        "--iface=lo: it only speaks to this host",
        "--iface=flannel.1: it is one of flannel's own, which the pod network is made of",
        "--iface=eth2: it is down",
        "--iface=10.2.0.1 is eth2: it is down",
        "eth0: --iface=eth0 asks for it",
        "eth0: 10.0.0.1, its only usable IPv4 address",
    ];
    let reasons = reasons.map(str::to_owned).to_vec();
    let underlay = underlay("eth0", &["10.0.0.1"]);
    assert_eq!(chosen(&wanted, &observation), Choice { underlay, reasons, note: None });
}

#[test]
fn a_wish_that_fails_does_not_fall_back_to_the_default_route() {
    let wanted = iface(V4, &["eth9"]);
    assert_eq!(refusals(&wanted, &host(HOST)), ["--iface=eth9: the host has no interface of this name"]);
    let message = "no network interface can carry the pod network: --iface=eth9: the host has no interface of \
                   this name (the host has eth0 up 10.0.0.1/24)";
    assert_eq!(refused(&wanted, &host("eth0\n eth0 has 10.0.0.1/24")).to_string(), message);
}

#[test]
fn what_a_stranger_is_told_names_no_interface() {
    let none = refused(&iface(V4, &["eth9", "eth2"]), &host(HOST));
    let told = "kept for now: no network interface can carry the pod network";
    for finding in [none.finding(), none.brief_finding()] {
        assert_eq!(finding.within("kept for now: ", "; later").outside(), told);
    }
}

#[test]
fn addresses_are_taken_in_the_order_of_go_flannel_and_never_unusable_ones() {
    let cases = [
        ("169.254.0.1/16 | 10.0.0.1/24", "10.0.0.1"),
        ("10.0.0.1/24 leased | 10.0.0.2/24", "10.0.0.2"),
        ("10.0.0.1/24 | 10.0.0.2/24", "10.0.0.1"),
        ("10.0.0.1/24 deprecated | 169.254.0.1/16 leased", "169.254.0.1"),
        ("fe80::1/64 | fd00::1/64 tentative | fd00::2/64 deprecated | fd00::3/64 leased", "fd00::3"),
        ("fd00::1/64 leased temporary | fd00::2/64 leased | fe80::1/64", "fd00::2"),
        ("fd00::1/64 leased | fd00::2/64 temporary", "fd00::2"),
        ("ff02::1/64 | ::1/128 | fe80::1/64", "fe80::1"),
    ];
    for (addresses, expected) in cases {
        let lines: String = addresses.split('|').map(|address| format!("eth0 has {address}\n")).collect();
        let family = if expected.contains(':') { V6 } else { V4 };
        let observation = host(&format!("eth0\n{lines}"));
        assert_eq!(
            choice(&iface(family, &["eth0"]), &observation),
            underlay("eth0", &[expected]),
            "{addresses}"
        );
    }
}

#[test]
fn a_device_without_a_usable_address_or_mtu_is_refused_with_the_reason() {
    let cases = [
        ("eth0", V4, "it has no IPv4 address"),
        (
            "eth0\n eth0 has fd00::1/64 tentative\n eth0 has fd00::2/64 deprecated",
            V6,
            "it has no usable IPv6 address: fd00::1 is being checked for a double, or is one, fd00::2 is deprecated",
        ),
        ("eth0\n eth0 has 10.0.0.1/24", DUAL, "it has no IPv6 address"),
        (
            "eth0\n eth0 has 224.0.0.1/24",
            V4,
            "it has no usable IPv4 address: 224.0.0.1 cannot be sent to by other hosts",
        ),
        ("eth0 mtu 0\n eth0 has 10.0.0.1/24", V4, "it has no MTU"),
    ];
    for (text, families, reason) in cases {
        assert_eq!(refusals(&iface(families, &["eth0"]), &host(text)), [format!("--iface=eth0: {reason}")]);
    }
    let asked = host("eth0\n eth0 has fd00::1/64 tentative\n eth0 has fd00::2/64");
    assert_eq!(
        refusals(&iface(V6, &["fd00::1"]), &asked),
        ["--iface=fd00::1 is eth0: fd00::1 is being checked for a double, or is one"]
    );
}

#[test]
fn a_device_without_a_carrier_is_taken_and_that_is_told() {
    let observation = host("eth0 no-carrier\n eth0 has 10.0.0.1/24");
    let reasons = chosen(&iface(V4, &["eth0"]), &observation).reasons;
    assert_eq!(reasons[1], "eth0: it is up, but has no carrier now");
}

#[test]
fn a_pattern_matches_addresses_before_names() {
    let observation = host(HOST);
    assert_eq!(
        choice(&pattern(V4, &["eth0", "192.168.7.1"]), &observation),
        underlay("eth1", &["192.168.7.1"])
    );
    assert_eq!(choice(&pattern(V4, &["eth1", "lo"]), &observation), underlay("eth1", &["192.168.7.1"]));
    let second = host(&HOST.replace("eth0 has 10.0.0.1/24", "eth0 has 10.0.0.9/24\n eth0 has 10.0.0.1/24"));
    assert_eq!(choice(&pattern(V4, &["10.0.0.1"]), &second), underlay("eth0", &["10.0.0.1"]));
}

#[test]
fn a_pattern_never_mixes_the_addresses_of_two_devices() {
    let observation = host(HOST);
    let across = pattern(DUAL, &["10.0.0.1", "fd00:2::1", "eth1"]);
    assert_eq!(choice(&across, &observation), underlay("eth1", &["192.168.7.1", "fd00:2::1"]));
    assert_eq!(
        refusals(&pattern(DUAL, &["10.0.0.1", "fd00:2::1"]), &observation),
        ["--iface-regex=x: it matches no interface: neither a usable address in each family nor a name"]
    );
}

#[test]
fn a_pattern_that_also_matches_unfit_devices_goes_on_to_the_next() {
    let reasons = chosen(&pattern(V4, &["lo", "flannel.1", "eth1"]), &host(HOST)).reasons;
    assert_eq!(reasons[0], "--iface-regex=x is lo: it only speaks to this host");
    assert_eq!(reasons[1], "eth1: --iface-regex=x asks for it");
}

#[test]
fn an_address_to_reach_is_followed_by_the_longest_route_in_its_family() {
    let observation = host(HOST);
    let reach = |families, target| UnderlayOptions { can_reach: Some(ip(target)), ..wishes(families) };
    let eth1 = underlay("eth1", &["192.168.7.1", "fd00:2::1"]);
    assert_eq!(choice(&reach(DUAL, "192.168.7.9"), &observation), eth1);
    assert_eq!(choice(&reach(DUAL, "fd00:2::9"), &observation), eth1);
    assert_eq!(choice(&reach(V4, "8.8.8.8"), &observation), underlay("eth0", &["10.0.0.1"]));
    assert_eq!(
        choice(&reach(V4, "10.244.2.9"), &observation),
        underlay("eth0", &["10.0.0.1"]),
        "not by our route"
    );
    assert_eq!(choice(&reach(V4, "fd00:2::9"), &observation), underlay("eth1", &["192.168.7.1"]));
    assert_eq!(
        chosen(&reach(V4, "192.168.7.9"), &observation).reasons,
        ["eth1: the route to 192.168.7.9 leads through it", "eth1: 192.168.7.1, as asked for"]
    );

    let unclear = host("eth0\n to 10.0.0.0/8 multipath\n to 10.1.0.0/16 blackhole");
    let option = "--iface-can-reach";
    assert_eq!(
        refusals(&reach(V4, "10.0.0.1"), &unclear),
        [format!("{option}=10.0.0.1: the route 10.0.0.0/8 leads several ways at once")]
    );
    assert_eq!(
        refusals(&reach(V4, "10.1.0.1"), &unclear),
        [format!("{option}=10.1.0.1: the route 10.1.0.0/16 leads to no interface")]
    );
    assert_eq!(
        refusals(&reach(V4, "11.0.0.1"), &unclear),
        [format!("{option}=11.0.0.1: the host has no route to this address")]
    );
}

#[test]
fn options_are_tried_in_the_order_of_go_flannel() {
    let wanted = UnderlayOptions {
        ifaces: vec!["eth9".to_owned()],
        can_reach: Some(ip("10.0.0.7")),
        ..pattern(V4, &["192.168.7.1"])
    };
    assert_eq!(choice(&wanted, &host(HOST)).link, name("eth1"));
    let wanted = UnderlayOptions { patterns: Vec::new(), ..wanted };
    assert_eq!(choice(&wanted, &host(HOST)).link, name("eth0"));
}

#[test]
fn a_public_address_alone_names_the_interface_that_has_it() {
    let observation = host(HOST);
    let public = |families, texts: &[&str]| UnderlayOptions { public: by_family(texts), ..wishes(families) };
    assert_eq!(choice(&public(V4, &["192.168.7.1"]), &observation), underlay("eth1", &["192.168.7.1"]));
    assert_eq!(choice(&public(V6, &["fd00:2::1"]), &observation), underlay("eth1", &["fd00:2::1"]));
    let eth1 = underlay("eth1", &["192.168.7.1", "fd00:2::1"]);
    assert_eq!(choice(&public(DUAL, &["192.168.7.1", "fd00:2::1"]), &observation), eth1);
    assert_eq!(choice(&public(DUAL, &["fd00:2::1"]), &observation), eth1);
    assert_eq!(choice(&public(V6, &["192.168.7.1"]), &observation).link, name("eth0"), "IPv4 is off");
    assert_eq!(
        refusals(&public(DUAL, &["192.168.7.1", "fd00:1::1"]), &observation),
        ["--public-ip=192.168.7.1 is eth1: it does not have fd00:1::1"]
    );
    let translated = refused(&public(V4, &["203.0.113.7"]), &observation);
    assert_eq!(translated.refused[0].to_string(), "--public-ip=203.0.113.7: no interface has this address");
    assert_eq!(
        translated.hint,
        "a public address alone means the interface that has it; if a router translates it, name the \
         interface too, with --iface=NAME"
    );
}

#[test]
fn a_translated_public_address_is_told_to_others_and_not_used_here() {
    let wanted = UnderlayOptions { public: by_family(&["203.0.113.7"]), ..iface(V4, &["eth0"]) };
    let expected = Underlay { public: by_family(&["203.0.113.7"]), ..underlay("eth0", &["10.0.0.1"]) };
    let choice = chosen(&wanted, &host(HOST));
    assert_eq!(choice.underlay, expected);
    assert_eq!(choice.reasons[2], "eth0: other nodes are told 203.0.113.7, by --public-ip");
    let two = host(&HOST.replace("eth0 has 10.0.0.1/24", "eth0 has 10.0.0.9/24\n eth0 has 203.0.113.7/24"));
    assert_eq!(chosen(&wanted, &two).underlay, underlay("eth0", &["203.0.113.7"]));
}

#[test]
fn without_a_default_route_an_only_usable_address_is_enough() {
    let alone = host(
        "lo\n lo has 127.0.0.1/8
         eth0\n eth0 has 10.0.0.1/24\n eth0 has fd00:1::1/64
         eth1 down\n eth1 has 10.1.0.1/24
         eth2\n eth2 has 169.254.0.1/16
         cni0\n cni0 has 10.244.1.1/24
         flannel.1\n flannel.1 has 10.244.1.0/32",
    );
    let choice = chosen(&wishes(DUAL), &alone);
    assert_eq!(choice.underlay, underlay("eth0", &["10.0.0.1", "fd00:1::1"]));
    assert_eq!(
        choice.reasons[0],
        "eth0: there is no default route, and no other device has a usable address"
    );
    let two = host("eth0\n eth0 has 10.0.0.1/24\n eth1\n eth1 has 10.1.0.1/24");
    assert_eq!(
        refusals(&wishes(V4), &two),
        ["default route: the host has none, and eth0, eth1 could be meant"]
    );
}

#[test]
fn a_device_that_leads_to_pods_is_never_taken() {
    let mut observation = host(
        "eth0
         cni0\n cni0 has 10.244.1.1/24
         flannel.2\n flannel.2 has 10.9.1.0/32
         veth7\n veth7 has fe80::7/64
         eth1\n eth1 has 192.168.7.1/24\n eth1 has fd00:2::1/64",
    );
    for fact in &mut observation.links {
        match fact.link.name.as_str() {
            "flannel.2" => fact.link.alias = "flanneld /run/other/subnet.env".into(),
            "veth7" => fact.link.kind = LinkKind::Other("veth".into()),
            _ => {}
        }
    }
    let all = ["eth0", "cni0", "flannel.2", "veth7", "eth1"];
    let choice = chosen(&pattern(V4, &all), &observation);
    assert_eq!(choice.underlay, underlay("eth1", &["192.168.7.1"]));
    let refused = [
        "--iface-regex=x is eth0: it has no IPv4 address",
        "--iface-regex=x is cni0: it has 10.244.1.1, an address of the pod network: it leads to pods",
        "--iface-regex=x is flannel.2: it is one of flannel's own, which the pod network is made of",
    ];
    assert_eq!(choice.reasons[..3], refused);
    assert_eq!(self::choice(&pattern(V6, &["cni0", "veth7", "eth1"]), &observation).link, name("eth1"));
    assert_eq!(
        refusals(&iface(V4, &["10.244.1.1"]), &observation),
        ["--iface=10.244.1.1 is cni0: it has 10.244.1.1, an address of the pod network: it leads to pods"]
    );
}

#[test]
fn a_virtual_address_of_the_pod_network_beside_the_nodes_own_leads_nowhere() {
    let observation =
        host("eth0\n eth0 has 10.244.7.200/32\n eth0 has 10.0.0.1/24\n veth8\n veth8 has 10.244.1.1/32");
    assert_eq!(chosen(&iface(V4, &["eth0"]), &observation).underlay, underlay("eth0", &["10.0.0.1"]));
    assert_eq!(
        refusals(&iface(V4, &["veth8"]), &observation),
        ["--iface=veth8: it has 10.244.1.1, an address of the pod network: it leads to pods"]
    );
}

#[test]
fn a_pod_network_that_holds_the_nodes_takes_their_addresses_only_where_it_gives_them_out() {
    let wide = r#"{"Network":"10.0.0.0/8","SubnetMin":"10.244.0.0","Backend":{"Type":"vxlan"}}"#;
    let observation =
        host("eth0\n eth0 has 10.0.0.1/24\n cni0\n cni0 has 10.244.1.1/24\n old0\n old0 has 10.250.1.1/24");
    let chosen = |config: &NetworkConfig, link: &str| {
        choose_in(config, &iface(V4, &[link]), &observation, None).map(|choice| choice.underlay.link).ok()
    };
    let given_out = NetworkConfig::parse(wide).unwrap();
    assert_eq!(chosen(&given_out, "eth0"), Some(name("eth0")));
    assert_eq!((chosen(&given_out, "cni0"), chosen(&given_out, "old0")), (None, None));
    let elsewhere = NetworkConfig::parse_without_subnets(wide).unwrap();
    assert_eq!(chosen(&elsewhere, "eth0"), Some(name("eth0")));
    assert_eq!(chosen(&elsewhere, "cni0"), None, "this node's own");
}

#[test]
fn an_address_in_use_is_kept_while_the_device_has_it() {
    let leased = "eth0\n eth0 has 10.0.0.1/24 leased\n to default via 10.0.0.254 dev eth0\n";
    let again = |host_now: &str, current: &Underlay| again(&wishes(V4), host_now, current).underlay;
    let current = choice(&wishes(V4), &host(leased));
    let with_virtual = format!("{leased} eth0 has 10.0.0.100/32");
    assert_eq!(choice(&wishes(V4), &host(&with_virtual)), underlay("eth0", &["10.0.0.100"]));
    assert_eq!(again(&with_virtual, &current), current);
    let moved = leased.replace("10.0.0.1/24", "10.0.0.7/24");
    assert_eq!(again(&moved, &current), underlay("eth0", &["10.0.0.7"]));
    let other_device = with_virtual.replace("eth0", "eth1");
    assert_eq!(again(&other_device, &current), underlay("eth1", &["10.0.0.100"]));
}

#[test]
fn a_device_in_use_stays_without_carrier_or_default_route_and_beside_a_better_one() {
    let current = underlay("eth0", &["10.0.0.1", "fd00:1::1"]);
    let vpn = "tun0\n tun0 has 10.8.0.2/24\n tun0 has fd00:8::2/64\n to default via 10.8.0.1 dev tun0";
    let cases = [
        HOST.to_owned(),
        format!("{HOST}\n{vpn}"),
        HOST.replace("to default via 10.0.0.254 dev eth0 metric 100", "")
            .replace("to default6 via fe80::ff dev eth0", ""),
        HOST.replacen("eth0\n", "eth0 no-carrier\n", 1),
        HOST.replace("dev eth0", "dev eth1"),
    ];
    for text in &cases {
        let kept = again(&wishes(DUAL), text, &current);
        assert_eq!((kept.underlay, kept.note), (current.clone(), None), "{text}");
        let reach = UnderlayOptions { can_reach: Some(ip("8.8.8.8")), ..wishes(DUAL) };
        assert_eq!(again(&reach, text, &current).underlay, current, "{text}");
    }
    let down = again(&wishes(DUAL), &HOST.replacen("eth0\n", "eth0 down\n", 1), &current);
    let note = "eth0 is down: no other node can be reached until it is up again";
    assert_eq!((down.underlay, down.note.as_ref().map(|note| &*note.text)), (current, Some(note)));
}

#[test]
fn a_device_in_use_is_left_when_the_wish_no_longer_names_it() {
    let current = underlay("eth0", &["10.0.0.1"]);
    let eth1 = underlay("eth1", &["192.168.7.1"]);
    let public = UnderlayOptions { public: by_family(&["192.168.7.1"]), ..wishes(V4) };
    for wanted in [iface(V4, &["eth1"]), iface(V4, &["192.168.7.1"]), pattern(V4, &["eth1"]), public] {
        assert_eq!(again(&wanted, HOST, &current).underlay, eth1, "{wanted:?}");
    }
    for wanted in [
        iface(V4, &["eth1", "eth0"]),
        iface(V4, &["192.168.7.1", "10.0.0.1"]),
        pattern(V4, &["192.168.7.1", "eth0"]),
        pattern(V4, &["eth1", "10.0.0.1"]),
    ] {
        assert_eq!(again(&wanted, HOST, &current).underlay, current, "{wanted:?}");
    }
}

#[test]
fn if_no_device_will_do_the_last_one_stays_with_a_note() {
    let current = underlay("eth0", &["10.0.0.1", "fd00:1::1"]);
    let without_v6 = HOST.replace("eth0 has fd00:1::1/64", "").replace("eth0 has fe80::1/64", "");
    let kept = again(&iface(DUAL, &["eth0"]), &without_v6, &current);
    let note = "no network interface can carry the pod network: --iface=eth0: it has no IPv6 address; eth0 stays \
                in force; name an interface that the host has, is up, and has an address in each family";
    assert_eq!((kept.underlay, kept.note.as_ref().map(|note| &*note.text)), (current.clone(), Some(note)));
    let gone = "lo\n cni0\n cni0 has 10.244.1.1/24";
    for wanted in [wishes(DUAL), iface(DUAL, &["10.0.0.1"]), pattern(DUAL, &["eth0", "cni0", "lo"])] {
        assert_eq!(again(&wanted, gone, &current).underlay, current, "{wanted:?}");
    }
    let other = iface(DUAL, &["eth9"]);
    assert!(choose_on(&other, &host(HOST), Some(&current)).is_err(), "never against the wish");
    let v4 = underlay("eth0", &["10.0.0.1"]);
    assert!(choose_on(&wishes(DUAL), &host(&without_v6), Some(&v4)).is_err(), "a family that it never had");
}

#[test]
fn what_a_lease_was_announced_from_is_found_by_its_addresses() {
    let observation = host(HOST);
    let from = |texts: &[&str]| announced_from(&by_family(texts), &observation);
    assert_eq!(from(&["192.168.7.1"]), Some(underlay("eth1", &["192.168.7.1"])));
    let eth0 = &["10.0.0.1", "fd00:1::1"];
    assert_eq!(from(eth0), Some(underlay("eth0", eth0)));
    assert_eq!(from(&["10.0.0.1", "fd00:2::1"]), None, "of two devices");
    assert_eq!((from(&["203.0.113.7"]), from(&[])), (None, None));
}

#[test]
fn wishes_that_contradict_themselves_are_refused() {
    let swapped = ByFamily { v4: Some(ip("fd00::1")), v6: None };
    let wanted = UnderlayOptions { public: swapped, ..wishes(V4) };
    assert_eq!(refusals(&wanted, &host(HOST)), ["--public-ip: fd00::1 is not an IPv4 address"]);
    assert_eq!(refusals(&wishes(&[]), &host(HOST)), ["any: no address family is on"]);
}

fn host_routes(text: &str) -> Vec<HostRoute> {
    let of = |fact: &RouteFact| {
        let Route { destination, kind, via, link, protocol, .. } = fact.route;
        HostRoute { destination, kind, via, link, protocol, metric: fact.metric }
    };
    host(text).routes.iter().map(of).collect()
}

#[test]
fn a_neighbour_is_who_the_best_route_reaches_without_a_router() {
    let routes = host_routes(
        "to default via 10.0.0.254 dev eth0
         to 10.0.0.0/24 dev eth1 metric 100
         to 10.0.0.0/24 dev eth0
         to 10.0.0.128/25 via 10.0.0.2 dev eth0
         to 10.0.0.192/26 blackhole
         to 10.0.0.224/27 multipath
         to fd00::/64 dev eth0
         to default6 dev ppp0",
    );
    let link = |target| on_link(&routes, ip(target)).map(|link| link.to_string());
    assert_eq!(link("10.0.0.1"), Some("eth0".to_owned()), "the lower metric");
    assert_eq!(link("10.0.0.129"), None, "a longer route has a router");
    assert_eq!(link("10.0.0.193"), None, "a blackhole");
    assert_eq!(link("10.0.0.225"), None, "several ways");
    assert_eq!(link("10.0.1.1"), None, "by the default route's router");
    assert_eq!(link("fd00::9"), Some("eth0".to_owned()));
    assert_eq!(link("fd01::9"), Some("ppp0".to_owned()), "a default route without a router");
    assert_eq!(best_route(&routes, ip("10.0.0.130")), Some(&routes[3]));
    assert_eq!(best_route(&routes[1..], ip("11.0.0.1")), None);
}
