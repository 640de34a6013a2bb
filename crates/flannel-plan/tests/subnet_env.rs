//! subnet.env: written as Go flannel writes it, read whatever the file looks like.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

use std::path::{Path, PathBuf};

use flannel_plan::family::ByFamily;
use flannel_plan::subnet_env::{SubnetEnv, SubnetEnvError, previous_subnets};
use ipnet::IpNet;
use proptest::prelude::*;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn golden_files() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")];
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir().unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().unwrap().to_str().unwrap().starts_with("subnet.env") {
                found.push(path);
            }
        }
    }
    found
}

#[test]
fn files_that_go_flannel_wrote_come_back_to_the_byte() {
    let files = golden_files();
    assert_eq!(files.len(), 14 * 3 + 3 * 3);
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(SubnetEnv::parse(&text).expect(&text).to_string(), text, "{}", path.display());
    }
}

#[test]
fn a_dual_stack_node_writes_both_families() {
    let env = SubnetEnv {
        networks: ByFamily { v4: Some(vec![net("10.244.0.0/16")]), v6: Some(vec![net("fd00:244::/48")]) },
        subnets: ByFamily { v4: Some(net("10.244.14.144/28")), v6: Some(net("fd00:244:0:30::/64")) },
        mtu: 1430,
        ip_masq: true,
    };
    let text = "FLANNEL_NETWORK=10.244.0.0/16\n\
                FLANNEL_SUBNET=10.244.14.145/28\n\
                FLANNEL_IPV6_NETWORK=fd00:244::/48\n\
                FLANNEL_IPV6_SUBNET=fd00:244:0:30::1/64\n\
                FLANNEL_MTU=1430\n\
                FLANNEL_IPMASQ=true\n";
    assert_eq!(env.to_string(), text);
    assert_eq!(SubnetEnv::parse(text), Ok(env));
}

#[test]
fn a_file_that_a_person_wrote_is_read_by_the_rules_of_dotenv() {
    let text = "\u{feff}# made by hand\r\n\
                \r\n\
                export FLANNEL_NETWORK=\"10.1.0.0/16, 10.2.3.4/16,nonsense,10.1.9.9/16,fd00::/48\" # both\r\n\
                \texport\tFLANNEL_SUBNET = '10.1.17.1/24'\r\n\
                #FLANNEL_SUBNET=10.1.18.1/24\r\n\
                FLANNEL_IPV6_NETWORK=\r\n\
                FLANNEL_IPV6_SUBNET\r\n\
                FLANNEL_MTU=9000\r\n\
                FLANNEL_MTU=1450 # smaller\r\n\
                FLANNEL_IPMASQ=false\r\n\
                exportFLANNEL_MTU=1\r\n\
                =\r\n\
                FLANNEL_COLOR=blue";
    let expected = SubnetEnv {
        networks: ByFamily { v4: Some(vec![net("10.1.0.0/16"), net("10.2.0.0/16")]), v6: None },
        subnets: ByFamily { v4: Some(net("10.1.17.0/24")), v6: None },
        mtu: 1450,
        ip_masq: false,
    };
    assert_eq!(SubnetEnv::parse(text), Ok(expected.clone()));
    let several = "FLANNEL_NETWORK=10.1.0.0/16,10.2.0.0/16\nFLANNEL_SUBNET=10.1.17.1/24\n\
                   FLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n";
    assert_eq!(expected.to_string(), several);
}

#[test]
fn what_a_pod_needs_and_does_not_find_is_named() {
    let missing = |text: &str| SubnetEnv::parse(text).unwrap_err().missing.join(" ");
    let networks = "FLANNEL_NETWORK FLANNEL_IPV6_NETWORK";
    let subnets = "FLANNEL_SUBNET FLANNEL_IPV6_SUBNET";
    assert_eq!(missing(""), format!("{networks} {subnets} FLANNEL_MTU FLANNEL_IPMASQ"));
    assert_eq!(
        missing(
            "FLANNEL_NETWORK=fd00::/48\nFLANNEL_SUBNET=10.1.0.1/24,10.2.0.1/24\nFLANNEL_MTU=-1\nFLANNEL_IPMASQ=true"
        ),
        format!("{networks} {subnets} FLANNEL_MTU")
    );
    assert_eq!(
        missing("FLANNEL_IPV6_NETWORK=fd00::/48\nFLANNEL_IPV6_SUBNET=fd00::1/64\nFLANNEL_MTU=1430"),
        "FLANNEL_IPMASQ"
    );
    let error = SubnetEnvError { missing: vec!["FLANNEL_MTU", "FLANNEL_IPMASQ"] };
    assert_eq!(error.to_string(), "missing or not valid: FLANNEL_MTU, FLANNEL_IPMASQ");
}

#[test]
fn the_previous_subnets_are_found_in_a_broken_file_too() {
    let text = "FLANNEL_SUBNET=10.5.72.1/24\nFLANNEL_IPV6_SUBNET=fd00:0:0:1::1/64,fd00:0:0:2::1/64\n";
    assert_eq!(previous_subnets(text), ByFamily { v4: Some(net("10.5.72.0/24")), v6: None });
    assert_eq!(previous_subnets("FLANNEL_SUBNET=\"10.5.72.1/24"), ByFamily::default());
}

#[test]
fn the_last_address_of_all_has_no_next_one() {
    let env = SubnetEnv {
        networks: ByFamily::default(),
        subnets: ByFamily {
            v4: Some(net("255.255.255.255/32")),
            v6: Some(net("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128")),
        },
        mtu: 1500,
        ip_masq: false,
    };
    assert!(env.to_string().starts_with("FLANNEL_SUBNET=255.255.255.255/32\n"));
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(
        text in "(?s)(FLANNEL_(NETWORK|SUBNET|MTU|IPMASQ)|export |[=\"'#,/\r\n 0-9a-f.:]|\\PC){0,60}",
    ) {
        if let Ok(env) = SubnetEnv::parse(&text) {
            prop_assert_eq!(previous_subnets(&text), env.subnets);
            prop_assert_eq!(SubnetEnv::parse(&env.to_string()), Ok(env));
        }
    }
}
