//! ADD, DEL and CHECK of a whole network.

use std::fs;

use flannel_cni::error::CniError;
use flannel_cni::runtime::{Container, Runtime};
use serde_json::{Value, json};

use crate::stage::{Stage, container, list, network, result_of};

const FAIL: &str = r#"echo '{"code": 7, "msg": "no", "details": "way"}'; exit 1"#;

#[test]
fn add_runs_plugins_in_order_and_passes_the_result_on() {
    let stage = Stage::new(&["a", "b"]);
    let network = list(json!({
        "cniVersion": "1.0.0", "name": "net",
        "plugins": [{"type": "a", "z": 1, "name": "own"}, {"type": "b", "capabilities": {"portMappings": true}}],
    }));
    let ports = json!([{"hostPort": 8080}]);
    let container = Container {
        args: vec![("IgnoreUnknown".into(), "1".into()), ("K".into(), "V".into())],
        capabilities: json!({"portMappings": ports, "mac": "x"}).as_object().unwrap().clone(),
        ..container()
    };
    assert_eq!(stage.runtime().add(&network, &container).unwrap().json, result_of("b", "1.0.0"));
    let variables = |plugin: &str| format!("ADD {plugin} [c1] [/ns] [eth0] [IgnoreUnknown=1;K=V]");
    let first = json!({"cniVersion": "1.0.0", "name": "net", "type": "a", "z": 1});
    let second = json!({
        "capabilities": {"portMappings": true}, "cniVersion": "1.0.0", "name": "net",
        "prevResult": result_of("a", "1.0.0"), "runtimeConfig": {"portMappings": ports}, "type": "b",
    });
    assert_eq!(stage.calls(), [(variables("a"), first), (variables("b"), second)]);
}

