//! A folder of plugins: ours, freshly installed, or anybody's.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

/// A folder of plugins that scenarios are run on.
#[derive(Clone, Debug)]
pub struct Plugins {
    /// What reports call it: `ours`, or the folder.
    pub name: String,
    /// Where they are.
    pub folder: PathBuf,
    versions: BTreeMap<String, Vec<String>>,
    ours: bool,
}

impl Plugins {
    /// The folders that `CNI_PLUGINS` lists, parted by colons; `ours` stands for ours. Without it: ours and Debian's.
    pub fn chosen() -> Vec<Self> {
        let list = std::env::var("CNI_PLUGINS").unwrap_or_default();
        let list = if list.is_empty() { "ours:/usr/lib/cni" } else { &list };
        list.split(':')
            .map(|name| if name == "ours" { Self::ours() } else { Self::at(Path::new(name)) })
            .collect()
    }

    /// Ours, as `flannel-cni install` puts them in place.
    pub fn ours() -> Self {
        static FOLDER: OnceLock<PathBuf> = OnceLock::new();
        let folder = FOLDER.get_or_init(install).clone();
        Self { name: "ours".into(), versions: versions(&folder), folder, ours: true }
    }

    /// Those of a folder, which must have the plugin `host-local`.
    pub fn at(folder: &Path) -> Self {
        let found = folder.join("host-local").is_file();
        assert!(
            found,
            "{} has no CNI plugins: install containernetworking-plugins, or set CNI_PLUGINS",
            folder.display()
        );
        Self {
            name: folder.display().to_string(),
            folder: folder.into(),
            versions: versions(folder),
            ours: false,
        }
    }

    /// Whether they are ours.
    pub fn is_ours(&self) -> bool {
        self.ours
    }

    /// Whether the folder has a plugin of that name.
    pub fn have(&self, plugin: &str) -> bool {
        self.versions.contains_key(plugin)
    }

    /// Whether one of the plugins speaks a version.
    pub fn speaks(&self, plugin: &str, version: &str) -> bool {
        self.versions.get(plugin).is_some_and(|known| known.iter().any(|known| known == version))
    }
}

/// One of the Go programs that `make peers` builds.
pub fn peer(name: &str) -> PathBuf {
    let path = built().parent().unwrap().join("peers/bin").join(name);
    assert!(path.is_file(), "{} is missing: make peers", path.display());
    path
}

/// Where cargo puts programs, the tests' own among them.
fn built() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().and_then(Path::parent).unwrap().to_owned()
}

fn install() -> PathBuf {
    let target = built();
    let program = target.join("flannel-cni");
    assert!(program.is_file(), "{} is missing: cargo build -p flannel-cni", program.display());
    let folder = target.join("conformance").join("ours");
    let done = Command::new(program).arg("install").arg(&folder).stdout(Stdio::null()).status().unwrap();
    assert!(done.success(), "flannel-cni install {} failed", folder.display());
    folder
}

/// What the plugins that we have, too, say they speak.
fn versions(folder: &Path) -> BTreeMap<String, Vec<String>> {
    let names = ["flannel", "bridge", "host-local", "portmap", "loopback"];
    let there = names.into_iter().filter(|name| folder.join(name).is_file());
    there.map(|name| (name.to_owned(), told_versions(&folder.join(name)))).collect()
}

fn told_versions(plugin: &Path) -> Vec<String> {
    let mut command = Command::new(plugin);
    command.env_clear().env("CNI_COMMAND", "VERSION").stdin(Stdio::null());
    let output = command.output().unwrap_or_else(|error| panic!("{}: {error}", plugin.display()));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let list = told["supportedVersions"].as_array().unwrap();
    list.iter().map(|version| version.as_str().unwrap().to_owned()).collect()
}
