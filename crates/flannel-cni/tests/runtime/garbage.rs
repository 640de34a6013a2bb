//! GC and STATUS of a whole network.

use flannel_cni::error::CniError;
use flannel_cni::request::AttachmentId;
use flannel_cni::runtime::{Container, Network, Valid};
use serde_json::{Value, json};

use crate::stage::{Stage, container, list, network};

/// A stage where two containers are attached to `net` and one to another network.
fn stage() -> (Stage, Network) {
    let stage = Stage::new(&["a", "b"]);
    let network = network("1.1.0", &["a", "b"]);
    let second = Container {
        id: "c2".into(),
        netns: Some("/ns2".into()),
        args: vec![("K".into(), "V".into())],
        ..container()
    };
    stage.runtime().add(&network, &container()).unwrap();
    stage.runtime().add(&network, &second).unwrap();
    let mut other = network.clone();
    other.name = "other".to_owned();
    stage.runtime().add(&other, &second).unwrap();
    stage.calls();
    (stage, network)
}

fn valid(containers: &[&str]) -> Valid {
    let attachment = |id: &&str| AttachmentId { container_id: (*id).to_owned(), ifname: "eth0".into() };
    Valid::Only(containers.iter().map(attachment).collect())
}

fn remembered(stage: &Stage) -> Vec<String> {
    let name = |record: &flannel_cni::runtime::Record| format!("{} {}", record.network, record.container.id);
    stage.runtime().records().unwrap().iter().map(name).collect()
}

#[test]
fn gc_deletes_what_is_not_valid_and_tells_plugins_what_is() {
    let (stage, network) = stage();
    stage.runtime().gc(&network, &valid(&["c1"])).unwrap();
    let calls = stage.calls();
    let called: Vec<&str> = calls.iter().map(|(call, _)| call.as_str()).collect();
    let expected = [
        "DEL b [c2] [/ns2] [eth0] [K=V]",
        "DEL a [c2] [/ns2] [eth0] [K=V]",
        "GC a [] [] [] []",
        "GC b [] [] [] []",
    ];
    assert_eq!(called, expected);
    let entries = json!([{"containerID": "c1", "ifname": "eth0"}]);
    assert_eq!(
        calls[2].1,
        json!({
            "cni.dev/attachments": entries, "cni.dev/valid-attachments": entries,
            "cniVersion": "1.1.0", "name": "net", "type": "a",
        })
    );
    assert_eq!(remembered(&stage), ["net c1", "other c2"]);
}

#[test]
fn gc_without_knowledge_deletes_all_and_tells_nothing() {
    let (stage, network) = stage();
    stage.runtime().gc(&network, &Valid::Unknown).unwrap();
    let calls = stage.calls();
    let called: Vec<&str> = calls.iter().map(|(call, _)| call.split(" [/").next().unwrap()).collect();
    assert_eq!(called[..4], ["DEL b [c1]", "DEL a [c1]", "DEL b [c2]", "DEL a [c2]"]);
    assert_eq!(calls[4].1, json!({"cniVersion": "1.1.0", "name": "net", "type": "a"}));
    assert_eq!(remembered(&stage), ["other c2"]);
}

#[test]
fn nothing_valid_is_told_as_an_empty_list() {
    let (stage, network) = stage();
    stage.runtime().gc(&network, &valid(&[])).unwrap();
    assert_eq!(stage.calls()[5].1["cni.dev/valid-attachments"], json!([]));
}

#[test]
fn gc_goes_on_after_failures_and_reports_all() {
    let (stage, network) = stage();
    stage.on("b", "DEL", "echo '{\"code\":11,\"msg\":\"busy\"}'; exit 1");
    stage.on("a", "GC", "echo '{\"code\":5,\"msg\":\"disk\"}'; exit 1");
    let failed = stage.runtime().gc(&network, &Valid::Unknown).unwrap_err().to_string();
    let busy = |id: &str| {
        format!("failed to delete stale attachment {id} eth0: plugin type=\"b\" failed (delete): busy")
    };
    let expected = [busy("c1"), busy("c2"), r#"plugin type="a" failed (gc): disk"#.to_owned()].join("\n");
    assert_eq!(failed, expected);
    assert_eq!(stage.called(), ["DEL b", "DEL b", "GC a", "GC b"]);
    assert_eq!(remembered(&stage), ["net c1", "net c2", "other c2"]);
}

#[test]
fn before_1_1_0_gc_only_deletes() {
    let (stage, mut network) = stage();
    network.version = "1.0.0".to_owned();
    stage.runtime().gc(&network, &valid(&["c1"])).unwrap();
    assert_eq!(stage.called(), ["DEL b", "DEL a"]);
}

#[test]
fn gc_can_be_switched_off() {
    let (stage, _) = stage();
    let off =
        list(json!({"cniVersion": "1.1.0", "name": "net", "disableGC": true, "plugins": [{"type": "a"}]}));
    stage.runtime().gc(&off, &Valid::Unknown).unwrap();
    assert_eq!(stage.calls(), [] as [(String, Value); 0]);
}

#[test]
fn status_is_the_first_plugins_no() {
    let stage = Stage::new(&["a", "b", "c"]);
    let asked = network("1.1.0", &["a", "b", "c"]);
    stage.runtime().status(&asked).unwrap();
    assert_eq!(stage.called(), ["STATUS a", "STATUS b", "STATUS c"]);
    stage.on("b", "STATUS", r#"echo '{"code":50,"msg":"not yet"}'; exit 1"#);
    let failed = stage.runtime().status(&asked).unwrap_err();
    assert_eq!(failed.answer(), Some(&CniError::new(50, "not yet")));
    let plain = json!({"cniVersion": "1.1.0", "name": "net", "type": "a"});
    assert_eq!(stage.calls()[0], ("STATUS a [] [] [] []".to_owned(), plain));
    stage.runtime().status(&network("1.0.0", &["a", "b"])).unwrap();
    assert_eq!(stage.called(), [] as [&str; 0]);
}
