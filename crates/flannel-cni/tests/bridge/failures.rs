//! What is left when something goes wrong: nothing of the pod that was not attached, everything of the others.

use serde_json::{Value, json};

use crate::stage::*;

#[test]
fn an_interface_that_the_pod_has_already_is_an_error_and_stays() {
    on_a_host(|stage| {
        let config = stage.network(json!({}));
        let pod = stage.pod("c0ffee01");
        stage.add(&pod, &config).unwrap();
        let before = (sh("ip link"), pod.inside(|| sh("ip addr")), stage.leased());
        let (code, message) = stage.add(&pod, &config).unwrap_err();
        assert_eq!(code, 999);
        assert!(message.starts_with("container veth name (\"eth0\") peer provided (\"veth"), "{message}");
        assert!(message.ends_with("\") already exists"), "{message}");
        assert_eq!((sh("ip link"), pod.inside(|| sh("ip addr")), stage.leased()), before);
    });
}

#[test]
fn a_device_of_another_kind_with_the_bridges_name_is_left_alone() {
    on_a_host(|stage| {
        sh("ip link add cni0 type veth peer name other");
        let text = "failed to create bridge \"cni0\": \"cni0\" already exists but is not a bridge";
        assert_eq!(stage.add(&stage.pod("c0ffee01"), &stage.network(json!({}))), internal(text));
        assert_eq!(devices(), ["cni0", "other"]);
    });
}

#[test]
fn a_namespace_that_is_not_there_is_an_error() {
    on_a_host(|stage| {
        let mut pod = stage.pod("c0ffee01");
        pod.netns = "/run/netns/gone".into();
        let why = "failed to Statfs \"/run/netns/gone\": no such file or directory";
        let text = format!("failed to open netns \"/run/netns/gone\": {why}");
        assert_eq!(stage.add(&pod, &stage.network(json!({}))), internal(&text));
    });
}

#[test]
fn the_hosts_own_namespace_is_refused_before_anything_is_done() {
    on_a_host(|stage| {
        let mut pod = stage.pod("c0ffee01");
        pod.netns = "/proc/thread-self/ns/net".into();
        let text = "plugin's netns and netns from CNI_NETNS should not be the same".to_owned();
        for outcome in
            [stage.add(&pod, &stage.network(json!({}))), stage.del(&pod, &stage.network(json!({})))]
        {
            assert_eq!(outcome, Err((8, text.clone())));
        }
        assert_eq!(devices(), [""; 0]);
    });
}

