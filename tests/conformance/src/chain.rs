//! A list of plugins that are called one after the other, as a runtime does it.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::{Answer, Call, Site};

/// A network of several plugins.
#[derive(Clone, Debug)]
pub struct Chain<'a> {
    /// Where it is.
    pub site: &'a Site,
    /// The folders that plugins are looked for in, in this order.
    pub folders: Vec<PathBuf>,
    /// The folder that plugins look for others in, if it is not these.
    pub inner: Option<PathBuf>,
    /// The version that configurations name.
    pub version: &'a str,
    /// The name of the network.
    pub name: &'a str,
    /// The configuration of each plugin.
    pub plugins: Vec<Value>,
    /// What the runtime has for plugins with these capabilities.
    pub capabilities: Value,
}

/// A container's interface in a pod of the site.
#[derive(Clone, Copy, Debug)]
pub struct PodInterface<'a> {
    /// The id of the container.
    pub container: &'a str,
    /// The pod.
    pub pod: &'a str,
    /// The interface.
    pub interface: &'a str,
}

impl<'a> PodInterface<'a> {
    /// `eth0` of a container that has the name of its pod.
    pub fn of(pod: &'a str) -> Self {
        Self { container: pod, pod, interface: "eth0" }
    }
}

impl Chain<'_> {
    /// The same network with plugins of other folders: after an upgrade, or a downgrade.
    pub fn with(&self, folders: &[&Path]) -> Self {
        Self { folders: folders.iter().map(|folder| folder.to_path_buf()).collect(), ..self.clone() }
    }

    /// The same network, whose plugins look for others in a folder of the site.
    pub fn with_path(&self, folder: &Path) -> Self {
        Self { inner: Some(folder.into()), ..self.clone() }
    }

    /// Attaches a container and gives the last result.
    #[track_caller]
    pub fn add(&self, place: PodInterface) -> Value {
        self.plugins.iter().fold(Value::Null, |previous, plugin| {
            let answer = self.call("ADD", plugin, &previous, place);
            answer.result()
        })
    }

    /// Detaches a container, which must succeed.
    #[track_caller]
    pub fn del(&self, place: PodInterface, result: &Value) {
        self.each("DEL", place, result).iter().for_each(Answer::nothing);
    }

    /// Checks a container, which must succeed.
    #[track_caller]
    pub fn check(&self, place: PodInterface, result: &Value) {
        self.each("CHECK", place, result).iter().for_each(Answer::nothing);
    }

    /// Calls every plugin, the last one first when it is a DEL.
    pub fn each(&self, command: &str, place: PodInterface, result: &Value) -> Vec<Answer> {
        let mut plugins: Vec<_> = self.plugins.iter().collect();
        if command == "DEL" {
            plugins.reverse();
        }
        // Before 0.4.0 a DEL is not told the result.
        let told = if crate::version::at_least(self.version, "0.4.0") { result } else { &Value::Null };
        plugins.into_iter().map(|plugin| self.call(command, plugin, told, place)).collect()
    }

    /// Has every plugin free what belongs to none of these containers.
    #[track_caller]
    pub fn collect(&self, valid: &[PodInterface]) {
        let valid: Vec<_> = valid
            .iter()
            .map(|place| json!({"containerID": place.container, "ifname": place.interface}))
            .collect();
        for plugin in &self.plugins {
            let mut plugin = plugin.clone();
            plugin["cni.dev/valid-attachments"] = valid.clone().into();
            self.call("GC", &plugin, &Value::Null, PodInterface::of("none")).nothing();
        }
    }

    fn call(&self, command: &str, plugin: &Value, previous: &Value, place: PodInterface) -> Answer {
        let mut config = plugin.clone();
        config["cniVersion"] = self.version.into();
        config["name"] = self.name.into();
        if !previous.is_null() {
            config["prevResult"] = previous.clone();
        }
        for (capability, wanted) in plugin["capabilities"].as_object().into_iter().flatten() {
            if *wanted == true && !self.capabilities[capability].is_null() {
                config["runtimeConfig"][capability] = self.capabilities[capability].clone();
            }
        }
        let kind = plugin["type"].as_str().unwrap();
        let folder = self.folders.iter().find(|folder| folder.join(kind).is_file());
        let folder = folder.unwrap_or_else(|| panic!("no {kind} in {:?}", self.folders));
        let path = self.inner.as_ref().map_or(&*self.folders, std::slice::from_ref);
        let path: Vec<_> = path.iter().map(|folder| folder.display().to_string()).collect();
        let call =
            Call::new(self.site, folder, kind, command).config(&config).set("CNI_PATH", path.join(":"));
        call.container(place.container).pod(place.pod).interface(place.interface).run()
    }
}
