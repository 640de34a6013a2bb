//! inotify, for whoever has to know when files of others change: [`Inotify`] tells of folders what was touched in them,
//! [`FileWatch`] of one file whether it is worth reading again.
//!
//! Neither says what happened: whoever is told reads again. Nothing here blocks but [`FileWatch::wait`]; an async
//! runtime waits for the descriptor.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{self, CreateFlags, Event, ReadFlags, Reader, WatchFlags};
use rustix::io::{Errno, retry_on_intr};

use super::folder_of;

/// A queue of the kernel's notices about folders.
#[derive(Debug)]
pub struct Inotify(OwnedFd);

/// What happened in, or to, one watched inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice<'a> {
    /// The watch descriptor that [`Inotify::watch`] gave; -1 if notices were lost.
    pub watch: i32,
    /// The file that was touched; empty if it was the watched inode itself.
    pub name: &'a [u8],
    /// Whether the watch is over: what was watched is deleted, moved or unmounted.
    pub is_gone: bool,
}

impl Notice<'_> {
    /// Whether the kernel dropped notices: anything may have happened.
    pub fn is_overflow(&self) -> bool {
        self.watch == -1
    }

    fn of<'a>(event: &'a Event<'_>) -> Notice<'a> {
        let gone = ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT | ReadFlags::IGNORED;
        Notice {
            watch: event.wd(),
            name: event.file_name().map(|name| name.to_bytes()).unwrap_or_default(),
            is_gone: event.events().intersects(gone),
        }
    }
}

impl Inotify {
    /// An empty queue.
    pub fn new() -> io::Result<Self> {
        Ok(Self(inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?))
    }

    /// Watches a folder, too, and gives its watch descriptor. Twice is as good as once.
    pub fn watch(&self, folder: &Path) -> io::Result<i32> {
        let inside = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::MOVED_FROM | WatchFlags::DELETE;
        Ok(inotify::add_watch(&self.0, folder, TOUCHED | inside | WatchFlags::ONLYDIR)?)
    }

    /// Gives all notices that are there; `WouldBlock` if there is none, which is how an async runtime learns of it.
    pub fn read(&self, mut note: impl FnMut(Notice<'_>)) -> io::Result<()> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.0, &mut buffer);
        let mut any = false;
        loop {
            match reader.next() {
                Ok(event) => note(Notice::of(&event)),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) if any => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
            any = true;
        }
    }
}

/// What is told of every inode. Not `MODIFY`: a file that is being written is read when the writer closes it.
const TOUCHED: WatchFlags = WatchFlags::CLOSE_WRITE
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF);

impl AsFd for Inotify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Inotify {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A watch over one file, whether it is there or not, and whatever stands in its place later.
///
/// The folder is watched, for files are replaced by renames; the file as well, for one that is mounted by itself changes
/// where its folder does not show it. Kubernetes changes a ConfigMap by swapping a link whose name begins with two dots.
/// Where the folder is missing, the nearest one above it is watched until the next part of the way comes.
#[derive(Debug)]
pub struct FileWatch {
    events: Inotify,
    file: PathBuf,
    /// The folder, or the nearest one above it, and the part of the way that is waited for there.
    folder: (i32, OsString),
    inode: Option<i32>,
}

impl FileWatch {
    /// Begins to watch; what happened before is for the caller to see.
    pub fn new(file: &Path) -> io::Result<Self> {
        let events = Inotify::new()?;
        let mut watch = Self { events, file: file.to_owned(), folder: (-1, OsString::new()), inode: None };
        watch.aim()?;
        Ok(watch)
    }

    /// Takes all notices that are there, and says whether the file may have changed; `WouldBlock` if there is none.
    pub fn read(&mut self) -> io::Result<bool> {
        let mut is_touched = false;
        let (folder, next) = (self.folder.0, self.folder.1.as_bytes());
        let inode = self.inode;
        self.events.read(|notice| {
            let is_ours = notice.name.is_empty() || notice.name == next || notice.name.starts_with(b"..");
            let is_here = notice.watch == folder && is_ours;
            is_touched |= is_here || Some(notice.watch) == inode || notice.is_overflow();
        })?;
        if is_touched {
            self.aim()?;
        }
        Ok(is_touched)
    }

