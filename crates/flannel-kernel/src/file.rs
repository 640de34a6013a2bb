//! Files written whole: readers see the old content or the new one, never a part, also after a power failure.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use flannel_plan::state::File;

use crate::netlink::Refusal;

/// Only these bits are ours to compare.
const PERMISSION_BITS: u32 = 0o7777;

/// The file at a path; bytes that are no text are replaced by a mark. One that cannot be read is left out:
/// writing it will tell why.
pub(crate) fn read(path: &str) -> Option<File> {
    let content = fs::read(path).ok()?;
    Some(File {
        path: path.into(),
        content: String::from_utf8_lossy(&content).into(),
        mode: fs::metadata(path).ok()?.permissions().mode() & PERMISSION_BITS,
    })
}

/// Writes a file, its folder too if there is none.
pub fn write(file: &File) -> Result<(), Refusal> {
    let path = Path::new(&*file.path);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
    let draft = draft_of(path);
    let written = write_draft(&draft, file).and_then(|()| fs::rename(&draft, path));
    if let Err(error) = written {
        let _ = fs::remove_file(&draft); // the first error is the one to tell
        return Err(error.into());
    }
    // The rename itself is on disk only when the folder is.
    Ok(fs::File::open(folder)?.sync_all()?)
}

/// Removes a file.
pub(crate) fn remove(file: &File) -> Result<(), Refusal> {
    match fs::remove_file(&*file.path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Beside the file, since a rename cannot leave its file system; hidden, since readers may list the folder.
fn draft_of(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}", std::process::id()))
}

fn write_draft(draft: &Path, file: &File) -> std::io::Result<()> {
    let mut out = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(draft)?;
    out.write_all(file.content.as_bytes())?;
    // Not by the open: the umask would take bits away.
    out.set_permissions(Permissions::from_mode(file.mode))?;
    out.sync_all()
}
