//! DEL, GC and STATUS: nothing may stay, whatever was lost, and nothing of others may go.

use conformance_tests::version::{COMMON, WITH_GC};
use conformance_tests::{Stage, scenarios};
use serde_json::{Value, json};

use super::{add, del, ports, result, rules};

scenarios! { "portmap":
    COMMON =>
        del_frees_rules_of_both_families,
        del_without_mappings_frees_the_rules,
        del_after_a_change_of_backend_frees_the_rules,
        del_after_the_network_was_renamed_frees_the_rules,
        del_of_one_network_leaves_the_rules_of_another,
        many_at_once_come_and_go;
    WITH_GC => garbage_collection_frees_what_belongs_to_nobody, status_is_good_when_there_is_a_firewall;
}

const BACKENDS: [&str; 2] = ["iptables", "nftables"];

fn config(stage: &Stage, backend: &str) -> Value {
    let mut config = ports(stage, &[(8080, 80, "tcp"), (8081, 81, "udp")], json!({"backend": backend}));
    config["prevResult"] = result(stage, &["10.22.0.2/16", "fd00:22::2/64"]);
    config
}

fn del_frees_rules_of_both_families(stage: &Stage) {
    for backend in BACKENDS {
        add(stage, &config(stage, backend)).run().result();
        assert!(rules(stage).len() > 5);
        del(stage, &config(stage, backend)).run().nothing();
        assert_eq!(rules(stage), [""; 0], "{backend}");
        del(stage, &config(stage, backend)).run().nothing();
    }
}

/// Runtimes forget what they asked for when they are restarted in between.
fn del_without_mappings_frees_the_rules(stage: &Stage) {
    for backend in BACKENDS {
        add(stage, &config(stage, backend)).run().result();
        let mut forgotten = config(stage, backend);
        (forgotten["runtimeConfig"], forgotten["prevResult"]) = (Value::Null, Value::Null);
        del(stage, &forgotten).run().nothing();
        assert_eq!(rules(stage), [""; 0], "{backend}");
    }
}

fn del_after_a_change_of_backend_frees_the_rules(stage: &Stage) {
    for (before, after) in [("iptables", "nftables"), ("nftables", "iptables")] {
        add(stage, &config(stage, before)).run().result();
        del(stage, &config(stage, after)).run().nothing();
        assert_eq!(rules(stage), [""; 0], "{before}, then {after}");
    }
}

fn del_after_the_network_was_renamed_frees_the_rules(stage: &Stage) {
    for backend in BACKENDS {
        add(stage, &config(stage, backend)).run().result();
        let mut renamed = config(stage, backend);
        renamed["name"] = "newname".into();
        del(stage, &renamed).run().nothing();
        assert_eq!(rules(stage), [""; 0], "{backend}");
    }
}

/// A pod with two interfaces in two networks has one id.
fn del_of_one_network_leaves_the_rules_of_another(stage: &Stage) {
    for backend in BACKENDS {
        let one = config(stage, backend);
        add(stage, &one).run().result();
        let before = rules(stage);
        let mut two = ports(stage, &[(9090, 90, "tcp")], json!({"backend": backend, "name": "second"}));
        two["prevResult"] = result(stage, &["10.33.0.2/16"]);
        two["prevResult"]["interfaces"][2]["name"] = "eth1".into();
        add(stage, &two).interface("eth1").run().result();
        del(stage, &two).interface("eth1").run().nothing();
        assert_eq!(rules(stage), before, "{backend}");
        del(stage, &one).run().nothing();
        assert_eq!(rules(stage), [""; 0], "{backend}");
    }
}

fn many_at_once_come_and_go(stage: &Stage) {
    for backend in BACKENDS {
        let config = |number: u16| ports(stage, &[(8000 + number, 80, "tcp")], json!({"backend": backend}));
        let running: Vec<_> = (0..10)
            .map(|number| add(stage, &config(number)).container(&format!("c{number}")).start())
            .collect();
        running.into_iter().for_each(|call| drop(call.wait().result()));
        let running: Vec<_> = (0..10)
            .map(|number| del(stage, &config(number)).container(&format!("c{number}")).start())
            .collect();
        running.into_iter().for_each(|call| call.wait().nothing());
        assert_eq!(rules(stage), [""; 0], "{backend}");
    }
}

fn garbage_collection_frees_what_belongs_to_nobody(stage: &Stage) {
    for backend in BACKENDS {
        for container in ["one", "two"] {
            add(stage, &config(stage, backend)).container(container).run().result();
        }
        let mut garbage = stage.config("mynet", "portmap", json!({"backend": backend}));
        garbage["cni.dev/valid-attachments"] = json!([{"containerID": "two", "ifname": "eth0"}]);
        stage.call("GC", "portmap", &garbage).run().nothing();
        let left = rules(stage);
        assert!(!left.iter().any(|rule| rule.contains("one")), "{left:?}");
        assert!(left.iter().any(|rule| rule.contains("two")), "{left:?}");
        garbage["cni.dev/valid-attachments"] = json!([]);
        stage.call("GC", "portmap", &garbage).run().nothing();
        assert_eq!(rules(stage), [""; 0], "{backend}");
    }
}

fn status_is_good_when_there_is_a_firewall(stage: &Stage) {
    for backend in BACKENDS {
        stage
            .call("STATUS", "portmap", &stage.config("mynet", "portmap", json!({"backend": backend})))
            .run()
            .nothing();
    }
}
