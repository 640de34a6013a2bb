//! `ipMasq` and `macspoofchk`: rules come with the pod and go with it, also if its namespace is gone.

use std::io::Read;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::stage::*;

fn rules() -> String {
    sh("nft list ruleset")
}

#[test]
fn masquerading_comes_and_goes_with_the_pod() {
    for backend in ["nftables", "iptables"] {
        for family in [&["10.22.0.0/16"][..], &["10.22.0.0/16", "fd00:22::/64"]] {
            on_a_host(|stage| {
                let ipam = stage.ipam(family);
                let config = stage.network(json!({"ipMasq": true, "ipMasqBackend": backend, "ipam": ipam}));
                let (first, second) = (stage.pod("c0ffee01"), stage.pod("c0ffee02"));
                stage.add(&first, &config).unwrap();
                stage.add(&second, &config).unwrap();
                assert!(rules().contains("10.22.0.2") && rules().contains("10.22.0.3"), "{}", rules());
                assert_eq!(rules().contains("fd00:22::2"), family.len() == 2);
                assert_eq!(stage.del(&first, &config), Ok(Value::Null));
                assert!(!rules().contains("10.22.0.2") && rules().contains("10.22.0.3"), "{}", rules());
                let second = stage.kill(second, "/run/netns/gone");
                assert_eq!(stage.del(&second, &config), Ok(Value::Null));
                assert!(!rules().contains("10.22.0.") && !rules().contains("fd00:22::"), "{}", rules());
            });
        }
    }
}

#[test]
fn an_unknown_backend_is_refused_and_nothing_is_left() {
    on_a_host(|stage| {
        let config = stage.network(json!({"ipMasq": true, "ipMasqBackend": "magic"}));
        assert_eq!(stage.add(&stage.pod("c0ffee01"), &config), internal("unknown ipmasq backend \"magic\""));
        assert_eq!((devices(), stage.leased()), (vec!["cni0".into()], vec![]));
        assert_eq!(rules(), "");
    });
}

#[test]
fn a_pod_cannot_send_with_anothers_hardware_address() {
    for version in versions_with_interfaces() {
        on_a_host(|stage| {
            let config = stage.network(json!({"cniVersion": version, "macspoofchk": true}));
            let pod = stage.pod("c0ffee01");
            let said = stage.add(&pod, &config).unwrap();
            let mac = said["interfaces"][2]["mac"].as_str().unwrap();
            let port = said["interfaces"][1]["name"].as_str().unwrap();
            assert!(rules().contains(&format!("ether saddr {mac} return")), "{}", rules());
            assert!(rules().contains(&format!("iifname \"{port}\" jump cni-br-iface-c0ffee01-eth0")));
            assert_eq!(rules().matches("macspoofchk-c0ffee01-eth0").count(), 4);
            pod.inside(|| sh("ping -c1 -W2 10.22.0.1"));
            assert_eq!(stage.del(&pod, &config), Ok(Value::Null));
            assert!(!rules().contains("c0ffee01"), "{}", rules());
        });
    }
}

#[test]
fn rules_of_pods_that_are_no_more_are_collected() {
    on_a_host(|stage| {
        let mut config =
            stage.network(json!({"ipMasq": true, "ipMasqBackend": "nftables", "macspoofchk": true}));
        stage.add(&stage.pod("c0ffee01"), &config).unwrap();
        stage.add(&stage.pod("c0ffee02"), &config).unwrap();
        config["cni.dev/valid-attachments"] = json!([{"containerID": "c0ffee02", "ifname": "eth0"}]);
        assert_eq!(stage.gc(&config), Ok(Value::Null));
        assert!(!rules().contains("c0ffee01") && rules().contains("c0ffee02"), "{}", rules());
    });
}

/// A user without rights who opens and locks all that a lock could be, and holds it for a minute.
fn hold_what_anybody_can() -> Child {
    let script = "for file in /proc/self/ns/net $(find /run /proc/self/ns); do
        { exec {held}<$file && flock -n $held; } 2>/dev/null || true
    done; echo held; exec sleep 60 >/dev/null";
    let mut holder = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "bash", "-c", script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    holder.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "held\n");
    holder
}

#[test]
fn no_user_without_rights_can_keep_pods_from_coming_and_going() {
    for backend in ["nftables", "iptables"] {
        on_a_host(|stage| {
            let config =
                stage.network(json!({"ipMasq": true, "ipMasqBackend": backend, "macspoofchk": true}));
            let (first, second) = (stage.pod("c0ffee01"), stage.pod("c0ffee02"));
            stage.add(&first, &config).unwrap();
            let mut holder = hold_what_anybody_can();
            assert_eq!(stage.del(&first, &config), Ok(Value::Null));
            stage.add(&second, &config).unwrap();
            assert_eq!(holder.try_wait().unwrap(), None, "{backend}: the plugin waited for the user");
            holder.kill().unwrap();
            holder.wait().unwrap();
        });
    }
}
