//! A network: the plugins to be called one after the other, and what holds for all of them.
//!
//! Takes the text of a conflist or of a single plugin's configuration, gives a [`Network`]. Keys of a list are
//! matched exactly and those of a plugin as Go's decoder does, which is how libcni reads them.

use serde_json::{Map, Value, json};

use crate::error::CniError;
use crate::json::Object;
use crate::version::{Version, numbers};

/// A conflist.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    pub name: String,
    /// The version that its plugins are spoken to in; may be empty.
    pub version: String,
    /// CHECK is not wanted.
    pub disable_check: bool,
    /// GC is not wanted.
    pub disable_gc: bool,
    /// Plugins of the folder beside the file are not wanted.
    pub(super) only_inlined: bool,
    /// The plugins in the order of ADD.
    pub plugins: Vec<Plugin>,
    /// The text that it was read from, for the cache.
    pub text: Vec<u8>,
}

/// One plugin of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Plugin {
    pub program: String,
    /// A name of its own, which only old configurations have; may be empty.
    pub name: String,
    pub config: Map<String, Value>,
}

/// Why a text is no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// The list itself.
    #[error("error parsing configuration list: {0}")]
    List(String),
    /// A plugin of the list, counted from 0.
    #[error("failed to parse plugin config {0}: {1}")]
    Plugin(usize, Box<NetworkError>),
    /// A plugin's own configuration.
    #[error("error parsing configuration: {0}")]
    Config(String),
    /// A list without plugins.
    #[error("no plugin configs found")]
    NoPlugins,
}

impl Network {
    /// Reads a conflist; plugins that are in files of their own are not added.
    pub fn parse(text: &[u8]) -> Result<Self, NetworkError> {
        let list: Map<String, Value> = serde_json::from_slice(text).map_err(list_error)?;
        let name = match list.get("name") {
            Some(Value::String(name)) => name.clone(),
            Some(other) => return Err(list_error(format!("invalid name {other}, which must be a string"))),
            None => return Err(list_error("no name")),
        };
        let only_inlined = switch(&list, "loadOnlyInlinedPlugins")?;
        let plugins = match list.get("plugins") {
            Some(Value::Array(plugins)) if plugins.is_empty() => {
                return Err(list_error("no plugins in list"));
            }
            Some(Value::Array(plugins)) => inlined(plugins)?,
            Some(other) => return Err(list_error(format!("invalid plugins {other}, which must be a list"))),
            None if only_inlined => {
                return Err(list_error("`loadOnlyInlinedPlugins` is true, and no 'plugins' key"));
            }
            None => Vec::new(),
        };
        Ok(Self {
            name,
            version: version(&list)?,
            disable_check: switch(&list, "disableCheck")?,
            disable_gc: switch(&list, "disableGC")?,
            only_inlined,
            plugins,
            text: text.to_owned(),
        })
    }

    /// Makes a list of a single plugin, as the first versions of CNI configured it.
    pub fn of_plugin(plugin: &Plugin) -> Result<Self, NetworkError> {
        let version = Object::new(&plugin.config).text("cniVersion").map_err(|why| list_error(why.msg))?;
        let mut list = json!({
            "name": plugin.name,
            "cniVersion": version.unwrap_or_default(),
            "plugins": [plugin.config],
        });
        list.sort_all_objects();
        Self::parse(list.to_string().as_bytes())
    }

    /// Whether its version, which may be one that nobody has heard of, is this or a later one.
    pub(super) fn is_since(&self, version: Version) -> Result<bool, CniError> {
        Ok(numbers(&self.version)? >= numbers(version.as_str())?)
    }
}

impl Plugin {
    /// Reads a plugin's configuration.
    pub fn parse(text: &[u8]) -> Result<Self, NetworkError> {
        Self::new(serde_json::from_slice(text).map_err(config_error)?)
    }

