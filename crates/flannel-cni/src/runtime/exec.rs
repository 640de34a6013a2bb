//! Running a plugin: finding its program, giving it variables and input, and taking its answer.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command as Process;

use serde_json::{Map, Value};

use super::container::Container;
use crate::delegate::find_in_path;
use crate::error::{CniError, OrInternal};
use crate::json::compact;
use crate::process;
use crate::request::Command;

/// How plugins are found and run: here, or in the namespaces of somebody else.
pub trait Exec {
    /// A path as it is seen there, as a path for us.
    fn path(&self, there: &Path) -> PathBuf;

    /// A command that will run a program there, which is named as it is seen there.
    fn command(&self, program: &Path) -> Process;
}

/// In our own namespaces.
#[derive(Clone, Copy, Debug)]
pub struct RawExec;

impl Exec for RawExec {
    fn path(&self, there: &Path) -> PathBuf {
        there.to_owned()
    }

    fn command(&self, program: &Path) -> Process {
        Process::new(program)
    }
}

/// The variables of a call.
pub(super) struct Variables<'a> {
    pub(super) command: Command,
    /// For whom; GC and STATUS have nobody.
    pub(super) container: Option<&'a Container>,
    pub(super) path: &'a [PathBuf],
}

/// The program of a plugin as it is named where it runs: that of the first folder which has a plain file of its name.
pub(super) fn find(exec: &dyn Exec, plugin: &str, path: &[PathBuf]) -> Result<PathBuf, CniError> {
    let folders: Vec<PathBuf> = path.iter().map(|folder| exec.path(folder)).collect();
    let found = find_in_path(plugin, &folders)?;
    let position = folders.iter().position(|folder| Some(folder.as_path()) == found.parent());
    let folder = position.and_then(|position| path.get(position));
    folder
        .map(|folder| folder.join(plugin))
        .ok_or_else(|| CniError::internal(format!("bug: {plugin} is nowhere")))
}

/// Calls a program and gives what it wrote.
pub(super) fn call(
    exec: &dyn Exec,
    program: &Path,
    variables: &Variables<'_>,
    config: &Map<String, Value>,
) -> Result<Vec<u8>, CniError> {
    let mut process = exec.command(program);
    set(&mut process, variables)?;
    let output = process::run(&mut process, compact(config).as_bytes());
    let output = output.or_internal(format_args!("cannot run {}", program.display()))?;
    if output.status.success() || !output.stdout.is_empty() {
        // What a plugin says besides its answer is for the operator; nobody may be there to read it.
        let _ = io::stderr().write_all(&output.stderr);
    }
    process::stdout(output)
}

fn set(process: &mut Process, variables: &Variables<'_>) -> Result<(), CniError> {
    let nobody = Container::default();
    let container = variables.container.unwrap_or(&nobody);
    let path = std::env::join_paths(variables.path).or_internal(format_args!("no CNI_PATH can be made"))?;
    process.env("CNI_COMMAND", variables.command.as_str()).env("CNI_PATH", path);
    process.env("CNI_CONTAINERID", &container.id).env("CNI_IFNAME", &container.ifname);
    process.env("CNI_NETNS", container.netns.as_deref().unwrap_or(Path::new("")));
    process.env("CNI_ARGS", container.args_text());
    Ok(())
}

#[cfg(test)]
mod tests;
