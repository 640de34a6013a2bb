//! Calls another plugin, for a plugin that leaves a part of its work to one: IPAM, or flannel's delegate.
//!
//! What `CNI_PATH` finds is called as a function if it is this very program, and run as a program if not:
//! users put programs of their own under the names of plugins.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command as Process;

use serde_json::{Map, Value};

use crate::error::{CniError, OrInternal, finding};
use crate::json::Object;
use crate::plugins::Plugin;
use crate::process;
use crate::request::{Command, Request};
use crate::result::Attachment;
use crate::version::Version;

/// Has a plugin attach the container of the request.
pub fn add(request: &Request, plugin: &str, config: &Map<String, Value>) -> Result<Attachment, CniError> {
    let nothing = || CniError::internal(format!("bug: {plugin} gave no result"));
    call(request, Command::Add, plugin, config)?.ok_or_else(nothing)
}

/// Has a plugin do what is asked, with the container of the request; only ADD has something to give.
pub fn call(
    request: &Request,
    command: Command,
    plugin: &str,
    config: &Map<String, Value>,
) -> Result<Option<Attachment>, CniError> {
    let path = find_in_path(plugin, &request.path)?;
    if let Some(ours) = Plugin::find(plugin).filter(|_| is_this_program(&path)) {
        return ours.call(&request.with_config(command, config)?);
    }
    let stdin =
        serde_json::to_vec(config).or_internal(format_args!("bug: cannot write the configuration"))?;
    // The rest of the environment is the delegate's too.
    let mut process = Process::new(&path);
    process.env("CNI_COMMAND", command.as_str()).env("CNI_ARGS", &request.args);
    let output = process::run(&mut process, &stdin);
    let output = output.or_internal(format_args!("cannot run {}", path.display()))?;
    // A delegate's words are for the operator's log; without one nothing is lost but them.
    let _ = std::io::stderr().write_all(&output.stderr);
    let stdout = process::stdout(output)?;
    if command == Command::Add { read_result(&stdout, config).map(Some) } else { Ok(None) }
}

/// The first regular file of that name in the folders, links followed.
pub fn find_in_path(plugin: &str, folders: &[PathBuf]) -> Result<PathBuf, CniError> {
    if plugin.is_empty() {
        return Err(CniError::internal("no plugin name provided"));
    }
    if plugin.contains('/') {
        return Err(CniError::internal(format!("invalid plugin name: {plugin}")));
    }
    if folders.is_empty() {
        return Err(CniError::internal("no paths provided"));
    }
    let mut paths = folders.iter().map(|folder| folder.join(plugin));
    paths.find(|path| fs::metadata(path).is_ok_and(|found| found.is_file())).ok_or_else(|| {
        let folders: Vec<_> = folders.iter().map(|folder| folder.to_string_lossy()).collect();
        let text = format!("failed to find plugin {plugin:?} in path [{}]", folders.join(" "));
        CniError::internal(text).found(finding::PLUGIN_MISSING)
    })
}

/// Whether a path leads to the program that runs now, by whatever name.
pub fn is_this_program(path: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    identity(path).is_some_and(|theirs| identity(Path::new("/proc/self/exe")) == Some(theirs))
}

/// The result that a plugin printed; `null` is an empty one.
pub fn read_result(stdout: &[u8], config: &Map<String, Value>) -> Result<Attachment, CniError> {
    let unreadable = |why: String| CniError::internal(format!("failed to unmarshal raw result: {why}"));
    let version = Version::parse(Object::new(config).text("cniVersion")?.unwrap_or_default())?;
    let map = match serde_json::from_slice(stdout).map_err(|error| unreadable(error.to_string()))? {
        Value::Object(map) => map,
        Value::Null => Map::new(),
        _ => return Err(unreadable("it must be an object".into())),
    };
    Attachment::from_output(&map, version).map_err(|error| CniError::internal(error.msg))
}

#[cfg(test)]
mod tests;
