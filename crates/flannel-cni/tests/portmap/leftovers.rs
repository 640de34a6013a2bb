//! What is left: nothing of an attachment that is gone, everything of the others.

use serde_json::{Value, json};

use crate::stage::*;

const BACKENDS: [&str; 2] = ["iptables", "nftables"];
const ADDRESSES: [&str; 2] = ["10.22.0.2/16", "fd00:22::2/64"];

fn ports() -> Value {
    json!([
        {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
        {"hostPort": 8081, "containerPort": 81, "protocol": "udp"},
    ])
}

/// Everything that names a container: its comment, its chain, its addresses.
fn traces(of: &str) -> Vec<String> {
    let all = format!("{}{}{}", nft(), sh("iptables-save -t nat"), sh("ip6tables-save -t nat"));
    all.lines().filter(|line| line.contains(of)).map(str::to_owned).collect()
}

#[test]
fn a_repeated_add_makes_nothing_twice() {
    for backend in BACKENDS {
        on_a_host(|| {
            let asked = config(&ADDRESSES, ports(), json!({"backend": backend}));
            portmap("ADD", &asked).unwrap();
            let rules = (nft(), nat("iptables-save"), nat("ip6tables-save"));
            portmap("ADD", &asked).unwrap();
            assert_eq!((nft(), nat("iptables-save"), nat("ip6tables-save")), rules);
        });
    }
}

#[test]
fn a_repeated_add_with_other_ports_forgets_the_old_ones() {
    for backend in BACKENDS {
        on_a_host(|| {
            portmap("ADD", &config(&ADDRESSES, ports(), json!({"backend": backend}))).unwrap();
            let other = json!([{"hostPort": 9090, "containerPort": 90, "protocol": "tcp"}]);
            portmap("ADD", &config(&ADDRESSES, other, json!({"backend": backend}))).unwrap();
            assert!(!traces("9090").is_empty());
            assert_eq!((traces("8080"), traces("8081")), (vec![], vec![]));
        });
    }
}

#[test]
fn the_first_container_at_a_port_keeps_it() {
    for backend in BACKENDS {
        on_a_host(|| {
            let more = json!({"backend": backend});
            portmap_for("first", "eth0", "ADD", &config(&["10.22.0.2/16"], ports(), more.clone())).unwrap();
            portmap_for("second", "eth0", "ADD", &config(&["10.22.0.3/16"], ports(), more.clone())).unwrap();
            portmap_for("first", "eth0", "ADD", &config(&["10.22.0.2/16"], ports(), more)).unwrap();
            let order: Vec<_> = match backend {
                "iptables" => nat("iptables-save")
                    .into_iter()
                    .filter(|rule| rule.contains("-A CNI-HOSTPORT-DNAT -p tcp"))
                    .map(|rule| rule.contains("first"))
                    .collect(),
                _ => traces("tcp dport 8080").into_iter().map(|rule| rule.contains("first")).collect(),
            };
            assert_eq!(order, [true, false]);
        });
    }
}

#[test]
fn del_needs_neither_ports_nor_a_result_nor_the_same_backend() {
    for backend in BACKENDS {
        for forgets in ["nothing", "ports", "result", "both", "backend"] {
            on_a_host(|| {
                let asked = config(&ADDRESSES, ports(), json!({"backend": backend}));
                portmap("ADD", &asked).unwrap();
                assert!(!traces("22.0.2").is_empty() && !traces("fd00:22::2").is_empty());
                let mut asked = asked;
                let object = asked.as_object_mut().unwrap();
                if matches!(forgets, "ports" | "both") {
                    object.remove("runtimeConfig");
                }
                if matches!(forgets, "result" | "both") {
                    object.remove("prevResult");
                }
                if forgets == "backend" {
                    let other = BACKENDS.into_iter().find(|other| *other != backend);
                    object.insert("backend".to_owned(), other.into());
                }
                for _ in 0..2 {
                    assert_eq!(portmap("DEL", &asked), Ok(Value::Null));
                    let left =
                        (traces("c0ffee01"), traces("22.0.2"), traces("fd00:22::2"), traces("CNI-DN-"));
                    assert_eq!(left, Default::default(), "{backend} {forgets}");
                }
            });
        }
    }
}

#[test]
fn del_works_with_a_configuration_that_add_refuses() {
    on_a_host(|| {
        portmap("ADD", &config(&ADDRESSES, ports(), json!({"backend": "nftables"}))).unwrap();
        let bad = json!([{"hostPort": 0, "protocol": 5}, "x"]);
        let broken =
            config(&[], bad, json!({"backend": "magic", "markMasqBit": 99, "prevResult": {"ips": 1}}));
        assert_eq!(portmap("DEL", &broken), Ok(Value::Null));
        assert_eq!(traces("c0ffee01"), Vec::<String>::new());
    });
}

#[test]
fn del_finds_the_rules_of_a_network_that_was_renamed() {
    for backend in BACKENDS {
        for knows_ports in [true, false] {
            on_a_host(|| {
                portmap("ADD", &config(&ADDRESSES, ports(), json!({"backend": backend, "name": "old"})))
                    .unwrap();
                let ports = if knows_ports { ports() } else { json!(null) };
                let renamed = config(&[], ports, json!({"name": "new", "prevResult": null}));
                assert_eq!(portmap("DEL", &renamed), Ok(Value::Null));
                assert_eq!((traces("c0ffee01"), traces("CNI-DN-")), Default::default(), "{backend}");
            });
        }
    }
}

#[test]
fn del_leaves_the_rules_of_the_containers_other_network() {
    for backend in BACKENDS {
        on_a_host(|| {
            let other_ports = json!([{"hostPort": 9090, "containerPort": 90, "protocol": "tcp"}]);
            let one = config(&["10.22.0.2/16"], ports(), json!({"backend": backend}));
            let mut two =
                config(&["10.33.0.2/16"], other_ports, json!({"backend": backend, "name": "second"}));
            two["prevResult"]["interfaces"][1]["name"] = "net1".into();
            portmap("ADD", &one).unwrap();
            portmap_for("c0ffee01", "net1", "ADD", &two).unwrap();
            let kept = traces("10.33.0.2");
            portmap("DEL", &one).unwrap();
            assert_eq!((traces("10.22.0.2"), traces("10.33.0.2")), (vec![], kept), "{backend}");
            portmap_for("c0ffee01", "net1", "DEL", &two).unwrap();
            assert_eq!((traces("10.33.0.2"), traces("c0ffee01")), Default::default());
        });
    }
}

#[test]
fn del_leaves_other_containers_and_the_chains_that_all_share() {
    for backend in BACKENDS {
        on_a_host(|| {
            let asked = config(&["10.22.0.3/16"], ports(), json!({"backend": backend}));
            portmap_for("stays", "eth0", "ADD", &asked).unwrap();
            let before = (nft(), nat("iptables-save"));
            portmap("ADD", &config(&["10.22.0.2/16"], ports(), json!({"backend": backend}))).unwrap();
            portmap("DEL", &config(&["10.22.0.2/16"], ports(), json!({"backend": backend}))).unwrap();
            assert_eq!((nft(), nat("iptables-save")), before);
        });
    }
}

#[test]
fn del_removes_what_a_killed_plugin_left_half_made() {
    for program in ["iptables", "iptables-legacy"] {
        on_a_host(|| {
            // The chain is filled, and nothing leads to it; another is of a plugin of long ago.
            sh(&format!(
                "{program} -t nat -N CNI-DN-7acf3bcf10978b0598870
                 {program} -t nat -A CNI-DN-7acf3bcf10978b0598870 -p tcp --dport 1 -j DNAT --to-destination 10.22.0.2:1
                 {program} -t nat -N CNI-HOSTPORT-SNAT
                 {program} -t nat -N CNI-SN-7acf3bcf10978b0598870
                 {program} -t nat -A CNI-HOSTPORT-SNAT -j CNI-SN-7acf3bcf10978b0598870"
            ));
            assert_eq!(
                portmap("DEL", &config(&[], json!(null), json!({"prevResult": null}))),
                Ok(Value::Null)
            );
            let rules = sh(&format!("{program}-save -t nat"));
            assert!(!rules.contains("7acf3bcf"), "{rules}");
            assert!(rules.contains(":CNI-HOSTPORT-SNAT"), "{rules}");
        });
    }
}

#[test]
fn del_finds_the_rules_of_the_flavour_that_the_host_had_before() {
    on_a_host(|| {
        with_legacy_iptables();
        portmap("ADD", &config(&ADDRESSES, ports(), json!({"backend": "iptables"}))).unwrap();
        sh("umount /etc/alternatives");
        assert_eq!(portmap("DEL", &config(&ADDRESSES, json!(null), json!({}))), Ok(Value::Null));
        for program in ["iptables-legacy-save", "ip6tables-legacy-save"] {
            let rules = nat(program);
            assert!(
                !rules.iter().any(|rule| rule.contains("CNI-DN-") || rule.contains("c0ffee01")),
                "{rules:?}"
            );
            assert!(rules.iter().any(|rule| rule.contains("CNI-HOSTPORT-DNAT")), "{rules:?}");
        }
    });
}

#[test]
fn del_of_a_container_without_ports_makes_and_changes_nothing() {
    on_a_host(|| {
        let nothing = config(&ADDRESSES, json!(null), json!({}));
        assert_eq!(portmap("DEL", &nothing), Ok(Value::Null));
        assert_eq!(nft(), "");
        assert_eq!(sh("cat /proc/thread-self/net/ip_tables_names"), "");
    });
}

#[test]
fn garbage_is_what_belongs_to_the_network_and_to_no_valid_attachment() {
    for (backend, legacy) in [("iptables", false), ("iptables", true), ("nftables", false)] {
        on_a_host(|| {
            if legacy {
                with_legacy_iptables();
            }
            for (name, container, address) in [
                ("mynet", "gone", "10.22.0.2/16"),
                ("mynet", "valid", "10.22.0.3/16"),
                ("other", "elsewhere", "10.22.0.4/16"),
            ] {
                let asked = config(&[address], ports(), json!({"backend": backend, "name": name}));
                portmap_for(container, "eth0", "ADD", &asked).unwrap();
            }
            let mut asked = config(&[], json!(null), json!({}));
            assert_eq!(portmap_for("", "", "GC", &asked), Ok(Value::Null));
            let are_left =
                || ["10.22.0.2:", "10.22.0.3:", "10.22.0.4:"].map(|address| !traces(address).is_empty());
            assert_eq!(are_left(), [true; 3], "no list is not an empty list");
            asked["cni.dev/valid-attachments"] = json!([{"containerID": "valid", "ifname": "eth0"}]);
            assert_eq!(portmap_for("", "", "GC", &asked), Ok(Value::Null));
            assert_eq!(are_left(), [false, true, true], "{backend} {legacy}");
            asked["cni.dev/valid-attachments"] = json!([]);
            assert_eq!(portmap_for("", "", "GC", &asked), Ok(Value::Null));
            assert_eq!(are_left(), [false, false, true], "{backend} {legacy}");
        });
    }
}

#[test]
fn many_containers_come_and_go_at_once() {
    for backend in BACKENDS {
        on_a_host(|| {
            let own = std::fs::File::open("/proc/thread-self/ns/net").unwrap();
            let each = |work: &(dyn Fn(&str, &Value) + Sync)| {
                std::thread::scope(|scope| {
                    for number in 1..=8 {
                        let own = &own;
                        scope.spawn(move || {
                            rustix::thread::move_into_link_name_space(
                                std::os::fd::AsFd::as_fd(own),
                                Some(rustix::thread::LinkNameSpaceType::Network),
                            )
                            .unwrap();
                            let port =
                                json!([{"hostPort": 8000 + number, "containerPort": 80, "protocol": "tcp"}]);
                            let address = format!("10.22.0.{number}/16");
                            let asked = config(&[&address], port, json!({"backend": backend}));
                            work(&format!("container{number}"), &asked);
                        });
                    }
                });
            };
            each(&|container, asked| {
                portmap_for(container, "eth0", "ADD", asked).unwrap();
            });
            let entries = match backend {
                "iptables" => sh("iptables-save -t nat | grep -c -e '-A CNI-HOSTPORT-DNAT'"),
                _ => sh("nft list chain ip cni_hostport hostports | grep -c dnat"),
            };
            assert_eq!(entries.trim(), "8");
            let jumps = sh("nft list ruleset | grep -c -e 'jump hostports_all' -e 'jump CNI-HOSTPORT-DNAT'");
            assert_eq!(jumps.trim(), "2", "{}", nft());
            each(&|container, asked| {
                portmap_for(container, "eth0", "DEL", asked).unwrap();
            });
            assert_eq!((traces("container"), traces("10.22.0.")), Default::default());
        });
    }
}