    /// Waits until the file may have changed.
    pub fn wait(&mut self) -> io::Result<()> {
        loop {
            retry_on_intr(|| poll(&mut [PollFd::new(&self.events, PollFlags::IN)], None))?;
            match self.read() {
                Ok(true) => return Ok(()),
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
    }

    /// Watches what stands there now. A new file of the same name is another inode to the kernel.
    fn aim(&mut self) -> io::Result<()> {
        let folder = self.nearest_folder()?;
        self.forget(self.folder.0, folder.0);
        self.folder = folder;
        let inode = inotify::add_watch(&self.events, &self.file, TOUCHED).ok();
        self.forget(self.inode.unwrap_or(-1), inode.unwrap_or(-1));
        self.inode = inode;
        Ok(())
    }

    fn nearest_folder(&self) -> io::Result<(i32, OsString)> {
        let way: Vec<_> =
            self.file.ancestors().filter_map(|part| Some((folder_of(part), part.file_name()?))).collect();
        let mut below: Option<&Path> = None;
        for (folder, name) in &way {
            match self.events.watch(folder) {
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
                // It may have come while the one above it was not watched yet.
                Ok(_) if below.is_some_and(Path::is_dir) => return self.nearest_folder(),
                watched => return Ok((watched?, name.to_os_string())),
            }
            below = Some(folder);
        }
        Err(ErrorKind::NotFound.into())
    }

    /// Ends a watch that is replaced; if its inode is gone, the kernel has ended it before.
    fn forget(&self, old: i32, new: i32) {
        if old != -1 && old != new {
            let _ = inotify::remove_watch(&self.events, old);
        }
    }
}

impl AsRawFd for FileWatch {
    fn as_raw_fd(&self) -> RawFd {
        self.events.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    /// Whether anything was told that is worth reading the file again; inotify queues before the call returns.
    fn rings(watch: &mut FileWatch) -> bool {
        match watch.read() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            read => read.unwrap(),
        }
    }

    fn stage() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("flannel/subnet.env");
        fs::create_dir(folder_of(&file)).unwrap();
        (folder, file)
    }

    #[test]
    fn a_file_that_comes_changes_is_replaced_or_goes_rings_and_one_beside_it_does_not() {
        let (_folder, file) = stage();
        let mut watch = FileWatch::new(&file).unwrap();
        assert!(!rings(&mut watch));
        for beside in ["state.json", ".subnet.env.17", "subnet.env~", ".subnet.env.swp"] {
            fs::write(file.with_file_name(beside), "x").unwrap();
            fs::rename(file.with_file_name(beside), file.with_file_name("other")).unwrap();
        }
        assert!(!rings(&mut watch), "beside it");
        for round in ["made", "written", "written again"] {
            fs::write(&file, round).unwrap();
            assert!(rings(&mut watch) && !rings(&mut watch), "{round}");
        }
        for round in ["replaced", "replaced again"] {
            fs::write(file.with_file_name("new"), round).unwrap();
            assert!(!rings(&mut watch), "{round}");
            fs::rename(file.with_file_name("new"), &file).unwrap();
            assert!(rings(&mut watch) && !rings(&mut watch), "{round}");
        }
        fs::rename(&file, file.with_file_name("away")).unwrap();
        assert!(rings(&mut watch), "moved away");
        fs::write(file.with_file_name("away"), "x").unwrap();
        assert!(!rings(&mut watch), "what was moved away is another one");
    }

    #[test]
    fn a_file_that_changes_where_its_folder_does_not_show_it_rings() {
        let (folder, file) = stage();
        let (elsewhere, link) = (folder.path().join("elsewhere"), &file);
        fs::write(&elsewhere, "x").unwrap();
        symlink(&elsewhere, link).unwrap();
        let mut watch = FileWatch::new(link).unwrap();
        fs::write(&elsewhere, "y").unwrap();
        assert!(rings(&mut watch));
    }

    #[test]
    fn a_folder_that_is_removed_and_made_again_is_followed_from_the_nearest_one_that_is_left() {
        let (folder, file) = stage();
        let mut watch = FileWatch::new(&file).unwrap();
        for round in 0..3 {
            fs::write(&file, "x").unwrap();
            assert!(rings(&mut watch), "{round}");
            fs::remove_dir_all(folder_of(&file)).unwrap();
            assert!(rings(&mut watch), "{round}: removed");
            fs::write(folder.path().join("something"), "x").unwrap();
            assert!(!rings(&mut watch), "{round}: another one beside the folder");
            fs::create_dir(folder_of(&file)).unwrap();
            assert!(rings(&mut watch), "{round}: made again");
        }
        let deep = folder.path().join("a/b/c/file");
        let mut watch = FileWatch::new(&deep).unwrap();
        for part in ["a", "a/b", "a/b/c"] {
            fs::create_dir(folder.path().join(part)).unwrap();
            assert!(rings(&mut watch), "{part}");
        }
        fs::write(&deep, "x").unwrap();
        assert!(rings(&mut watch));
        fs::rename(folder.path().join("a"), folder.path().join("z")).unwrap();
        fs::write(folder.path().join("z/b/c/file"), "y").unwrap();
        assert!(
            rings(&mut watch),
            "it was moved away with its folders, which no notice tells before it is touched"
        );
    }

    /// Mounts a ConfigMap as the kubelet does: `..data` leads to a folder with a time in its name.
    fn swap(volume: &Path, version: &str) {
        fs::create_dir(volume.join(version)).unwrap();
        fs::write(volume.join(version).join("net-conf.json"), version).unwrap();
        symlink(version, volume.join("..data_tmp")).unwrap();
        fs::rename(volume.join("..data_tmp"), volume.join("..data")).unwrap();
    }

    #[test]
    fn a_config_map_that_changes_by_the_swap_of_a_link_rings() {
        let volume = tempfile::tempdir().unwrap();
        let file = volume.path().join("net-conf.json");
        swap(volume.path(), "..2026_1");
        symlink("..data/net-conf.json", &file).unwrap();
        let mut watch = FileWatch::new(&file).unwrap();
        for version in ["..2026_2", "..2026_3"] {
            swap(volume.path(), version);
            assert!(rings(&mut watch), "{version}");
            assert_eq!(fs::read_to_string(&file).unwrap(), version);
        }
        // In place, behind the links: the newest inode is watched, not the first.
        fs::write(volume.path().join("..2026_3/net-conf.json"), "x").unwrap();
        assert!(rings(&mut watch));
    }

    #[test]
    fn whoever_waits_is_woken_by_the_file_and_not_by_what_is_beside_it() {
        let (_folder, file) = stage();
        let mut watch = FileWatch::new(&file).unwrap();
        let (woken, is_woken) = std::sync::mpsc::channel();
        std::thread::spawn(move || woken.send(watch.wait().is_ok()));
        fs::write(file.with_file_name("state.json"), "x").unwrap();
        fs::write(&file, "x").unwrap();
        assert_eq!(is_woken.recv_timeout(std::time::Duration::from_secs(10)), Ok(true));
    }

    #[test]
    fn of_folders_each_touched_name_is_told_with_its_watch_and_so_is_their_end() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).unwrap();
        let events = Inotify::new().unwrap();
        let [outer, inside] = [folder.path(), &inner].map(|path| events.watch(path).unwrap());
        assert_eq!(events.watch(&inner).unwrap(), inside, "twice is as good as once");
        assert_eq!(events.watch(&folder.path().join("none")).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(events.read(|_| ()).unwrap_err().kind(), ErrorKind::WouldBlock);
        fs::write(inner.join("a"), "x").unwrap();
        fs::remove_file(inner.join("a")).unwrap();
        fs::remove_dir(&inner).unwrap();
        let mut told = Vec::new();
        events.read(|notice| told.push((notice.watch, notice.name.to_vec(), notice.is_gone))).unwrap();
        told.dedup();
        let expected = [(inside, "a", false), (inside, "", true), (outer, "inner", false)];
        assert_eq!(told, expected.map(|(watch, name, is_gone)| (watch, name.as_bytes().to_vec(), is_gone)));
    }
}
