//! flannel-lab: clusters of namespaces on this machine, to try, to break and to learn. `flannelctl lab` runs it too.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong use, 130 interrupted. A broken pipe is success.

mod demo;
mod interrupt;
mod leases;
mod tables;
mod up;
mod verbs;

use std::env;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use flannel_lab::LabError;
use flannel_screen::failure_code;

#[derive(Parser)]
#[command(
    name = "flannel-lab",
    version,
    about = "Clusters of namespaces on this machine, to try, to break and to learn"
)]
struct Arguments {
    #[command(subcommand)]
    verb: verbs::Verb,
}

fn main() -> ExitCode {
    let mut out = io::stdout();
    let done = verbs::run(Arguments::parse().verb, &mut out);
    done.and_then(|code| Ok(out.flush().map(|()| code)?)).unwrap_or_else(|error| {
        let is_interrupted = matches!(error.downcast_ref(), Some(LabError::Interrupted));
        failure_code(&program(), &error, if is_interrupted { 130 } else { 1 })
    })
}

/// The program that was called: flannelctl where `flannelctl lab` was.
fn program() -> String {
    let called = env::args().next().unwrap_or_default();
    let name = Path::new(&called).file_name().unwrap_or_default().to_string_lossy().into_owned();
    name.split(' ').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
