//! `flannelctl cni` as a user calls it, with shell scripts for plugins.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

/// The identity of /run/netns/pod1, as cnitool makes it.
const POD: &str = "cnitool-eb69d96616c204ff963c";
const SCRIPT: &str = r#"#!/bin/sh
here=${0%/*}
echo "$CNI_COMMAND ${0##*/} $CNI_CONTAINERID $CNI_NETNS $CNI_IFNAME [$CNI_ARGS]" >> "$here/../calls"
cat >> "$here/../calls"
echo >> "$here/../calls"
if [ -f "$here/fail.$CNI_COMMAND" ]; then echo '{"code":50,"msg":"not now"}'; exit 1; fi
if [ "$CNI_COMMAND" = ADD ]; then echo '{"cniVersion":"1.1.0","ips":[{"address":"10.1.2.3/24"}]}'; fi
"#;

struct Stage {
    folder: TempDir,
}

impl Stage {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let stage = Self { folder };
        for name in ["bin", "net.d"] {
            fs::create_dir(stage.path(name)).unwrap();
        }
        fs::write(stage.path("bin/fake"), SCRIPT).unwrap();
        fs::set_permissions(stage.path("bin/fake"), fs::Permissions::from_mode(0o755)).unwrap();
        let plugin = json!({"type": "fake", "capabilities": {"portMappings": true}});
        let list = json!({"cniVersion": "1.1.0", "name": "net", "plugins": [plugin]});
        fs::write(stage.path("net.d/10-net.conflist"), list.to_string()).unwrap();
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Exit code, standard output, standard error.
    fn ask(&self, words: &str, variables: &[(&str, &str)]) -> (i32, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flannelctl"));
        command.arg("cni").args(words.split(' ')).env_remove("CNI_IFNAME");
        command.env("NETCONFPATH", self.path("net.d")).env("CNI_PATH", self.path("bin"));
        command.arg("--cache-dir").arg(self.path("cni")).envs(variables.iter().copied());
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    /// The calls of the plugin since the last question, with their input.
    fn calls(&self) -> Vec<(String, Value)> {
        let text = fs::read_to_string(self.path("calls")).unwrap_or_default();
        let _ = fs::remove_file(self.path("calls"));
        let lines: Vec<&str> = text.lines().collect();
        lines.chunks(2).map(|call| (call[0].to_owned(), serde_json::from_str(call[1]).unwrap())).collect()
    }
}

fn done() -> (i32, String, String) {
    (0, String::new(), String::new())
}

#[test]
fn a_namespace_is_attached_checked_and_detached() {
    let stage = Stage::new();
    let result = json!({"cniVersion": "1.1.0", "ips": [{"address": "10.1.2.3/24"}]});
    let (code, shown, errors) = stage.ask("add net /run/netns/pod1", &[]);
    assert_eq!((code, errors.as_str()), (0, ""));
    assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), result);
    assert_eq!(stage.ask("check net /run/netns/pod1", &[]), done());
    assert_eq!(stage.ask("del net /run/netns/../netns/pod1", &[]), done());
    let calls = stage.calls();
    let called: Vec<&str> = calls.iter().map(|(call, _)| call.as_str()).collect();
    let call = |command| format!("{command} fake {POD} /run/netns/pod1 eth0 []");
    assert_eq!(called, ["ADD", "CHECK", "DEL"].map(call));
    assert_eq!(calls[2].1["prevResult"], result);
    assert_eq!(fs::read_dir(stage.path("cni/results")).unwrap().count(), 0);
}

