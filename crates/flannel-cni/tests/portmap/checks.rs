//! CHECK and STATUS.

use serde_json::{Value, json};

use crate::stage::*;

fn asked(more: Value) -> Value {
    let ports = json!([
        {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
        {"hostPort": 8082, "containerPort": 82, "protocol": "udp", "hostIP": "127.0.0.5"},
        {"hostPort": 8083, "containerPort": 83, "protocol": "tcp", "hostIP": "::"},
    ]);
    config(&["10.22.0.2/16", "fd00:22::2/64"], ports, more)
}

#[test]
fn check_is_content_between_add_and_del_only() {
    for backend in ["iptables", "nftables"] {
        on_a_host(|| {
            let asked = asked(json!({"backend": backend}));
            assert!(portmap("CHECK", &asked).is_err());
            portmap("ADD", &asked).unwrap();
            assert_eq!(portmap("CHECK", &asked), Ok(Value::Null));
            portmap("DEL", &asked).unwrap();
            assert!(portmap("CHECK", &asked).is_err());
        });
    }
}

#[test]
fn check_misses_what_a_new_setting_needs() {
    on_a_host(|| {
        let (without, with) =
            (asked(json!({"backend": "nftables", "snat": false})), asked(json!({"backend": "nftables"})));
        portmap("ADD", &without).unwrap();
        assert_eq!(portmap("CHECK", &without), Ok(Value::Null));
        let missing = Err((999, "missing hostport rules in \"masquerading\" chain".to_owned()));
        assert_eq!(portmap("CHECK", &with), missing);
        portmap("ADD", &with).unwrap();
        assert_eq!(portmap("CHECK", &with), Ok(Value::Null));
        assert_eq!(
            portmap("CHECK", &asked(json!({"backend": "nftables", "masqAll": true}))),
            Ok(Value::Null)
        );
    });
}

#[test]
fn check_misses_a_rule_that_somebody_removed() {
    let harm = [
        (
            "nftables",
            "nft flush chain ip cni_hostport prerouting",
            "missing hostport rules in \"prerouting\" chain",
        ),
        (
            "nftables",
            "nft flush chain ip cni_hostport hostports",
            "missing hostport rules in \"hostports\" chain",
        ),
        (
            "iptables",
            "iptables -t nat -F CNI-HOSTPORT-DNAT; iptables -t nat -X CNI-DN-7acf3bcf10978b0598870 2>/dev/null || true",
            "could not check ipv4 dnat: ",
        ),
        ("iptables", "ip6tables -t nat -F CNI-DN-7acf3bcf10978b0598870", "could not check ipv6 dnat: "),
    ];
    for (backend, script, complaint) in harm {
        on_a_host(|| {
            let asked = asked(json!({"backend": backend}));
            portmap("ADD", &asked).unwrap();
            sh(script);
            let (code, message) = portmap("CHECK", &asked).unwrap_err();
            assert_eq!(code, 999);
            assert!(message.starts_with(complaint), "{message}");
            portmap("ADD", &asked).unwrap();
            assert_eq!(portmap("CHECK", &asked), Ok(Value::Null));
        });
    }
}

#[test]
fn check_understands_conditions_of_either_backend() {
    for (backend, conditions) in [
        ("iptables", json!(["!", "-d", "192.0.2.0/24", "-i", "eth0"])),
        ("nftables", json!(["ip daddr != 192.0.2.0/24", "iifname", "eth0"])),
        ("nftables", json!(["ct", "state", "new"])),
    ] {
        on_a_host(|| {
            let asked = asked(json!({"backend": backend, "conditionsV4": conditions}));
            portmap("ADD", &asked).unwrap();
            assert_eq!(portmap("CHECK", &asked), Ok(Value::Null));
            portmap("ADD", &asked).unwrap();
            assert_eq!(portmap("CHECK", &asked), Ok(Value::Null));
            portmap("DEL", &asked).unwrap();
            assert!(portmap("CHECK", &asked).is_err());
        });
    }
}

#[test]
fn without_ports_there_is_nothing_to_check_but_the_chain() {
    on_a_host(|| {
        assert_eq!(portmap("CHECK", &config(&["10.22.0.2/16"], json!([]), json!({}))), Ok(Value::Null));
        let alone = config(&[], json!([]), json!({"prevResult": null}));
        assert_eq!(portmap("CHECK", &alone), Err((999, "Required prevResult missing".to_owned())));
        assert_eq!(portmap("ADD", &alone), Err((999, "must be called as chained plugin".to_owned())));
    });
}

#[test]
fn status_tells_whether_the_backend_can_be_used() {
    on_a_host(|| {
        for backend in [json!({}), json!({"backend": "iptables"}), json!({"backend": "nftables"})] {
            assert_eq!(portmap_for("", "", "STATUS", &config(&[], json!(null), backend)), Ok(Value::Null));
        }
        // Without its programs there is no iptables.
        sh("cp -a /etc/alternatives /run/alternatives && rm /run/alternatives/iptables-restore
            mount --bind /run/alternatives /etc/alternatives");
        let unusable = "port mappings cannot be made: iptables is not usable on this host".to_owned();
        let asked = |more| config(&[], json!(null), more);
        assert_eq!(
            portmap_for("", "", "STATUS", &asked(json!({"backend": "iptables"}))),
            Err((50, unusable))
        );
        assert_eq!(portmap_for("", "", "STATUS", &asked(json!({}))), Ok(Value::Null));
    });
}
