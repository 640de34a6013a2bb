//! The protocol, spoken with the built program: what Go's skeleton answers, and what bad input gets.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod calls;

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;

use calls::{PLUGINS, Stage, call_of, golden, steps};
use serde_json::{Value, json};

/// The answers that Go's skeleton gives before a plugin is asked.
fn is_of_the_skeleton(step: &Value) -> bool {
    step["env"]["CNI_COMMAND"] == "VERSION" || [1, 4, 6, 7].iter().any(|code| step["stdout"]["code"] == *code)
}

#[test]
fn every_plugin_answers_as_gos_skeleton_does() {
    let stage = Stage::new();
    for plugin in PLUGINS {
        let case = golden(&format!("errors-{plugin}"));
        let asked: Vec<_> = steps(&case).iter().filter(|step| is_of_the_skeleton(step)).collect();
        assert_eq!(asked.len(), 13);
        for step in asked {
            let outcome = call_of(&stage, step).run();
            let mut answer = outcome.json();
            if answer["code"] == 6 {
                // Go's JSON parser has words of its own.
                let msg = answer["msg"].as_str().unwrap().to_owned();
                assert!(msg.starts_with("error unmarshall network config: "), "{msg}");
                answer["msg"] = step["stdout"]["msg"].clone();
            }
            assert_eq!(
                (outcome.exit, &answer),
                (if answer.get("code").is_some() { 1 } else { 0 }, &step["stdout"])
            );
            assert_eq!(outcome.stderr, "", "{step}");
        }
    }
}

