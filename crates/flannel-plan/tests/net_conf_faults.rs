//! Broken net-confs: each with the whole list of its faults, as the operator reads it.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use flannel_plan::config::{ConfigFault, ConfigFaults, NetworkConfig};

/// A text and all that is wrong with it.
type Case = (&'static str, &'static [&'static str]);

#[track_caller]
fn check(cases: &[Case]) {
    for (text, expected) in cases {
        let faults = NetworkConfig::parse(text).map_or_else(|faults| faults.0, |_| Vec::new());
        let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(faults, *expected, "{text}");
    }
}

const NO_OBJECT: &[Case] = &[
    ("", &[r#"line 1, column 1: no text; expected a JSON object such as {"Network":"10.244.0.0/16"}"#]),
    ("  \n", &[r#"line 1, column 1: no text; expected a JSON object such as {"Network":"10.244.0.0/16"}"#]),
    ("\u{feff}{}", &["line 1, column 1: a byte order mark; save the text as UTF-8 without one"]),
    ("[]", &["line 1, column 1: invalid type: sequence, expected a JSON object"]),
    ("null", &["line 1, column 4: invalid type: null, expected a JSON object"]),
    ("{", &["line 1, column 1: EOF while parsing an object"]),
    (r#"{"Network":"10.244.0.0/16",}"#, &["line 1, column 28: trailing comma"]),
    (r#"{"Network":"10.244.0.0/16"} x"#, &["line 1, column 29: trailing characters"]),
    (
        "{\n  \"Network\": \"10.244.0.0/16\"\n  \"SubnetLen\": 24\n}",
        &["line 3, column 3: expected `,` or `}`"],
    ),
    ("Network=10.0.0.0/8", &["line 1, column 1: expected value"]),
    ("{'Network':1}", &["line 1, column 2: key must be a string"]),
    (r#""text""#, &[r#"line 1, column 6: invalid type: string "text", expected a JSON object"#]),
];

#[test]
fn what_is_no_json_object_is_refused_with_the_place() {
    check(NO_OBJECT);
}

const POD_NETWORK: &[Case] = &[
    ("{}", &["Network is absent, expected the addresses of all pods, because IPv4 is on"]),
    (r#"{"Network":null}"#, &[r#"Network is null, expected an IPv4 network such as "10.244.0.0/16""#]),
    (
        r#"{"Network":"10.244.0.0"}"#,
        &[r#"Network is "10.244.0.0", expected an IPv4 network such as "10.244.0.0/16""#],
    ),
    (r#"{"Network":""}"#, &[r#"Network is "", expected an IPv4 network such as "10.244.0.0/16""#]),
    (
        r#"{"Network":"10.244.0.0/33"}"#,
        &[r#"Network is "10.244.0.0/33", expected an IPv4 network such as "10.244.0.0/16""#],
    ),
    (r#"{"Network":42}"#, &[r#"Network is 42, expected an IPv4 network such as "10.244.0.0/16""#]),
    (
        r#"{"Network":"fd00::/48"}"#,
        &[r#"Network is "fd00::/48", expected an IPv4 network such as "10.244.0.0/16""#],
    ),
    (
        r#"{"Network":"0.0.0.0/0"}"#,
        &[r#"Network is "0.0.0.0/0", expected a part of the address space, not all of it"#],
    ),
    (
        r#"{"Network":"10.244.0.0/29","SubnetLen":30}"#,
        &[r#"Network is "10.244.0.0/29", expected /28 or larger: room for four subnets of four addresses"#],
    ),
    (
        r#"{"Network":"10.244.0.0/16","SubnetLen":31}"#,
        &["SubnetLen is 31, expected a whole number up to 30: a subnet needs at least four addresses"],
    ),
    (
        r#"{"Network":"10.244.0.0/16","SubnetLen":17}"#,
        &["SubnetLen is 17, expected at least 18: 10.244.0.0/16 must have room for four subnets"],
    ),
    (
        r#"{"Network":"10.244.0.0/16","SubnetLen":"24"}"#,
        &[r#"SubnetLen is "24", expected a whole number up to 30: a subnet needs at least four addresses"#],
    ),
    (
        r#"{"Network":"10.244.0.0/16","SubnetLen":-1}"#,
        &["SubnetLen is -1, expected a whole number up to 30: a subnet needs at least four addresses"],
    ),
    (
        r#"{"Network":"10.244.0.0/16","SubnetLen":24.0}"#,
        &["SubnetLen is 24.0, expected a whole number up to 30: a subnet needs at least four addresses"],
    ),
    (
        r#"{"Network":"10.244.0.0/16","SubnetMin":"10.245.0.0","SubnetMax":"10.243.0.0"}"#,
        &[
            r#"SubnetMin is "10.245.0.0", expected an address of 10.244.0.0/16"#,
            r#"SubnetMax is "10.243.0.0", expected an address of 10.244.0.0/16"#,
        ],
    ),
    (
        r#"{"Network":"10.244.0.0/16","SubnetMin":"10.244.1.5"}"#,
        &[r#"SubnetMin is "10.244.1.5", expected the first address of a subnet, such as 10.244.1.0"#],
    ),
    (
        r#"{"Network":"10.244.0.0/16","SubnetMin":"10.244.9.0","SubnetMax":"10.244.3.0"}"#,
        &[r#"SubnetMin is "10.244.9.0", expected at most 10.244.3.0, the last subnet"#],
    ),
    (
        r#"{"Network":"10.244.0.0/16","SubnetMax":"10.244.0.0"}"#,
        &[r#"SubnetMax is "10.244.0.0", expected at least 10.244.1.0, the first subnet"#],
    ),
    (
        r#"{"Network":"10.244.0.0/16","SubnetMin":null,"SubnetMax":"fd00::"}"#,
        &[
            "SubnetMin is null, expected an IPv4 address",
            r#"SubnetMax is "fd00::", expected an IPv4 address"#,
        ],
    ),
    (
        r#"{"Network":"10.244.0.0/16","SubnetLen":40,"SubnetMin":"10.1.0.0"}"#,
        &[
            "SubnetLen is 40, expected a whole number up to 30: a subnet needs at least four addresses",
            r#"SubnetMin is "10.1.0.0", expected an address of 10.244.0.0/16"#,
        ],
    ),
    (
        r#"{"EnableIPv6":true,"Network":"10.244.0.0/16","IPv6Network":"10.245.0.0/16"}"#,
        &[r#"IPv6Network is "10.245.0.0/16", expected an IPv6 network such as "fd00:244::/48""#],
    ),
    (
        r#"{"EnableIPv6":true,"Network":"10.244.0.0/16","IPv6Network":"fd00::/125"}"#,
        &[r#"IPv6Network is "fd00::/125", expected /124 or larger: room for four subnets of four addresses"#],
    ),
    (
        r#"{"EnableIPv6":true,"Network":"10.244.0.0/16","IPv6Network":"fd00::/48","IPv6SubnetLen":127}"#,
        &["IPv6SubnetLen is 127, expected a whole number up to 126: a subnet needs at least four addresses"],
    ),
    (
        r#"{"EnableIPv6":true,"Network":"10.244.0.0/16","IPv6Network":"fd00::/48","IPv6SubnetLen":49}"#,
        &["IPv6SubnetLen is 49, expected at least 50: fd00::/48 must have room for four subnets"],
    ),
    (
        r#"{"EnableIPv6":true,"Network":"10.244.0.0/16","IPv6Network":"fd00::/48","IPv6SubnetMin":"fd01::","IPv6SubnetMax":"fd00::1"}"#,
        &[
            r#"IPv6SubnetMin is "fd01::", expected an address of fd00::/48"#,
            r#"IPv6SubnetMax is "fd00::1", expected the first address of a subnet, such as fd00::"#,
        ],
    ),
    (
        r#"{"Network":"10.244.0.0/16","IPv6Network":null}"#,
        &[r#"IPv6Network is null, expected an IPv6 network such as "fd00:244::/48""#],
    ),
];

#[test]
fn the_pod_network_of_either_family_is_checked() {
    check(POD_NETWORK);
}

const FLAGS: &[Case] = &[
    (
        r#"{"EnableIPv4":false}"#,
        &["EnableIPv4 is false, expected true, or EnableIPv6 true: no address family is on"],
    ),
    (
        r#"{"EnableIPv4":false,"EnableIPv6":false,"Network":"10.244.0.0/16"}"#,
        &["EnableIPv4 is false, expected true, or EnableIPv6 true: no address family is on"],
    ),
    (
        r#"{"EnableIPv4":"yes","EnableIPv6":1,"EnableNFTables":"on","Network":"10.244.0.0/16"}"#,
        &[
            r#"EnableIPv4 is "yes", expected true or false"#,
            "EnableIPv6 is 1, expected true or false",
            r#"EnableNFTables is "on", expected true or false"#,
        ],
    ),
    (
        r#"{"EnableIPv6":true,"Network":"10.244.0.0/16"}"#,
        &["IPv6Network is absent, expected the addresses of all pods, because IPv6 is on"],
    ),
];

const KEEP_SOURCE: &[Case] = &[
    (
        r#"{"Network":"10.244.0.0/16","NonMasqueradeCIDRs":"10.0.0.0/8"}"#,
        &[r#"NonMasqueradeCIDRs is "10.0.0.0/8", expected a list of networks such as ["10.0.0.0/8"]"#],
    ),
    (
        r#"{"Network":"10.244.0.0/16","NonMasqueradeCIDRs":["10.0.0.0/8","10.0.0.1/8","home",7]}"#,
        &[
            r#"NonMasqueradeCIDRs[1] is "10.0.0.1/8", expected 10.0.0.0/8, the network that it is inside of, or the single address 10.0.0.1/32"#,
            r#"NonMasqueradeCIDRs[2] is "home", expected a network such as 10.0.0.0/8 or fd00::/8"#,
            "NonMasqueradeCIDRs[3] is 7, expected a network such as 10.0.0.0/8 or fd00::/8",
        ],
    ),
];

#[test]
fn networks_to_which_pods_keep_their_address_are_checked_one_by_one() {
    check(KEEP_SOURCE);
    let many = vec![r#""10.0.0.0/8""#; 4097].join(",");
    let text = format!(r#"{{"Network":"10.244.0.0/16","NonMasqueradeCIDRs":[{many}]}}"#);
    let faults = NetworkConfig::parse(&text).unwrap_err().to_string();
    let expected = "NonMasqueradeCIDRs is a list of 4097, expected at most 4096 networks";
    assert_eq!(faults, format!("the network configuration cannot be used: {expected}"));
}

#[test]
fn families_and_flags_are_checked() {
    check(FLAGS);
}

const BACKEND: &[Case] = &[
    (
        r#"{"Network":"10.244.0.0/16","Backend":null}"#,
        &[
            "Backend is null, expected an object with the key Type: one of vxlan, host-gw, alloc (or, in Go flannel only: udp, ipip, wireguard, ipsec, extension, tencent-vpc)",
        ],
    ),
    (
        r#"{"Network":"10.244.0.0/16","Backend":"vxlan"}"#,
        &[
            r#"Backend is "vxlan", expected an object with the key Type: one of vxlan, host-gw, alloc (or, in Go flannel only: udp, ipip, wireguard, ipsec, extension, tencent-vpc)"#,
        ],
    ),
    (
        r#"{"Network":"10.244.0.0/16","Backend":{}}"#,
        &[
            "Backend.Type is absent, expected one of vxlan, host-gw, alloc (or, in Go flannel only: udp, ipip, wireguard, ipsec, extension, tencent-vpc)",
        ],
    ),
    (
        r#"{"Network":"10.244.0.0/16","Backend":{"Type":null}}"#,
        &[
            "Backend.Type is null, expected one of vxlan, host-gw, alloc (or, in Go flannel only: udp, ipip, wireguard, ipsec, extension, tencent-vpc)",
        ],
    ),
    (
        r#"{"Network":"10.244.0.0/16","Backend":{"Type":7}}"#,
        &[
            "Backend.Type is 7, expected one of vxlan, host-gw, alloc (or, in Go flannel only: udp, ipip, wireguard, ipsec, extension, tencent-vpc)",
        ],
    ),
    (
        r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlna"}}"#,
        &[
            r#"Backend.Type is "vxlna", expected one of vxlan, host-gw, alloc (or, in Go flannel only: udp, ipip, wireguard, ipsec, extension, tencent-vpc)"#,
        ],
    ),
    (
        r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan","VNI":16777215}}"#,
        &[
            "Backend.VNI is 16777215, expected a whole number up to 9999999: the name flannel.VNI must fit in 15 characters",
        ],
    ),
    (
        r#"{"Network":"10.244.0.0/16","EnableIPv6":true,"IPv6Network":"fd00::/48","Backend":{"Type":"vxlan","VNI":10000,"MTU":1300}}"#,
        &[
            "Backend.VNI is 10000, expected a whole number up to 9999: with IPv6 on, the name flannel-v6.VNI must fit in 15 characters",
            "Backend.MTU is 1300, expected 0 for the interface's own, or 1350 to 65535: IPv6 needs 1280 above the tunnel, which takes 70",
        ],
    ),
    (
        r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan","VNI":-1,"Port":65536,"MTU":100,"GBP":1,"Learning":"no","DirectRouting":[]}}"#,
        &[
            "Backend.VNI is -1, expected a whole number up to 9999999: the name flannel.VNI must fit in 15 characters",
            "Backend.Port is 65536, expected a whole number up to 65535",
            "Backend.MTU is 100, expected 0 for the interface's own, or 118 to 65535: IPv4 needs 68 above the tunnel, which takes 50",
            "Backend.GBP is 1, expected true or false",
            r#"Backend.Learning is "no", expected true or false"#,
            "Backend.DirectRouting is [], expected true or false",
        ],
    ),
    (
        r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan","MTU":1e9}}"#,
        &[
            "Backend.MTU is 1e9, expected 0 for the interface's own, or 118 to 65535: IPv4 needs 68 above the tunnel, which takes 50",
        ],
    ),
    (
        r#"{"Network":"10.244","SubnetLen":"x","EnableIPv6":true,"Backend":{"Type":"vxlan","VNI":"one"}}"#,
        &[
            r#"Network is "10.244", expected an IPv4 network such as "10.244.0.0/16""#,
            r#"SubnetLen is "x", expected a whole number up to 30: a subnet needs at least four addresses"#,
            "IPv6Network is absent, expected the addresses of all pods, because IPv6 is on",
            r#"Backend.VNI is "one", expected a whole number up to 9999: with IPv6 on, the name flannel-v6.VNI must fit in 15 characters"#,
        ],
    ),
];

#[test]
fn the_backend_and_its_settings_are_checked() {
    check(BACKEND);
}

#[test]
fn all_faults_together_are_one_error() {
    let faults = NetworkConfig::parse(r#"{"SubnetLen":"24","Backend":{"Type":"alloc"}}"#).unwrap_err();
    let key = |key: &str, value: &str, expected: &str| ConfigFault::Key {
        key: key.to_owned(),
        value: value.to_owned(),
        expected: expected.to_owned(),
    };
    let expected = ConfigFaults(vec![
        key("SubnetLen", "\"24\"", "a whole number up to 30: a subnet needs at least four addresses"),
        key("Network", "absent", "the addresses of all pods, because IPv4 is on"),
    ]);
    assert_eq!(faults, expected);
    assert_eq!(
        faults.to_string(),
        "the network configuration cannot be used: SubnetLen is \"24\", expected a whole number up to 30: a \
         subnet needs at least four addresses; Network is absent, expected the addresses of all pods, because \
         IPv4 is on"
    );
}