    fn new(config: Map<String, Value>) -> Result<Self, NetworkError> {
        let object = Object::new(&config);
        let text = |key| {
            object.text(key).map(Option::unwrap_or_default).map_err(|why| NetworkError::Config(why.msg))
        };
        let (program, name) = (text("type")?.to_owned(), text("name")?.to_owned());
        text("cniVersion")?;
        let capabilities = object.object("capabilities").map_err(config_error)?;
        let switches = capabilities.iter().flat_map(|switches| switches.map().iter());
        if let Some((key, value)) =
            switches.into_iter().find(|(_, value)| !value.is_boolean() && !value.is_null())
        {
            return Err(config_error(format!("capability {key} must be true or false, not {value}")));
        }
        if program.is_empty() {
            return Err(config_error("missing 'type'"));
        }
        Ok(Self { program, name, config })
    }

    /// What the plugin understands of what a runtime can tell it.
    pub fn capabilities(&self) -> impl Iterator<Item = &str> {
        let switches = Object::new(&self.config).object("capabilities").ok().flatten();
        let switches = switches.into_iter().flat_map(|switches| switches.map());
        switches.filter(|(_, value)| value.as_bool() == Some(true)).map(|(key, _)| key.as_str())
    }
}

fn inlined(plugins: &[Value]) -> Result<Vec<Plugin>, NetworkError> {
    let read = |(number, plugin): (usize, &Value)| {
        let config = match plugin {
            Value::Object(config) => Plugin::new(config.clone()),
            other => Err(config_error(format!("{other} is no object"))),
        };
        config.map_err(|why| NetworkError::Plugin(number, Box::new(why)))
    };
    plugins.iter().enumerate().map(read).collect()
}

/// The highest of `cniVersions` and `cniVersion` that we speak; without the former, the latter as it is.
fn version(list: &Map<String, Value>) -> Result<String, NetworkError> {
    let one = match list.get("cniVersion") {
        Some(Value::String(version)) => version.as_str(),
        Some(other) => return Err(list_error(format!("invalid cniVersion {other}, which must be a string"))),
        None => "",
    };
    let Some(many) = list.get("cniVersions") else { return Ok(one.to_owned()) };
    let wrong = || list_error(format!("invalid cniVersions {many}, which must be a list of strings"));
    let many: Option<Vec<&str>> = many.as_array().ok_or_else(wrong)?.iter().map(Value::as_str).collect();
    let many = many.ok_or_else(wrong)?;
    let newest = numbers(Version::NEWEST.as_str()).map_err(list_error)?;
    let mut spoken = Vec::new();
    for text in many.into_iter().chain((!one.is_empty()).then_some(one)) {
        let number = numbers(text).map_err(list_error)?;
        if number <= newest {
            spoken.push((number, text));
        }
    }
    Ok(spoken.into_iter().max().map_or(one, |(_, text)| text).to_owned())
}

/// A switch of a list, which may be written as a text.
fn switch(list: &Map<String, Value>, key: &str) -> Result<bool, NetworkError> {
    match list.get(key) {
        None => Ok(false),
        Some(Value::Bool(value)) => Ok(*value),
        Some(Value::String(text)) => match text.to_ascii_lowercase().as_str() {
            "false" => Ok(false),
            "true" => Ok(true),
            other => Err(list_error(format!("invalid value {other:?} for {key}"))),
        },
        Some(other) => Err(list_error(format!("invalid {key} {other}, which must be true or false"))),
    }
}

fn list_error(why: impl ToString) -> NetworkError {
    NetworkError::List(why.to_string())
}