#[test]
fn the_variables_of_cnitool_are_heeded() {
    let stage = Stage::new();
    let variables = [
        ("CNI_ARGS", "IgnoreUnknown=1;K=V"),
        ("CAP_ARGS", r#"{"portMappings":[{"hostPort":80}],"mac":"x"}"#),
        ("CNI_IFNAME", "net1"),
    ];
    assert_eq!(stage.ask("add net /run/netns/pod1", &variables).0, 0);
    let (call, input) = stage.calls().remove(0);
    assert_eq!(call, format!("ADD fake {POD} /run/netns/pod1 net1 [IgnoreUnknown=1;K=V]"));
    assert_eq!(input["runtimeConfig"], json!({"portMappings": [{"hostPort": 80}]}));
    assert_eq!(stage.ask("add net /run/netns/pod1 -i net2", &variables).0, 0);
    assert!(stage.calls()[0].0.contains(" net2 "));
    let (code, _, errors) = stage.ask("add net /run/netns/pod1", &[("CNI_ARGS", "K")]);
    let why = "flannelctl: invalid CNI_ARGS pair \"K\": it must be KEY=VALUE, and pairs are separated by ;\n";
    assert_eq!((code, errors.as_str()), (1, why));
    let (code, _, errors) = stage.ask("add net /run/netns/pod1", &[("CAP_ARGS", "[]")]);
    assert_eq!(code, 1);
    assert!(errors.starts_with("flannelctl: CAP_ARGS must be a JSON object, not []\n"), "{errors}");
}

#[test]
fn flags_win_over_variables_and_text_is_for_people() {
    let stage = Stage::new();
    let nowhere = [("NETCONFPATH", "/nowhere"), ("CNI_PATH", "/nowhere")];
    let (folder, plugins) = (stage.path("net.d"), stage.path("bin"));
    let words = format!(
        "add net /run/netns/pod1 -o text --conf-dir {} --cni-path /nowhere:{}",
        folder.display(),
        plugins.display()
    );
    let shown = format!("attached eth0 of container {POD}\n  address 10.1.2.3/24\n");
    assert_eq!(stage.ask(&words, &nowhere), (0, shown, String::new()));
    assert_eq!(
        stage.ask("add net /run/netns/pod1", &nowhere[..1]),
        (1, String::new(), "flannelctl: no net configurations found in /nowhere\n".to_owned())
    );
}

#[test]
fn a_failure_is_told_in_one_line_and_undone() {
    let stage = Stage::new();
    fs::write(stage.path("bin/fail.ADD"), "").unwrap();
    let failed = "flannelctl: plugin type=\"fake\" failed (add): not now\n";
    assert_eq!(stage.ask("add net /run/netns/pod1", &[]), (1, String::new(), failed.to_owned()));
    let called: Vec<String> = stage.calls().into_iter().map(|(call, _)| call[..8].to_owned()).collect();
    assert_eq!(called, ["ADD fake", "DEL fake"]);
    fs::write(stage.path("bin/fail.STATUS"), "").unwrap();
    let failed = "flannelctl: plugin type=\"fake\" failed (status): not now\n";
    assert_eq!(stage.ask("status net", &[]), (1, String::new(), failed.to_owned()));
}

#[test]
fn gc_removes_all_but_what_is_to_be_kept() {
    let stage = Stage::new();
    let own = "/proc/self/ns/net";
    for netns in ["/run/netns/pod1", "/run/netns/pod2", own] {
        assert_eq!(stage.ask(&format!("add net {netns}"), &[]).0, 0);
    }
    stage.calls();
    assert_eq!(stage.ask(&format!("gc net --keep-living --keep {POD}/eth0"), &[]), done());
    let calls = stage.calls();
    let called: Vec<&str> = calls.iter().map(|(call, _)| call.split(' ').next().unwrap()).collect();
    assert_eq!(called, ["DEL", "GC"]);
    assert!(calls[0].0.contains("/run/netns/pod2"));
    let kept = calls[1].1["cni.dev/valid-attachments"].as_array().unwrap();
    assert_eq!(kept[0], json!({"containerID": POD, "ifname": "eth0"}));
    assert_eq!(kept.len(), 2);
    assert_eq!(stage.ask("gc net /run/netns/any", &[]), done());
    let calls = stage.calls();
    assert_eq!(calls.len(), 3);
    assert_eq!(calls[2].1.get("cni.dev/valid-attachments"), None);
    assert_eq!(stage.ask("status net /run/netns/any", &[]), done());
}
