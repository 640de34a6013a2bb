//! flannelctl: shows what a flannel node is, what it should be, and why not. Here the verbs become functions, and
//! their results become exit codes: 0 done, 1 failed, 2 wrong use, 130 interrupted; those of `status` and `diff` are
//! in `status_text.rs` and `difference.rs`. A broken pipe is success.

mod cni;
mod comparison;
mod daemon;
mod demo;
mod difference;
mod evidence;
mod explain;
#[cfg(test)]
mod fixture;
mod interrupt;
mod lab;
mod lease;
mod peer_status;
mod screen;
mod status;
mod status_text;
mod store;
mod terminal;
mod version;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use flannel_lab::LabError;

use terminal::Terminal;

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
    Diff(difference::Arguments),
    #[command(subcommand)]
    Explain(explain::Command),
    #[command(subcommand)]
    Lease(lease::Command),
    #[command(subcommand)]
    Store(store::Command),
    #[command(subcommand)]
    Cni(cni::Command),
    /// Clusters of namespaces on this machine, to try, to break and to learn
    Lab(lab::LabArguments),
    Version(version::Arguments),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

fn main() -> ExitCode {
    let mut terminal = Terminal::stdout();
    let done = run(Arguments::parse().command, &mut terminal);
    exit_code(done.and_then(|code| Ok(terminal.flush().map(|()| code)?)))
}

fn run(command: Command, terminal: &mut Terminal) -> anyhow::Result<ExitCode> {
    match command {
        Command::Status(arguments) => return status_text::run(&arguments, terminal),
        Command::Diff(arguments) => return difference::run(&arguments, terminal),
        Command::Explain(command) => explain::run(&command, terminal)?,
        Command::Lease(command) => lease::run(&command, terminal)?,
        Command::Store(command) => store::run(&command, terminal)?,
        Command::Cni(command) => cni::run(&command, terminal)?,
        Command::Lab(arguments) => return lab::run(arguments, terminal),
        Command::Version(arguments) => version::run(&arguments, terminal)?,
        Command::Completions { shell } => completions(shell, terminal)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn completions(shell: clap_complete::Shell, terminal: &mut Terminal) -> io::Result<()> {
    // The generator panics if it cannot write, so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "flannelctl", &mut script);
    terminal.write_all(&script)
}

fn exit_code(done: anyhow::Result<ExitCode>) -> ExitCode {
    let error = match done {
        Ok(code) => return code,
        Err(error) => error,
    };
    let is_broken_pipe = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    if error.chain().any(is_broken_pipe) {
        return ExitCode::SUCCESS;
    }
    // Nobody may be left to read it.
    let _ = writeln!(io::stderr(), "flannelctl: {}", explained(&error));
    if error.is::<difference::NotFoundOut>() {
        return ExitCode::from(difference::NOT_FOUND_OUT);
    }
    match error.downcast_ref::<LabError>() {
        Some(LabError::Interrupted) => ExitCode::from(130),
        _ => ExitCode::FAILURE,
    }
}

/// What failed and why; a cause that the line before already tells is not told again.
fn explained(error: &anyhow::Error) -> String {
    let mut lines: Vec<String> = Vec::new();
    for cause in error.chain().map(ToString::to_string) {
        if lines.last().is_none_or(|line| !line.contains(&cause)) {
            lines.push(cause);
        }
    }
    lines.join("\n  because: ")
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn causes_are_told_once_each() {
        let cause = io::Error::other("disk on fire");
        let error =
            Err::<(), _>(cause).context("cannot read a: disk on fire").context("no status").unwrap_err();
        assert_eq!(explained(&error), "no status\n  because: cannot read a: disk on fire");
    }
}