fn config_error(why: impl ToString) -> NetworkError {
    NetworkError::Config(why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version_of(list: Value) -> Result<String, NetworkError> {
        let mut list = list;
        list["name"] = "test".into();
        list["plugins"] = json!([{"type": "foo"}]);
        Network::parse(list.to_string().as_bytes()).map(|network| network.version)
    }

    #[test]
    fn the_highest_version_that_we_speak_is_chosen() {
        let chosen = [
            json!({"cniVersions": ["1.1.0", "0.4.0", "1.0.0"]}),
            json!({"cniVersions": ["99.0.0", "1.1.0", "0.4.0", "1.0.0"]}),
            json!({"cniVersion": "1.2.3"}),
            json!({"cniVersion": "1.0.0", "cniVersions": ["0.1.0", "0.4.0"]}),
            json!({"cniVersions": []}),
            json!({"cniVersion": "99.0.0", "cniVersions": ["99.1.0"]}),
            json!({}),
        ]
        .map(|list| version_of(list).unwrap());
        assert_eq!(chosen, ["1.1.0", "1.1.0", "1.2.3", "1.0.0", "", "99.0.0", ""]);
    }

    #[test]
    fn a_version_that_is_none_is_refused() {
        let wrong = [
            json!({"cniVersions": ["1.1.0", "1.0.f"]}),
            json!({"cniVersions": "1.1.0"}),
            json!({"cniVersions": [1]}),
            json!({"cniVersion": 1}),
        ]
        .map(|list| version_of(list).unwrap_err().to_string());
        assert_eq!(
            wrong,
            [
                r#"error parsing configuration list: invalid version "1.0.f": its parts must be numbers"#,
                r#"error parsing configuration list: invalid cniVersions "1.1.0", which must be a list of strings"#,
                "error parsing configuration list: invalid cniVersions [1], which must be a list of strings",
                "error parsing configuration list: invalid cniVersion 1, which must be a string",
            ]
        );
    }

    #[test]
    fn switches_may_be_texts() {
        let of = |value: Value| {
            let list =
                json!({"name": "n", "disableCheck": value, "disableGC": "TRUE", "plugins": [{"type": "a"}]});
            Network::parse(list.to_string().as_bytes())
                .map(|network| (network.disable_check, network.disable_gc))
        };
        let wrong = |why: &str| Err(NetworkError::List(why.to_owned()));
        assert_eq!(of(json!(true)), Ok((true, true)));
        assert_eq!(of(json!("False")), Ok((false, true)));
        assert_eq!(of(json!("sphagnum")), wrong("invalid value \"sphagnum\" for disableCheck"));
        assert_eq!(of(json!(1)), wrong("invalid disableCheck 1, which must be true or false"));
    }

    #[test]
    fn a_list_that_is_none_is_refused() {
        let list = |why: &str| NetworkError::List(why.to_owned());
        let refused = |text: &str| Network::parse(text.as_bytes()).unwrap_err();
        assert_eq!(refused(r#"{"plugins":[{"type":"a"}]}"#), list("no name"));
        assert_eq!(refused(r#"{"name":7}"#), list("invalid name 7, which must be a string"));
        assert_eq!(refused(r#"{"name":"n","plugins":[]}"#), list("no plugins in list"));
        assert_eq!(refused(r#"{"name":"n","plugins":{}}"#), list("invalid plugins {}, which must be a list"));
        let missing = Box::new(NetworkError::Config("missing 'type'".to_owned()));
        assert_eq!(refused(r#"{"name":"n","plugins":[{"type":"a"},{}]}"#), NetworkError::Plugin(1, missing));
        assert!(refused(r#"{"name":"n"} trailing"#).to_string().contains("trailing characters"));
    }

    #[test]
    fn a_plugin_is_read_as_go_reads_it() {
        let text = r#"{"Type":"portmap","capabilities":{"portMappings":true,"bandwidth":false,"mac":null}}"#;
        let plugin = Plugin::parse(text.as_bytes()).unwrap();
        assert_eq!(
            (plugin.program.as_str(), plugin.capabilities().collect::<Vec<_>>()),
            ("portmap", vec!["portMappings"])
        );
        let wrong = Plugin::parse(br#"{"type":"a","capabilities":{"x":"yes"}}"#).unwrap_err().to_string();
        assert_eq!(wrong, "error parsing configuration: capability x must be true or false, not \"yes\"");
    }

    #[test]
    fn a_single_plugin_becomes_a_list_of_one() {
        let plugin = Plugin::parse(br#"{"name":"some","type":"foo","cniVersion":"0.3.1"}"#).unwrap();
        let text = r#"{"cniVersion":"0.3.1","name":"some","plugins":[{"cniVersion":"0.3.1","name":"some","type":"foo"}]}"#;
        assert_eq!(
            Network::of_plugin(&plugin).unwrap(),
            Network {
                name: "some".to_owned(),
                version: "0.3.1".to_owned(),
                disable_check: false,
                disable_gc: false,
                only_inlined: false,
                plugins: vec![plugin],
                text: text.into(),
            }
        );
    }
}
