//! A container's network namespace by its path: opens it, tells whether it is gone, and whether it is ours.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use flannel_kernel::netns::is_another_kind;
use rustix::io::Errno;

use crate::error::{CniError, code};

/// The file system on which namespaces lie, whatever path leads to them; what else /proc holds are none.
const NSFS: u64 = 0x6e73_6673;

/// What says that there is nothing at a path, and for one that is too long or leads through a file, that nothing can
/// be; a process that ended says the second.
const ABSENT: [Errno; 4] = [Errno::NOENT, Errno::SRCH, Errno::NAMETOOLONG, Errno::NOTDIR];

/// Our own; that of the thread, since a thread may be in another than its process.
const OURS: &str = "/proc/thread-self/ns/net";

/// Opens the namespace, which must be there: for ADD and CHECK.
pub fn open(path: &Path) -> Result<File, CniError> {
    open_netns(path).map_err(|fault| fault.error(path))
}

/// Opens the namespace, if it is not gone and the runtime knows it: for DEL.
///
/// A regular file is what a namespace leaves behind when it is unmounted and not removed.
pub fn find(path: Option<&Path>) -> Result<Option<File>, CniError> {
    let Some(path) = path else { return Ok(None) };
    match open_netns(path) {
        Ok(file) => Ok(Some(file)),
        Err(Fault::Stat(errno)) if ABSENT.contains(&errno) => Ok(None),
        Err(Fault::Magic(_)) if fs::metadata(path).is_ok_and(|found| found.is_file()) => Ok(None),
        Err(fault) => Err(fault.error(path)),
    }
}

/// Refuses a container whose namespace is our own: what is done to it would be done to the host.
pub fn refuse_ours(path: &Path) -> Result<(), CniError> {
    if is_ours(path)? {
        let text = "plugin's netns and netns from CNI_NETNS should not be the same";
        return Err(CniError::new(code::INVALID_NETNS, text));
    }
    Ok(())
}

/// Whether a path stands for the namespace of this thread; one that cannot be opened does not.
pub fn is_ours(path: &Path) -> Result<bool, CniError> {
    let identity = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
    let Ok(theirs) = identity(path) else { return Ok(false) };
    let ours = identity(Path::new(OURS));
    let ours = ours.map_err(|_| CniError::new(code::INVALID_NETNS, "get plugin's netns failed"))?;
    Ok(ours == theirs)
}

enum Fault {
    Stat(Errno),
    Magic(u64),
    Kind,
}

impl Fault {
    fn error(&self, path: &Path) -> CniError {
        let why = match self {
            Self::Stat(errno) => format!("failed to Statfs {path:?}: {}", words(*errno)),
            Self::Magic(magic) => format!("unknown FS magic on {path:?}: {magic:x}"),
            Self::Kind => "it is not one of networks".into(),
        };
        CniError::internal(format!("failed to open netns {path:?}: {why}"))
    }
}

fn open_netns(path: &Path) -> Result<File, Fault> {
    let found = rustix::fs::statfs(path).map_err(Fault::Stat)?;
    // Looked at before it is opened: that may wait for ever, or do something, with a file of another kind.
    match u64::try_from(found.f_type).unwrap_or(0) {
        NSFS => {}
        other => return Err(Fault::Magic(other)),
    }
    let file = File::open(path);
    let file = file.map_err(|why| Fault::Stat(Errno::from_io_error(&why).unwrap_or(Errno::IO)))?;
    if is_another_kind(&file) { Err(Fault::Kind) } else { Ok(file) }
}

/// An error number in the words of Go, which begin in lower case.
pub(crate) fn words(errno: Errno) -> String {
    let text = errno.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(path: &Path) -> String {
        open(path).unwrap_err().to_string()
    }

    #[test]
    fn a_missing_namespace_is_an_error_to_open_and_gone_to_find() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gone");
        let expected =
            format!("failed to open netns {path:?}: failed to Statfs {path:?}: no such file or directory");
        assert_eq!(told(&path), expected);
        assert!(matches!(find(Some(&path)), Ok(None)));
        assert!(matches!(find(None), Ok(None)));
        let (long, below) = (folder.path().join("x".repeat(300)), Path::new("/proc/self/status/net"));
        assert!(matches!((find(Some(&long)), find(Some(below))), (Ok(None), Ok(None))));
        assert_eq!(refuse_ours(&path), Ok(()));
    }

    #[test]
    fn a_file_that_is_left_of_a_namespace_counts_as_gone() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(told(file.path()).contains("unknown FS magic on "));
        assert!(matches!(find(Some(file.path())), Ok(None)));
        assert_eq!(refuse_ours(file.path()), Ok(()));
        let folder = tempfile::tempdir().unwrap();
        assert!(find(Some(folder.path())).is_err(), "a folder never was a namespace");
    }

    #[test]
    fn what_is_no_network_namespace_is_named() {
        let path = Path::new("/proc/self/ns/mnt");
        let words = "failed to open netns \"/proc/self/ns/mnt\": it is not one of networks";
        assert_eq!(told(path), words);
        assert_eq!(find(Some(path)).unwrap_err().to_string(), words);
        let words = "failed to open netns \"/proc/self\": unknown FS magic on \"/proc/self\": 9fa0";
        assert_eq!(told(Path::new("/proc/self")), words);
    }

    #[test]
    fn our_own_namespace_is_refused_under_every_name() {
        for path in ["/proc/thread-self/ns/net".to_owned(), format!("/proc/{}/ns/net", std::process::id())] {
            let refusal = refuse_ours(Path::new(&path)).unwrap_err();
            let text = "plugin's netns and netns from CNI_NETNS should not be the same";
            assert_eq!((refusal.code, &*refusal.msg), (8, text));
            assert!(matches!(find(Some(Path::new(&path))), Ok(Some(_))));
            assert!(open(Path::new(&path)).is_ok());
        }
    }
}