#[test]
fn errors_and_versions_have_the_form_of_go_to_the_byte() {
    let stage = Stage::new();
    let error = stage.call("bridge", "FOO").stdin(r#"{"name":"n"}"#).run();
    assert_eq!(error.stdout, "{\n    \"code\": 4,\n    \"msg\": \"unknown CNI_COMMAND: FOO\"\n}");
    let version = stage.bare("bridge").env("CNI_COMMAND", "VERSION").run();
    let text = "{\"cniVersion\":\"1.1.0\",\"supportedVersions\":[\"0.1.0\",\"0.2.0\",\"0.3.0\",\"0.3.1\",\"0.4.0\",\"1.0.0\",\"1.1.0\"]}\n";
    assert_eq!((version.exit, &*version.stdout), (0, text));
}

#[test]
fn without_a_command_a_plugin_tells_a_person_what_it_is() {
    let stage = Stage::new();
    for plugin in PLUGINS {
        let outcome = stage.bare(plugin).argument("version").stdin("{").run();
        assert_eq!((outcome.exit, &*outcome.stdout), (0, ""));
        assert!(outcome.stderr.starts_with(&format!("CNI {plugin} plugin, ")), "{}", outcome.stderr);
        let versions = "\nCNI protocol versions supported: 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0\n";
        assert!(outcome.stderr.ends_with(versions), "{}", outcome.stderr);
    }
}

#[test]
fn hostile_names_get_their_code_and_change_nothing() {
    let stage = Stage::new();
    let config = json!({"cniVersion": "1.0.0", "name": "n", "subnetFile": stage.text("none"), "dataDir": stage.text("data")});
    let long = "x".repeat(300);
    let invalid = OsString::from_vec(vec![b'a', 0xff, b'b']);
    for plugin in PLUGINS {
        let call = stage.call(plugin, "ADD").config(&config);
        for id in ["../x", "a\nb", ".", "/etc/passwd", "a b"]
            .map(OsString::from)
            .into_iter()
            .chain([invalid.clone()])
        {
            let (code, text) = call.clone().env("CNI_CONTAINERID", id).run().error();
            assert_eq!((code, &*text), (4, "invalid characters in containerID"));
        }
        for name in
            ["../x", "a\nb", "..", "a:b", &long].map(OsString::from).into_iter().chain([invalid.clone()])
        {
            assert_eq!(call.clone().env("CNI_IFNAME", name).run().error().0, 4);
        }
        let named =
            |name: &str| call.clone().config(&json!({"cniVersion": "1.0.0", "name": name})).run().error();
        for name in ["../x", "a\nb", "", " ", "\u{0}"] {
            assert_eq!(named(name).0, 7, "{name:?}");
        }
        let (code, text) = call.clone().env("CNI_COMMAND", invalid.clone()).run().error();
        assert_eq!((code, &*text), (4, "unknown CNI_COMMAND: a\u{fffd}b"));
    }
    assert_eq!(stage.names(""), ["bin"]);
}

#[test]
fn broken_configurations_get_their_code_and_change_nothing() {
    let stage = Stage::new();
    let whole = json!({"cniVersion": "1.0.0", "name": "n", "dataDir": stage.text("data"), "ipam": {"type": "host-local"}});
    let whole = whole.to_string();
    for plugin in PLUGINS {
        let call = stage.call(plugin, "ADD");
        for end in [0, 1, whole.len() / 2, whole.len() - 1] {
            assert_eq!(call.clone().stdin(&whole.as_bytes()[..end]).run().error().0, 6, "{end}");
        }
        for broken in [
            "[]",
            "7",
            "{}{}",
            "{\"name\":\"n\"}x",
            "{\"name\":{}}",
            "{\"name\":\"n\",\"cniVersion\":1}",
            &"[".repeat(100_000),
        ] {
            assert_eq!(call.clone().stdin(broken).run().error().0, 6);
        }
        assert_eq!(call.clone().stdin(b"{\"name\":\"\xff\"}").run().error().0, 6);
        let (code, text) = call.clone().stdin(vec![b' '; 17 << 20]).run().error();
        assert_eq!(
            (code, &*text),
            (5, "error reading from stdin: the network configuration is longer than 16777216 bytes")
        );
    }
    assert_eq!(stage.names(""), ["bin"]);
}

#[test]
fn another_name_is_no_plugin() {
    let stage = Stage::new();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_flannel-cni"), stage.path("bin/ptp")).unwrap();
    let (code, text) = stage.call("ptp", "ADD").stdin("{}").run().error();
    let names = "flannel, bridge, host-local, portmap, loopback";
    assert_eq!((code, text), (999, format!("\"ptp\" is no plugin of this program, which has {names}")));
}

#[test]
fn the_program_installs_itself_under_the_names_of_its_plugins() {
    let stage = Stage::new();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_flannel-cni"), stage.path("bin/flannel-cni")).unwrap();
    for _ in 0..2 {
        let outcome = stage.bare("flannel-cni").argument("install").argument(stage.path("opt/cni/bin")).run();
        let opt = stage.text("opt/cni/bin");
        let names = ["flannel-cni", "flannel", "bridge", "host-local", "portmap", "loopback"];
        let told: String = names.iter().map(|name| format!("installed {opt}/{name}\n")).collect();
        assert_eq!((outcome.exit, outcome.stdout, outcome.stderr), (0, told, String::new()));
    }
    let names = ["bridge", "flannel", "flannel-cni", "host-local", "loopback", "portmap"];
    assert_eq!(stage.names("opt/cni/bin"), names);
    let file = |name: &str| fs::metadata(stage.path("opt/cni/bin").join(name)).unwrap();
    assert_eq!(names.map(|name| file(name).ino()), [file("bridge").ino(); 6]);
    assert_eq!(file("bridge").mode() & 0o7777, 0o755);
    let installed = stage.bare("../opt/cni/bin/portmap").env("CNI_COMMAND", "VERSION").run();
    assert_eq!(installed.json()["cniVersion"], "1.1.0");
}

#[test]
fn an_installation_that_fails_says_why() {
    let stage = Stage::new();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_flannel-cni"), stage.path("bin/flannel-cni")).unwrap();
    stage.write("file", "");
    let outcome = stage.bare("flannel-cni").argument("install").argument(stage.path("file/bin")).run();
    let told = format!("error: cannot install {}: Not a directory (os error 20)\n", stage.text("file/bin"));
    assert_eq!((outcome.exit, outcome.stderr), (1, told));
    let lost = stage.bare("flannel-cni").argument("install").run();
    assert_eq!((lost.exit, &*lost.stdout), (2, ""));
}
