//! The program: the name it is called by chooses the plugin, and the plugin's answer becomes what the CNI
//! specification wants on standard output.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::error::{CniError, code};
use crate::install;
use crate::json;
use crate::plugins::Plugin;
use crate::request::{Command, Environment, Request};
use crate::sandbox;
use crate::version::Version;

/// More than any configuration, and less than what would press the node for memory.
const MOST_STDIN: u64 = 16 * 1024 * 1024;

const HELP: &str = "\
The CNI plugins flannel, bridge, host-local, portmap and loopback in one program.

usage: flannel-cni install DIR   put the program into DIR under the names of its plugins
       flannel-cni --version     tell the version
       flannel-cni --help        tell this

A container runtime calls it by the name of a plugin, with CNI_COMMAND and the other
variables of the CNI specification, and the network configuration on standard input.
";

/// What the program says before it ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    pub stdout: String,
    pub stderr: String,
    /// 0 for success.
    pub status: u8,
}

impl Reply {
    fn error(error: &CniError) -> Self {
        Self { stdout: json::indented(&error_json(error)), status: 1, ..Self::default() }
    }
}

/// Runs the program for this process.
pub fn run() -> ExitCode {
    tell_of_bugs();
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let name = Path::new(&name).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let reply = match Plugin::find(&name) {
        Some(plugin) => answer(plugin, &Environment::of_process(), std::io::stdin()),
        None => command_line(&name, &arguments.collect::<Vec<_>>()),
    };
    let _ = std::io::stderr().write_all(reply.stderr.as_bytes());
    let mut stdout = std::io::stdout();
    match stdout.write_all(reply.stdout.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => ExitCode::from(reply.status),
        Err(_) => ExitCode::FAILURE, // nobody hears us: the runtime must not take this for success
    }
}

/// The answer of a plugin to one call.
pub fn answer(plugin: Plugin, environment: &Environment, stdin: impl Read) -> Reply {
    if environment.command.is_empty() {
        return Reply { stderr: about(plugin), ..Reply::default() };
    }
    match outcome(plugin, environment, stdin) {
        Ok(stdout) => Reply { stdout, ..Reply::default() },
        Err(error) => Reply::error(&error),
    }
}

fn outcome(plugin: Plugin, environment: &Environment, stdin: impl Read) -> Result<String, CniError> {
    environment.check()?;
    if environment.command == Command::Version.as_str() {
        return Ok(versions());
    }
    let request = Request::read(environment, &read_all(stdin)?)?;
    let attaches = matches!(request.command, Command::Add | Command::Del);
    if let Some(netns) = request.netns.as_deref().filter(|_| attaches && !environment.overrides_netns_check())
    {
        // Before anything is done: afterwards the host's own interfaces would be gone.
        sandbox::refuse_ours(netns)?;
    }
    match plugin.call(&request)? {
        Some(attachment) => Ok(json::indented(&attachment.to_json(request.version)?)),
        None => Ok(String::new()),
    }
}

fn read_all(stdin: impl Read) -> Result<Vec<u8>, CniError> {
    let unreadable =
        |why: String| CniError::new(code::IO_FAILURE, format!("error reading from stdin: {why}"));
    let mut bytes = Vec::with_capacity(4096);
    let read = stdin.take(MOST_STDIN + 1).read_to_end(&mut bytes);
    read.map_err(|error| unreadable(error.to_string()))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= MOST_STDIN) {
        return Ok(bytes);
    }
    Err(unreadable(format!("the network configuration is longer than {MOST_STDIN} bytes")))
}

fn versions() -> String {
    let all = Version::ALL.map(Version::as_str);
    format!("{}\n", json!({"cniVersion": Version::NEWEST.as_str(), "supportedVersions": all}))
}

fn about(plugin: Plugin) -> String {
    let all = Version::ALL.map(Version::as_str).join(", ");
    format!("CNI {} plugin, {}\nCNI protocol versions supported: {all}\n", plugin.name(), own_version())
}

fn own_version() -> String {
    format!("flannel-cni {}", env!("CARGO_PKG_VERSION"))
}

/// An error as the specification wants it, in Go's order and without what Go leaves out; a finding of ours has its code
/// beside that.
fn error_json(error: &CniError) -> Value {
    let mut json = json!({"code": error.code, "msg": error.msg});
    if !error.details.is_empty() {
        json["details"] = error.details.clone().into();
    }
    if let Some(finding) = error.finding {
        json["finding"] = finding.into();
    }
    json
}

/// Called by another name than that of a plugin.
fn command_line(name: &str, arguments: &[OsString]) -> Reply {
    if std::env::var_os("CNI_COMMAND").is_some_and(|command| !command.is_empty()) {
        let names = Plugin::ALL.map(Plugin::name).join(", ");
        let text = format!("{name:?} is no plugin of this program, which has {names}");
        return Reply::error(
            &CniError::internal(text).details("put it in place with `flannel-cni install DIR`"),
        );
    }
    let words: Vec<_> = arguments.iter().map(|argument| argument.to_str().unwrap_or_default()).collect();
    match (&words[..], arguments) {
        (["install", _], [_, folder]) => install_into(folder),
        (["--version" | "-V" | "version"], _) => Reply { stdout: own_version() + "\n", ..Reply::default() },
        ([] | ["--help" | "-h" | "help"], _) => Reply { stdout: HELP.into(), ..Reply::default() },
        _ => Reply { stderr: HELP.into(), status: 2, ..Reply::default() },
    }
}

fn install_into(folder: &OsStr) -> Reply {
    match install::install(Path::new("/proc/self/exe"), Path::new(folder)) {
        Ok(placed) => {
            let lines = placed.iter().map(|path| format!("installed {}\n", path.display()));
            Reply { stdout: lines.collect(), ..Reply::default() }
        }
        Err(error) => Reply { stderr: format!("error: {error}\n"), status: 1, ..Reply::default() },
    }
}

/// A bug must reach the runtime as an error too, not as an answer that it cannot read.
fn tell_of_bugs() {
    std::panic::set_hook(Box::new(|bug| {
        let error = CniError::internal(format!("bug in flannel-cni: {bug}"));
        let _ = std::io::stdout().write_all(Reply::error(&error).stdout.as_bytes());
        std::process::exit(1);
    }));
}

#[cfg(test)]
mod tests;
