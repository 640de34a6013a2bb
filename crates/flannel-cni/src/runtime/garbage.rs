//! GC and STATUS of a network: removing what belongs to no container, and asking whether containers can be added.

use serde_json::{Map, Value, json};

use super::error::RuntimeError;
use super::network::{Network, Plugin};
use super::task::named;
use super::{Record, Runtime};
use crate::request::{AttachmentId, Command, check_network_name};
use crate::version::Version;

/// Which attachments of a network are to stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Valid {
    /// Nobody knows: all that are remembered go, and the plugins are not told any.
    Unknown,
    /// These; all others go.
    Only(Vec<AttachmentId>),
}

impl Valid {
    fn has(&self, attachment: &AttachmentId) -> bool {
        matches!(self, Self::Only(valid) if valid.contains(attachment))
    }
}

impl Runtime<'_> {
    /// Removes the attachments of a network that are not valid, and lets its plugins remove what they know of.
    /// Goes on after failures, and reports all.
    pub fn gc(&self, network: &Network, valid: &Valid) -> Result<(), RuntimeError> {
        if network.disable_gc {
            return Ok(());
        }
        check_network_name(&network.name)?;
        let mut failures = Vec::new();
        match self.records() {
            Ok(records) => failures.extend(self.del_stale(network, valid, &records)),
            Err(why) => failures.push(why),
        }
        if network.is_since(Version::V1_1_0)? {
            let extra = told(valid);
            let asked = network.plugins.iter().map(|plugin| self.ask(network, plugin, Command::Gc, &extra));
            failures.extend(asked.filter_map(Result::err));
        }
        RuntimeError::all(failures)
    }

    fn del_stale(&self, network: &Network, valid: &Valid, records: &[Record]) -> Vec<RuntimeError> {
        let is_stale =
            |record: &&Record| record.network == network.name && !valid.has(&record.container.attachment());
        let removed = |record: &Record| {
            let AttachmentId { container_id, ifname } = record.container.attachment();
            let stale = |why| RuntimeError::Stale { container_id, ifname, source: Box::new(why) };
            self.del(network, &record.container).err().map(stale)
        };
        records.iter().filter(is_stale).filter_map(removed).collect()
    }

    /// Asks the plugins whether containers can be added; the first that says no is the answer.
    pub fn status(&self, network: &Network) -> Result<(), RuntimeError> {
        check_network_name(&network.name)?;
        if !network.is_since(Version::V1_1_0)? {
            return Ok(());
        }
        let mut plugins = network.plugins.iter();
        plugins.try_for_each(|plugin| self.ask(network, plugin, Command::Status, &Map::new()))
    }

    fn ask(
        &self,
        network: &Network,
        plugin: &Plugin,
        command: Command,
        extra: &Map<String, Value>,
    ) -> Result<(), RuntimeError> {
        let mut config = named(network, plugin);
        config.extend(extra.clone());
        self.call(plugin, command, None, &config).map(drop)
    }
}

/// The valid attachments under the name of the specification, and under the one that it had by mistake.
fn told(valid: &Valid) -> Map<String, Value> {
    let Valid::Only(valid) = valid else { return Map::new() };
    let entry = |of: &AttachmentId| json!({"containerID": of.container_id, "ifname": of.ifname});
    let entries: Value = valid.iter().map(entry).collect();
    let keys = ["cni.dev/valid-attachments", "cni.dev/attachments"];
    keys.into_iter().map(|key| (key.to_owned(), entries.clone())).collect()
}
