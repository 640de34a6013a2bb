//! A folder with a cache and plugins that write down how they are called.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use flannel_cni::runtime::{Container, Network, Runtime};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

/// Writes down variables and input, then does what the test wants for the command.
const SCRIPT: &str = r#"#!/bin/sh
here=${0%/*}
name=${0##*/}
printf '%s %s [%s] [%s] [%s] [%s]\n' "$CNI_COMMAND" "$name" "$CNI_CONTAINERID" "$CNI_NETNS" "$CNI_IFNAME" "$CNI_ARGS" >> "$here/../calls"
cat >> "$here/../calls"
echo >> "$here/../calls"
if [ -f "$here/$name.$CNI_COMMAND" ]; then . "$here/$name.$CNI_COMMAND"; fi
"#;

pub struct Stage {
    folder: TempDir,
}

impl Stage {
    /// With plugins of these names, which answer ADD with their own name as an interface.
    pub fn new(plugins: &[&str]) -> Self {
        let stage = Self { folder: TempDir::new().unwrap() };
        fs::create_dir(stage.path("bin")).unwrap();
        for plugin in plugins {
            let path = stage.path("bin").join(plugin);
            fs::write(&path, SCRIPT).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            stage.on(plugin, "ADD", &format!("echo '{}'", json!({"interfaces": [{"name": plugin}]})));
        }
        stage
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What a plugin does at a command, in the words of a shell.
    pub fn on(&self, plugin: &str, command: &str, script: &str) {
        fs::write(self.path("bin").join(format!("{plugin}.{command}")), script).unwrap();
    }

    pub fn runtime(&self) -> Runtime<'static> {
        Runtime::new(vec![self.path("bin")]).with_cache(self.path("cni"))
    }

    /// How plugins were called since the last question: the variables, and the input.
    pub fn calls(&self) -> Vec<(String, Value)> {
        let text = fs::read_to_string(self.path("calls")).unwrap_or_default();
        let _ = fs::remove_file(self.path("calls"));
        let lines: Vec<&str> = text.lines().collect();
        lines.chunks(2).map(|call| (call[0].to_owned(), serde_json::from_str(call[1]).unwrap())).collect()
    }

    /// Which plugins were called since the last question.
    pub fn called(&self) -> Vec<String> {
        let words = |call: String| call.split(' ').take(2).collect::<Vec<_>>().join(" ");
        self.calls().into_iter().map(|(call, _)| words(call)).collect()
    }

    pub fn record_file(&self) -> PathBuf {
        self.path("cni/results/net-c1-eth0")
    }
}

/// A network `net` of plugins that have nothing but a name.
pub fn network(version: &str, plugins: &[&str]) -> Network {
    let plugins: Vec<Value> = plugins.iter().map(|plugin| json!({"type": plugin})).collect();
    list(json!({"cniVersion": version, "name": "net", "plugins": plugins}))
}

pub fn list(list: Value) -> Network {
    Network::parse(list.to_string().as_bytes()).unwrap()
}

pub fn container() -> Container {
    Container {
        id: "c1".to_owned(),
        netns: Some("/ns".into()),
        ifname: "eth0".to_owned(),
        ..Container::default()
    }
}

/// What a plugin of the stage answers to ADD.
pub fn result_of(plugin: &str, version: &str) -> Map<String, Value> {
    json!({"cniVersion": version, "interfaces": [{"name": plugin}]}).as_object().unwrap().clone()
}
