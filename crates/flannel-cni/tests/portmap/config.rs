//! The configuration: what is refused, with which words, and what odd settings make.

use serde_json::{Value, json};

use crate::stage::*;

fn tcp(host_port: i64) -> Value {
    json!([{"hostPort": host_port, "containerPort": 80, "protocol": "tcp"}])
}

#[test]
fn a_wrong_configuration_is_refused_in_gos_words() {
    let faults = [
        (json!({"backend": "magic"}), "unrecognized backend \"magic\""),
        (json!({"markMasqBit": 32}), "MasqMarkBit must be between 0 and 31"),
        (json!({"markMasqBit": -1}), "MasqMarkBit must be between 0 and 31"),
        (
            json!({"markMasqBit": 5, "externalSetMarkChain": "X"}),
            "Cannot specify externalSetMarkChain and markMasqBit",
        ),
        (
            json!({"backend": "nftables", "externalSetMarkChain": "X", "conditionsV4": ["-d", "1.1.1.1"]}),
            "nftables backend was requested but configuration contains iptables-specific options [externalSetMarkChain conditionsV4]",
        ),
        (
            json!({"backend": "iptables", "conditionsV4": ["ip", "daddr", "1.1.1.1"], "conditionsV6": ["ip6", "daddr", "::1"]}),
            "iptables backend was requested but configuration contains nftables-specific options [conditionsV4 conditionsV6]",
        ),
        (
            json!({"conditionsV6": ["ip6", "daddr", "::1"], "runtimeConfig": {}}),
            "iptables backend was requested but configuration contains nftables-specific options [conditionsV6]",
        ),
        (json!({"snat": "yes"}), "snat must be a boolean, not \"yes\""),
    ];
    on_a_host(|| {
        for (more, words) in faults {
            let refused = Err((999, format!("failed to parse config: {words}")));
            assert_eq!(portmap("ADD", &config(&["10.22.0.2/16"], tcp(8080), more)), refused);
        }
        assert_eq!(nft(), "");
    });
}

#[test]
fn a_wrong_mapping_is_refused() {
    let faults = [
        (tcp(0), "Invalid host port number: 0"),
        (tcp(65_536), "Invalid host port number: 65536"),
        (json!([{"hostPort": 80, "protocol": "tcp"}]), "Invalid container port number: 0"),
        (
            json!([{"hostPort": 80, "containerPort": 80, "protocol": "icmp"}]),
            "Invalid protocol: \"icmp\" has no ports",
        ),
        (json!([5]), "portMappings must hold objects, not 5"),
    ];
    on_a_host(|| {
        for (mappings, words) in faults {
            let refused = Err((999, format!("failed to parse config: {words}")));
            assert_eq!(portmap("ADD", &config(&["10.22.0.2/16"], mappings, json!({}))), refused);
        }
    });
}

#[test]
fn keys_are_taken_as_containerd_writes_them() {
    on_a_host(|| {
        let mappings = json!([{"HostPort": 8080, "ContainerPort": 80, "Protocol": "TCP", "HostIP": ""}]);
        portmap("ADD", &config(&["10.22.0.2/16"], mappings, json!({"backend": "nftables"}))).unwrap();
        assert!(nft().contains("tcp dport 8080 dnat to 10.22.0.2:80 comment \"c0ffee01\""), "{}", nft());
    });
}

/// Mappings at addresses of the host: one address, all of a family, and IPv4 in the clothes of IPv6.
fn mappings_at_addresses() -> Value {
    let at = |host_ip: &str, port: u16| json!({"hostPort": port, "containerPort": port, "protocol": "tcp", "hostIP": host_ip});
    json!([
        at("192.168.0.2", 8083),
        at("0.0.0.0", 8084),
        at("2001:db8:a::1", 8085),
        at("::", 8086),
        at("::ffff:192.168.0.3", 8087),
    ])
}

#[test]
fn an_address_of_the_host_binds_a_mapping_to_its_family_by_nftables() {
    on_a_host(|| {
        let addresses = ["10.22.0.2/16", "fd00:22::2/64"];
        portmap("ADD", &config(&addresses, mappings_at_addresses(), json!({"backend": "nftables"}))).unwrap();
        let mappings = |line: &str| Some(line.trim().split_once(" dnat to")?.0.to_owned());
        assert_eq!(
            nft().lines().filter_map(mappings).collect::<Vec<_>>(),
            [
                "ip daddr 192.168.0.2 tcp dport 8083",
                "tcp dport 8084",
                "ip daddr 192.168.0.3 tcp dport 8087",
                "ip6 daddr 2001:db8:a::1 tcp dport 8085",
                "tcp dport 8086",
            ]
        );
    });
}

