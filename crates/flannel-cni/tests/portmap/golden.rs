//! The same calls as were made of Go's plugin, with the same answers and the same rules left.

use flannel_cni::plugins::Plugin;
use serde_json::Value;

use crate::stage::*;

fn texts(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|line| line.as_str().unwrap().to_owned()).collect()
}

/// Makes the calls of a case and compares the answers; what is left is for the caller to compare.
fn replay(case: &Value) {
    for step in case["steps"].as_array().unwrap() {
        let variable = |name: &str| step["env"][name].as_str().unwrap();
        let call = Call {
            plugin: Plugin::Portmap,
            command: variable("CNI_COMMAND"),
            container: variable("CNI_CONTAINERID"),
            ifname: variable("CNI_IFNAME"),
            config: step["stdin"].clone(),
        };
        let said = call.run().unwrap();
        let expected = if step["stdout"] == "" { Value::Null } else { step["stdout"].clone() };
        assert_eq!(said, expected);
    }
}

fn rules_left(case: &Value) -> Vec<String> {
    texts(&case["left"]["iptables"]).into_iter().filter(|line| line.starts_with([':', '-'])).collect()
}

#[test]
fn iptables_gets_the_rules_that_go_makes() {
    for name in [
        "iptables",
        "iptables-conditions",
        "iptables-del",
        "iptables-dual",
        "iptables-masqall",
        "iptables-snat-off",
        "markbit",
        "markbit-extchain",
    ] {
        let case = golden(&format!("portmap-{name}"));
        on_a_host(|| {
            if name == "markbit-extchain" {
                sh("iptables -t nat -N EXT-MARK");
            }
            replay(&case);
            assert_eq!(nat("iptables-save"), rules_left(&case), "{name}");
        });
    }
}

#[test]
fn iptables_gets_the_rules_that_go_makes_also_where_it_is_legacy() {
    for name in ["iptables", "iptables-conditions", "iptables-del", "iptables-masqall", "markbit"] {
        let case = golden(&format!("portmap-{name}"));
        on_a_host(|| {
            with_legacy_iptables();
            replay(&case);
            let sorted = |mut lines: Vec<String>| {
                lines.sort();
                lines
            };
            assert_eq!(sorted(nat("iptables-save")), sorted(rules_left(&case)), "{name}");
            assert_eq!(nft(), "");
        });
    }
}

#[test]
fn both_families_get_the_rules_that_go_makes_in_nftables_eyes() {
    let case = golden("portmap-iptables-dual");
    on_a_host(|| {
        replay(&case);
        let by_us = nat("ip6tables-save");
        assert_eq!(
            by_us,
            [
                ":PREROUTING ACCEPT ",
                ":INPUT ACCEPT ",
                ":OUTPUT ACCEPT ",
                ":POSTROUTING ACCEPT ",
                ":CNI-DN-7acf3bcf10978b0598870 - ",
                ":CNI-HOSTPORT-DNAT - ",
                ":CNI-HOSTPORT-MASQ - ",
                ":CNI-HOSTPORT-SETMARK - ",
                "-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT",
                "-A OUTPUT -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT",
                "-A POSTROUTING -m comment --comment \"CNI portfwd requiring masquerade\" -j CNI-HOSTPORT-MASQ",
                "-A CNI-DN-7acf3bcf10978b0598870 -s fd00:22::/64 -p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK",
                "-A CNI-DN-7acf3bcf10978b0598870 -p tcp -m tcp --dport 8080 -j DNAT --to-destination [fd00:22::2]:80",
                "-A CNI-DN-7acf3bcf10978b0598870 -s fd00:22::/64 -p udp -m udp --dport 8081 -j CNI-HOSTPORT-SETMARK",
                "-A CNI-DN-7acf3bcf10978b0598870 -p udp -m udp --dport 8081 -j DNAT --to-destination [fd00:22::2]:81",
                "-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment \"dnat name: \\\"mynet\\\" id: \\\"c0ffee01\\\"\" -m multiport --dports 8080,8082 -j CNI-DN-7acf3bcf10978b0598870",
                "-A CNI-HOSTPORT-DNAT -p udp -m comment --comment \"dnat name: \\\"mynet\\\" id: \\\"c0ffee01\\\"\" -m multiport --dports 8081 -j CNI-DN-7acf3bcf10978b0598870",
                "-A CNI-HOSTPORT-MASQ -m mark --mark 0x2000/0x2000 -j MASQUERADE",
                "-A CNI-HOSTPORT-SETMARK -m comment --comment \"CNI portfwd masquerade mark\" -j MARK --set-xmark 0x2000/0x2000",
            ]
        );
    });
}

#[test]
fn nftables_gets_the_rules_that_go_makes() {
    for name in ["nftables", "nftables-conditions", "nftables-del", "nftables-dual", "nftables-snat-off"] {
        let case = golden(&format!("portmap-{name}"));
        on_a_host(|| {
            replay(&case);
            let left: Vec<_> = nft().lines().map(str::to_owned).collect();
            assert_eq!(left, texts(&case["left"]["nft"]), "{name}");
        });
    }
}

#[test]
fn masquerading_all_works_with_nftables_which_go_forgets() {
    let case = golden("portmap-nftables-masqall");
    on_a_host(|| {
        replay(&case);
        let marked: Vec<_> = texts(&case["left"]["nft"])
            .iter()
            .flat_map(|line| match line.split_once(" dnat to ") {
                Some((before, after)) => {
                    vec![format!("{before} meta mark set meta mark | 0x00002000 dnat to {after}")]
                }
                None if line.contains("saddr 127.0.0.1") => vec![
                    line.clone(),
                    "\t\tip daddr 10.22.0.2 meta mark & 0x00002000 == 0x00002000 masquerade comment \"c0ffee01\""
                        .to_owned(),
                ],
                None => vec![line.clone()],
            })
            .collect();
        assert_eq!(nft().lines().collect::<Vec<_>>(), marked);
    });
}

#[test]
fn without_ports_nothing_is_made() {
    let case = golden("portmap-no-ports");
    on_a_host(|| {
        replay(&case);
        assert_eq!(nft(), "");
    });
}
