//! GC and STATUS: handed on to IPAM.

use serde_json::{Value, json};

use crate::stage::*;

#[test]
fn gc_frees_the_addresses_of_pods_that_are_no_more() {
    on_a_host(|stage| {
        let config = stage.network(json!({}));
        let (first, second) = (stage.pod("c0ffee01"), stage.pod("c0ffee02"));
        stage.add(&first, &config).unwrap();
        stage.add(&second, &config).unwrap();
        // Without a list nobody knows who is valid.
        stage.gc(&config).unwrap_or_default();
        assert_eq!(stage.leased(), ["10.22.0.2", "10.22.0.3"]);
        let mut config = config;
        config["cni.dev/valid-attachments"] = json!([{"containerID": "c0ffee02", "ifname": "eth0"}]);
        assert_eq!(stage.gc(&config), Ok(Value::Null));
        assert_eq!(stage.leased(), ["10.22.0.3"]);
        config["cni.dev/valid-attachments"] = json!([]);
        assert_eq!(stage.gc(&config), Ok(Value::Null));
        assert_eq!(stage.leased(), [""; 0]);
    });
}

#[test]
fn gc_without_ipam_is_no_error() {
    on_a_host(|stage| {
        assert_eq!(stage.gc(&json!({"cniVersion": "1.1.0", "name": "n"})), Ok(Value::Null));
    });
}

#[test]
fn status_is_what_ipam_says() {
    on_a_host(|stage| {
        assert_eq!(stage.status(&json!({"cniVersion": "1.1.0", "name": "n"})), Ok(Value::Null));
        assert_eq!(stage.status(&stage.network(json!({}))), Ok(Value::Null));
        let full = stage.network(json!({"ipam": stage.ipam(&["10.22.0.0/30"])}));
        stage.add(&stage.pod("c0ffee01"), &full).unwrap();
        assert_eq!(stage.status(&full).unwrap_err().0, 50);
    });
}
