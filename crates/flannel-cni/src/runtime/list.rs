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
            let failed = failed(plugin, Command::Add);
            let program = self.find(plugin).map_err(&failed)?;
            progress.ran = number + 1;
            let task = Task { network, container, result: progress.result() };
            let said = self.call(&program, Command::Add, plugin, task).map_err(&failed)?;
            progress.answer = Some(Answer::parse(&said, &network.version).map_err(&failed)?);
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
            let failed = failed(plugin, Command::Del);
            let program = match self.find(plugin) {
                Ok(program) => program,
                Err(why) => {
                    failures.push(failed(why));
                    continue;
                }
            };
            if let Err(why) = self.call(&program, Command::Del, plugin, task) {
                failures.push(failed(why));
                if failing == Failing::Stops {
                    break;
                }
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
            let program = self.find(plugin).map_err(failed(plugin, Command::Check))?;
            self.call(&program, Command::Check, plugin, task)
                .map(drop)
                .map_err(failed(plugin, Command::Check))
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

    pub(super) fn find(&self, plugin: &Plugin) -> Result<PathBuf, CniError> {
        exec::find(&*self.exec, &plugin.program, &self.path)
    }

    fn call(
        &self,
        program: &std::path::Path,
        command: Command,
        plugin: &Plugin,
        task: Task<'_>,
    ) -> Result<Vec<u8>, CniError> {
        let variables = Variables { command, container: Some(task.container), path: &self.path };
        exec::call(&*self.exec, program, &variables, &task.config(plugin))
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
pub(super) fn failed(plugin: &Plugin, command: Command) -> impl Fn(CniError) -> RuntimeError {
    let mut name = format!("type={:?}", plugin.program);
    if !plugin.name.is_empty() {
        name += &format!(" name={:?}", plugin.name);
    }
    let command = match command {
        Command::Add => "add",
        Command::Del => "delete",
        Command::Check => "check",
        Command::Gc => "gc",
        Command::Status => "status",
        Command::Version => "version",
    };
    move |source| RuntimeError::Plugin { plugin: name.clone(), command, source }
}
