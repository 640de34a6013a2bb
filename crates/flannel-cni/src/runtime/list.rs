//! ADD, DEL and CHECK of a network: its plugins one after the other.
//!
//! Unlike libcni, a failed ADD is undone, and a DEL goes on after a plugin whose program is gone.

use std::path::PathBuf;

use serde_json::{Map, Value};

use super::Runtime;
use super::cache::Record;
use super::container::Container;
use super::error::RuntimeError;
use super::exec::{self, Variables};
use super::network::{Network, Plugin};
use super::result::{Answer, in_version};
use super::task::Task;
use crate::error::CniError;
use crate::request::{Command, check_network_name};
use crate::version::Version;

/// How far an ADD came.
#[derive(Default)]
struct Progress {
    /// So many plugins were run, the last of them perhaps in vain.
    ran: usize,
    /// What the last that succeeded answered.
    answer: Option<Answer>,
}

impl Progress {
    fn result(&self) -> Option<&Map<String, Value>> {
        self.answer.as_ref().map(|answer| &answer.json)
    }
}

/// Whether a DEL goes on after a plugin that failed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Failing {
    /// It does not: a port mapping that could not be removed must not outlive its address, which the next
    /// container would be given.
    Stops,
    /// It does: nobody will try again.
    GoesOn,
}

