//! Running other programs: finding them, naming what is missing, and keeping what they said when they fail.

use std::env;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Serialize;

use crate::{LabError, Result};

/// What the lab runs, and the Debian packages that hold it.
pub(crate) const NEEDED: [(&str, &str); 7] = [
    ("ip", "iproute2"),
    ("bridge", "iproute2"),
    ("ping", "iputils-ping"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("mount", "mount"),
    ("tcpdump", "tcpdump"),
];

/// Where Debian keeps network programs, which the PATH of a plain user lacks.
const SYSTEM_FOLDERS: &str = "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin";

fn search_path() -> OsString {
    let mut path = env::var_os("PATH").unwrap_or_default();
    if !path.is_empty() {
        path.push(":");
    }
    path.push(SYSTEM_FOLDERS);
    path
}

/// A command with a PATH that holds the network programs.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("PATH", search_path());
    command
}

/// Names every one of these programs that is missing, with the packages to install, before anything is made.
pub(crate) fn check_programs(needed: &[(&str, &str)]) -> Result<()> {
    let path = search_path();
    let is_there = |program: &str| env::split_paths(&path).any(|folder| folder.join(program).is_file());
    let missing: Vec<_> = needed.iter().filter(|(program, _)| !is_there(program)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut packages: Vec<_> = missing.iter().map(|(_, package)| *package).collect();
    packages.dedup();
    let programs: Vec<_> = missing.iter().map(|(program, _)| *program).collect();
    let (programs, packages) = (programs.join(", "), packages.join(" "));
    let how = format!("missing programs: {programs}; install them with: apt-get install {packages}");
    Err(LabError::Missing(how))
}

/// Namespaces and mounts are root's business.
pub(crate) fn check_root() -> Result<()> {
    if rustix::process::geteuid().is_root() { Ok(()) } else { Err(LabError::NotRoot) }
}

pub(crate) fn find_flanneld() -> Result<PathBuf> {
    find("flanneld", "FLANNELD")
}

/// A program of ours: what the variable names, else beside this program, else one folder up (tests run in `deps`).
pub(crate) fn find(name: &str, variable: &str) -> Result<PathBuf> {
    let missing = |looked: String| {
        let how = format!("build it with `cargo build -p {name}`, or name it in ${variable}");
        LabError::Missing(format!("no {name} found ({looked}): {how}"))
    };
    if let Some(named) = env::var_os(variable).map(PathBuf::from) {
        let looked = format!("${variable} is {}", named.display());
        return named.is_file().then_some(named).ok_or_else(|| missing(looked));
    }
    let own = env::current_exe().map_err(LabError::file("find", "/proc/self/exe"))?;
    let places: Vec<_> = own.ancestors().skip(1).take(2).map(|folder| folder.join(name)).collect();
    let looked = || places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", ");
    places.iter().find(|place| place.is_file()).cloned().ok_or_else(|| missing(looked()))
}

/// A program of somebody else: the named one, else what the variable names, else the one on the PATH.
pub(crate) fn find_elsewhere(
    name: &str,
    named: Option<PathBuf>,
    variable: &str,
    package: &str,
) -> Result<PathBuf> {
    let by_variable = || env::var_os(variable).filter(|named| !named.is_empty()).map(PathBuf::from);
    let on_path =
        || env::split_paths(&search_path()).map(|folder| folder.join(name)).find(|path| path.is_file());
    let found = named.or_else(by_variable).or_else(on_path);
    let looked = found.clone().unwrap_or_else(|| name.into());
    let how = format!("install one with `apt-get install {package}`, or name it in ${variable}");
    let missing = || LabError::Missing(format!("{} is no program: {how}", looked.display()));
    found.filter(|path| path.is_file()).ok_or_else(missing)
}

/// The command line as a person would type it.
pub(crate) fn shown(command: &Command) -> String {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Runs to the end; what it wrote, or an error with what it complained of.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    run_with_input(command, "")
}

/// The same with a text to read.
pub(crate) fn run_with_input(command: &mut Command, input: &str) -> Result<String> {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().map_err(|why| failed(command, &why.to_string()))?;
    if let Some(mut pipe) = child.stdin.take() {
        // A program that stops reading says why on its standard error, which is the better message.
        let _ = pipe.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(|why| failed(command, &why.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = [&output.stderr, &output.stdout].map(|text| String::from_utf8_lossy(text).trim().to_owned());
    let said =
        said.iter().find(|text| !text.is_empty()).cloned().unwrap_or_else(|| output.status.to_string());
    Err(failed(command, &said))
}

fn failed(command: &Command, why: &str) -> LabError {
    LabError::failed(format!("`{}` failed", shown(command)), why)
}

/// Reads a file; the error names it.
pub(crate) fn read(path: impl AsRef<Path>) -> Result<String> {
    std::fs::read_to_string(&path).map_err(LabError::file("read", path.as_ref()))
}

/// Writes a file whole; the error names it.
pub(crate) fn write(path: impl AsRef<Path>, text: &str) -> Result<()> {
    std::fs::write(&path, text).map_err(LabError::file("write", path.as_ref()))
}

pub(crate) fn write_json(path: impl AsRef<Path>, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value);
    write(&path, &text.map_err(|why| LabError::failed(path.as_ref().display(), why))?)
}

/// Makes a folder and those above it; the error names it.
pub(crate) fn make_folder(path: impl AsRef<Path>) -> Result<()> {
    std::fs::create_dir_all(&path).map_err(LabError::file("create", path.as_ref()))
}
