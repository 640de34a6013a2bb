//! What is said to each plugin of a network: its own configuration, and what the runtime adds to it.

use serde_json::{Map, Value};

use super::container::Container;
use super::network::{Network, Plugin};

/// One operation on a network for one container.
#[derive(Clone, Copy)]
pub(super) struct Task<'a> {
    pub(super) network: &'a Network,
    pub(super) container: &'a Container,
    /// What was attached so far; DEL and CHECK get the result of the whole ADD.
    pub(super) result: Option<&'a Map<String, Value>>,
}

impl Task<'_> {
    /// The input of a plugin. Of what the runtime has to tell it gets that which it is capable of.
    pub(super) fn config(&self, plugin: &Plugin) -> Map<String, Value> {
        let mut config = named(self.network, plugin);
        if let Some(result) = self.result {
            config.insert("prevResult".to_owned(), result.clone().into());
        }
        let told = |key: &str| Some((key.to_owned(), self.container.capabilities.get(key)?.clone()));
        let told: Map<String, Value> = plugin.capabilities().filter_map(told).collect();
        if !told.is_empty() {
            config.insert("runtimeConfig".to_owned(), told.into());
        }
        config
    }
}

/// A plugin's configuration under the network's name and version, which win over its own.
pub(super) fn named(network: &Network, plugin: &Plugin) -> Map<String, Value> {
    let mut config = plugin.config.clone();
    config.insert("name".to_owned(), network.name.clone().into());
    config.insert("cniVersion".to_owned(), network.version.clone().into());
    config
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(plugin: Value, capabilities: Value, result: Option<Value>) -> Value {
        let list = json!({"name": "net", "cniVersion": "1.0.0", "plugins": [plugin]});
        let network = Network::parse(list.to_string().as_bytes()).unwrap();
        let capabilities = capabilities.as_object().unwrap().clone();
        let container = Container { capabilities, ..Container::default() };
        let result = result.map(|result| result.as_object().unwrap().clone());
        let task = Task { network: &network, container: &container, result: result.as_ref() };
        Value::Object(task.config(&network.plugins[0]))
    }

    #[test]
    fn a_plugin_is_told_what_it_is_capable_of() {
        let plugin =
            json!({"type": "portmap", "capabilities": {"portMappings": true, "mac": false, "ips": true}});
        let told = config(plugin.clone(), json!({"portMappings": [1], "mac": "x", "other": 2}), None);
        let expected = json!({
            "type": "portmap",
            "capabilities": {"portMappings": true, "mac": false, "ips": true},
            "name": "net",
            "cniVersion": "1.0.0",
            "runtimeConfig": {"portMappings": [1]},
        });
        assert_eq!(told, expected);
        assert_eq!(config(plugin, json!({"mac": "x"}), None).get("runtimeConfig"), None);
    }

    #[test]
    fn the_networks_words_win_over_the_plugins_own() {
        let plugin = json!({
            "type": "a", "name": "old", "cniVersion": "0.1.0", "prevResult": {}, "runtimeConfig": {"x": 1},
            "capabilities": {"x": true}, "kept": {"b": 1, "a": 2},
        });
        let expected = json!({
            "type": "a", "name": "net", "cniVersion": "1.0.0", "prevResult": {"ips": []},
            "runtimeConfig": {"x": 2}, "capabilities": {"x": true}, "kept": {"b": 1, "a": 2},
        });
        assert_eq!(config(plugin, json!({"x": 2}), Some(json!({"ips": []}))), expected);
    }
}
