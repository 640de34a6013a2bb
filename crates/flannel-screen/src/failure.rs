//! How a program ends that failed: what failed, and why, and why.

use std::io::{self, Write};
use std::process::ExitCode;

/// Tells an error on standard error and gives the exit code; a reader that went away is no failure.
pub fn failure_code(program: &str, error: &anyhow::Error, code: u8) -> ExitCode {
    let is_broken_pipe = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    if error.chain().any(is_broken_pipe) {
        return ExitCode::SUCCESS;
    }
    // Nobody may be left to read it.
    let _ = writeln!(io::stderr(), "{program}: {}", explained(error));
    ExitCode::from(code)
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
    fn causes_are_told_once_each() {
        let cause = io::Error::other("disk on fire");
        let error =
            Err::<(), _>(cause).context("cannot read a: disk on fire").context("no status").unwrap_err();
        assert_eq!(explained(&error), "no status\n  because: cannot read a: disk on fire");
    }
}
