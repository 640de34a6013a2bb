//! Files written whole: readers see the old content or the new one, never a part, also after a power failure.

use std::fs::{self, DirBuilder};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use flannel_files::{MOST_BY_HAND, Survives, folder_of, replace};
use flannel_plan::state::File;

use crate::netlink::NetlinkError;

/// Only these bits are ours to compare.
const PERMISSION_BITS: u32 = 0o7777;

/// The file at a path; bytes that are no text are replaced by a mark. One that cannot be read is left out:
/// writing it will tell why.
pub(crate) fn read(path: &str) -> Option<File> {
    let content = flannel_files::read(path, MOST_BY_HAND).ok()?;
    Some(File {
        path: path.into(),
        content: String::from_utf8_lossy(&content).into(),
        mode: fs::metadata(path).ok()?.permissions().mode() & PERMISSION_BITS,
    })
}

/// Writes a file, its folder too if there is none.
pub fn write(file: &File) -> Result<(), NetlinkError> {
    let path = Path::new(&*file.path);
    DirBuilder::new().recursive(true).mode(0o755).create(folder_of(path))?;
    let content = file.content.as_bytes();
    Ok(replace(path, file.mode, Survives::PowerCut, |out| out.write_all(content))?)
}

pub(crate) fn remove(file: &File) -> Result<(), NetlinkError> {
    match fs::remove_file(&*file.path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}