#[test]
fn an_address_of_the_host_binds_a_mapping_to_its_family_by_iptables() {
    on_a_host(|| {
        let addresses = ["10.22.0.2/16", "fd00:22::2/64"];
        portmap("ADD", &config(&addresses, mappings_at_addresses(), json!({"backend": "iptables"}))).unwrap();
        let mapping = |line: String| {
            let rule = line.strip_prefix("-A CNI-DN-7acf3bcf10978b0598870 ")?;
            Some(rule.split_once(" -j DNAT")?.0.to_owned())
        };
        let mappings = |program: &str| nat(program).into_iter().filter_map(mapping).collect::<Vec<_>>();
        assert_eq!(
            mappings("iptables-save"),
            [
                "-d 192.168.0.2/32 -p tcp -m tcp --dport 8083",
                "-p tcp -m tcp --dport 8084",
                "-d 192.168.0.3/32 -p tcp -m tcp --dport 8087",
            ]
        );
        assert_eq!(
            mappings("ip6tables-save"),
            ["-d 2001:db8:a::1/128 -p tcp -m tcp --dport 8085", "-p tcp -m tcp --dport 8086"]
        );
    });
}

#[test]
fn an_unreadable_address_of_the_host_counts_as_one_of_ipv6() {
    on_a_host(|| {
        let mappings =
            json!([{"hostPort": 80, "containerPort": 80, "protocol": "tcp", "hostIP": "localhost"}]);
        for backend in ["iptables", "nftables"] {
            portmap("ADD", &config(&["10.22.0.2/16"], mappings.clone(), json!({"backend": backend})))
                .unwrap();
            let refused =
                portmap("ADD", &config(&["fd00:22::2/64"], mappings.clone(), json!({"backend": backend})));
            assert_eq!(refused, Err((999, "Invalid host IP: localhost".to_owned())));
        }
    });
}

#[test]
fn more_than_fifteen_ports_need_more_than_one_entry() {
    on_a_host(|| {
        let mappings: Vec<_> = (1..=32)
            .map(|port| json!({"hostPort": 8000 + port, "containerPort": port, "protocol": "tcp"}))
            .collect();
        let asked = config(&["10.22.0.2/16"], mappings.into(), json!({"backend": "iptables"}));
        portmap("ADD", &asked).unwrap();
        let entries = || nat("iptables-save").into_iter().filter(|rule| rule.contains("--dports")).count();
        assert_eq!(entries(), 3);
        assert_eq!(portmap("CHECK", &asked), Ok(Value::Null));
        portmap("DEL", &asked).unwrap();
        assert_eq!(entries(), 0);
    });
}

#[test]
fn only_addresses_of_the_containers_interface_are_used() {
    on_a_host(|| {
        let mut asked = config(&["10.22.0.2/16"], tcp(8080), json!({"backend": "nftables"}));
        asked["prevResult"]["ips"] = json!([
            {"interface": 0, "address": "10.22.0.1/16"},
            {"interface": 1, "address": "10.22.0.2/16"},
            {"interface": 1, "address": "10.22.0.3/16"},
            {"address": "fd00:22::2/64"},
        ]);
        portmap("ADD", &asked).unwrap();
        let found: Vec<_> = nft()
            .lines()
            .filter_map(|line| Some(line.split_once("dnat to ")?.1.split(' ').next()?.to_owned()))
            .collect();
        assert_eq!(found, ["10.22.0.2:80", "[fd00:22::2]:80"]);
    });
}

#[test]
fn very_long_names_of_containers_work_and_are_told_apart_by_their_interface() {
    let long = "c".repeat(300);
    for backend in ["iptables", "nftables"] {
        on_a_host(|| {
            let asked = config(&["10.22.0.2/16"], tcp(8080), json!({"backend": backend}));
            portmap_for(&long, "eth0", "ADD", &asked).unwrap();
            assert_eq!(portmap_for(&long, "eth0", "CHECK", &asked), Ok(Value::Null));
            assert_eq!(portmap_for(&long, "eth0", "DEL", &asked), Ok(Value::Null));
            assert!(!nft().contains("cccc") && !nft().contains("10.22.0.2"), "{}", nft());
        });
    }
}

#[test]
fn conditions_that_only_nft_understands_are_given_to_it() {
    on_a_host(|| {
        let conditions = json!(["ip", "daddr", "!=", "{ 192.0.2.1, 192.0.2.2 }"]);
        let more = json!({"backend": "nftables", "conditionsV4": conditions});
        portmap("ADD", &config(&["10.22.0.2/16"], tcp(8080), more)).unwrap();
        let rule = "ip daddr != { 192.0.2.1, 192.0.2.2 } fib daddr type local jump hostports_all";
        assert_eq!(nft().matches(rule).count(), 2, "{}", nft());
        let more = json!({"backend": "nftables", "conditionsV4": ["no", "sense"]});
        let (code, message) = portmap("ADD", &config(&["10.22.0.2/16"], tcp(8080), more)).unwrap_err();
        assert_eq!(code, 999);
        assert!(message.starts_with("unable to set up nftables rules for port mappings: nft: "), "{message}");
        // The last one that is added has its way, as in Go.
        portmap("ADD", &config(&["10.22.0.2/16"], tcp(8080), json!({"backend": "nftables"}))).unwrap();
        assert_eq!(nft().matches(rule).count(), 0);
    });
}