#[test]
fn after_a_refusal_of_ipam_the_veth_is_gone_and_the_next_try_works() {
    on_a_host(|stage| {
        stage.play_ipam("my-ipam", r#"echo '{"code": 11, "msg": "no addresses"}'; exit 1"#);
        let pod = stage.pod("c0ffee01");
        let bad = stage.network(json!({"ipam": {"type": "my-ipam"}}));
        assert_eq!(stage.add(&pod, &bad), Err((11, "no addresses".into())));
        assert_eq!(devices(), ["cni0"]);
        assert_eq!(pod.lines("ip -o link show").len(), 1);
        stage.add(&pod, &stage.network(json!({}))).unwrap();
    });
}

#[test]
fn an_ipam_that_is_not_there_leaves_nothing() {
    on_a_host(|stage| {
        let bad = stage.network(json!({"ipam": {"type": "nobody"}}));
        let (_, message) = stage.add(&stage.pod("c0ffee01"), &bad).unwrap_err();
        assert!(message.starts_with("failed to find plugin \"nobody\" in path ["), "{message}");
        assert_eq!(devices(), ["cni0"]);
    });
}

#[test]
fn an_ipam_that_gives_no_address_is_told_to_free_it_and_the_veth_goes() {
    on_a_host(|stage| {
        let asked = stage.path("asked");
        let script =
            format!("echo $CNI_COMMAND >>{}; [ $CNI_COMMAND = DEL ] || echo '{{}}'", asked.display());
        stage.play_ipam("my-ipam", &script);
        let config = stage.network(json!({"ipam": {"type": "my-ipam"}}));
        let text = "IPAM plugin returned missing IP config";
        assert_eq!(stage.add(&stage.pod("c0ffee01"), &config), internal(text));
        assert_eq!(std::fs::read_to_string(asked).unwrap(), "ADD\nDEL\n");
        assert_eq!(devices(), ["cni0"]);
    });
}

#[test]
fn after_a_failure_behind_ipam_the_address_is_free_and_the_veth_is_gone() {
    on_a_host(|stage| {
        let mut config = stage.network(json!({}));
        // Nobody can be reached by a router of another network.
        config["ipam"]["routes"] = json!([{"dst": "10.99.0.0/16", "gw": "10.98.0.1"}]);
        let pod = stage.pod("c0ffee01");
        let (code, message) = stage.add(&pod, &config).unwrap_err();
        assert_eq!(code, 999);
        assert!(message.contains("failed to add route '10.99.0.0/16 via 10.98.0.1'"), "{message}");
        assert_eq!(stage.leased(), [""; 0]);
        assert_eq!(devices(), ["cni0"]);
        assert_eq!(pod.lines("ip -o link show").len(), 1);
    });
}

#[test]
fn a_wrong_mtu_is_told_in_the_kernels_words_and_leaves_nothing() {
    on_a_host(|stage| {
        let (_, message) = stage.add(&stage.pod("c0ffee01"), &stage.network(json!({"mtu": 20}))).unwrap_err();
        assert!(message.starts_with("failed to make veth pair: ") || message.starts_with("failed to create"));
        assert!(!devices().contains(&"veth".to_owned()));
    });
}

#[test]
fn detaching_what_was_never_attached_is_no_error() {
    on_a_host(|stage| {
        let mut pod = stage.pod("c0ffee01");
        assert_eq!(stage.del(&pod, &stage.network(json!({}))), Ok(Value::Null));
        pod.netns = "/run/netns/gone".into();
        assert_eq!(stage.del(&pod, &stage.network(json!({}))), Ok(Value::Null));
        pod.netns = String::new();
        assert_eq!(stage.del(&pod, &stage.network(json!({}))), Ok(Value::Null));
        assert_eq!(devices(), [""; 0]);
    });
}

#[test]
fn the_address_is_freed_if_the_namespace_is_gone_unknown_or_only_a_file() {
    on_a_host(|stage| {
        let file = stage.path("left-over");
        std::fs::write(&file, "").unwrap();
        for netns in ["", "/run/netns/gone", file.to_str().unwrap()] {
            let config = stage.network(json!({}));
            let pod = stage.pod("c0ffee01");
            stage.add(&pod, &config).unwrap();
            assert_eq!(stage.leased().len(), 1);
            let pod = stage.kill(pod, netns);
            assert_eq!(stage.del(&pod, &config), Ok(Value::Null));
            assert_eq!(stage.leased(), [""; 0]);
        }
    });
}

#[test]
fn the_veth_of_a_namespace_without_a_name_is_found_by_the_result() {
    on_a_host(|stage| {
        let config = stage.network(json!({}));
        let (mut pod, other) = (stage.pod("c0ffee01"), stage.pod("c0ffee02"));
        let said = stage.add(&pod, &config).unwrap();
        stage.add(&other, &config).unwrap();
        pod.netns = "/run/netns/gone".into();
        assert_eq!(stage.del(&pod, &with_result(&config, &said)), Ok(Value::Null));
        assert_eq!(pod.lines("ip -o link show").len(), 1);
        assert_eq!(devices(), ["cni0", "veth"]);
        assert_eq!(stage.leased(), ["10.22.0.3"]);
    });
}

#[test]
fn a_failure_of_ipam_does_not_keep_the_veth_and_is_told() {
    on_a_host(|stage| {
        let pod = stage.pod("c0ffee01");
        stage.add(&pod, &stage.network(json!({}))).unwrap();
        stage.play_ipam("my-ipam", r#"echo '{"code": 11, "msg": "not now"}'; exit 1"#);
        let bad = stage.network(json!({"ipam": {"type": "my-ipam"}}));
        assert_eq!(stage.del(&pod, &bad), Err((11, "not now".into())));
        assert_eq!(devices(), ["cni0"]);
    });
}

#[test]
fn a_configuration_that_add_would_refuse_frees_all_the_same() {
    on_a_host(|stage| {
        let mut pod = stage.pod("c0ffee01");
        stage.add(&pod, &stage.network(json!({}))).unwrap();
        pod.args = "IgnoreUnknown=1;MAC=nonsense".into();
        let bad =
            stage.network(json!({"vlan": 5000, "mtu": "large", "hairpinMode": true, "promiscMode": true}));
        assert_eq!(stage.del(&pod, &bad), Ok(Value::Null));
        assert_eq!((devices(), stage.leased()), (vec!["cni0".into()], vec![]));
    });
}

#[test]
fn a_device_inside_that_is_no_veth_is_not_ours_to_delete() {
    on_a_host(|stage| {
        let pod = stage.pod("c0ffee01");
        pod.inside(|| sh("ip link add eth0 type bridge"));
        assert_eq!(stage.del(&pod, &stage.network(json!({}))), Ok(Value::Null));
        assert_eq!(pod.lines("ip -o link show").len(), 2);
    });
}
