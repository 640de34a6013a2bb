//! The configuration of the flannel plugin, and the one that it makes of it for its delegate: pure.

use flannel_plan::family::ByFamily;
use flannel_plan::subnet_env::SubnetEnv;
use serde_json::{Map, Value, json};

use crate::error::CniError;
use crate::json::Object;
use crate::request::Request;

/// Where flanneld writes what the node's subnets are, unless it is told otherwise.
const SUBNET_FILE: &str = "/run/flannel/subnet.env";

/// Where Go's plugin keeps its state.
const DATA_DIR: &str = "/var/lib/cni/flannel";

/// A network for documents, which no node has.
const NOBODYS: &str = "192.0.2.0/24";

/// The keys of the plugin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Config<'a> {
    request: &'a Request,
    delegate: Option<Object<'a>>,
    ipam: Option<Object<'a>>,
    runtime_config: Option<Object<'a>>,
    pub(super) subnet_file: &'a str,
}

/// Where the records are.
pub(super) fn data_dir(request: &Request) -> Result<&str, CniError> {
    Ok(request.config().text("dataDir")?.filter(|path| !path.is_empty()).unwrap_or(DATA_DIR))
}

/// What flanneld writes.
pub(super) fn subnet_file(request: &Request) -> Result<&str, CniError> {
    Ok(request.config().text("subnetFile")?.filter(|path| !path.is_empty()).unwrap_or(SUBNET_FILE))
}

impl<'a> Config<'a> {
    pub(super) fn read(request: &'a Request) -> Result<Self, CniError> {
        let config = request.config();
        let delegate = config.object("delegate")?;
        delegate.map_or(Ok(()), check_delegate)?;
        Ok(Self {
            request,
            delegate,
            ipam: config.object("ipam")?,
            runtime_config: config.object("runtimeConfig")?,
            subnet_file: subnet_file(request)?,
        })
    }

    /// The delegate's configuration. Without what flanneld wrote it is enough to give back what was taken, not to
    /// take anything.
    pub(super) fn delegate(&self, env: Option<&SubnetEnv>) -> Result<Map<String, Value>, CniError> {
        let mut delegate = self.delegate.map_or_else(Map::new, |delegate| delegate.map().clone());
        if let Some(runtime_config) = self.runtime_config {
            delegate.insert("runtimeConfig".into(), runtime_config.map().clone().into());
        }
        delegate.insert("name".into(), self.request.network.clone().into());
        default(&mut delegate, "type", "bridge");
        // Not knowing who masquerades, the delegate is to look for rules of its own.
        default(&mut delegate, "ipMasq", env.is_none_or(|env| !env.ip_masq));
        if let Some(env) = env {
            default(&mut delegate, "mtu", env.mtu);
        }
        if delegate.get("type").and_then(Value::as_str) == Some("bridge") {
            default(&mut delegate, "isGateway", true);
        }
        if let Some(version) = self.request.config().text("cniVersion")?.filter(|text| !text.is_empty()) {
            delegate.insert("cniVersion".into(), version.into());
        }
        delegate.insert("ipam".into(), self.ipam(env)?.into());
        Ok(delegate)
    }

    fn ipam(&self, env: Option<&SubnetEnv>) -> Result<Map<String, Value>, CniError> {
        let mut ipam = self.ipam.map_or_else(Map::new, |ipam| ipam.map().clone());
        default(&mut ipam, "type", "host-local");
        let Some(env) = env else {
            // host-local finds what a container has by its name, but wants to see a range.
            default(&mut ipam, "ranges", json!([[{"subnet": NOBODYS}]]));
            return Ok(ipam);
        };
        let ranges = in_order(&env.subnets).map(|subnet| json!([{"subnet": subnet.to_string()}]));
        ipam.insert("ranges".into(), ranges.collect());
        let mut routes = self.ipam.map_or(Ok(None), |ipam| ipam.list("routes"))?.cloned().unwrap_or_default();
        let networks = in_order(&env.networks).flatten();
        routes.extend(networks.map(|network| json!({"dst": network.to_string()})));
        ipam.insert("routes".into(), routes.into());
        Ok(ipam)
    }
}

fn in_order<T>(values: &ByFamily<T>) -> impl Iterator<Item = &T> {
    values.iter().map(|(_, value)| value)
}

fn default(map: &mut Map<String, Value>, key: &str, value: impl Into<Value>) {
    if !map.contains_key(key) {
        map.insert(key.into(), value.into());
    }
}

/// What the user's part of the delegate's configuration must not say.
fn check_delegate(delegate: Object<'_>) -> Result<(), CniError> {
    let map = delegate.map();
    if map.get("type").is_some_and(|kind| !kind.is_string()) {
        let text = "'delegate' dictionary, if present, must have (string) 'type' field";
        return Err(CniError::internal(text));
    }
    match ["name", "ipam"].into_iter().find(|key| map.contains_key(*key)) {
        None => Ok(()),
        Some(key) => Err(CniError::internal(format!(
            "'delegate' dictionary must not have '{key}' field, it'll be set by flannel"
        ))),
    }
}

#[cfg(test)]
mod tests;
