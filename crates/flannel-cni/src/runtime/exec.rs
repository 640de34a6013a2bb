//! Running a plugin: finding its program, giving it variables and input, and taking its answer.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use super::container::Container;
use super::place::Place;
use crate::delegate::{find_in_path, read_error};
use crate::error::CniError;
use crate::json::compact;
use crate::request::Command;

/// How long a program may be busy: somebody is writing it anew, as an installer does.
const BUSY_LIMIT: Duration = Duration::from_secs(6);
/// How often it is tried again.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// The variables of a call.
pub(super) struct Variables<'a> {
    /// What to do.
    pub(super) command: Command,
    /// For whom; GC and STATUS have nobody.
    pub(super) container: Option<&'a Container>,
    /// Where plugins are.
    pub(super) path: &'a [PathBuf],
}

/// The program of a plugin as its place names it: that of the first folder which has a plain file of its name.
pub(super) fn find(place: &dyn Place, plugin: &str, path: &[PathBuf]) -> Result<PathBuf, CniError> {
    let folders: Vec<PathBuf> = path.iter().map(|folder| place.path(folder)).collect();
    let found = find_in_path(plugin, &folders)?;
    let position = folders.iter().position(|folder| Some(folder.as_path()) == found.parent());
    let folder = position.and_then(|position| path.get(position));
    folder
        .map(|folder| folder.join(plugin))
        .ok_or_else(|| CniError::internal(format!("bug: {plugin} is nowhere")))
}

/// Calls a program and gives what it wrote.
pub(super) fn call(
    place: &dyn Place,
    program: &Path,
    variables: &Variables<'_>,
    config: &Map<String, Value>,
) -> Result<Vec<u8>, CniError> {
    let mut process = place.command(program);
    set(&mut process, variables)?;
    let cannot = |why| CniError::internal(format!("cannot run {}: {why}", program.display()));
    let output = spawn(&mut process, BUSY_LIMIT).and_then(|child| talk(child, compact(config).as_bytes()));
    let output = output.map_err(cannot)?;
    if output.status.success() || !output.stdout.is_empty() {
        // What a plugin says besides its answer is for the operator; nobody may be there to read it.
        let _ = io::stderr().write_all(&output.stderr);
    }
    if output.status.success() { Ok(output.stdout) } else { Err(complaint(&output)) }
}

fn set(process: &mut Process, variables: &Variables<'_>) -> Result<(), CniError> {
    let nobody = Container::default();
    let container = variables.container.unwrap_or(&nobody);
    let path = std::env::join_paths(variables.path)
        .map_err(|why| CniError::internal(format!("no CNI_PATH can be made: {why}")))?;
    process.env("CNI_COMMAND", variables.command.as_str()).env("CNI_PATH", path);
    process.env("CNI_CONTAINERID", &container.id).env("CNI_IFNAME", &container.ifname);
    process.env("CNI_NETNS", container.netns.as_deref().unwrap_or(Path::new("")));
    process.env("CNI_ARGS", container.args_text());
    Ok(())
}

/// Starts a program; one that is being written is tried again for a while, and is an error in the end.
fn spawn(process: &mut Process, limit: Duration) -> io::Result<Child> {
    process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let start = Instant::now();
    loop {
        match process.spawn() {
            Err(why) if why.kind() == io::ErrorKind::ExecutableFileBusy && start.elapsed() < limit => {
                thread::sleep(BUSY_PAUSE);
            }
            started => return started,
        }
    }
}

/// A plugin may write before it has read everything, so both are done at once.
fn talk(mut child: Child, input: &[u8]) -> io::Result<Output> {
    let pipe = child.stdin.take();
    thread::scope(|scope| {
        // One that does not care for its input closes the pipe, which is no failure.
        thread::Builder::new().spawn_scoped(scope, move || pipe.map(|mut pipe| pipe.write_all(input)))?;
        child.wait_with_output()
    })
}

/// What a failed plugin says: an error object, or anything else that could help.
fn complaint(output: &Output) -> CniError {
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    let status = output.status.to_string().replace("exit status: ", "exit status ");
    if stdout.is_empty() && stderr.is_empty() {
        return CniError::internal(format!("netplugin failed with no error message: {status}"));
    }
    if stdout.is_empty() {
        return CniError::internal(format!("netplugin failed: {stderr:?}: {status}"));
    }
    read_error(&output.stdout).unwrap_or_else(|why| {
        let unread = "netplugin failed but error parsing its diagnostic message";
        CniError::internal(format!("{unread} {stdout:?}: {why}"))
    })
}

#[cfg(test)]
mod tests;
