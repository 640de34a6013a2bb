//! `flannelctl lab`: becomes flannel-lab, a program of its own that nodes need not have, with the same words.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::anyhow;

/// Clusters of namespaces on this machine, to try, to break and to learn: runs flannel-lab
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Arguments {
    /// A verb of flannel-lab and its arguments; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Becomes flannel-lab; returns only if it cannot.
pub fn run(arguments: &Arguments) -> anyhow::Error {
    let name = PathBuf::from("flannel-lab");
    let beside = env::current_exe().map_or_else(|_| name.clone(), |own| own.with_file_name(&name));
    let program = if beside.is_file() { beside.clone() } else { name };
    // By this name it speaks of itself in usage and errors.
    let cause = Command::new(&program).arg0("flannelctl lab").args(&arguments.words).exec();
    match cause.kind() {
        io::ErrorKind::NotFound => anyhow!(
            "flannel-lab, which makes labs, is neither {} nor in the PATH: install it beside flannelctl (`make build` \
             puts both into target/release), or name its folder in the PATH",
            beside.display()
        ),
        _ => anyhow!("cannot run {}: {cause}", program.display()),
    }
}
