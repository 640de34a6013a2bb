//! flannelctl: shows what a flannel node is, what it should be, and why not. Here the verbs become functions, and
//! their results become exit codes: 0 done, 1 failed, 2 wrong use; those of `status` and `diff` are in
//! `status_text.rs` and `diff.rs`. A broken pipe is success.

mod cni;
mod daemon;
mod diff;
mod evidence;
mod explain;
mod lab;
mod lease;
mod status_text;
mod store;
mod version;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use flannel_screen::{failure_code, write_completions};

use evidence::NodeArguments;

#[derive(Parser)]
#[command(
    name = "flannelctl",
    version,
    about = "Shows what a flannel node is, what it should be, and why not"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// One verb each; a new one is a line here and a line in `run`.
#[derive(Subcommand)]
enum Command {
    Status(status_text::Arguments),
    /// Show what this node should have against what it has
    ///
    /// One line a change that flanneld would make: + create, ~ replace, - remove. Objects of others beside ours are
    /// named after that; they are left alone, and are no difference.
    ///
    /// Exit codes: 0 nothing differs, 1 something differs, 2 it could not be found out.
    Diff(NodeArguments),
    #[command(subcommand)]
    Explain(explain::Command),
    #[command(subcommand)]
    Lease(lease::Command),
    #[command(subcommand)]
    Store(store::Command),
    #[command(subcommand)]
    Cni(cni::Command),
    Lab(lab::Arguments),
    /// Show the versions of flannelctl and of the flanneld on this node
    Version(NodeArguments),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

fn main() -> ExitCode {
    let mut out = io::stdout();
    let done = run(Arguments::parse().command, &mut out);
    done.and_then(|code| Ok(out.flush().map(|()| code)?)).unwrap_or_else(|error| {
        let code = if error.is::<diff::NotFoundOut>() { diff::NOT_FOUND_OUT } else { 1 };
        failure_code("flannelctl", &error, code)
    })
}

fn run(command: Command, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    match command {
        Command::Status(arguments) => return status_text::run(&arguments, out),
        Command::Diff(node) => return diff::run(&node, out),
        Command::Explain(command) => explain::run(&command, out)?,
        Command::Lease(command) => lease::run(&command, out)?,
        Command::Store(command) => store::run(&command, out)?,
        Command::Cni(command) => cni::run(&command, out)?,
        Command::Lab(arguments) => return Err(lab::run(&arguments)),
        Command::Version(node) => version::run(&node, out)?,
        Command::Completions { shell } => write_completions(out, Arguments::command(), shell)?,
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
