//! The files of the cache, which libcni reads and writes too.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use flannel_cni::runtime::{Container, Record};
use serde_json::{Value, json};

use crate::stage::{Stage, container, list, network, result_of};

#[test]
fn a_record_is_the_file_that_libcni_writes() {
    let stage = Stage::new(&["a"]);
    let network = list(json!({"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "a"}]}));
    let container = Container {
        args: vec![("K".into(), "V".into())],
        capabilities: json!({"portMappings": [1]}).as_object().unwrap().clone(),
        ..container()
    };
    let runtime = stage.runtime();
    runtime.add(&network, &container).unwrap();
    let expected = concat!(
        r#"{"kind":"cniCacheV1","containerId":"c1","#,
        r#""config":"eyJjbmlWZXJzaW9uIjoiMS4wLjAiLCJuYW1lIjoibmV0IiwicGx1Z2lucyI6W3sidHlwZSI6ImEifV19","#,
        r#""ifName":"eth0","networkName":"net","netns":"/ns","cniArgs":[["K","V"]],"#,
        r#""capabilityArgs":{"portMappings":[1]},"#,
        r#""result":{"cniVersion":"1.0.0","interfaces":[{"name":"a"}]}}"#,
    );
    assert_eq!(fs::read_to_string(stage.record_file()).unwrap(), expected);
    let mode = |path: &str| fs::metadata(stage.path(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!([mode("cni/results"), mode("cni/results/net-c1-eth0")], [0o700, 0o600]);
    let config = network.text.clone();
    let record = Record { network: "net".into(), container, config, result: Some(result_of("a", "1.0.0")) };
    assert_eq!(runtime.records().unwrap(), [record]);
    assert_eq!(fs::read_dir(stage.path("cni/results")).unwrap().count(), 1);
}

#[test]
fn what_is_empty_is_left_out() {
    let stage = Stage::new(&["a"]);
    stage.runtime().add(&network("0.4.0", &["a"]), &Container { netns: None, ..container() }).unwrap();
    let file: Value = serde_json::from_slice(&fs::read(stage.record_file()).unwrap()).unwrap();
    let keys: Vec<&str> = file.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["kind", "containerId", "config", "ifName", "networkName", "result"]);
}

#[test]
fn a_bare_result_of_an_old_runtime_is_read() {
    let stage = Stage::new(&["a"]);
    fs::create_dir_all(stage.path("cni/results")).unwrap();
    let result = Value::from(result_of("x", "1.0.0"));
    fs::write(stage.record_file(), result.to_string()).unwrap();
    stage.runtime().del(&network("1.0.0", &["a"]), &container()).unwrap();
    assert_eq!(stage.calls()[0].1["prevResult"], result);
    assert!(!stage.record_file().exists());
}

#[test]
fn a_result_is_given_in_the_version_that_the_network_has_now() {
    let stage = Stage::new(&["a"]);
    let runtime = stage.runtime();
    let address = json!({"address": "10.1.2.3/24", "version": "4"});
    let result = json!({"cniVersion": "0.4.0", "interfaces": [{"name": "x"}], "ips": [address], "dns": {}});
    stage.on("a", "ADD", &format!("echo '{result}'"));
    runtime.add(&network("0.4.0", &["a"]), &container()).unwrap();
    stage.calls();
    runtime.check(&network("1.0.0", &["a"]), &container()).unwrap();
    assert_eq!(
        stage.calls()[0].1["prevResult"],
        json!({"cniVersion": "1.0.0", "interfaces": [{"name": "x"}], "ips": [{"address": "10.1.2.3/24"}]})
    );
}

#[test]
fn records_leave_out_what_is_none() {
    let stage = Stage::new(&["a"]);
    stage.runtime().add(&network("1.0.0", &["a"]), &container()).unwrap();
    for (name, text) in [
        ("broken", "{"),
        ("bare", r#"{"cniVersion":"1.0.0"}"#),
        (".draft", r#"{"kind":"cniCacheV1","networkName":"n","ifName":"i","config":""}"#),
        ("nameless", r#"{"kind":"cniCacheV1","config":""}"#),
    ] {
        fs::write(stage.path("cni/results").join(name), text).unwrap();
    }
    fs::create_dir(stage.path("cni/results/folder")).unwrap();
    let records = stage.runtime().records().unwrap();
    let names: Vec<&str> = records.iter().map(|record| record.container.id.as_str()).collect();
    assert_eq!(names, ["c1"]);
}