#[test]
fn the_input_of_a_plugin_has_its_keys_in_order() {
    let stage = Stage::new(&["a"]);
    let network = list(json!({"name": "net", "plugins": [{"type": "a", "x": {"d": 1, "c": 2}, "b": true}]}));
    stage.on("a", "ADD", r#"echo "{\"cniVersion\":\"\"}""#);
    assert_eq!(
        stage.runtime().add(&network, &container()).unwrap().json,
        *json!({"cniVersion": "0.1.0"}).as_object().unwrap()
    );
    let text = fs::read_to_string(stage.path("calls")).unwrap();
    let input = r#"{"b":true,"cniVersion":"","name":"net","type":"a","x":{"c":2,"d":1}}"#;
    assert_eq!(text.lines().nth(1), Some(input));
}

#[test]
fn plugins_see_the_callers_variables_and_the_path() {
    let stage = Stage::new(&["a"]);
    stage.on("a", "ADD", r#"printf '{"interfaces":[{"name":"%s|%s"}]}' "$CNI_PATH" "${PATH:+set}""#);
    let runtime = Runtime::new(vec!["/nowhere".into(), stage.path("bin")]).with_cache(stage.path("cni"));
    let result = runtime.add(&network("1.0.0", &["a"]), &container()).unwrap();
    let path = format!("/nowhere:{}|set", stage.path("bin").display());
    assert_eq!(result.json["interfaces"], json!([{"name": path}]));
}

#[test]
fn a_failed_add_is_undone_in_reverse_and_reported() {
    let stage = Stage::new(&["a", "b", "c"]);
    stage.on("b", "ADD", FAIL);
    let failed = stage.runtime().add(&network("1.0.0", &["a", "b", "c"]), &container()).unwrap_err();
    assert_eq!(failed.to_string(), r#"plugin type="b" failed (add): no; way"#);
    assert_eq!(failed.answer(), Some(&CniError::new(7, "no").details("way")));
    let calls = stage.calls();
    let called: Vec<&str> = calls.iter().map(|(call, _)| &call[..5]).collect();
    assert_eq!(called, ["ADD a", "ADD b", "DEL b", "DEL a"]);
    let results: Vec<Option<&Value>> = calls.iter().map(|(_, input)| input.get("prevResult")).collect();
    let of_a = Value::from(result_of("a", "1.0.0"));
    assert_eq!(results, [None, Some(&of_a), Some(&of_a), Some(&of_a)]);
    assert!(!stage.record_file().exists());
}

#[test]
fn a_failed_add_of_an_old_version_is_undone_without_a_result() {
    let stage = Stage::new(&["a", "b"]);
    stage.on("b", "ADD", FAIL);
    stage.runtime().add(&network("0.3.1", &["a", "b"]), &container()).unwrap_err();
    let with_result =
        |(call, input): (String, Value)| (call[..5].to_owned(), input.get("prevResult").is_some());
    let calls: Vec<(String, bool)> = stage.calls().into_iter().map(with_result).collect();
    let expected = [("ADD a", false), ("ADD b", true), ("DEL b", false), ("DEL a", false)];
    assert_eq!(calls, expected.map(|(call, has)| (call.to_owned(), has)));
}

#[test]
fn what_cannot_be_undone_is_told_and_the_rest_is_undone() {
    let stage = Stage::new(&["a", "b", "c"]);
    stage.on("c", "ADD", FAIL);
    stage.on("c", "DEL", FAIL);
    stage.on("b", "DEL", "echo stuck >&2; exit 2");
    let failed = stage.runtime().add(&network("1.0.0", &["a", "b", "c"]), &container()).unwrap_err();
    assert_eq!(
        failed.to_string(),
        "plugin type=\"c\" failed (add): no; way; and it could not be undone: \
         plugin type=\"b\" failed (delete): netplugin failed: \"stuck\\n\": exit status 2"
    );
    assert_eq!(stage.called(), ["ADD a", "ADD b", "ADD c", "DEL c", "DEL b", "DEL a"]);
}

#[test]
fn a_missing_plugin_fails_an_add_and_is_not_undone_itself() {
    let stage = Stage::new(&["a"]);
    let failed = stage.runtime().add(&network("1.0.0", &["a", "gone"]), &container()).unwrap_err();
    let bin = stage.path("bin");
    let why = format!(
        "plugin type=\"gone\" failed (add): failed to find plugin \"gone\" in path [{}]",
        bin.display()
    );
    assert_eq!(failed.to_string(), why);
    assert_eq!(stage.called(), ["ADD a", "DEL a"]);
}

#[test]
fn an_answer_that_is_no_result_fails_an_add_which_is_undone() {
    let stage = Stage::new(&["a"]);
    for answer in ["nonsense", "[]", "", r#"{"cniVersion":"9.9.9"}"#, r#"{"ips":7}"#] {
        stage.on("a", "ADD", &format!("printf '%s' '{answer}'"));
        stage.runtime().add(&network("1.0.0", &["a"]), &container()).unwrap_err();
        assert_eq!(stage.called(), ["ADD a", "DEL a"], "{answer}");
    }
}

#[test]
fn a_second_add_of_an_attachment_does_not_undo_the_first() {
    let stage = Stage::new(&["a"]);
    let (runtime, network) = (stage.runtime(), network("1.0.0", &["a"]));
    runtime.add(&network, &container()).unwrap();
    stage.on("a", "ADD", FAIL);
    runtime.add(&network, &container()).unwrap_err();
    assert_eq!(stage.called(), ["ADD a", "ADD a"]);
    assert!(stage.record_file().exists());
}

#[test]
fn an_add_that_cannot_be_remembered_is_undone() {
    let stage = Stage::new(&["a"]);
    fs::write(stage.path("cni"), "a file").unwrap();
    let failed = stage.runtime().add(&network("1.0.0", &["a"]), &container()).unwrap_err().to_string();
    let folder = stage.path("cni/results");
    assert!(failed.starts_with(&format!("network \"net\": cannot create {}", folder.display())), "{failed}");
    assert_eq!(stage.called(), ["ADD a", "DEL a"]);
}

#[test]
fn wrong_names_are_refused_before_any_plugin_runs() {
    let stage = Stage::new(&["a"]);
    let (runtime, network) = (stage.runtime(), network("1.0.0", &["a"]));
    let bad = [
        Container { id: "../../etc".into(), ..container() },
        Container { ifname: "a/b".into(), ..container() },
    ];
    for container in bad {
        assert_eq!(runtime.add(&network, &container).unwrap_err().answer().unwrap().code, 4);
        assert_eq!(runtime.del(&network, &container).unwrap_err().answer().unwrap().code, 4);
        assert_eq!(runtime.check(&network, &container).unwrap_err().answer().unwrap().code, 4);
    }
    assert_eq!(stage.called(), [] as [&str; 0]);
}

#[test]
fn del_runs_plugins_backwards_with_the_result_and_forgets() {
    let stage = Stage::new(&["a", "b"]);
    let (runtime, network) = (stage.runtime(), network("0.4.0", &["a", "b"]));
    runtime.add(&network, &container()).unwrap();
    stage.calls();
    runtime.del(&network, &container()).unwrap();
    let call = |plugin: &str| {
        let input = json!({
            "cniVersion": "0.4.0", "name": "net", "prevResult": result_of("b", "0.4.0"), "type": plugin,
        });
        (format!("DEL {plugin} [c1] [/ns] [eth0] []"), input)
    };
    assert_eq!(stage.calls(), [call("b"), call("a")]);
    assert!(!stage.record_file().exists());
    runtime.del(&network, &Container { netns: None, ..container() }).unwrap();
    let again = stage.calls();
    assert_eq!(again[1].0, "DEL a [c1] [] [eth0] []");
    assert_eq!(again[1].1.get("prevResult"), None);
}

#[test]
fn a_version_before_0_4_0_gets_no_result_at_del() {
    let stage = Stage::new(&["a"]);
    let (runtime, network) = (stage.runtime(), network("0.3.1", &["a"]));
    runtime.add(&network, &container()).unwrap();
    stage.calls();
    runtime.del(&network, &container()).unwrap();
    assert_eq!(stage.calls()[0].1, json!({"cniVersion": "0.3.1", "name": "net", "type": "a"}));
}

#[test]
fn del_tells_plugins_what_add_told_them() {
    let stage = Stage::new(&["a"]);
    let network = list(json!({
        "cniVersion": "0.3.1", "name": "net", "plugins": [{"type": "a", "capabilities": {"portMappings": true}}],
    }));
    let told = Container {
        args: vec![("K".into(), "V".into())],
        capabilities: json!({"portMappings": [{"hostPort": 1}]}).as_object().unwrap().clone(),
        ..container()
    };
    let runtime = stage.runtime();
    runtime.add(&network, &told).unwrap();
    let added = stage.calls().remove(0);
    runtime.del(&network, &container()).unwrap();
    let (variables, input) = stage.calls().remove(0);
    assert_eq!((variables.replace("DEL", "ADD"), input), added);
}

#[test]
fn a_failing_plugin_stops_del_and_all_stays_remembered() {
    let stage = Stage::new(&["a", "b"]);
    let (runtime, network) = (stage.runtime(), network("1.0.0", &["a", "b"]));
    runtime.add(&network, &container()).unwrap();
    stage.calls();
    stage.on("b", "DEL", FAIL);
    let failed = runtime.del(&network, &container()).unwrap_err();
    assert_eq!(failed.to_string(), r#"plugin type="b" failed (delete): no; way"#);
    assert_eq!(stage.called(), ["DEL b"]);
    assert!(stage.record_file().exists());
}

#[test]
fn del_goes_on_after_a_plugin_that_is_gone_and_reports_it() {
    let stage = Stage::new(&["a", "b", "c"]);
    let (runtime, network) = (stage.runtime(), network("1.0.0", &["a", "b", "c"]));
    runtime.add(&network, &container()).unwrap();
    stage.calls();
    fs::remove_file(stage.path("bin/b")).unwrap();
    let failed = runtime.del(&network, &container()).unwrap_err();
    let bin = stage.path("bin");
    let why =
        format!("plugin type=\"b\" failed (delete): failed to find plugin \"b\" in path [{}]", bin.display());
    assert_eq!(failed.to_string(), why);
    assert_eq!(stage.called(), ["DEL c", "DEL a"]);
    assert!(stage.record_file().exists());
    fs::copy(stage.path("bin/a"), stage.path("bin/b")).unwrap();
    runtime.del(&network, &container()).unwrap();
    assert!(!stage.record_file().exists());
}

#[test]
fn a_record_that_nobody_understands_is_no_obstacle_to_del() {
    let stage = Stage::new(&["a"]);
    let (runtime, network) = (stage.runtime(), network("1.0.0", &["a"]));
    for broken in ["", "nonsense", r#"{"kind":"cniCacheV1","config":"!"}"#, r#"{"cniVersion":"9.9.9"}"#] {
        fs::create_dir_all(stage.path("cni/results")).unwrap();
        fs::write(stage.record_file(), broken).unwrap();
        runtime.del(&network, &container()).unwrap();
        assert_eq!(stage.calls()[0].1.get("prevResult"), None, "{broken}");
        assert!(!stage.record_file().exists());
    }
}

#[test]
fn check_asks_all_plugins_with_the_result() {
    let stage = Stage::new(&["a", "b"]);
    let (runtime, network) = (stage.runtime(), network("0.4.0", &["a", "b"]));
    runtime.add(&network, &container()).unwrap();
    stage.calls();
    runtime.check(&network, &container()).unwrap();
    let input = |plugin: &str| {
        let result = result_of("b", "0.4.0");
        json!({"cniVersion": "0.4.0", "name": "net", "prevResult": result, "type": plugin})
    };
    let call = |plugin: &str| format!("CHECK {plugin} [c1] [/ns] [eth0] []");
    assert_eq!(stage.calls(), [(call("a"), input("a")), (call("b"), input("b"))]);
    stage.on("a", "CHECK", FAIL);
    let failed = runtime.check(&network, &container()).unwrap_err();
    assert_eq!(failed.to_string(), r#"plugin type="a" failed (check): no; way"#);
    assert_eq!(stage.called(), ["CHECK a"]);
}

#[test]
fn check_needs_0_4_0_and_can_be_switched_off() {
    let stage = Stage::new(&["a"]);
    let runtime = stage.runtime();
    let failed = runtime.check(&network("0.3.1", &["a"]), &container()).unwrap_err();
    assert_eq!(failed.to_string(), r#"configuration version "0.3.1" does not support the CHECK command"#);
    let off = list(
        json!({"cniVersion": "1.0.0", "name": "net", "disableCheck": "true", "plugins": [{"type": "a"}]}),
    );
    runtime.check(&off, &container()).unwrap();
    assert_eq!(stage.called(), [] as [&str; 0]);
}

#[test]
fn check_without_a_record_asks_all_the_same_and_a_broken_one_is_an_error() {
    let stage = Stage::new(&["a"]);
    let (runtime, network) = (stage.runtime(), network("1.0.0", &["a"]));
    runtime.check(&network, &container()).unwrap();
    assert_eq!(stage.calls()[0].1.get("prevResult"), None);
    fs::create_dir_all(stage.path("cni/results")).unwrap();
    fs::write(stage.record_file(), "nonsense").unwrap();
    let failed = runtime.check(&network, &container()).unwrap_err().to_string();
    assert_eq!(
        failed,
        format!("network \"net\": {}: expected ident at line 1 column 2", stage.record_file().display())
    );
}
