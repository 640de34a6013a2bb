//! What plugins can do: the versions that they speak, and whether a network can be used at all.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value};

use super::Runtime;
use super::container::Container;
use super::error::RuntimeError;
use super::exec::{self, Variables};
use super::list::failed;
use super::network::{Network, Plugin};
use crate::error::{CniError, OrInternal};
use crate::json::Object;
use crate::request::Command;
use crate::version::Version;

impl Runtime<'_> {
    /// Checks that all plugins of a network are there and speak its version; gives the capabilities of them all.
    pub fn validate(&self, network: &Network) -> Result<BTreeSet<String>, RuntimeError> {
        let wanted = if network.version.is_empty() { "0.1.0" } else { &network.version };
        let wrong = |plugin: &Plugin| {
            let spoken = self.find(plugin).and_then(|program| self.versions(&program));
            let why = match spoken {
                Ok(versions) if versions.iter().any(|version| version == wanted) => return None,
                Ok(_) => CniError::internal(format!(
                    "plugin {} does not support config version {wanted:?}",
                    plugin.program
                )),
                Err(why) => why,
            };
            Some(failed(plugin, Command::Version)(why))
        };
        RuntimeError::all(network.plugins.iter().filter_map(wrong).collect())?;
        let capabilities = network.plugins.iter().flat_map(Plugin::capabilities);
        Ok(capabilities.map(str::to_owned).collect())
    }

    /// The versions that a program speaks; old ones do not know the question.
    fn versions(&self, program: &Path) -> Result<Vec<String>, CniError> {
        // Old plugins want these variables for every command.
        let (netns, ifname, path) = (Some("dummy".into()), "dummy".to_owned(), ["dummy".into()]);
        let container = Container { netns, ifname, ..Container::default() };
        let variables = Variables { command: Command::Version, container: Some(&container), path: &path };
        let question = Map::from_iter([("cniVersion".to_owned(), Version::NEWEST.as_str().into())]);
        match exec::call(&*self.exec, program, &variables, &question) {
            Ok(stdout) => spoken(&stdout).or_internal(format_args!("decoding version info")),
            Err(why) if why.to_string() == "unknown CNI_COMMAND: VERSION" => Ok(vec!["0.1.0".to_owned()]),
            Err(why) => Err(why),
        }
    }
}

fn spoken(stdout: &[u8]) -> Result<Vec<String>, String> {
    let map: Map<String, Value> = serde_json::from_slice(stdout).map_err(|why| why.to_string())?;
    let object = Object::new(&map);
    let version = object.text("cniVersion").map_err(|why| why.msg)?.unwrap_or_default();
    let versions = object.texts("supportedVersions").map_err(|why| why.msg)?.unwrap_or_default();
    match (version, versions.as_slice()) {
        ("", _) => Err("missing field cniVersion".to_owned()),
        ("0.2.0", []) => Ok(vec!["0.1.0".to_owned(), "0.2.0".to_owned()]),
        (_, []) => Err("missing field supportedVersions".to_owned()),
        _ => Ok(versions),
    }
}
