//! Go's portmap and ours on one host: each checks and removes what the other made.

use serde_json::{Value, json};

use crate::stage::*;

fn asked(backend: &str, more: Value) -> Value {
    let ports = json!([
        {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
        {"hostPort": 8081, "containerPort": 81, "protocol": "udp"},
        {"hostPort": 8082, "containerPort": 82, "protocol": "tcp", "hostIP": "127.0.0.5"},
    ]);
    let mut config = config(&["10.22.0.2/16", "fd00:22::2/64"], ports, more);
    // Debian's plugin speaks up to 1.0.0.
    config["cniVersion"] = "1.0.0".into();
    config["prevResult"]["cniVersion"] = "1.0.0".into();
    config["backend"] = backend.into();
    config
}

/// The plugins of Go that this machine has, each with the backends that it knows.
fn gos() -> Vec<(Go, &'static str)> {
    let backends = |go: Go| match go {
        Go::Debian => vec![(go, "iptables")],
        Go::Newest => vec![(go, "iptables"), (go, "nftables")],
    };
    Go::present("portmap").into_iter().flat_map(backends).collect()
}

fn rules() -> (String, Vec<String>, Vec<String>) {
    (nft(), nat("iptables-save"), nat("ip6tables-save"))
}

fn is_clean() -> bool {
    let (nft, v4, v6) = rules();
    let all = format!("{nft}{}{}", v4.join("\n"), v6.join("\n"));
    !["c0ffee01", "10.22.0.2", "fd00:22::2", "CNI-DN-"].iter().any(|trace| all.contains(trace))
}

#[test]
fn both_make_the_same_rules() {
    for (go, backend) in gos() {
        // 1.1.1 does not know `masqAll`, and 1.9.1 forgets it with nftables.
        let masquerades_all = go == Go::Newest && backend == "iptables";
        for more in [
            json!({}),
            json!({"snat": false}),
            json!({"markMasqBit": 5}),
            json!({"masqAll": masquerades_all}),
        ] {
            let (mut theirs, mut ours) = Default::default();
            on_a_host(|| {
                go.call("portmap", "ADD", &asked(backend, more.clone())).unwrap();
                theirs = rules();
            });
            on_a_host(|| {
                portmap("ADD", &asked(backend, more.clone())).unwrap();
                ours = rules();
            });
            assert_eq!((ours.1, ours.2), (theirs.1, theirs.2), "{go:?} {backend} {more}");
            if backend == "nftables" {
                assert_eq!(ours.0, theirs.0, "{more}");
            }
        }
    }
}

#[test]
fn what_go_made_we_check_and_remove() {
    for (go, backend) in gos() {
        for (ports, result) in [(true, true), (true, false), (false, true), (false, false)] {
            on_a_host(|| {
                let mut asked = asked(backend, json!({}));
                go.call("portmap", "ADD", &asked).unwrap();
                assert_eq!(portmap("CHECK", &asked), Ok(Value::Null), "{go:?} {backend}");
                assert!(!is_clean());
                if !ports {
                    asked["runtimeConfig"] = Value::Null;
                }
                if !result {
                    asked["prevResult"] = Value::Null;
                }
                assert_eq!(portmap("DEL", &asked), Ok(Value::Null));
                assert!(is_clean(), "{go:?} {backend} {:?}", rules());
            });
        }
    }
}

#[test]
fn what_we_made_go_checks_and_removes() {
    for (go, backend) in gos() {
        for more in [json!({}), json!({"masqAll": true})] {
            on_a_host(|| {
                let asked = asked(backend, more.clone());
                portmap("ADD", &asked).unwrap();
                let checked = go.call("portmap", "CHECK", &asked);
                assert!(checked.is_ok() || !go.can_check(), "{go:?} {backend} {more} {checked:?}");
                assert_eq!(go.call("portmap", "DEL", &asked), Ok(Value::Null));
                assert!(is_clean(), "{go:?} {backend} {:?}", rules());
            });
        }
    }
}

#[test]
fn an_add_of_ours_behind_one_of_go_takes_its_rules_over() {
    for (go, backend) in gos() {
        on_a_host(|| {
            let asked = asked(backend, json!({}));
            go.call("portmap", "ADD", &asked).unwrap();
            let before = rules();
            portmap("ADD", &asked).unwrap();
            assert_eq!(rules(), before, "{go:?} {backend}");
        });
    }
}

#[test]
fn containers_of_both_live_side_by_side() {
    for (go, backend) in gos() {
        on_a_host(|| {
            let of_go = asked(backend, json!({}));
            let ports = json!([{"hostPort": 9090, "containerPort": 90, "protocol": "tcp"}]);
            let of_us = config(&["10.22.0.3/16"], ports, json!({"backend": backend}));
            go.call("portmap", "ADD", &of_go).unwrap();
            portmap_for("ours", "eth0", "ADD", &of_us).unwrap();
            assert!(!go.can_check() || go.call("portmap", "CHECK", &of_go).is_ok());
            assert_eq!(portmap_for("ours", "eth0", "CHECK", &of_us), Ok(Value::Null));
            go.call("portmap", "DEL", &of_go).unwrap();
            assert_eq!(portmap_for("ours", "eth0", "CHECK", &of_us), Ok(Value::Null));
            portmap_for("ours", "eth0", "DEL", &of_us).unwrap();
            assert!(is_clean() && !nft().contains("10.22.0.3"));
        });
    }
}
