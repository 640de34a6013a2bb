//! Reads and replaces files that others may touch: whatever stands in their place, nobody waits for it.
//!
//! A pipe where a file is meant would hang its reader, a device would fill its memory, and a file that is written in
//! place is seen half. Every program here reads and writes by these few functions, so they know nothing of flannel.
//! [`watch`] tells when a file of others is worth reading again.

pub mod watch;

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, ErrorKind};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, open, stat};

/// The largest file that a person may have written: nothing that Kubernetes keeps in a ConfigMap is larger.
pub const MOST_BY_HAND: usize = 1 << 20;
/// The largest file that a program of ours may have written: fifty times that of five thousand nodes.
pub const MOST_BY_PROGRAM: usize = 256 << 20;

/// The content of a regular file of at most so many bytes; links are followed, since Kubernetes mounts files as links.
pub fn read(path: impl AsRef<Path>, most: usize) -> io::Result<Vec<u8>> {
    let path = path.as_ref();
    // Before it is opened, for a device may do something then; and after, for it may be another one by then.
    regular(stat(path)?)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::empty())?;
    regular(fstat(&file)?)?;
    let (mut content, mut piece) = (Vec::new(), [0; 16 * 1024]);
    while let length @ 1.. = rustix::io::read(&file, &mut piece)? {
        content.extend_from_slice(piece.get(..length).unwrap_or_default());
        if content.len() > most {
            return Err(io::Error::new(ErrorKind::FileTooLarge, format!("it is larger than {most} bytes")));
        }
    }
    Ok(content)
}

/// The same as text.
pub fn read_text(path: impl AsRef<Path>, most: usize) -> io::Result<String> {
    String::from_utf8(read(path, most)?)
        .map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not UTF-8"))
}

fn regular(found: Stat) -> io::Result<()> {
    let what = match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => return Ok(()),
        FileType::Directory => "it is a directory, not a regular file",
        FileType::Fifo => "it is a pipe, not a regular file",
        FileType::Socket => "it is a socket, not a regular file",
        _ => "it is a device, not a regular file",
    };
    Err(io::Error::new(ErrorKind::InvalidInput, what))
}

/// What a file that is replaced has to survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survives {
    /// The end of whoever wrote it.
    Crash,
    /// That, and the power being cut at any moment.
    PowerCut,
}

/// Replaces a file, or makes it: readers see the old content or the new one, never a part. Its folder must be there.
pub fn replace(
    path: &Path,
    mode: u32,
    survives: Survives,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let draft = draft_of(path);
    let written = write_draft(&draft, mode, survives, write).and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        let _ = fs::remove_file(&draft); // the first error is the one to tell
    } else if survives == Survives::PowerCut {
        // The rename itself is on disk only when the folder is.
        File::open(folder_of(path))?.sync_all()?;
    }
    written
}

/// The folder of a file.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Beside the file, since a rename cannot leave its file system; hidden, since readers may list the folder.
fn draft_of(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}", std::process::id()))
}

fn write_draft(
    draft: &Path,
    mode: u32,
    survives: Survives,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    // Made, never opened: what stands there is left of a crash, or somebody's pipe.
    match fs::remove_file(draft) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft)?;
    // Not by the open: the umask would take bits away.
    file.set_permissions(Permissions::from_mode(mode))?;
    let mut out = BufWriter::new(file);
    write(&mut out)?;
    let file = out.into_inner()?;
    if survives == Survives::PowerCut { file.sync_all() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType as Kind, mknodat};
    use std::io::Write;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    fn words(path: &Path) -> String {
        read(path, 8).unwrap_err().to_string()
    }

    #[test]
    fn what_is_no_regular_file_is_named_and_not_waited_for_behind_a_link_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        mknodat(CWD, path("pipe"), Kind::Fifo, Mode::RUSR, 0).unwrap();
        let _socket = UnixListener::bind(path("socket")).unwrap();
        for (target, what) in [
            (path("pipe"), "a pipe"),
            (path("socket"), "a socket"),
            (folder.path().to_owned(), "a directory"),
            ("/dev/zero".into(), "a device"),
        ] {
            let link = path(&what.replace(' ', "-"));
            symlink(&target, &link).unwrap();
            assert_eq!(
                [words(&target), words(&link)],
                [(); 2].map(|()| format!("it is {what}, not a regular file"))
            );
        }
        symlink(path("nowhere"), path("lost")).unwrap();
        assert_eq!(read(path("lost"), 8).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_file_is_read_up_to_its_limit_and_not_beyond() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "12345678").unwrap();
        assert_eq!(read_text(&path, 8).unwrap(), "12345678");
        fs::write(&path, "123456789").unwrap();
        assert_eq!(words(&path), "it is larger than 8 bytes");
        // Without a byte on disk, but larger than memory.
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(words(&path), "it is larger than 8 bytes");
        fs::write(&path, b"\xff").unwrap();
        assert_eq!(read_text(&path, 8).unwrap_err().to_string(), "it is not UTF-8");
    }

    #[test]
    fn a_file_is_replaced_whatever_stood_there_or_in_the_place_of_its_draft() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for survives in [Survives::Crash, Survives::PowerCut] {
            mknodat(CWD, &path, Kind::Fifo, Mode::RUSR, 0).unwrap();
            mknodat(CWD, draft_of(&path), Kind::Fifo, Mode::RUSR, 0).unwrap();
            replace(&path, 0o640, survives, |out| out.write_all(b"new")).unwrap();
            assert_eq!(read(&path, 8).unwrap(), b"new");
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o640);
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn what_cannot_be_replaced_leaves_no_draft_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("folder");
        fs::create_dir(&path).unwrap();
        assert!(replace(&path, 0o640, Survives::Crash, |out| out.write_all(b"new")).is_err());
        let broken = |_: &mut BufWriter<File>| Err(io::Error::other("no content"));
        assert!(replace(&path.join("file"), 0o640, Survives::Crash, broken).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_eq!(fs::read_dir(path).unwrap().count(), 0);
    }
}
