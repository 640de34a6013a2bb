//! Calls another plugin, for a plugin that leaves a part of its work to one: IPAM, or flannel's delegate.
//!
//! What `CNI_PATH` finds is called as a function if it is this very program, and run as a program if not:
//! users put programs of their own under the names of plugins.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Output, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use serde_json::{Map, Value};

use crate::error::{CniError, code};
use crate::json::Object;
use crate::plugins::Plugin;
use crate::request::{Command, Request};
use crate::result::Attachment;
use crate::version::Version;

/// An installer may hold the program open for writing; it is done soon.
const BUSY_TRIES: u32 = 50;
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// Has a plugin attach the container of the request.
pub fn add(request: &Request, plugin: &str, config: &Map<String, Value>) -> Result<Attachment, CniError> {
    let nothing = || CniError::internal(format!("bug: {plugin} gave no result"));
    call(request, Command::Add, plugin, config)?.ok_or_else(nothing)
}

/// Has a plugin detach the container of the request.
pub fn del(request: &Request, plugin: &str, config: &Map<String, Value>) -> Result<(), CniError> {
    call(request, Command::Del, plugin, config).map(drop)
}

/// Has a plugin check the container of the request.
pub fn check(request: &Request, plugin: &str, config: &Map<String, Value>) -> Result<(), CniError> {
    call(request, Command::Check, plugin, config).map(drop)
}

/// Has a plugin free what belongs to no container.
pub fn gc(request: &Request, plugin: &str, config: &Map<String, Value>) -> Result<(), CniError> {
    call(request, Command::Gc, plugin, config).map(drop)
}

/// Asks a plugin whether containers can be attached.
pub fn status(request: &Request, plugin: &str, config: &Map<String, Value>) -> Result<(), CniError> {
    call(request, Command::Status, plugin, config).map(drop)
}

fn call(
    request: &Request,
    command: Command,
    plugin: &str,
    config: &Map<String, Value>,
) -> Result<Option<Attachment>, CniError> {
    let path = find_in_path(plugin, &request.path)?;
    if let Some(ours) = Plugin::find(plugin).filter(|_| is_this_program(&path)) {
        return ours.call(&request.with_config(command, config)?);
    }
    let stdin = serde_json::to_vec(config)
        .map_err(|error| CniError::internal(format!("bug: cannot write the configuration: {error}")))?;
    // The rest of the environment is the delegate's too.
    let environment =
        [("CNI_COMMAND", OsString::from(command.as_str())), ("CNI_ARGS", OsString::from(&request.args))];
    let stdout = execute(&path, &environment, &stdin)?;
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
        CniError::internal(format!("failed to find plugin {plugin:?} in path [{}]", folders.join(" ")))
    })
}

/// Whether a path leads to the program that runs now, by whatever name.
pub fn is_this_program(path: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    identity(path).is_some_and(|theirs| identity(Path::new("/proc/self/exe")) == Some(theirs))
}

/// Runs a plugin as a program and gives what it printed; what it said on its standard error goes to ours.
pub fn execute<V: AsRef<OsStr>>(
    path: &Path,
    environment: &[(&str, V)],
    stdin: &[u8],
) -> Result<Vec<u8>, CniError> {
    let cannot =
        |error: std::io::Error| CniError::internal(format!("cannot run {}: {error}", path.display()));
    let child = spawn(path, environment).map_err(cannot)?;
    let output = converse(child, stdin).map_err(cannot)?;
    // A delegate's words are for the operator's log; without one nothing is lost but them.
    let _ = std::io::stderr().write_all(&output.stderr);
    if output.status.success() { Ok(output.stdout) } else { Err(failure(&output)) }
}

fn spawn<V: AsRef<OsStr>>(path: &Path, environment: &[(&str, V)]) -> std::io::Result<Child> {
    let mut process = Process::new(path);
    process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    process.envs(environment.iter().map(|(key, value)| (key, value)));
    when_not_busy(|| process.spawn(), BUSY_PAUSE)
}

/// Tries again while somebody writes the program, and tells it if that does not end.
fn when_not_busy<T>(mut start: impl FnMut() -> std::io::Result<T>, pause: Duration) -> std::io::Result<T> {
    for _ in 0..BUSY_TRIES {
        match start() {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::TXTBSY) => std::thread::sleep(pause),
            outcome => return outcome,
        }
    }
    start()
}

/// Writes and reads at the same time: neither side's pipe may fill up and stop the other.
fn converse(mut child: Child, stdin: &[u8]) -> std::io::Result<Output> {
    let pipe = child.stdin.take();
    std::thread::scope(|scope| {
        let writer = move || pipe.map(|mut pipe| pipe.write_all(stdin));
        // A plugin that ends without reading closes the pipe; what it printed tells the rest.
        std::thread::Builder::new().spawn_scoped(scope, writer)?;
        child.wait_with_output()
    })
}

/// What a plugin that failed has to say.
fn failure(output: &Output) -> CniError {
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let status = output.status.to_string().replace("exit status: ", "exit status ");
    if stdout.is_empty() && stderr.is_empty() {
        return CniError::internal(format!("netplugin failed with no error message: {status}"));
    }
    if stdout.is_empty() {
        return CniError::internal(format!("netplugin failed: {stderr:?}: {status}"));
    }
    read_error(&output.stdout).unwrap_or_else(|why| {
        let text = "netplugin failed but error parsing its diagnostic message";
        CniError::internal(format!("{text} {stdout:?}: {why}"))
    })
}

/// The error that a plugin printed.
pub fn read_error(stdout: &[u8]) -> Result<CniError, String> {
    let value: Value = serde_json::from_slice(stdout).map_err(|error| error.to_string())?;
    let object = Object::new(value.as_object().ok_or("it must be an object")?);
    let text = |key| object.text(key).map_err(|error| error.msg).map(Option::unwrap_or_default);
    let number = object.number("code").map_err(|error| error.msg)?.unwrap_or_default();
    let code = u32::try_from(number).map_err(|_| format!("code cannot be {number}"))?;
    // 0 says nothing, and would be taken for success by those who look at the code alone.
    let code = if code == 0 { code::INTERNAL } else { code };
    Ok(CniError::new(code, text("msg")?).details(text("details")?))
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
