//! A node for measurements: namespaces with nothing in them, and the folders that plugins write to in memory.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use super::ON_NODE;
use crate::figure::Figure;

/// What the first process does before it becomes the bench.
const BOOT: &str = "\
mount -t tmpfs -o mode=755 bench /run && mount -t tmpfs -o mode=755 bench /var/lib && \
mkdir -p /run/netns /var/lib/cni && ip link set lo up && exec \"$@\"";

/// Runs a part of the bench on a node of its own.
pub fn run(part: &str) -> anyhow::Result<Vec<Figure>> {
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "--net",
        "--pid",
        "--ipc",
        "--uts",
        "--fork",
        "--mount-proc",
        "--kill-child",
        "--",
    ]);
    command.args(["sh", "-c", BOOT, "sh"]).arg(std::env::current_exe()?).args([ON_NODE, part]);
    let output = command.stderr(Stdio::inherit()).output().context("cannot run unshare of util-linux")?;
    ensure!(output.status.success(), "{part} ended with {} on its node", output.status);
    let text = String::from_utf8(output.stdout)?;
    serde_json::from_str(&text).with_context(|| format!("{part} gave no figures: {text:?}"))
}

/// A program that must be there.
pub fn program(path: &Path, otherwise: &str) -> anyhow::Result<PathBuf> {
    ensure!(path.is_file(), "there is no {}: {otherwise}", path.display());
    Ok(path.to_owned())
}

/// Runs a program that must succeed, and gives what it printed.
pub fn sh(program: &str, words: &[&str]) -> anyhow::Result<String> {
    let output =
        Command::new(program).args(words).output().with_context(|| format!("cannot run {program}"))?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {}: {told}", words.join(" "));
    Ok(String::from_utf8(output.stdout)?)
}

/// Makes network namespaces.
pub fn make_pods(pods: impl IntoIterator<Item = String>) -> anyhow::Result<()> {
    let lines: String = pods.into_iter().map(|pod| format!("netns add {pod}\n")).collect();
    std::fs::write("/run/batch", lines)?;
    sh("ip", &["-batch", "/run/batch"]).map(drop)
}