impl Runtime<'_> {
    /// Attaches a container; gives what the last plugin answered. What a failed ADD did is undone.
    pub fn add(&self, network: &Network, container: &Container) -> Result<Answer, RuntimeError> {
        check(network, container)?;
        // A second ADD of an attachment is a mistake that the plugins find, and must not undo the first.
        let is_first = !self.cache.is_there(&network.name, &container.attachment());
        let mut progress = Progress::default();
        let added = self.add_each(network, container, &mut progress);
        let added = added.and_then(|()| self.remember(network, container, &progress));
        match added {
            Err(why) if is_first => Err(self.undone(why, network, container, &progress)),
            added => added,
        }
    }

    fn add_each(
        &self,
        network: &Network,
        container: &Container,
        progress: &mut Progress,
    ) -> Result<(), RuntimeError> {
        for (number, plugin) in network.plugins.iter().enumerate() {
            progress.ran = number + 1;
            let task = Task { network, container, result: progress.result() };
            let said = self.call(plugin, Command::Add, Some(container), &task.config(plugin))?;
            let answer = Answer::parse(&said, &network.version);
            progress.answer = Some(answer.map_err(failed(plugin, Command::Add))?);
        }
        Ok(())
    }

    fn remember(
        &self,
        network: &Network,
        container: &Container,
        progress: &Progress,
    ) -> Result<Answer, RuntimeError> {
        let answer = progress.answer.clone().ok_or_else(|| RuntimeError::NoPlugins(network.name.clone()))?;
        let record = Record {
            network: network.name.clone(),
            container: container.clone(),
            config: network.text.clone(),
            result: Some(answer.json.clone()),
        };
        let written = self.cache.write(&record);
        written.map_err(|source| RuntimeError::Cache { network: network.name.clone(), source })?;
        Ok(answer)
    }

    /// Undoes what an ADD did before it failed; gives the reason, and what could not be undone.
    fn undone(
        &self,
        why: RuntimeError,
        network: &Network,
        container: &Container,
        progress: &Progress,
    ) -> RuntimeError {
        let task = Task { network, container, result: progress.result().filter(|_| del_has_result(network)) };
        let mut left = self.del_each(&network.plugins[..progress.ran], task, Failing::GoesOn);
        // A plugin that refuses its configuration does so twice.
        left.retain(|failure| failure.answer() != why.answer());
        if left.is_empty() { why } else { RuntimeError::NotUndone { why: Box::new(why), left } }
    }

    /// Detaches a container. A plugin that fails stops it, one whose program is gone does not; both are reported,
    /// and the attachment stays remembered so that the DEL can be repeated.
    pub fn del(&self, network: &Network, container: &Container) -> Result<(), RuntimeError> {
        check(network, container)?;
        network.is_since(Version::V0_4_0)?;
        let of = container.attachment();
        let (container, result) = self.recalled(network, container).unwrap_or_else(|_| {
            // A file that nobody understands would be in the way for ever.
            let _ = self.cache.remove(&network.name, &of);
            (container.clone(), None)
        });
        let result = result.as_ref().filter(|_| del_has_result(network));
        let task = Task { network, container: &container, result };
        RuntimeError::all(self.del_each(&network.plugins, task, Failing::Stops))?;
        // The container is detached; a record that stays is found by the next GC.
        let _ = self.cache.remove(&network.name, &of);
        Ok(())
    }

    fn del_each(&self, plugins: &[Plugin], task: Task<'_>, failing: Failing) -> Vec<RuntimeError> {
        let mut failures = Vec::new();
        for plugin in plugins.iter().rev() {
            let called = self.call(plugin, Command::Del, Some(task.container), &task.config(plugin));
            let stops = called.is_err() && failing == Failing::Stops && self.find(plugin).is_ok();
            failures.extend(called.err());
            if stops {
                break;
            }
        }
        failures
    }

    /// Asks the plugins whether a container is attached as it was.
    pub fn check(&self, network: &Network, container: &Container) -> Result<(), RuntimeError> {
        check(network, container)?;
        if !network.is_since(Version::V0_4_0)? {
            return Err(RuntimeError::NoCheck(network.version.clone()));
        }
        if network.disable_check {
            return Ok(());
        }
        let (container, result) = self.recalled(network, container)?;
        let task = Task { network, container: &container, result: result.as_ref() };
        network.plugins.iter().try_for_each(|plugin| {
            self.call(plugin, Command::Check, Some(&container), &task.config(plugin)).map(drop)
        })
    }

    /// The container with what its ADD told the plugins, unless the caller tells something else, and the result in
    /// the network's version.
    fn recalled(
        &self,
        network: &Network,
        container: &Container,
    ) -> Result<(Container, Option<Map<String, Value>>), RuntimeError> {
        let record = self.cache.read(&network.name, &container.attachment());
        let record =
            record.map_err(|source| RuntimeError::Cache { network: network.name.clone(), source })?;
        let mut container = container.clone();
        let Some(record) = record else { return Ok((container, None)) };
        if container.args.is_empty() {
            container.args = record.container.args;
        }
        if container.capabilities.is_empty() {
            container.capabilities = record.container.capabilities;
        }
        let converted = record.result.map(|result| in_version(result, &network.version)).transpose();
        Ok((container, converted?))
    }

    fn find(&self, plugin: &Plugin) -> Result<PathBuf, CniError> {
        exec::find(&*self.exec, &plugin.program, &self.path)
    }

    /// Finds and runs a plugin; gives what it wrote.
    pub(super) fn call(
        &self,
        plugin: &Plugin,
        command: Command,
        container: Option<&Container>,
        config: &Map<String, Value>,
    ) -> Result<Vec<u8>, RuntimeError> {
        let variables = Variables { command, container, path: &self.path };
        let said =
            self.find(plugin).and_then(|program| exec::call(&*self.exec, &program, &variables, config));
        said.map_err(failed(plugin, command))
    }
}

fn check(network: &Network, container: &Container) -> Result<(), RuntimeError> {
    container.check()?;
    Ok(check_network_name(&network.name)?)
}

/// Before 0.4.0 a DEL knew nothing of what was attached.
fn del_has_result(network: &Network) -> bool {
    network.is_since(Version::V0_4_0).unwrap_or(false)
}

/// Names the plugin and the command in what the plugin said.
fn failed(plugin: &Plugin, command: Command) -> impl FnOnce(CniError) -> RuntimeError {
    move |source| {
        let mut name = format!("type={:?}", plugin.program);
        if !plugin.name.is_empty() {
            name += &format!(" name={:?}", plugin.name);
        }
        let command = match command {
            Command::Del => "delete".to_owned(),
            other => other.as_str().to_lowercase(),
        };
        RuntimeError::Plugin { plugin: name, command, source }
    }
}
