//! Where plugins are looked for and run: here, or in the namespaces of somebody else.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A place where plugins are.
pub trait Place {
    /// A path as it is seen there, as a path for us.
    fn path(&self, there: &Path) -> PathBuf;

    /// A command that will run a program there, which is named as it is seen there.
    fn command(&self, program: &Path) -> Command;
}

/// Our own namespaces.
#[derive(Clone, Copy, Debug)]
pub struct Here;

impl Place for Here {
    fn path(&self, there: &Path) -> PathBuf {
        there.to_owned()
    }

    fn command(&self, program: &Path) -> Command {
        Command::new(program)
    }
}
